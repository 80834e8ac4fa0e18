// SPDX-License-Identifier: BSD-3-Clause
// Shared by the data transfer calls (msg, tagged, rma, atomic): posting under the lock.
#pragma once

#include "provider/endpoint.h"

namespace turnout::provider {

[[nodiscard]] inline iovec part(const void* buffer, std::size_t length) noexcept {
  return {const_cast<void*>(buffer), length};
}

[[nodiscard]] inline ssize_t post(fid_ep* f, const Outgoing& out) noexcept {
  return contain([&] {
    Ep& ep = Ep::of(f);
    const Guard guard(ep.domain.lock);
    return ep.send(out);
  });
}

[[nodiscard]] inline ssize_t post(fid_ep* f, const Incoming& in) noexcept {
  return contain([&] {
    Ep& ep = Ep::of(f);
    const Guard guard(ep.domain.lock);
    return ep.receive(in);
  });
}

[[nodiscard]] inline ssize_t post(fid_ep* f, const Transfer& op) noexcept {
  return contain([&] {
    Ep& ep = Ep::of(f);
    const Guard guard(ep.domain.lock);
    return ep.transfer(op);
  });
}

[[nodiscard]] inline ssize_t post(fid_ep* f, const AtomicCall& call) noexcept {
  return contain([&] {
    Ep& ep = Ep::of(f);
    const Guard guard(ep.domain.lock);
    return ep.atomic_operation(call);
  });
}

}  // namespace turnout::provider
