// SPDX-License-Identifier: BSD-3-Clause
// Trace: the sends, receives, one-sided operations and computation of a program's ranks, in each
// rank's order, optionally with times.
//
// Recorded by Turnout (sim/formats/recording.h), imported from GOAL (sim/formats/goal.h), or
// written by hand; docs/trace.md describes the text format. Plain values, any thread. Bytes;
// computation in nanoseconds. A trace is untrusted: read_trace() checks every number, and that each
// request starts before its wait and has one wait.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace turnout::sim {

struct TraceEvent {
  // put and get: one-sided, into and out of the memory of the peer, which has no event for it.
  enum class Kind : std::uint8_t { send, receive, wait, compute, put, get };
  static constexpr std::int64_t kNoTime = -1;

  std::uint64_t tag = 0;           // send, receive
  std::uint64_t amount = 0;        // bytes; nanoseconds of a compute
  std::int64_t time = kNoTime;     // ns since its process began to communicate
  std::uint32_t peer = 0;          // destination; source, also of a receive from any
  std::uint32_t communicator = 0;  // messages match within one
  std::uint32_t request = 0;       // its number; wait: whose end
  Kind kind = Kind::compute;
  bool any_source = false, any_tag = false;  // a receive that named neither; peer and tag then say
                                             // what it got

  // A send or receive: has a tag and is half of a message.
  [[nodiscard]] bool is_message() const noexcept {
    return kind == Kind::send || kind == Kind::receive;
  }
  [[nodiscard]] bool is_one_sided() const noexcept {
    return kind == Kind::put || kind == Kind::get;
  }
  friend bool operator==(const TraceEvent&, const TraceEvent&) = default;
};
static_assert(sizeof(TraceEvent) == 40);

struct Trace {
  std::string name, source;                       // one line each
  std::vector<std::vector<TraceEvent>> programs;  // by rank

  [[nodiscard]] std::uint32_t ranks() const noexcept {
    return static_cast<std::uint32_t>(programs.size());
  }
  // Has every event of the rank a time?
  [[nodiscard]] bool has_times(std::uint32_t rank) const noexcept;
  friend bool operator==(const Trace&, const Trace&) = default;
};

struct TraceLimits {
  std::uint64_t ranks = std::uint64_t{1} << 20;
  std::uint64_t events = std::uint64_t{1} << 28;
};
inline constexpr std::uint64_t kMostTraceBytes = std::uint64_t{1} << 40;   // of a message
inline constexpr std::uint64_t kMostTraceCompute = 1'000'000'000'000'000;  // ns, 11 days
inline constexpr std::int64_t kMostTraceTime = 1'000'000'000'000'000'000;  // ns, 31 years
inline constexpr std::uint32_t kMostRequest = 0xfffffffe;

// Of any format, chosen by the path: a folder of recordings, an OTF2 archive (*.otf2), a GOAL
// schedule (*.goal), otherwise a trace. Errors: those of the reader.
[[nodiscard]] Result<Trace> open_trace(const std::string& path);

// `file` is for messages. Reads line by line. Errors: invalid, naming the line and the field;
// version; system.
[[nodiscard]] Result<Trace> read_trace(std::istream& in, const std::string& file,
                                       const TraceLimits& limits = {});
[[nodiscard]] Result<Trace> read_trace_file(const std::string& path,
                                            const TraceLimits& limits = {});
// An OTF2 archive (Score-P); `anchor` is its .otf2 file. Needs libotf2 (Debian: libotf2-trace-dev)
// at build time. Point-to-point messages become events, and the time between two MPI regions
// becomes computation; a wait for a nonblocking operation is placed where its completion is
// recorded. An archive has no messages of collective operations: these are left out and counted in
// Trace::source. Ranks are those of MPI_COMM_WORLD; other threads of a rank are left out. One call
// at a time in a process: libotf2 has a single error handler. Errors: invalid (no archive, no MPI
// in it, an event out of range; names the location), unsupported (no libotf2), system.
[[nodiscard]] Result<Trace> read_otf2_file(const std::string& anchor,
                                           const TraceLimits& limits = {});
// What read_trace() gives back as it was; of layout 1 where that can say it. Errors: system;
// invalid (see check_trace).
[[nodiscard]] Status write_trace(const Trace& trace, std::ostream& out);

// What read_trace() promises, of a trace made otherwise. Errors: invalid, naming rank and event.
[[nodiscard]] Status check_trace(const Trace& trace, const TraceLimits& limits = {});

// `copies` of the trace side by side, each with ranks of its own. Errors: invalid (0 copies, more
// ranks or events than the limits).
[[nodiscard]] Result<Trace> repeat_trace(const Trace& trace, std::uint32_t copies,
                                         const TraceLimits& limits = {});

// Numbers the pairs of communicator and tag from 0 in the order in which they are met, for players
// that have one small tag; all communicators become 0. Gives how many there are.
std::uint64_t compact_tags(Trace* trace);

// Messages sent, by (source, destination).
[[nodiscard]] std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> message_counts(
    const Trace& trace);

}  // namespace turnout::sim
