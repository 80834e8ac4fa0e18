// SPDX-License-Identifier: BSD-3-Clause
// Reads the text of traces and recordings.
//
// Fields parses and checks the words of one line: the first error is kept with the file, line and
// name of the field; later calls return zeros. Borrows the line. One thread.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <istream>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>

#include "base/status.h"

namespace turnout::sim {

inline constexpr std::size_t kLongestLine = 4096;

class Fields {
 public:
  Fields(const std::string& file, std::uint64_t line_number, std::string_view line)
      : file_(file), line_number_(line_number), rest_(line) {}

  // The next word; empty at the end of the line.
  std::string_view word() {
    const std::size_t begin = rest_.find_first_not_of(" \t");
    rest_.remove_prefix(begin == std::string_view::npos ? rest_.size() : begin);
    const std::string_view found = rest_.substr(0, rest_.find_first_of(" \t"));
    rest_.remove_prefix(found.size());
    return found;
  }
  // Takes the next word if it is this one.
  bool take(std::string_view expected) {
    const std::string_view before = rest_;
    if (word() == expected) return true;
    rest_ = before;
    return false;
  }
  // What is left of the line, without blanks around it.
  std::string_view rest() {
    const std::size_t begin = rest_.find_first_not_of(" \t");
    if (begin == std::string_view::npos) return {};
    const std::string_view found = rest_.substr(begin, rest_.find_last_not_of(" \t") - begin + 1);
    rest_ = {};
    return found;
  }

  template <std::unsigned_integral T>
  T number(std::string_view name, std::uint64_t least, std::uint64_t most, int base = 10) {
    const std::string_view text = word();
    std::uint64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [next, error] = std::from_chars(text.data(), end, value, base);
    if (error != std::errc{} || next != end || value < least || value > most) {
      wrong(name,
            fmt::format("\"{}\": expected {} {} to {}", text,
                        base == 16 ? "a hexadecimal number," : "a whole number,", least, most));
      return 0;
    }
    return static_cast<T>(value);
  }
  void at_end() {
    if (const std::string_view more = word(); !more.empty()) {
      wrong("end of the line", fmt::format("unexpected \"{}\"", more));
    }
  }

  void wrong(std::string_view name, std::string_view what) {
    if (status_.ok()) {
      status_ = {Code::invalid,
                 fmt::format("{}, line {}: {}: {}", file_, line_number_, name, what)};
    }
  }
  [[nodiscard]] const Status& status() const noexcept { return status_; }
  [[nodiscard]] bool ok() const noexcept { return status_.ok(); }

 private:
  const std::string& file_;
  std::uint64_t line_number_;
  std::string_view rest_;
  Status status_;
};

// The next line that holds something besides a comment (# to the end), of at most kLongestLine
// letters; counts lines. False at the end of the text or when a line is too long (`status`).
class Lines {
 public:
  Lines(std::istream& in, const std::string& file) : in_(in), file_(file) {}

  bool next() {
    for (;;) {
      text_.clear();
      ++number_;
      std::streambuf* const buffer = in_.rdbuf();
      int c = buffer == nullptr ? EOF : buffer->sbumpc();
      if (c == EOF) return false;
      for (; c != EOF && c != '\n'; c = buffer->sbumpc()) {
        if (text_.size() == kLongestLine) {
          status_ = {Code::invalid, fmt::format("{}, line {}: longer than {} characters", file_,
                                                number_, kLongestLine)};
          return false;
        }
        text_ += static_cast<char>(c);
      }
      if (!text_.empty() && text_.back() == '\r') text_.pop_back();
      const std::size_t first = text_.find_first_not_of(" \t");
      if (first == std::string::npos || text_[first] == '#') continue;
      return true;
    }
  }
  [[nodiscard]] Fields fields() const { return {file_, number_, text_}; }
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  [[nodiscard]] const Status& status() const noexcept { return status_; }

 private:
  std::istream& in_;
  const std::string& file_;
  std::uint64_t number_ = 0;
  std::string text_;
  Status status_;
};

// Each line by read(fields), until one has set `ended`. Errors: of the first field or line that is
// wrong.
template <class Read>
[[nodiscard]] Status read_lines(Lines& lines, const bool& ended, Read&& read) {
  while (!ended && lines.next()) {
    Fields fields = lines.fields();
    read(fields);
    if (!fields.ok()) return fields.status();
  }
  return lines.status();
}

// The first line of a file: its magic word and the version of its layout, 1 to `newest`. `what`
// names the kind of file in messages ("trace"). Errors: invalid, naming the line and field;
// version.
[[nodiscard]] inline Result<std::uint64_t> read_first_line(Lines& lines, const std::string& file,
                                                           std::string_view magic,
                                                           std::uint64_t newest,
                                                           std::string_view what) {
  if (!lines.next()) {
    if (!lines.status().ok()) return lines.status();
    return Status{Code::invalid, fmt::format("{}: empty file; expected a {}", file, what)};
  }
  Fields first = lines.fields();
  if (first.word() != magic) {
    first.wrong("first line", fmt::format("expected \"{} {}\"", magic, newest));
  }
  const auto found =
      first.number<std::uint64_t>("version", 1, std::numeric_limits<std::uint32_t>::max());
  first.at_end();
  if (!first.ok()) return first.status();
  if (found <= newest) return found;
  return Status{Code::version,
                fmt::format("{}: a {} of format version {}; this turnout reads versions up to {}",
                            file, what, found, newest)};
}

// A file of any size as a stream: traces, recordings, GOAL schedules. Errors: permission, system
// (with errno); invalid for a folder; those of `read`.
[[nodiscard]] inline Status file_failure(std::string_view what, const std::string& path,
                                         int error) {
  return {error == EACCES || error == EPERM ? Code::permission : Code::system,
          fmt::format("cannot {} {}: {}", what, path, std::generic_category().message(error)),
          error};
}

// Calls read(stream); `what` names the kind of file in messages ("trace").
template <class Read>
[[nodiscard]] auto read_stream(const std::string& path, std::string_view what, Read read)
    -> decltype(read(std::declval<std::istream&>())) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return Status{Code::invalid, fmt::format("{} is a folder, not a {}", path, what)};
  }
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) return file_failure(fmt::format("read the {}", what), path, errno);
  try {
    return read(in);
  } catch (const std::ios_base::failure&) {  // the library's words for a failed read(2)
    return file_failure(fmt::format("read the {}", what), path, errno != 0 ? errno : EIO);
  }
}

}  // namespace turnout::sim
