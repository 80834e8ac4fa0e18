// SPDX-License-Identifier: BSD-3-Clause
// Policy `turnout`: AQPS's question, which sources get a ring and which an RC queue pair, with both
// ends' view in the answer (spec/aqps.md, Beyond AQPS). A pure function beside select_aqps.
//
// What a message saves. Benchmarks tell how much earlier it arrives over a ring (d, r), and the
// latency L that a DCI switch adds. Only a program that waits saves a latency; one that does
// nothing but send or receive saves processor time. With b the busier of the two ends' shares of
// time spent on messages, b_s the sender's, and s the part of its messages to us that switched a
// DCI (b_r, the receiver's, is counted: the part of its messages that it did not wait for):
//
//   over DC-RDMA:  (1 - b) d
//   over RC-RDMA:  (1 - b) (r + s L) + b_s (post over DC - post over RC)
//
// Posting over DC costs what s says. Credits are taken off a ring's saving, c/s_ring a message.
//
// What a channel costs (docs/decisions/009-policy-turnout.md). A ring is polled, m p: m is how
// often we waited for a message, of any source, and a round of progress polls all rings, half of
// them before it finds the message, half before the program goes on. A queue pair is made beside
// the program (core/time/background.h): made in a time t it serves the part f = w / (w + t) of what
// comes after a window of length w; until then a ring over DC saves d, if anything. What a set-up
// gains is expected with the probability that the latest ones had; no more are asked for than fit
// into a window, and half of our own room is left for what others ask of us. One more may push the
// contexts of others out of the adapter, ours or the sender's: with k active ones, level e and loss
// x, every operation over RC pays x max(0, 1 - e/k), for each of two levels. That, the ring limit
// and the bytes bound their number; there is no h.
//
// Whose connection. Where the queue pairs and rings that pay do not fit, a source that sends to two
// or more of our processes gets RC-RDMA over its XRC connection to our node (PlanLine::over_node,
// docs/decisions/019-xrc.md).
//
// When the map changes. An improvement D must exceed k standard errors of itself (kConfidence = 1)
// instead of gamma. Its variance is the sum of: each cost's error times how much of it D holds
// (errors of one cost are common to all sources); the counts', n messages having an error of
// sqrt(n); and that of the latencies, of which a program waits for something between nothing and
// all: the deviation of a uniform part, 1/sqrt(12).
//
// The best map is found by adding queue pairs one by one along the best exchange with what the
// limits leave to rings over DC, and taking the best of all numbers of them: exact where rings,
// bytes and contexts do not bind; the oracle in the tests bounds what is missed elsewhere. O(n) and
// O(tau^2) beside.
//
// Any thread. Times are nanoseconds, sizes bytes.
#pragma once

#include <cstdint>
#include <span>

#include "core/selection/device_costs.h"
#include "core/selection/policy.h"

namespace turnout::selection {

struct TurnoutTerms {
  DeviceCosts costs;
  std::uint32_t ring_entries = 16;
  double busy = 0;               // the part of our messages that we did not wait for, 0 to 1
  double repaid = 1;             // share of latest set-ups that saved what they cost, 0 to 1
  std::uint32_t under_way = 0;   // queue pairs being made that `sources` do not tell of
  std::uint32_t sending_rc = 0;  // our queue pairs that no source of ours uses
};

struct TurnoutInput {
  std::span<const SourceView> sources;  // as of select_aqps, with the senders' feedback
  TurnoutTerms terms;
  Limits limits;               // max_active_rc bounds nothing that costs do not, give room
  std::uint64_t messages = 0;  // received in the window; 0: the sum of the sources' counts
  ChannelKind default_channel = ChannelKind::dc_sendrecv;  // as in Input
  double window = 0;  // length, ns; 0: so long that making a queue pair takes no time beside it
};

inline constexpr double kConfidence = 1;

// As select_aqps: refused sources and channels of other kinds stay; silent sources keep theirs in
// the room that is left; beyond a limit the map changes whatever the gain. Plan::threshold tells
// what the improvement had to exceed. Plan::lines: the sources that no map gives a ring come last,
// in the order of the input.
[[nodiscard]] Plan select_turnout(const TurnoutInput& input);

// What an RC queue pair has to save, ns.
[[nodiscard]] double rc_price(const DeviceCosts& costs);
// The share of an interval that a process spends on so many messages.
[[nodiscard]] double busy_share(const DeviceCosts& costs, std::uint64_t sent,
                                std::uint64_t switched, std::uint64_t received, double interval);
// As many DCIs as keep a processor sending when every message goes to another target, four times:
// peers have fixed places, so some are busy while others are idle. No more than half of the
// contexts that the adapter has at hand; the rest are for those who send to us. In a job of few
// processes one for each, but four: others may join. 0 `processes`: unknown.
[[nodiscard]] std::uint32_t wanted_dcis(const DeviceCosts& costs, std::uint64_t processes);
// DCIs that return credits, beside so many that send data. A credit message returns half of a ring,
// eight messages with the usual 16 entries, so an eighth would keep up with data where every credit
// goes to another target; twice that, as peers have fixed places, and 8 as far as there are 8 for
// data (docs/decisions/045-credit-initiators.md). Where each process has an initiator of its own
// for data, up to 16 processes have one for credits, too.
[[nodiscard]] std::uint64_t credit_dcis(std::uint64_t data_dcis, std::uint64_t processes);

}  // namespace turnout::selection
