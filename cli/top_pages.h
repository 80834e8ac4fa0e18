// SPDX-License-Identifier: BSD-3-Clause
// The parts of `turnout top`'s screens as lines of a given width: a job's summary, a table with a
// line for each process, a page of one process, the help.
//
// Pure functions of a TopModel, any thread. No line is wider than `width`. Narrow tables leave
// columns out: first the last decision, then the memory bar, bytes and channels.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cli/top_model.h"
#include "cli/top_text.h"

namespace turnout::cli {

[[nodiscard]] Line memory_line(const TopMemory& memory, std::size_t width);
[[nodiscard]] Lines job_summary(const TopJob& job, std::size_t width);

class ProcessTable {
 public:
  // Its columns depend on all processes of the job, which it refers to.
  ProcessTable(const TopJob& job, std::size_t width);
  [[nodiscard]] Line heading() const;
  [[nodiscard]] Line row(const TopProcess& process) const;

 private:
  [[nodiscard]] std::string_view row_name(const TopProcess& process) const;
  void rates(const TopProcess& process, Line* line) const;
  void decision(const TopProcess& process, Line* line) const;

  std::size_t width_;
  bool ranks_ = true;                  // false: no launcher numbered the processes
  std::size_t name_ = 4;               // columns
  std::vector<ChannelKind> channels_;  // those in use
  bool bytes_ = true, percent_ = true;
  std::size_t bar_ = 0, decision_ = 0;  // columns; 0: left out
};

struct PageLimits {
  std::size_t peers = 8, decisions = 4;
};
// Without the title; as long as need be.
[[nodiscard]] Lines process_page(const TopModel& model, const TopProcess& process,
                                 const PageLimits& limits, std::size_t width);

[[nodiscard]] Lines help_page(std::size_t width);

// "DC-sendrecv" as "DC", "UD-sendrecv" as "UD"; others as they are.
[[nodiscard]] std::string short_name(ChannelKind kind);
// A name from a report, as a part of a sentence.
[[nodiscard]] std::string short_word(std::string_view word);

}  // namespace turnout::cli
