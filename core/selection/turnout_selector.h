// SPDX-License-Identifier: BSD-3-Clause
// TurnoutSelector: the implementation of select_turnout, shared by turnout_policy.cpp (the value of
// a channel, the plan) and turnout_map.cpp (which sources are considered, the best map). Pure;
// lives for one selection. Times are nanoseconds, sizes bytes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/selection/channel_map.h"
#include "core/selection/costs.h"
#include "core/selection/turnout_policy.h"

namespace turnout::selection {

// What a source's share of the gain is made of; the gain is linear in the costs.
struct Share {
  double dc = 0, rc = 0;                // value of each channel in the window, without contexts
  double dc_waited = 0, rc_waited = 0;  // of that, latencies
  double dc_busy = 0, rc_busy = 0;      // of that, the receiver's processor time
};

// Loss of one operation with so many queue pairs active at an adapter.
[[nodiscard]] double context_loss(const DeviceCosts& costs, double active);

class TurnoutSelector : ChannelMaps {
 public:
  explicit TurnoutSelector(const TurnoutInput& input);
  [[nodiscard]] Plan plan() const;

 private:
  // It would refuse. A connection to our node may exist, and then it needs none.
  [[nodiscard]] static bool has_no_room(const SourceView& s) {
    return s.feedback.full && !rc_exists(s) && s.feedback.here < kLeastOfNode;
  }
  [[nodiscard]] bool needs_too_much() const;
  [[nodiscard]] double messages(std::size_t i) const {
    return static_cast<double>(sources_[i].messages);
  }
  [[nodiscard]] double busy_receiver() const { return std::clamp(input_.terms.busy, 0.0, 1.0); }
  // By its count or, of a young ring, by its use.
  [[nodiscard]] static double counted(const SourceView& s) {
    return std::max(static_cast<double>(s.messages), s.expected);
  }
  [[nodiscard]] Share share(const SourceView& s) const;
  // Of so many messages, beside so many waits for any.
  [[nodiscard]] Share share(const SourceView& s, double n, double waits) const;
  [[nodiscard]] static double worth(const Share& v, ChannelKind kind) {
    return kind == ChannelKind::rc_rdma ? v.rc : kind == ChannelKind::dc_rdma ? v.dc : 0;
  }
  [[nodiscard]] double worth(std::size_t i, ChannelKind kind) const {
    return worth(shares_[i], kind);
  }
  // What the contexts of `map`'s queue pairs cost all operations over RC.
  [[nodiscard]] double contexts(const Map& map) const;
  [[nodiscard]] double gain(const Map& map) const;
  struct Contexts {
    double active = 0;      // queue pairs
    double operations = 0;  // messages over them
  };
  [[nodiscard]] Contexts contexts_of(const Map& map) const;
  [[nodiscard]] double loss(const Contexts& c) const {
    return c.operations * context_loss(costs_, c.active);
  }
  // How many may be made now; and how many of them for pairs of processes.
  [[nodiscard]] std::uint32_t most_new_rc() const;
  [[nodiscard]] std::uint32_t most_new_pairs() const;
  struct Step {
    double rc, dc, messages;  // rc: rc_value()
    bool queue_pair;          // exists
    bool of_node;             // it would be over_node()
  };
  // The sources that may get a ring, as positions in sources_; by_dc are positions in `sources`,
  // the best for a ring over DC first.
  struct Pool {
    std::vector<std::uint32_t> sources, by_dc;
    std::vector<Step> steps;  // what is looked at again and again, side by side
  };
  // A map of the pool on the way to the best one; `value` is without our own adapter's contexts.
  struct Trial {
    Map map;
    Usage usage;
    double value = 0;
    Contexts contexts;
    std::uint32_t new_rc = 0;     // queue pairs that do not exist
    std::uint32_t new_pairs = 0;  // of them, for a pair of processes
  };
  [[nodiscard]] double total(const Trial& t) const { return t.value - loss(t.contexts); }
  void choose_sources();
  void refill(const Pool& pool, Trial* trial) const;
  [[nodiscard]] double rc_value(std::size_t i) const;
  [[nodiscard]] std::array<std::uint32_t, 4> best_steps(const Pool& pool, const Trial& trial) const;
  [[nodiscard]] std::optional<Trial> add_queue_pair(const Trial& trial, const Pool& pool,
                                                    std::uint32_t added) const;
  void keep_idle(Map* map, Usage usage) const;
  [[nodiscard]] Map best_map() const;
  [[nodiscard]] Map current_as_far_as_it_fits() const;
  [[nodiscard]] double error(const Map& from, const Map& to) const;
  [[nodiscard]] Reason reason(const SourceView& s, const Share& v, ChannelKind to,
                              const Usage& usage, double active) const;

  const TurnoutInput& input_;
  const DeviceCosts& costs_;
  // Of sources_: those a map can differ in, of tens of thousands: those with a channel of their own
  // now, and those worth a ring, no more than limits could let through.
  std::vector<Share> shares_;
  std::vector<bool> chosen_;  // in sources_, by place in the input
  double lead_ = 0;           // messages of the source with the most
  double all_messages_ = 0;
  double waits_ = 0;  // for a message, each of which polls all rings
};

}  // namespace turnout::selection
