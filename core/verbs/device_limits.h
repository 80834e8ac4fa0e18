// SPDX-License-Identifier: BSD-3-Clause
// What the settings ask of queues, made to fit the adapter that was found: those of the kernel's
// Soft-RoCE hold 32,767 completions, a ConnectX's millions. Plain functions, any thread.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>

#include "base/settings.h"
#include "base/status.h"

namespace turnout {

// `initiators` queue pairs send from the start on; each queue pair has `depth` requests. What is a
// limit is lowered, with a warning if it was given: receive_buffers, max_active_rc, rc_pool. Every
// request under way and every receive has room in a completion queue then, as an overrun would end
// that queue. Errors: invalid (control_buffers, which are all posted, do not fit), unsupported.
[[nodiscard]] Status fit_device(const ibv_device_attr& device, const std::string& name,
                                std::uint64_t initiators, std::uint64_t depth, Settings* settings);

}  // namespace turnout
