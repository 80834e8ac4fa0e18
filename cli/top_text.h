// SPDX-License-Identifier: BSD-3-Clause
// Lines of text for `turnout top`: pieces with a style each, and the short numbers in them.
//
// Plain values and pure functions, any thread. Everything added to a Line becomes printable ASCII,
// one column a character: reports are untrusted, and a control character or one of no width would
// break the screen. Widths are columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace turnout::cli {

// What a piece of text is; the screen has a look for each.
enum class Style : std::uint8_t { plain, title, label, heading, good, warning, bad };

class Line {
 public:
  struct Piece {
    Style style = Style::plain;
    std::string text;
  };

  Line& add(std::string_view text, Style style = Style::plain);
  Line& left(std::string_view text, std::size_t width, Style style = Style::plain);
  Line& right(std::string_view text, std::size_t width, Style style = Style::plain);
  void cut(std::size_t width);  // the last column that is left becomes ~
  void select() { selected_ = true; }

  [[nodiscard]] const std::vector<Piece>& pieces() const { return pieces_; }
  [[nodiscard]] std::size_t width() const {
    std::size_t sum = 0;
    for (const Piece& piece : pieces_) sum += piece.text.size();
    return sum;
  }
  [[nodiscard]] std::string text() const {
    std::string out;
    for (const Piece& piece : pieces_) out += piece.text;
    return out;
  }
  [[nodiscard]] bool selected() const { return selected_; }

 private:
  std::vector<Piece> pieces_;
  bool selected_ = false;
};
using Lines = std::vector<Line>;

// Other bytes than printable ASCII become ?, those of one UTF-8 character a single one.
[[nodiscard]] std::string printable(std::string_view text);
[[nodiscard]] std::string shortened_to(std::string text, std::size_t width);
// `text` after `label`, broken at blanks; further lines begin where the text does.
void wrap(Lines* lines, std::string_view label, std::string_view text, std::size_t width,
          Style label_style = Style::label, Style text_style = Style::plain);

// The same after a label of kLabel columns; plain text has a label of its own style.
inline constexpr std::size_t kLabel = 11;
void labelled(Lines* lines, std::string_view label, std::string_view text, std::size_t width,
              Style style = Style::plain);

// "0", "0.25", "9.5", "123", "45.1k", "2.31M": at most 6 columns below 10^18.
[[nodiscard]] std::string short_count(double count);
// As value::human_bytes, of any number.
[[nodiscard]] std::string short_bytes(double bytes);
// "5s", "59s", "3m", "2h", "4d": at most 4 columns up to 999 days.
[[nodiscard]] std::string short_age(double seconds);
// "5 s", "3 min 12 s", "2 h 5 min".
[[nodiscard]] std::string long_age(double seconds);
// 0 of nothing.
[[nodiscard]] double share(std::uint64_t part, std::uint64_t whole);
// "41%", "<1%"; "-" of nothing.
[[nodiscard]] std::string percent(std::uint64_t part, std::uint64_t whole);
// "[|||   ]" of `width` columns, at least 3.
[[nodiscard]] std::string bar(std::uint64_t part, std::uint64_t whole, std::size_t width);
// How a share of a budget is to be seen: bad from 90 % on, a warning from 75 %.
[[nodiscard]] Style fill_style(std::uint64_t part, std::uint64_t whole);
// "1 host", "2 hosts".
[[nodiscard]] std::string plural(std::uint64_t count, std::string_view noun);

}  // namespace turnout::cli
