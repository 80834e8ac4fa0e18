// SPDX-License-Identifier: BSD-3-Clause
// post: hands the request of a data transfer call to its endpoint, under the domain's lock if there
// is one. For the calls of message_calls.cpp, rma.cpp and atomic.cpp; any thread.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cassert>
#include <cstdint>
#include <span>
#include <type_traits>

#include "provider/endpoint.h"
#include "provider/errors.h"

namespace turnout::provider {

// A buffer in one part.
[[nodiscard]] inline std::array<iovec, 1> part(const void* buffer, std::size_t length) noexcept {
  return {{{const_cast<void*>(buffer), length}}};
}

// A receive whose peer and report are still open.
[[nodiscard]] inline RecvRequest receive_of(std::span<const iovec> buffer, bool tagged,
                                            std::uint64_t tag, std::uint64_t ignore) noexcept {
  RecvRequest request;
  request.buffer = buffer;
  request.tagged = tagged;
  request.tag = tag;
  request.ignore = ignore;
  return request;
}

// Errors: -FI_E*, as DataPath::start. With a deferral the request waits for it: -FI_EDOMAIN,
// -FI_EINVAL.
template <class Request>
[[nodiscard, gnu::always_inline]] inline ssize_t post(fid_ep* f, Request& request, const Call& call,
                                                      const Deferral* deferral = nullptr) noexcept {
  return contain([&]() __attribute__((always_inline))->ssize_t {
    Ep& ep = Ep::of(f);
    assert(ep.enabled);
    const Guard guard(ep.domain.lock);
    if constexpr (std::is_constructible_v<DeferredWorkQueue::Operation, Request&>) {
      if (deferral != nullptr) [[unlikely]]
        return ep.domain.work.add(&ep, request, call, *deferral);
    }
    return ep.path.start(request, call);
  });
}

}  // namespace turnout::provider
