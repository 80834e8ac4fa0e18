// SPDX-License-Identifier: BSD-3-Clause
#include "cli/top_screen.h"

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#define NCURSES_NOMACROS 1
#include <curses.h>
#include <poll.h>
#include <term.h>
#include <unistd.h>

#undef lines  // term.h gives capabilities these names
#undef columns

#include <algorithm>
#include <array>
#include <initializer_list>

namespace turnout::cli {
namespace {

constexpr int kEscape = 27;
constexpr int kEscapeDelay = 25;  // ms: how long a key's further bytes may take

// Numbers of ncurses' colour pairs.
enum Pair : short { pair_label = 1, pair_good, pair_warning, pair_bad };

struct Keys {
  TopKey key;
  std::initializer_list<int> codes;
};
constexpr Keys kKeys[] = {
    {TopKey::up, {KEY_UP, 'k'}},
    {TopKey::down, {KEY_DOWN, 'j'}},
    {TopKey::page_up, {KEY_PPAGE}},
    {TopKey::page_down, {KEY_NPAGE}},
    {TopKey::home, {KEY_HOME, 'g'}},
    {TopKey::end, {KEY_END, 'G'}},
    {TopKey::open, {KEY_ENTER, KEY_RIGHT, '\n', '\r'}},
    {TopKey::back, {KEY_BACKSPACE, KEY_LEFT, kEscape, '\b', 0x7f}},
    {TopKey::sort, {'s'}},
    {TopKey::all, {'a'}},
    {TopKey::next_job, {'n'}},
    {TopKey::pause, {' '}},
    {TopKey::help, {'?', 'h'}},
    {TopKey::quit, {'q', 'Q'}},
};

TopKey key_of(int code) {
  for (const auto& [key, codes] : kKeys) {
    if (std::find(codes.begin(), codes.end(), code) != codes.end()) return key;
  }
  return TopKey::none;
}

bool no_colour() {
  const char* const set = std::getenv("NO_COLOR");
  return set != nullptr && *set != '\0';
}

}  // namespace

void sleep_for(double seconds) {
  const double whole = static_cast<double>(static_cast<time_t>(seconds));
  const timespec time{static_cast<time_t>(whole), static_cast<long>((seconds - whole) * 1e9)};
  ::nanosleep(&time, nullptr);
}

bool TopScreen::open() {
  if (::isatty(STDOUT_FILENO) != 1) return false;
  std::setlocale(LC_CTYPE, "");
  // The string capability is looked at first: newterm() already writes to the terminal.
  int error = 0;
  if (::setupterm(nullptr, STDOUT_FILENO, &error) != OK) return false;
  const char* const move = ::tigetstr("cup");
  if (move == nullptr || move == reinterpret_cast<const char*>(-1)) return false;
  ::del_curterm(::cur_term);
  screen_ = ::newterm(nullptr, stdout, stdin);
  if (screen_ == nullptr) return false;
  keys_ = ::isatty(STDIN_FILENO) == 1;
  ::cbreak();
  ::noecho();
  ::nonl();
  ::curs_set(0);
  ::set_escdelay(kEscapeDelay);
  ::keypad(::stdscr, TRUE);
  ::nodelay(::stdscr, TRUE);
  start_colours();
  return true;
}

TopScreen::~TopScreen() {
  if (screen_ == nullptr) return;
  // Where a terminal has no second screen, the shell's prompt comes into the last line.
  ::wmove(::stdscr, std::max(::getmaxy(::stdscr) - 1, 0), 0);
  ::wclrtoeol(::stdscr);
  ::wrefresh(::stdscr);
  ::endwin();
  ::delscreen(screen_);
}

void TopScreen::start_colours() {
  if (no_colour() || !::has_colors() || ::start_color() != OK) return;
  // The terminal's own background, where it can be kept.
  const short back = ::use_default_colors() == OK ? -1 : COLOR_BLACK;
  ::init_pair(pair_label, COLOR_CYAN, back);
  ::init_pair(pair_good, COLOR_GREEN, back);
  ::init_pair(pair_warning, COLOR_YELLOW, back);
  ::init_pair(pair_bad, COLOR_RED, back);
  colours_ = true;
}

std::size_t TopScreen::rows() const {
  return static_cast<std::size_t>(std::max(::getmaxy(::stdscr), 0));
}

std::size_t TopScreen::columns() const {
  return static_cast<std::size_t>(std::max(::getmaxx(::stdscr), 0));
}

int TopScreen::look(const Line::Piece& piece) const {
  const auto colour = [this](Pair pair) {
    return colours_ ? static_cast<int>(COLOR_PAIR(pair)) : 0;
  };
  constexpr int kBold = static_cast<int>(A_BOLD), kUnderline = static_cast<int>(A_UNDERLINE);
  const std::array<int, 7> looks = {// by Style
                                    0,
                                    kBold,
                                    colour(pair_label),
                                    kUnderline,
                                    colour(pair_good),
                                    colour(pair_warning) | kBold,
                                    colour(pair_bad) | kBold};
  return looks[static_cast<std::size_t>(piece.style)];
}

void TopScreen::show(const Lines& lines) {
  ::werase(::stdscr);
  const std::size_t wide = columns();
  for (std::size_t i = 0; i < lines.size() && i < rows(); ++i) {
    ::wmove(::stdscr, static_cast<int>(i), 0);
    const int selected = lines[i].selected() ? static_cast<int>(A_REVERSE) : 0;
    std::size_t room = wide;
    for (const Line::Piece& piece : lines[i].pieces()) {
      const std::size_t size = std::min(piece.text.size(), room);
      ::wattrset(::stdscr, look(piece) | selected);
      // The result is an error in the last column of the last line, where the cursor cannot go on.
      ::waddnstr(::stdscr, piece.text.data(), static_cast<int>(size));
      room -= size;
    }
    if (selected == 0) continue;
    ::wattrset(::stdscr, selected);
    ::waddnstr(::stdscr, std::string(room, ' ').c_str(), static_cast<int>(room));
  }
  ::wattrset(::stdscr, 0);
  ::wrefresh(::stdscr);
}

TopKey TopScreen::wait(double seconds) {
  seconds = std::max(seconds, 0.0);
  if (!keys_) {
    sleep_for(seconds);
    static_cast<void>(::wgetch(::stdscr));  // ncurses adapts to a new size of the terminal here
    return TopKey::none;
  }
  // Bytes that ncurses has read already would not end the wait below.
  if (const int code = ::wgetch(::stdscr); code != ERR) return key_of(code);
  pollfd input{STDIN_FILENO, POLLIN, 0};
  const int ready = ::poll(&input, 1, static_cast<int>(seconds * 1e3) + 1);
  if (ready > 0 && (input.revents & POLLIN) == 0) return TopKey::quit;
  const int code = ::wgetch(::stdscr);
  // Readable, and nothing to read: the other end has hung up.
  if (ready > 0 && code == ERR && ::poll(&input, 1, 0) > 0) return TopKey::quit;
  return key_of(code);
}

}  // namespace turnout::cli
