// SPDX-License-Identifier: BSD-3-Clause
#include "core/report/waits.h"

namespace turnout {

std::string_view explain(WaitFor what) noexcept {
  switch (what) {
    case WaitFor::message:
      return "no matching message has arrived";
    case WaitFor::receive:
      return "no matching receive is posted";
    case WaitFor::match:
      return "the peer has not received it";
    case WaitFor::delivery:
      return "the peer has not acknowledged it";
    case WaitFor::credits:
      return "no receive credit of the peer is left";
    case WaitFor::ring:
      return "the peer's ring is full";
    case WaitFor::wire_up:
      return "the peer has not answered the first message";
    case WaitFor::channel:
      return "the channel to the peer is being changed";
    case WaitFor::order:
      return "earlier messages to the same peer are pending";
    case WaitFor::rtr:
      return "an RTR may follow";
    case WaitFor::resources:
      return "no send buffer or queue entry is free";
    case WaitFor::data:
      return "data of the peer is missing";
    case WaitFor::adapter:
      return "the adapter has not completed it";
    case WaitFor::memory:
      return "TURNOUT_MEMORY_BUDGET has no room for it";
    case WaitFor::answer:
      return "the peer has not carried it out";
  }
  return "unknown";
}

}  // namespace turnout
