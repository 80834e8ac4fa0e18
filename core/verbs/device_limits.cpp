// SPDX-License-Identifier: BSD-3-Clause
#include "core/verbs/device_limits.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"

namespace turnout {
namespace {

std::uint64_t count(int attribute) noexcept {
  return static_cast<std::uint64_t>(std::max(attribute, 0));
}

void lower(std::uint64_t* setting, std::uint64_t most, std::string_view variable, bool given,
           const std::string& name) {
  if (*setting <= most) return;
  if (given) {
    TURNOUT_LOG(endpoint, warn, "{}={} exceeds the limit of {}; using {}", variable, *setting, name,
                most);
  }
  *setting = most;
}

}  // namespace

Status fit_device(const ibv_device_attr& device, const std::string& name, std::uint64_t initiators,
                  std::uint64_t depth, Settings* settings) {
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
  lower(&settings->receive_buffers, most, "TURNOUT_RECEIVE_BUFFERS",
        settings->is_given("receive_buffers"), name);
  const std::uint64_t places = completions / depth - initiators;
  lower(&settings->max_active_rc, places, "TURNOUT_MAX_ACTIVE_RC",
        settings->is_given("max_active_rc"), name);
  lower(&settings->rc_pool, places, "TURNOUT_TUNING: rc_pool", settings->is_given("rc_pool"), name);
  return {};
}

}  // namespace turnout
