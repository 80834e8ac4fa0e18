// SPDX-License-Identifier: BSD-3-Clause
// ScaledProgram: a pattern at one number of ranks, ready to be played; the events of a rank are
// made as it plays, so that thousands of ranks share one short list.
//
// Pure values; a Walk belongs to its rank. Errors of scale(): invalid (a message without its
// other half: the pattern does not hold at this number of ranks).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/split_mix.h"
#include "base/status.h"
#include "sim/formats/trace.h"
#include "sim/plan/pattern.h"
#include "sim/workloads/workload.h"

namespace turnout::sim::plan {

struct Instruction {
  enum class Kind : std::uint8_t { start, wait, loop, steps, end };
  Kind kind = Kind::start;
  TraceEvent::Kind operation = TraceEvent::Kind::send;
  bool all = false;
  std::int32_t way = 1;
  std::int32_t first = 0;
  std::uint64_t count = 0;   // repetitions
  std::uint64_t group = 0;   // steps: a wait for all behind so many of them; 0: none
  std::uint32_t other = 0;   // loop, steps: their end; end: their beginning
  bool all_compute = false;  // see Node
  bool indexed = false;      // its relation takes the index of the steps around it
  bool with_all = false;     // of an all-to-all exchange
  Relation relation;
  const std::vector<std::uint32_t>* block = nullptr;
  double bytes = 0, step_ratio = 1, compute = 0, compute_spread = 0;
  double inside = 0;  // start: ns before it, of those who take part
  std::uint64_t tag = 0;
  std::vector<std::uint32_t> back;
};

struct ScaledProgram {
  std::uint32_t ranks = 0;
  std::vector<Instruction> list;
  Instruction group_wait;  // behind a group of steps
  double end_compute = 0;
  // Repetitions of outer loops that are played, to those there are: by messages. 1: all.
  double played = 1;
  // Not 0: sizes of messages differ among ranks, and receives take up to so many bytes.
  std::uint64_t most_bytes = 0;
  double messages = 0;                     // that are played, of all ranks, about
  std::shared_ptr<const Pattern> pattern;  // what blocks point into
};

// `most_repeats`: of an outer loop; 0: all.
[[nodiscard]] Result<std::shared_ptr<const ScaledProgram>> scale(
    std::shared_ptr<const Pattern> pattern, std::uint32_t ranks, std::uint64_t most_repeats = 0);

// One rank's way through the program.
class Walk {
 public:
  struct Step {
    const Instruction* instruction = nullptr;  // null: the end
    std::uint32_t peer = kNoPeer;              // of a start
    std::uint64_t bytes = 0;
    std::uint64_t number = 0;  // of operations so far, also of those that others take part in
    double compute = 0;        // ns before it; also before the end
  };
  Walk(const ScaledProgram& program, std::uint32_t rank, std::uint64_t seed) noexcept
      : program_(&program), rank_(rank), random_(seed ^ (std::uint64_t{rank} << 32)) {}
  [[nodiscard]] Step next();

 private:
  struct Frame {
    std::uint64_t done = 0;
    std::int32_t index = 0;
    bool steps = false;
  };
  [[nodiscard]] double computing(const Instruction& one);
  // What came before, too.
  [[nodiscard]] double before(double compute) noexcept {
    return std::exchange(computed_, 0) + compute;
  }
  [[nodiscard]] std::uint32_t peer_of(const Instruction& one) const noexcept;

  const ScaledProgram* program_;
  std::uint32_t rank_;
  SplitMix64 random_;
  std::size_t at_ = 0;
  std::uint64_t number_ = 0;
  double computed_ = 0;  // ns before the next step, by others' operations
  std::vector<Frame> frames_;
};

[[nodiscard]] Instance make_scaled(std::shared_ptr<const ScaledProgram> program,
                                   std::uint64_t seed);
// A hash of all that a program or a trace does: the same text, the same results.
[[nodiscard]] std::string fingerprint(const ScaledProgram& program);
[[nodiscard]] std::string fingerprint(const Trace& trace);

// For tests and for other tools. Errors: invalid (more events than a trace may have).
[[nodiscard]] Result<Trace> to_trace(const ScaledProgram& program, std::uint64_t seed);

}  // namespace turnout::sim::plan
