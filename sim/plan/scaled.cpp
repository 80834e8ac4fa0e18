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
  Flattener(std::uint32_t ranks, std::uint64_t most_repeats, double imbalance,
            std::uint32_t largest, ScaledProgram* out)
      : ranks_(ranks),
        most_repeats_(most_repeats),
        imbalance_(imbalance),
        largest_(largest),
        out_(out) {}

  void flatten(const std::vector<Node>& program) {
    for (const Node& node : program) {
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
    one.compute_spread = node.compute_spread * imbalance_;
    one.all_compute = node.all_compute;
    if (node.kind == Node::Kind::wait) {
      one.kind = Instruction::Kind::wait;
      one.all = node.all;
      one.back = node.back;
      one.indexed = in_steps;
      out_->list.push_back(std::move(one));
      return 1;
    }
    if (node.kind == Node::Kind::operation) {
      one.operation = node.operation;
      one.bytes = std::max(node.bytes.at(ranks_), 0.0);
      one.step_ratio = node.step_ratio;
      one.indexed = in_steps;
      one.tag = node.tag;
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
      const bool waits = std::any_of(node.body.begin(), node.body.end(), [](const Node& inner) {
        return inner.kind == Node::Kind::wait;
      });
      // Recordings with more partners than that at once show that nothing holds them back.
      // Receives alone are not waited for before anything was sent.
      const auto goes_to_all = [&](TraceEvent::Kind kind) {
        return std::any_of(node.body.begin(), node.body.end(), [&](const Node& inner) {
          return inner.kind == Node::Kind::operation && inner.operation == kind &&
                 (inner.relation.kind == Relation::Kind::shift ||
                  inner.relation.kind == Relation::Kind::shift_back ||
                  inner.relation.kind == Relation::Kind::exchange);
        });
      };
      const bool to_all =
          goes_to_all(TraceEvent::Kind::send) && goes_to_all(TraceEvent::Kind::receive);
      if (to_all && !waits && largest_ <= kAtOnce && one.count > kAtOnce) one.group = kAtOnce;
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

  std::uint32_t ranks_;
  std::uint64_t most_repeats_;
  double imbalance_;
  std::uint32_t largest_;  // number of ranks that was recorded
  ScaledProgram* out_;
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
  Flattener(ranks, most_repeats, pattern->imbalance, pattern->sizes.back(), program.get())
      .flatten(pattern->program);
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
        return {&one, peer, whole(bytes, kMostTraceBytes), number, before(computing(one))};
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
