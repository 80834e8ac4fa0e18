// SPDX-License-Identifier: BSD-3-Clause
#include "record/libfabric/av.h"

#include <algorithm>
#include <array>
#include <span>

#include "record/libfabric/address_name.h"

namespace turnout::record::libfabric {

Av::Av(fid_av* av) : ObjectWithTable(av) {
  ops_.replace(&fi_ops_av::remove, &Av::remove);
  take();
}

int Av::remove(fid_av* av, fi_addr_t* addresses, std::size_t count, std::uint64_t flags) {
  if (Recorder* const recorder = Recorder::get(); recorder != nullptr) {
    const auto lock = recorder->guard();
    of(av).peers_.clear();  // a number may come again
  }
  return real(av).remove(av, addresses, count, flags);
}

PeerId Av::peer(Recorder& recorder, fi_addr_t address) {
  if (address == FI_ADDR_UNSPEC || address == FI_ADDR_NOTAVAIL) return kAnyPeer;
  {
    const auto lock = recorder.guard();
    if (const auto found = peers_.find(address); found != peers_.end()) return found->second;
  }
  std::array<std::byte, kLongestAddress> name;
  std::size_t length = name.size();
  if (ops_.real()->lookup(fid_, address, name.data(), &length) != 0) return kAnyPeer;
  const auto lock = recorder.guard();
  const PeerId peer =
      recorder.peer(name_of_address(std::span(name).first(std::min(length, name.size()))));
  peers_.emplace(address, peer);
  return peer;
}

}  // namespace turnout::record::libfabric
