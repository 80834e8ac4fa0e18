// SPDX-License-Identifier: BSD-3-Clause
// Objects: what is known of UCX's endpoints, data types and probed messages; and worker_name(), the
// name of a process in the recordings.
//
// A process is known by the beginning of its workers' addresses: the version and the worker's own
// number, the same in every address of a worker.
//
// One for the process, never destroyed, as the recorder. Any thread; the recorder's lock guards it,
// and the methods take it. Sizes are bytes. No errors: what is not known is any peer, or has no
// bytes. Source: ucp/api/ucp.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "record/recorder.h"
#include "record/ucx/ucp.h"

namespace turnout::record::ucx {

[[nodiscard]] std::uint64_t worker_name(const void* address) noexcept;

class Objects {
 public:
  [[nodiscard]] static Objects& get();

  void made_endpoint(Recorder& recorder, Endpoint endpoint, const void* address);
  [[nodiscard]] PeerId peer_of(Recorder& recorder, Endpoint endpoint) const;

  void made_datatype(Recorder& recorder, std::uint64_t type, const Generic& generic);
  // Of a buffer that a call is given, with its data type.
  [[nodiscard]] std::uint64_t bytes_of(Recorder& recorder, const void* buffer, std::size_t count,
                                       const RequestParam* param) const;

  // A probe has taken a message, which is received later.
  void probed(Recorder& recorder, void* message, const TagInfo& info);
  [[nodiscard]] TagInfo take_probed(Recorder& recorder, void* message);

 private:
  std::unordered_map<Endpoint, PeerId> endpoints_;
  std::unordered_map<std::uint64_t, Generic> datatypes_;
  std::unordered_map<void*, TagInfo> messages_;
};

}  // namespace turnout::record::ucx
