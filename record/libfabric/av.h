// SPDX-License-Identifier: BSD-3-Clause
// Av: the record of an address vector. It says which peer an fi_addr_t is.
//
// Owned as every Object. Any thread; the recorder's lock guards the numbers that are known, and
// peer() takes it. No errors: an address that is none is any peer. Source: fi_av(3).
#pragma once

#include <rdma/fi_domain.h>

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "record/libfabric/object.h"
#include "record/recorder.h"

namespace turnout::record::libfabric {

class Av final : public ObjectWithTable<Av, fid_av> {
 public:
  explicit Av(fid_av* av);

  // kAnyPeer: it is none, or not known any more.
  [[nodiscard]] PeerId peer(Recorder& recorder, fi_addr_t address);

 private:
  static int remove(fid_av* av, fi_addr_t* addresses, std::size_t count, std::uint64_t flags);

  std::unordered_map<fi_addr_t, PeerId> peers_;  // guarded by the recorder
};

}  // namespace turnout::record::libfabric
