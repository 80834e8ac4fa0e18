// SPDX-License-Identifier: BSD-3-Clause
// An order of a GOAL schedule's operations that some run takes: see goal.h.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <queue>
#include <unordered_map>

#include "sim/formats/goal.h"

namespace turnout::sim {
namespace {

// What the run is played with. Only the order of events counts, and any is a right one.
constexpr std::uint64_t kLatency = 1000;  // ns
constexpr std::uint64_t kBytesPerNanosecond = 10;
// Later than any sum of what a schedule may hold would be; times stay below it.
constexpr std::uint64_t kMostTime = std::uint64_t{1} << 62;

std::uint64_t later(std::uint64_t time, std::uint64_t by) {
  return std::min(kMostTime, time + by);
}

class Player {
 public:
  Player(const GoalSchedule& schedule, const std::string& file)
      : schedule_(schedule), file_(file), ranks_(schedule.ranks.size()) {
    trace_.programs.resize(schedule.ranks.size());
  }

  Result<Trace> play() {
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) prepare(rank);
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      constexpr void (Player::*kHandlers[])(std::uint64_t, std::uint32_t, std::uint32_t) = {
          &Player::start, &Player::end, &Player::arrive};  // by Event::Kind
      (this->*kHandlers[static_cast<std::size_t>(event.kind)])(event.time, event.rank, event.op);
    }
    if (Status s = check_all_ended(); !s.ok()) return s;
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      for (const std::uint32_t op : ranks_[rank].ended) wait_for(rank, op);
    }
    return std::move(trace_);
  }

 private:
  struct Event {
    enum class Kind : std::uint8_t { start, end, arrive };
    std::uint64_t time;
    std::uint64_t order;
    std::uint32_t rank;  // arrive: the sender
    std::uint32_t op;
    Kind kind;
    bool operator<(const Event& other) const {  // the queue's top is the largest
      return time != other.time ? time > other.time : order > other.order;
    }
  };
  struct Sent {
    std::uint32_t rank, op;
  };
  struct Rank {
    std::vector<std::uint32_t> missing;  // by operation: dependencies not met
    std::vector<std::uint8_t> state;     // bits: kStarted, kEnded, kWaited
    // Of each operation, those that depend on it, and those it needs the end of: ranges of
    // heirs and needs.
    std::vector<std::uint32_t> heirs_at, needs_at;
    std::vector<std::pair<std::uint32_t, bool>> heirs;  // operation, on its start
    std::vector<std::uint32_t> needs;
    std::vector<std::uint32_t> posted;  // receives without their message, in order
    std::deque<Sent> arrived;           // messages without their receive, in order
    std::vector<std::uint32_t> ended;   // sends and receives, in order
    std::uint64_t busy_until = 0;
    std::size_t started = 0;
  };
  static constexpr std::uint8_t kStarted = 1, kEnded = 2, kWaited = 4;

  const GoalOperation& operation(std::uint32_t rank, std::uint32_t op) const {
    return schedule_.ranks[rank].operations[op];
  }
  void push(std::uint64_t time, Event::Kind kind, std::uint32_t rank, std::uint32_t op) {
    events_.push({time, order_++, rank, op, kind});
  }

  void prepare(std::uint32_t index) {
    const GoalRank& from = schedule_.ranks[index];
    Rank& rank = ranks_[index];
    const std::size_t n = from.operations.size();
    rank.missing.assign(n, 0);
    rank.state.assign(n, 0);
    rank.heirs_at.assign(n + 1, 0);
    rank.needs_at.assign(n + 1, 0);
    for (const GoalDependency& d : from.dependencies) {
      ++rank.missing[d.after];
      ++rank.heirs_at[d.before + 1];
      if (!d.on_start) ++rank.needs_at[d.after + 1];
    }
    for (std::size_t i = 0; i < n; ++i) {
      rank.heirs_at[i + 1] += rank.heirs_at[i];
      rank.needs_at[i + 1] += rank.needs_at[i];
    }
    rank.heirs.resize(rank.heirs_at[n]);
    rank.needs.resize(rank.needs_at[n]);
    std::vector<std::uint32_t> heir = rank.heirs_at, need = rank.needs_at;
    for (const GoalDependency& d : from.dependencies) {
      rank.heirs[heir[d.before]++] = {d.after, d.on_start};
      if (!d.on_start) rank.needs[need[d.after]++] = d.before;
    }
    for (std::uint32_t op = 0; op < n; ++op) {
      if (rank.missing[op] == 0) push(0, Event::Kind::start, index, op);
    }
  }

  void met(std::uint64_t time, std::uint32_t rank, std::uint32_t op, bool by_start) {
    Rank& r = ranks_[rank];
    for (std::uint32_t i = r.heirs_at[op]; i < r.heirs_at[op + 1]; ++i) {
      const auto [heir, on_start] = r.heirs[i];
      if (on_start == by_start && --r.missing[heir] == 0) {
        push(time, Event::Kind::start, rank, heir);
      }
    }
  }

  void wait_for(std::uint32_t rank, std::uint32_t op) {
    std::uint8_t& state = ranks_[rank].state[op];
    if (operation(rank, op).kind == TraceEvent::Kind::compute || (state & kWaited) != 0) return;
    state |= kWaited;
    trace_.programs[rank].push_back({.request = op, .kind = TraceEvent::Kind::wait});
  }

  void start(std::uint64_t time, std::uint32_t rank, std::uint32_t op) {
    Rank& r = ranks_[rank];
    // One processor: what is started while it computes has to wait.
    if (r.busy_until > time) return push(r.busy_until, Event::Kind::start, rank, op);
    const GoalOperation& o = operation(rank, op);
    for (std::uint32_t i = r.needs_at[op]; i < r.needs_at[op + 1]; ++i) wait_for(rank, r.needs[i]);
    r.state[op] |= kStarted;
    ++r.started;
    TraceEvent event{.amount = o.amount, .kind = o.kind};
    if (o.kind != TraceEvent::Kind::compute) {
      event.request = op;
      event.peer = o.peer;
      event.tag = o.tag;
      event.any_source = o.peer == GoalOperation::kAnyRank;
      event.any_tag = o.tag == GoalOperation::kAnyTag;
    }
    trace_.programs[rank].push_back(event);
    met(time, rank, op, true);
    if (o.kind == TraceEvent::Kind::compute) {
      r.busy_until = later(time, o.amount);
      push(r.busy_until, Event::Kind::end, rank, op);
    } else if (o.kind == TraceEvent::Kind::send) {
      // Messages of one pair do not overtake one another.
      std::uint64_t& last = last_arrival_[key(rank, o.peer)];
      last = std::max(last, later(time, kLatency + o.amount / kBytesPerNanosecond));
      push(last, Event::Kind::arrive, rank, op);
      push(time, Event::Kind::end, rank, op);
    } else {  // a receive
      place_of_[key(rank, op)] = trace_.programs[rank].size() - 1;
      match_posted(time, rank, op);
    }
  }

  static std::uint64_t key(std::uint32_t rank, std::uint32_t op) {
    return std::uint64_t{rank} << 32 | op;
  }

  bool fits(std::uint32_t rank, std::uint32_t receive, const Sent& sent) const {
    const GoalOperation& r = operation(rank, receive);
    return (r.peer == GoalOperation::kAnyRank || r.peer == sent.rank) &&
           (r.tag == GoalOperation::kAnyTag || r.tag == operation(sent.rank, sent.op).tag);
  }

  void match_posted(std::uint64_t time, std::uint32_t rank, std::uint32_t op) {
    Rank& r = ranks_[rank];
    const auto found = std::find_if(r.arrived.begin(), r.arrived.end(),
                                    [&](const Sent& sent) { return fits(rank, op, sent); });
    if (found == r.arrived.end()) {
      r.posted.push_back(op);
      return;
    }
    const Sent sent = *found;
    r.arrived.erase(found);
    matched(time, rank, op, sent);
  }

  void arrive(std::uint64_t time, std::uint32_t from, std::uint32_t op) {
    const std::uint32_t rank = operation(from, op).peer;
    Rank& r = ranks_[rank];
    const Sent sent{from, op};
    const auto found = std::find_if(r.posted.begin(), r.posted.end(), [&](std::uint32_t receive) {
      return fits(rank, receive, sent);
    });
    if (found == r.posted.end()) {
      r.arrived.push_back(sent);
      return;
    }
    const std::uint32_t receive = *found;
    r.posted.erase(found);
    matched(time, rank, receive, sent);
  }

  void matched(std::uint64_t time, std::uint32_t rank, std::uint32_t op, const Sent& sent) {
    const auto place = place_of_.find(key(rank, op));
    TraceEvent& event = trace_.programs[rank][place->second];
    place_of_.erase(place);
    const GoalOperation& send = operation(sent.rank, sent.op);
    event.peer = sent.rank;
    event.tag = send.tag;
    // LogGOPSim does not compare the sizes; the receive has to have room.
    event.amount = std::max(event.amount, send.amount);
    end(time, rank, op);
  }

  void end(std::uint64_t time, std::uint32_t rank, std::uint32_t op) {
    ranks_[rank].state[op] |= kEnded;
    if (operation(rank, op).kind != TraceEvent::Kind::compute) ranks_[rank].ended.push_back(op);
    met(time, rank, op, false);
  }

  Status check_all_ended() const {
    // A receive without its send is the reason for what waits behind it.
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].posted.empty()) continue;
      const GoalOperation& op = operation(rank, ranks_[rank].posted.front());
      return wrong(rank, op,
                   "no matching send for this receive, or a dependency that never completes");
    }
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      const Rank& r = ranks_[rank];
      for (std::uint32_t op = 0; r.started != r.state.size() && op < r.state.size(); ++op) {
        if ((r.state[op] & kStarted) == 0) {
          return wrong(rank, operation(rank, op), "circular dependency");
        }
      }
      if (!r.arrived.empty()) {
        const Sent& sent = r.arrived.front();
        return wrong(sent.rank, operation(sent.rank, sent.op),
                     "no matching receive for this message");
      }
    }
    return {};
  }
  Status wrong(std::uint32_t rank, const GoalOperation& op, std::string_view what) const {
    return {Code::invalid, fmt::format("{}, line {} (rank {}): {}", file_, op.line, rank, what)};
  }

  const GoalSchedule& schedule_;
  const std::string& file_;
  std::vector<Rank> ranks_;
  std::priority_queue<Event> events_;
  std::uint64_t order_ = 0;
  std::unordered_map<std::uint64_t, std::uint64_t> last_arrival_;  // by sender and receiver
  std::unordered_map<std::uint64_t, std::size_t> place_of_;  // of receives without their message
  Trace trace_;
};

}  // namespace

Result<Trace> order_goal(const GoalSchedule& schedule, const std::string& file,
                         const TraceLimits& limits) {
  Result<Trace> trace = Player(schedule, file).play();
  if (!trace) return trace;
  trace->source = "imported from GOAL";
  if (Status s = check_trace(trace.value(), limits); !s.ok()) {
    return Status{s.code(), fmt::format("{}: {}", file, s.text())};
  }
  return trace;
}

}  // namespace turnout::sim
