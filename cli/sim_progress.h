// SPDX-License-Identifier: BSD-3-Clause
// Progress: how far a simulation is, on standard error: one line on a terminal, drawn anew at most
// ten times a second; elsewhere a line after ten seconds and then every minute. One thread.
#pragma once

#include <cstdint>
#include <string>

namespace turnout::cli {

class Progress {
 public:
  Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { clear(); }
  void show(const std::string& what, std::uint32_t ended, std::uint32_t ranks,
            std::int64_t picoseconds, std::uint64_t events);
  void say(const std::string& what) { draw(what); }  // on a terminal, until show()
  void clear();

 private:
  void draw(const std::string& line);

  bool terminal_;
  bool drawn_ = false;
  std::int64_t last_ = 0;  // ns of the steady clock
  std::string last_what_;
  std::int64_t began_ = 0;  // the run under way
};

}  // namespace turnout::cli
