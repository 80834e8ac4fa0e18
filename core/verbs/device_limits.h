// SPDX-License-Identifier: BSD-3-Clause
// What the settings ask of queues, made to fit the adapter that was found: those of the kernel's
// Soft-RoCE hold 32,767 completions, a ConnectX's millions. Plain functions, any thread.
#pragma once

#include <fmt/format.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/settings.h"
#include "base/status.h"

namespace turnout {

// `initiators` queue pairs send from the start on; each queue pair has `depth` requests. What is a
// limit is lowered, with a warning if it was given: receive_buffers, max_active_rc, rc_pool. Every
// request under way and every receive has room in a completion queue then, as an overrun would end
// that queue. Errors: invalid (control_buffers, which are all posted, do not fit), unsupported.
[[nodiscard]] inline Status fit_device(const ibv_device_attr& device, const std::string& name,
                                       std::uint64_t initiators, std::uint64_t depth,
                                       Settings* settings) {
  const auto count = [](int attribute) {
    return static_cast<std::uint64_t>(std::max(attribute, 0));
  };
  const auto lower = [&](std::uint64_t* setting, std::uint64_t most, std::string_view variable,
                         std::string_view key) {
    if (*setting <= most) return;
    if (settings->is_given(key)) {
      TURNOUT_LOG(endpoint, warn, "{}={} exceeds the limit of {}; using {}", variable, *setting,
                  name, most);
    }
    *setting = most;
  };
  const std::uint64_t completions = count(device.max_cqe), receives = count(device.max_srq_wr);
  if (count(device.max_qp_wr) < depth || completions < initiators * depth) {
    return {Code::unsupported,
            fmt::format("{}: {} work requests per queue pair and {} completion queue entries; {} "
                        "and {} are required",
                        name, device.max_qp_wr, device.max_cqe, depth, initiators * depth)};
  }
  const std::uint64_t control = settings->control_buffers;
  const std::uint64_t left = completions - std::min(completions, control);
  const std::uint64_t most = std::min(receives, left);
  if (control > receives || most < std::max<std::uint64_t>(settings->credits, 2)) {
    return {Code::invalid,
            fmt::format("control_buffers={} in TURNOUT_TUNING: {} supports {} receives per shared "
                        "receive queue and {} completion queue entries; lower it",
                        control, name, receives, completions)};
  }
  lower(&settings->receive_buffers, most, "TURNOUT_RECEIVE_BUFFERS", "receive_buffers");
  const std::uint64_t places = completions / depth - initiators;
  lower(&settings->max_active_rc, places, "TURNOUT_MAX_ACTIVE_RC", "max_active_rc");
  lower(&settings->rc_pool, places, "TURNOUT_TUNING: rc_pool", "rc_pool");
  return {};
}

}  // namespace turnout
