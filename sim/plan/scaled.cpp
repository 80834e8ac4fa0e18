// SPDX-License-Identifier: BSD-3-Clause
#include "sim/plan/scaled.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <deque>
#include <utility>

namespace turnout::sim::plan {
namespace {

constexpr std::uint64_t kMostRepeats = 1'000'000'000;

std::uint64_t whole(double value, std::uint64_t most) {
  return static_cast<std::uint64_t>(
      std::llround(std::clamp(value, 0.0, static_cast<double>(most))));
}

class Flattener {
 public:
  Flattener(const Pattern& pattern, std::uint32_t ranks, std::uint64_t most_repeats,
            ScaledProgram* out)
      : pattern_(pattern), ranks_(ranks), most_repeats_(most_repeats), out_(out) {}

  void flatten() {
    for (const Node& node : pattern_.program) {
      const double cut = add(node, false, true);
      const double messages = std::exchange(messages_, 0);
      out_->messages += messages;
      all_ += messages * cut;
    }
    out_->played = all_ > 0 ? out_->messages / all_ : 1;
  }

 private:
  // Gives how often what is left out makes it what was to be played.
  double add(const Node& node, bool in_steps, bool outermost) {
    Instruction one;
    one.relation = node.relation;
    one.block = node.block.get();
    one.compute = std::max(node.compute.at(ranks_), 0.0);
    one.compute_spread = node.compute_spread * pattern_.imbalance;
    one.all_compute = node.all_compute;
    if (node.kind == Node::Kind::wait) {
      one.kind = Instruction::Kind::wait;
      one.all = node.all;
      for (const std::uint32_t back : node.back) one.back.push_back(reach_of(back));
      one.indexed = in_steps;
      out_->list.push_back(std::move(one));
      return 1;
    }
    if (node.all_to_all.exchange != Exchange::none) {
      add_all_to_all(node, one);
      return 1;
    }
    if (node.kind == Node::Kind::operation) {
      widths_.push_back(1);
      one.operation = node.operation;
      one.bytes = std::max(node.bytes.at(ranks_), 0.0);
      one.step_ratio = node.step_ratio;
      one.indexed = in_steps;
      one.tag = node.tag;
      one.inside = std::max(node.inside.at(ranks_), 0.0);
      if (node.operation != TraceEvent::Kind::receive) messages_ += taking_part(one);
      out_->list.push_back(std::move(one));
      return 1;
    }
    double cut = 1;
    if (node.kind == Node::Kind::loop) {
      one.kind = Instruction::Kind::loop;
      const std::uint64_t all = std::min(node.count.count_at(ranks_), kMostRepeats);
      one.count = all;
      if (outermost && most_repeats_ > 0 && all > most_repeats_) {
        one.count = most_repeats_;
        cut = static_cast<double>(all) / static_cast<double>(one.count);
      }
    } else {
      one.kind = Instruction::Kind::steps;
      one.way = node.way;
      one.first =
          static_cast<std::int32_t>(std::llround(std::clamp(node.first.at(ranks_), -1.0, 2e9)));
      const auto last =
          static_cast<std::int32_t>(std::llround(std::clamp(node.last.at(ranks_), -1.0, 2e9)));
      const std::int64_t steps = std::int64_t{one.way} * (std::int64_t{last} - one.first) + 1;
      one.count = steps > 0 ? static_cast<std::uint64_t>(steps) : 0;
      if (one.count > kAtOnce && !pattern_.as_recorded && goes_to_all_at_once(pattern_, node)) {
        one.group = kAtOnce;
      }
    }
    const std::size_t begin = out_->list.size();
    const std::uint64_t count = one.count;
    const double before = std::exchange(messages_, 0);
    out_->list.push_back(std::move(one));
    for (const Node& inner : node.body) {
      (void)add(inner, in_steps || node.kind == Node::Kind::steps, false);
    }
    Instruction end;
    end.kind = Instruction::Kind::end;
    end.other = static_cast<std::uint32_t>(begin);
    out_->list[begin].other = static_cast<std::uint32_t>(out_->list.size());
    out_->list.push_back(std::move(end));
    messages_ = before + messages_ * static_cast<double>(count);
    return cut;
  }

  // So many operations of the pattern back, in operations of a rank.
  [[nodiscard]] std::uint32_t reach_of(std::uint32_t back) const {
    std::uint64_t sum = 0;
    for (std::size_t i = 1; i <= back; ++i) {
      sum += i <= widths_.size() ? widths_[widths_.size() - i] : 1;
    }
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(sum, 0xffffffff));
  }

  void add_message(const Node& node, TraceEvent::Kind operation, Relation::Kind relation,
                   std::int32_t index, double bytes, double compute) {
    Instruction one;
    one.operation = operation;
    one.relation.kind = relation;
    one.relation.index = index;
    one.bytes = bytes;
    one.tag = node.tag;
    one.compute = compute;
    one.with_all = true;
    out_->list.push_back(std::move(one));
  }
  void add_wait(std::uint32_t for_last) {
    Instruction wait;
    wait.kind = Instruction::Kind::wait;
    for (std::uint32_t back = for_last; back > 0; --back) wait.back.push_back(back);
    out_->list.push_back(std::move(wait));
  }
  // One after the other, with indexes from first to last.
  template <class Body>
  void add_steps(std::uint32_t first, std::uint32_t last, Body&& body) {
    Instruction steps;
    steps.kind = Instruction::Kind::steps;
    steps.first = static_cast<std::int32_t>(first);
    steps.count = last - first + 1;
    const std::size_t begin = out_->list.size();
    out_->list.push_back(std::move(steps));
    body();
    for (std::size_t i = begin + 1; i < out_->list.size(); ++i) out_->list[i].indexed = true;
    Instruction end;
    end.kind = Instruction::Kind::end;
    end.other = static_cast<std::uint32_t>(begin);
    out_->list[begin].other = static_cast<std::uint32_t>(out_->list.size());
    out_->list.push_back(std::move(end));
  }

  // `before`: what comes before its first message.
  void add_all_to_all(const Node& node, const Instruction& before) {
    using Message = TraceEvent::Kind;
    using Way = Relation::Kind;
    const AllToAll what = all_to_all_at(pattern_, node, ranks_);
    const double bytes = std::max(node.bytes.at(ranks_), 0.0);
    const double inside = std::max(node.inside.at(ranks_), 0.0);
    const std::size_t begin = out_->list.size();
    std::uint64_t steps = ranks_ - 1;
    switch (what.exchange) {
      case Exchange::bruck: {
        steps = static_cast<std::uint64_t>(std::bit_width(ranks_ - 1));
        for (std::int32_t bit = 0; std::uint64_t{1} << bit < ranks_; ++bit) {
          double blocks = 0;
          for (std::uint32_t k = 1; k < ranks_; ++k) blocks += k >> bit & 1;
          const double each = inside / static_cast<double>(steps);
          add_message(node, Message::receive, Way::shift_bit_back, bit, bytes * blocks, 0);
          add_message(node, Message::send, Way::shift_bit, bit, bytes * blocks, each);
          add_wait(2);
        }
        break;
      }
      case Exchange::pairwise: {
        const bool power = std::has_single_bit(ranks_);
        add_steps(1, ranks_ - 1, [&] {
          add_message(node, Message::receive, power ? Way::exchange : Way::shift_back, 0, bytes, 0);
          add_message(node, Message::send, power ? Way::exchange : Way::shift, 0, bytes,
                      inside / (ranks_ - 1));
          add_wait(2);
        });
        break;
      }
      default: {
        const std::uint32_t group = what.at_once == 0 ? ranks_ : what.at_once;
        for (std::uint32_t first = 1, end = 0; first < ranks_; first = end) {
          end = std::min(first / group * group + group, ranks_);
          add_steps(first, end - 1,
                    [&] { add_message(node, Message::receive, Way::shift, 0, bytes, 0); });
          add_steps(first, end - 1, [&] {
            add_message(node, Message::send, Way::shift_back, 0, bytes, inside / (ranks_ - 1));
          });
          add_wait(2 * (end - first));
        }
        break;
      }
    }
    // Of steps it comes before the first; of Bruck's algorithm the first is a message.
    out_->list[begin].compute = before.compute;
    out_->list[begin].compute_spread = before.compute_spread;
    messages_ += static_cast<double>(steps) * ranks_;
    widths_.push_back(2 * steps);
  }

  // Of many ranks, some.
  [[nodiscard]] double taking_part(const Instruction& one) const {
    if (one.indexed) return ranks_;
    if (one.block != nullptr) {
      const auto in_block = std::count_if(one.block->begin(), one.block->end(),
                                          [](std::uint32_t peer) { return peer != kNoPeer; });
      return static_cast<double>(in_block) * ranks_ / static_cast<double>(one.block->size());
    }
    const std::uint32_t step = std::max(ranks_ / 1024, 1U);
    double some = 0, asked = 0;
    for (std::uint32_t rank = 0; rank < ranks_; rank += step, ++asked) {
      some += one.relation.peer(rank, ranks_) != kNoPeer ? 1 : 0;
    }
    return some / asked * ranks_;
  }

  const Pattern& pattern_;
  std::uint32_t ranks_;
  std::uint64_t most_repeats_;
  ScaledProgram* out_;
  std::vector<std::uint64_t> widths_;  // operations of a rank, by operation of the pattern so far
  double messages_ = 0, all_ = 0;
};

std::uint64_t pair_hash(std::uint32_t from, std::uint32_t to, std::uint64_t tag) {
  return SplitMix64((std::uint64_t{from} << 32 | to) ^ (tag * 0x9e3779b97f4a7c15ULL)).next();
}

// Sends and receives of all pairs balance: sums of their hashes, and of their bytes.
Status check_halves(ScaledProgram* checked) {
  const ScaledProgram& program = *checked;
  std::uint64_t pairs = 0, bytes = 0;
  for (std::uint32_t rank = 0; rank < program.ranks; ++rank) {
    Walk walk(program, rank, 0);
    for (Walk::Step step = walk.next(); step.instruction != nullptr; step = walk.next()) {
      if (step.instruction->kind != Instruction::Kind::start) continue;
      const std::uint64_t tag = step.instruction->tag;
      if (step.instruction->operation == TraceEvent::Kind::send) {
        const std::uint64_t hash = pair_hash(rank, step.peer, tag);
        pairs += hash;
        bytes += hash * step.bytes;
      } else if (step.instruction->operation == TraceEvent::Kind::receive) {
        const std::uint64_t hash = pair_hash(step.peer, rank, tag);
        pairs -= hash;
        bytes -= hash * step.bytes;
      }
    }
  }
  if (pairs == 0) {
    if (bytes != 0) {
      for (const Instruction& one : program.list) {
        checked->most_bytes = std::max(checked->most_bytes, whole(one.bytes, kMostTraceBytes));
      }
    }
    return {};
  }
  return {
      Code::invalid,
      fmt::format("at {} ranks the pattern has messages of which one side is missing: the program "
                  "does something else there; choose a number like those of the recordings (a "
                  "power of 2, a square)",
                  program.ranks)};
}

// Of numbers, one after the other.
class Hash {
 public:
  void add(std::uint64_t value) noexcept { hash_ = SplitMix64(hash_ ^ value).next(); }
  void add(double value) noexcept { add(std::bit_cast<std::uint64_t>(value)); }
  [[nodiscard]] std::string text() const { return fmt::format("{:016x}", hash_); }

 private:
  std::uint64_t hash_ = 0;
};

// All ranks are checked up to here, and these beyond.
constexpr double kMostChecked = 2e7;

}  // namespace

Result<std::shared_ptr<const ScaledProgram>> scale(std::shared_ptr<const Pattern> pattern,
                                                   std::uint32_t ranks,
                                                   std::uint64_t most_repeats) {
  if (ranks < 2) return Status{Code::invalid, fmt::format("{} ranks: at least 2", ranks)};
  auto program = std::make_shared<ScaledProgram>();
  program->group_wait.kind = Instruction::Kind::wait;
  program->group_wait.all = true;
  program->ranks = ranks;
  Flattener(*pattern, ranks, most_repeats, program.get()).flatten();
  program->end_compute = std::max(pattern->end_compute.at(ranks), 0.0);
  program->pattern = std::move(pattern);
  if (program->messages < kMostChecked) {
    if (Status s = check_halves(program.get()); !s.ok()) return s;
  }
  return std::shared_ptr<const ScaledProgram>(std::move(program));
}

std::uint32_t Walk::peer_of(const Instruction& one) const noexcept {
  const std::uint32_t n = program_->ranks;
  if (one.block != nullptr) {
    const auto size = static_cast<std::uint32_t>(one.block->size());
    const std::uint32_t in_block = (*one.block)[rank_ % size];
    const std::uint64_t peer = std::uint64_t{rank_ / size} * size + in_block;
    return in_block == kNoPeer || peer >= n ? kNoPeer : static_cast<std::uint32_t>(peer);
  }
  if (!one.indexed) return one.relation.peer(rank_, n);
  std::int32_t index = 0;
  for (const Frame& frame : frames_) {
    if (frame.steps) index = frame.index;
  }
  return one.relation.peer(rank_, n, index);
}

// Lognormal, of this mean and spread.
double Walk::computing(const Instruction& one) {
  if (one.compute <= 0) return 0;
  if (one.compute_spread < 0.01) return one.compute;
  const auto uniform = [&] {
    return (static_cast<double>(random_.next() >> 11) + 0.5) / static_cast<double>(1ULL << 53);
  };
  const double variance = std::log1p(std::min(one.compute_spread * one.compute_spread, 25.0));
  constexpr double kTurn = 6.283185307179586;
  const double normal = std::sqrt(-2 * std::log(uniform())) * std::cos(kTurn * uniform());
  return one.compute * std::exp(std::sqrt(variance) * normal - variance / 2);
}

Walk::Step Walk::next() {
  const auto& list = program_->list;
  while (at_ < list.size()) {
    const Instruction& one = list[at_];
    switch (one.kind) {
      case Instruction::Kind::loop:
      case Instruction::Kind::steps:
        if (one.count == 0) {
          at_ = one.other + 1;
          continue;
        }
        computed_ += computing(one);
        frames_.push_back({0, one.first, one.kind == Instruction::Kind::steps});
        ++at_;
        continue;
      case Instruction::Kind::end: {
        const Instruction& begin = list[one.other];
        Frame& frame = frames_.back();
        frame.index += begin.way;
        if (++frame.done < begin.count) {
          at_ = one.other + 1;
          if (begin.group > 0 && frame.done % begin.group == 0) {
            return {&program_->group_wait, kNoPeer, 0, number_, before(0)};
          }
        } else {
          frames_.pop_back();
          ++at_;
        }
        continue;
      }
      case Instruction::Kind::wait: {
        ++at_;
        const bool computes = one.compute > 0 && (one.all_compute || peer_of(one) != kNoPeer);
        return {&one, kNoPeer, 0, number_, before(computes ? computing(one) : 0)};
      }
      case Instruction::Kind::start: {
        ++at_;
        const std::uint64_t number = number_++;
        const std::uint32_t peer = peer_of(one);
        if (peer == kNoPeer) {
          if (one.all_compute) computed_ += computing(one);
          continue;
        }
        double bytes = one.bytes;
        if (one.step_ratio != 1 && !frames_.empty()) {
          bytes *= std::pow(one.step_ratio, static_cast<double>(frames_.back().done));
        }
        return {&one, peer, whole(bytes, kMostTraceBytes), number,
                before(computing(one) + one.inside)};
      }
    }
  }
  return {nullptr, kNoPeer, 0, number_, before(program_->end_compute)};
}

std::string fingerprint(const ScaledProgram& program) {
  Hash hash;
  hash.add(std::uint64_t{program.ranks});
  hash.add(program.end_compute);
  for (const Instruction& one : program.list) {
    hash.add(static_cast<std::uint64_t>(one.kind) | static_cast<std::uint64_t>(one.operation) << 8 |
             std::uint64_t{one.all} << 16 | std::uint64_t{one.indexed} << 17 |
             std::uint64_t{one.all_compute} << 18 |
             static_cast<std::uint64_t>(one.relation.kind) << 24 |
             std::uint64_t{one.relation.dimensions} << 32 |
             std::uint64_t{one.relation.periodic} << 40 | std::uint64_t{one.relation.square} << 41 |
             static_cast<std::uint64_t>(one.relation.part) << 48);
    hash.add(static_cast<std::uint64_t>(one.relation.index));
    hash.add(static_cast<std::uint64_t>(one.way));
    hash.add(static_cast<std::uint64_t>(one.first));
    hash.add(one.count);
    hash.add(one.group);
    hash.add(one.tag);
    hash.add(one.bytes);
    hash.add(one.step_ratio);
    hash.add(one.compute);
    hash.add(one.compute_spread);
    hash.add(one.inside);
    for (const std::uint32_t back : one.back) hash.add(std::uint64_t{back});
    if (one.block == nullptr) continue;
    for (const std::uint32_t peer : *one.block) hash.add(std::uint64_t{peer});
  }
  return hash.text();
}

std::string fingerprint(const Trace& trace) {
  Hash hash;
  hash.add(std::uint64_t{trace.ranks()});
  for (const auto& program : trace.programs) {
    hash.add(std::uint64_t{program.size()});
    for (const TraceEvent& event : program) {
      hash.add(event.tag);
      hash.add(event.amount);
      hash.add(std::uint64_t{event.peer} << 32 | event.request);
      hash.add(std::uint64_t{event.communicator} << 8 | static_cast<std::uint64_t>(event.kind));
    }
  }
  return hash.text();
}

Result<Trace> to_trace(const ScaledProgram& program, std::uint64_t seed) {
  Trace trace;
  trace.name = fmt::format("pattern at {} ranks", program.ranks);
  trace.source = "turnout plan";
  trace.programs.resize(program.ranks);
  std::uint64_t events = 0;
  for (std::uint32_t rank = 0; rank < program.ranks; ++rank) {
    auto& list = trace.programs[rank];
    std::deque<std::pair<std::uint64_t, std::uint32_t>> pending;
    std::uint32_t request = 0;
    const auto wait = [&](std::uint32_t number) {
      TraceEvent event;
      event.kind = TraceEvent::Kind::wait;
      event.request = number;
      list.push_back(event);
    };
    const auto compute = [&](double time) {
      const std::uint64_t ns = whole(time, kMostTraceCompute);
      if (ns == 0) return;
      TraceEvent event;
      event.amount = ns;
      list.push_back(event);
    };
    Walk walk(program, rank, seed);
    Walk::Step step;
    for (step = walk.next(); step.instruction != nullptr; step = walk.next()) {
      const Instruction& one = *step.instruction;
      compute(step.compute);
      if (one.kind == Instruction::Kind::start) {
        TraceEvent event;
        event.kind = one.operation;
        event.peer = step.peer;
        event.amount = step.bytes;
        if (event.is_message()) event.tag = one.tag;
        event.request = request % kMostRequest;
        pending.emplace_back(step.number, event.request);
        ++request;
        list.push_back(event);
      } else if (one.all) {
        for (const auto& [number, of] : pending) wait(of);
        pending.clear();
      } else {
        for (const std::uint32_t back : one.back) {
          const auto found = std::find_if(pending.begin(), pending.end(), [&](const auto& entry) {
            return entry.first + back == step.number;
          });
          if (found == pending.end()) continue;
          wait(found->second);
          pending.erase(found);
        }
      }
      if (list.size() + events > TraceLimits{}.events) {
        return Status{Code::invalid, fmt::format("more than {} events", TraceLimits{}.events)};
      }
    }
    compute(step.compute);
    events += list.size();
  }
  return trace;
}

}  // namespace turnout::sim::plan
