// SPDX-License-Identifier: BSD-3-Clause
// Timeline: the trace of a run as JSON trace events for Perfetto and Chrome's tracing.
//
// One track per rank: a slice from the post of a request to its completion (as an asynchronous
// event, because several overlap), marks for connects, refusals, misses, waits and faults, and a
// counter of requests in flight. Events are written immediately and not kept; at its size limit the
// file ends with a mark. Times are microseconds of virtual time, with picoseconds after the point.
// Owner: the caller that runs the study; one thread.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "hca/virtual/world.h"

namespace turnout::sim {

class Timeline {
 public:
  static constexpr std::uint64_t kDefaultLimit = std::uint64_t{512} << 20;

  // Errors: system, permission (the file cannot be made).
  [[nodiscard]] static Result<std::unique_ptr<Timeline>> create(
      const std::string& path, const std::string& title, std::uint64_t limit = kDefaultLimit);
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;
  ~Timeline();  // closes the file; finish() tells what went wrong

  void add(const hca::Trace& trace);
  // Ends the JSON. Errors: system (the disk is full).
  [[nodiscard]] Status finish();
  [[nodiscard]] bool cut() const noexcept { return cut_; }

 private:
  Timeline(std::string path, std::FILE* file, std::uint64_t limit);
  struct Open {
    std::uint64_t number;
    hca::Picoseconds time;
    std::uint32_t peer, bytes;
  };

  void write(std::string_view text);
  void flush();
  void name_track(hca::ProcessIndex process);
  void post(const hca::Trace& trace);
  void complete(const hca::Trace& trace);
  void mark(const hca::Trace& trace, std::string_view name);
  void counter(hca::ProcessIndex process, hca::Picoseconds time);

  std::string path_;
  std::FILE* file_;
  std::uint64_t limit_, written_ = 0, number_ = 0;
  bool cut_ = false, failed_ = false, finished_ = false;
  int error_ = 0;
  fmt::memory_buffer buffer_;
  std::vector<std::uint32_t> under_way_;  // by process
  std::vector<bool> named_;               // by process
  // Requests posted and not yet completed, by queue pair of a process, oldest first.
  std::unordered_map<std::uint64_t, std::deque<Open>> open_;
};

// The file of one policy of several: before the ending, "t.json" -> "t-aqps.json".
[[nodiscard]] std::string timeline_path(const std::string& path, const std::string& policy,
                                        bool several);

}  // namespace turnout::sim
