// SPDX-License-Identifier: BSD-3-Clause
// TopScreen: the terminal of `turnout top`, by ncurses.
//
// While one exists the terminal shows its lines and keys are read unechoed; the destructor restores
// the terminal, so it has to go before anything is printed. At most one at a time; one thread. It
// expects handlers of SIGINT and SIGTERM to be installed before, which only set a flag: they end
// wait() early. Colours: where the terminal has them and NO_COLOR is not set.
#pragma once

#include <cstddef>

#include "cli/top_text.h"
#include "cli/top_view.h"

struct screen;  // of ncurses

namespace turnout::cli {

// Less, if a signal comes.
void sleep_for(double seconds);

class TopScreen {
 public:
  TopScreen() = default;
  TopScreen(const TopScreen&) = delete;
  TopScreen& operator=(const TopScreen&) = delete;
  ~TopScreen();

  // False, and nothing is changed: standard output is no terminal, or one of unknown kind or where
  // the cursor cannot be moved.
  [[nodiscard]] bool open();
  [[nodiscard]] std::size_t rows() const;
  [[nodiscard]] std::size_t columns() const;
  void show(const Lines& lines);
  // The next key; `none` after `seconds`, after a signal and when the size has changed; `quit` when
  // the terminal is gone.
  [[nodiscard]] TopKey wait(double seconds);

 private:
  void start_colours();
  [[nodiscard]] int look(const Line::Piece& piece) const;

  ::screen* screen_ = nullptr;
  bool keys_ = false;  // standard input is a terminal
  bool colours_ = false;
};

}  // namespace turnout::cli
