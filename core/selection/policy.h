// SPDX-License-Identifier: BSD-3-Clause
// Selection: (statistics, costs, budget, current map) -> plan. A pure function: no clock, no
// device, no global state, any thread (design.md, seam 3). Acting on a plan is core/connection's
// business.
//
// Times are nanoseconds (double: savings are fractions of one), memory bytes.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "core/types/channel_kind.h"

namespace turnout::selection {

// The gain of what cannot be.
inline constexpr double kNever = -std::numeric_limits<double>::infinity();

// What a source told of its side; the policy `turnout` uses it.
struct SenderFeedback {
  float busy = 0;               // share of its time spent on messages
  float switched = 0;           // share of its messages to us that caused a DCI switch
  std::uint32_t active_rc = 0;  // queue pairs its adapter holds for it
  std::uint16_t here = 0;       // processes of our node that it sends to, if it has XRC
  bool full = false;            // its budget has no room for a queue pair more
};

// What is known of one source in the window. Kinds that are not named are the service that every
// pair starts on: DC-sendrecv, or UD-sendrecv where the device has no DC (Input::default_channel).
struct SourceView {
  std::uint32_t peer = 0;
  ChannelKind current = ChannelKind::dc_sendrecv;  // serving source -> here now
  std::uint64_t messages = 0;                      // received in the window
  bool rc_exists = false;  // an RC queue pair to this peer exists: RC costs no set-up, no bytes
  bool refused = false;    // this peer refused a channel lately: leave it as it is
  bool over_node = false;  // RC is over its XRC connection to our node
  bool stays = false;      // its channel is not looked at now
  // Its ring's use. A window that began before the ring says too little about it.
  std::int64_t since = 0;  // on the statistics' clock
  double rate = 0;         // messages a ns, lately
  double rate_first = 0;   // of the busiest source, meanwhile: n_1
  double expected = 0;     // messages in such a window by these, and those of the busiest source
  double expected_first = 0;
  SenderFeedback feedback = {};
};

// AQPS Table 2; savings are positive here (spec/aqps.md).
struct CostModel {
  double saving_dc_rdma = 100;      // d
  double saving_rc_rdma = 150;      // r
  double poll = 10;                 // p
  double credit = 300;              // c
  double setup_dc = 10'000;         // delta
  double setup_rc = 10'000;         // rho
  std::uint32_t ring_entries = 16;  // s
};

struct Limits {
  std::uint32_t max_active_rc = 26;   // h
  std::uint32_t max_channels = 256;   // tau
  bool dc_rdma_available = false;     // without it l == m
  std::uint64_t bytes_available = 0;  // left in the budget for new rings and queue pairs, plus what
                                      // the rings of the current map would give back
  std::uint64_t bytes_per_ring = 0;
  std::uint64_t bytes_per_rc = 0;
  // The policy `turnout`: bytes of our end where RC goes over the source's XRC connection to our
  // node; 0: there is no XRC.
  std::uint64_t bytes_per_target = 0;
};

enum class Reason : std::uint8_t {
  gain,              // busiest sources: predicted gain pays for the channel
  too_few_messages,  // does not pay its polls, credits and set-up
  limit_active_rc,   // h reached
  limit_channels,    // tau reached
  limit_budget,      // no bytes left
  budget_of_source,  // SenderFeedback::full
  below_threshold,   // the better map gains less than gamma per message
  refused_by_peer,   // see SourceView::refused
  first_message,     // rc-rdma-od
  forced,            // a test or a static policy
  idle,              // silent in the window, its channel is wanted elsewhere
  kept,              // silent in the window, its channel stays while nobody wants its place
  sender_switches,   // RC, mostly for what its sender's DCIs lose between targets
  contexts,          // RC would pay but for the adapters' contexts
  too_busy,          // latency would be saved, but nobody waits for it
  many_messages,     // ardma-srq: more than its threshold
  not_certain,       // the better map's gain could be an error of measurement
  predicted,         // the last run counted many messages from it (prediction.h)
};
[[nodiscard]] std::string_view explain(Reason reason) noexcept;  // words for people

struct PlanLine {
  std::uint32_t peer = 0;
  ChannelKind from = ChannelKind::dc_sendrecv;
  ChannelKind to = ChannelKind::dc_sendrecv;        // == from: stays, and `reason` says why
  ChannelKind fallback = ChannelKind::dc_sendrecv;  // pays too, if the peer cannot give `to`
  Reason reason = Reason::gain;
  bool over_node = false;       // RC-RDMA: over the source's XRC connection to our node
  std::uint64_t messages = 0;   // in the window
  double gain_per_message = 0;  // predicted, ns, against DC-sendrecv, this source's own share
};

struct Plan {
  std::vector<PlanLine> lines;  // one per source of the input, busiest first; downgrades first
                                // among the changes so that their bytes are free for the upgrades
  double gain_current = 0;      // ns in the window under the current map
  double gain_best = 0;         // ns in the window under the best map found, set-up charged for
                                // new channels: the plan's if `changes`, else gamma held it back
  double threshold = 0;         // ns that the gain had to exceed, where the policy knows it
  bool changes = false;
  bool forced = false;  // the current map is beyond a limit: it changes whatever the gain
};

struct Input {
  std::span<const SourceView> sources;  // any order; only sources that were heard of
  CostModel costs;
  Limits limits;
  double gain_threshold = 25;  // gamma, ns per message
  std::uint64_t messages = 0;  // received in the window, from sources not listed too, by which
                               // gains are divided; 0: the sum of the sources' counts
  ChannelKind default_channel =
      ChannelKind::dc_sendrecv;  // the default transport, for sources without a ring
};

// Policy `aqps`: the gain of FIND_MAP (AQPS 3.2, Fig. 6; the reading of spec/aqps.md) with set-up
// charged only for channels that do not exist, under all limits, and gamma. O(n) beside sorting
// counts by digits, and O(tau + h) steps of a fixed cost.
//
// - Exact for every mix of RC-RDMA and DC-RDMA (best_map.h): over the sources that spoke, to one
//   part in 10^12 of the largest term. n_1, the count whose messages wait for the polls of all
//   rings, is the largest of all sources given, as in the paper.
// - A change between DC-RDMA and RC-RDMA keeps the ring: to RC only a queue pair that does not
//   exist is paid for (set-up and bytes), to DC nothing. A queue pair goes back to the pool, not to
//   the budget.
// - Refused peers stay as they are (their rings count); a limit that shrank is the one exception.
// - Silent sources keep their channels in the room that the others leave.
// - A current map beyond the limits is changed whatever gamma says.
// - The current map stays when another is only as good.
[[nodiscard]] Plan select_aqps(const Input& input);

}  // namespace turnout::selection
