// SPDX-License-Identifier: BSD-3-Clause
// The windows of AQPS 3.4: which stretch of the past says what is best now (T1-T4).
//
// Every u, with t the end of the interval just counted, the best map is found for two windows and
// compared with the current map: the extended one [beta, t), which holds if the job goes on as it
// did, and the shrunk one, the last half of the current window, which holds if it changed. The
// better map is taken if its improvement per message received in the window exceeds gamma.
//
// Readings, where the paper leaves room:
// - T1: the first window is the first interval in which a message came. Its best map is taken
//   whatever gamma says, if it gains anything.
// - The window chosen becomes the current one. When none is, beta stays and the window goes on
//   growing.
// - Set-up is charged once and in full to each window: it predicts one more of its own length, so a
//   short one has to repay the set-up with few messages. Established channels are charged nothing.
//   All messages of the window divide, those of sources not listed too.
// - A border lies where the statistics have one (statistics.h), and what was answered is reported:
//   counts and messages are of the same stretch.
// - If the current map is beyond a limit, the better of the two maps is taken whatever gamma says.
//
// Pure: no clock, no device; the statistics are read only. Any thread while nobody changes them.
// Times are nanoseconds. The owner, the endpoint, keeps WindowState between calls and then calls
// Statistics::keep_border(state.current->begin).
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "core/selection/policy.h"
#include "core/selection/statistics.h"
#include "core/selection/turnout_policy.h"

namespace turnout::selection {

struct WindowState {
  std::optional<TimeWindow> current;  // [beta, epsilon); none before the first message
};

enum class WindowChoice : std::uint8_t { none, first, extended, shrunk, recent };
[[nodiscard]] std::string_view name(WindowChoice choice) noexcept;

struct WindowInput {
  std::span<const SourceView> sources;  // their `messages` are not read
  CostModel costs;
  Limits limits;
  double gain_threshold = 25;                              // gamma, ns per message
  ChannelKind default_channel = ChannelKind::dc_sendrecv;  // as in Input
  // Set: select_turnout decides, by these and not by costs and gain_threshold; how busy we are, the
  // window says.
  const TurnoutTerms* turnout = nullptr;
  // A source's account is full (channel_selector.h): what came lately may pay for better channels.
  // What those that exist are worth takes a longer look, so they stay.
  bool at_message = false;
};

struct WindowGain {
  TimeWindow window;           // as answered by the statistics
  std::uint64_t messages = 0;  // received in it, from all sources
  double gain_current = 0;     // ns, b_cur
  double gain_best = 0;        // ns, b_ext,ext or b_shr,shr
  double per_message = 0;      // ns, g_ext or g_shr
};

struct WindowSelection {
  Plan plan;          // of the window chosen; of the better one, without changes, if none was
  TimeWindow window;  // that the plan's counts are of
  std::uint64_t messages = 0;  // received in it, from all sources
  double busy = 0;             // TurnoutTerms::busy of it
  WindowChoice chosen = WindowChoice::none;
  WindowState next;
  WindowGain extended, shrunk;
};

// Without any message heard so far: no changes, every source as it is. O(sources) twice.
[[nodiscard]] WindowSelection select_in_windows(const Statistics& statistics,
                                                const WindowState& state, const WindowInput& input);

}  // namespace turnout::selection
