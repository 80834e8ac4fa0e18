// SPDX-License-Identifier: BSD-3-Clause
// The grammar of GOAL; the order of its operations is in goal_order.cpp.
#include "sim/formats/goal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <istream>
#include <limits>
#include <string_view>
#include <system_error>
#include <unordered_map>

#include "sim/formats/text_fields.h"

namespace turnout::sim {
namespace {

constexpr std::size_t kLongestWord = 256;

struct Token {
  // `stop` ends a statement: a line break or a semicolon.
  enum class Kind : std::uint8_t { word, number, mark, stop, end, bad };
  Kind kind = Kind::end;
  std::string text;
  std::uint64_t line = 1;
};

class Lexer {
 public:
  explicit Lexer(std::istream& in) : in_(in.rdbuf()) {}

  Token next() {
    skip_blanks_and_comments();
    Token token;
    token.line = line_;
    const int c = peek();
    // One whose end is missing was skipped to the end of the file.
    if (c == EOF) {
      if (unclosed_comment_) bad(&token, "unterminated comment");
      return token;
    }
    if (c == '\n' || c == ';') {
      take();
      if (c == '\n') ++line_;
      token.kind = Token::Kind::stop;
      token.text = c == ';' ? ";" : "end of line";
    } else if (std::isalpha(c) != 0) {
      token.kind = Token::Kind::word;
      while (std::isalnum(peek()) != 0 || peek() == '_') append(&token);
    } else if (std::isdigit(c) != 0 || c == '-') {
      token.kind = Token::Kind::number;
      append(&token);
      while (std::isdigit(peek()) != 0) append(&token);
    } else if (c == ':' || c == '{' || c == '}') {
      token.kind = Token::Kind::mark;
      append(&token);
    } else {
      bad(&token, fmt::format("unexpected character {:#04x}", c));
    }
    if (token.text.size() > kLongestWord) bad(&token, "word longer than 256 letters");
    return token;
  }

 private:
  int peek() const { return in_ == nullptr ? EOF : in_->sgetc(); }
  int take() { return in_ == nullptr ? EOF : in_->sbumpc(); }
  void append(Token* token) {
    const int c = take();
    if (token->text.size() <= kLongestWord) token->text += static_cast<char>(c);
  }
  static void bad(Token* token, std::string text) {
    token->kind = Token::Kind::bad;
    token->text = std::move(text);
  }

  void skip_blanks_and_comments() {
    for (;;) {
      const int c = peek();
      if (c == ' ' || c == '\t' || c == '\r') {
        take();
      } else if (c == '/') {
        take();
        if (peek() == '/') {
          while (peek() != EOF && peek() != '\n') take();
        } else if (peek() == '*') {
          skip_comment();
        } else if (in_ != nullptr) {
          in_->sungetc();
          return;
        }
      } else {
        return;
      }
    }
  }
  void skip_comment() {
    unclosed_comment_ = true;
    take();
    for (int c = take(); c != EOF; c = take()) {
      if (c == '\n') ++line_;
      if (c == '*' && peek() == '/') {
        take();
        unclosed_comment_ = false;
        return;
      }
    }
  }

  std::streambuf* in_;
  std::uint64_t line_ = 1;
  bool unclosed_comment_ = false;
};

class Parser {
 public:
  Parser(std::istream& in, const std::string& file, const TraceLimits& limits)
      : lexer_(in), file_(file), limits_(limits) {
    advance();
  }

  Result<GoalSchedule> parse() {
    skip_stops();
    expect_word("num_ranks");
    const std::uint64_t ranks = number("the number of ranks", 1, limits_.ranks);
    if (status_.ok()) schedule_.ranks.resize(ranks);
    while (status_.ok()) {
      skip_stops();
      if (token_.kind == Token::Kind::end) break;
      rank();
    }
    if (!status_.ok()) return status_;
    return std::move(schedule_);
  }

 private:
  void advance() { token_ = lexer_.next(); }
  bool is_word(std::string_view text) const {
    return token_.kind == Token::Kind::word && token_.text == text;
  }
  bool is_mark(char c) const { return token_.kind == Token::Kind::mark && token_.text[0] == c; }
  void skip_stops() {
    while (token_.kind == Token::Kind::stop) advance();
  }
  void fail(std::uint64_t line, std::string_view what) {
    if (status_.ok()) {
      status_ = {Code::invalid, fmt::format("{}, line {}: {}", file_, line, what)};
    }
  }
  void expected(std::string_view what) {
    fail(token_.line,
         fmt::format("expected {}, found {}", what,
                     token_.kind == Token::Kind::end   ? std::string("the end of the file")
                     : token_.kind == Token::Kind::bad ? token_.text
                                                       : fmt::format("\"{}\"", token_.text)));
  }
  void expect_word(std::string_view text) {
    if (!is_word(text)) return expected(fmt::format("\"{}\"", text));
    advance();
  }
  void expect_mark(char c) {
    if (!is_mark(c)) return expected(fmt::format("\"{}\"", c));
    advance();
  }
  void expect_stop() {
    // The closing brace may stand on the line of the last statement.
    if (is_mark('}')) return;
    if (token_.kind != Token::Kind::stop) return expected("the end of the line");
    advance();
  }
  std::uint64_t number(std::string_view what, std::uint64_t least, std::uint64_t most) {
    std::uint64_t value = 0;
    const char* const end = token_.text.data() + token_.text.size();
    const auto [next, error] = std::from_chars(token_.text.data(), end, value);
    if (token_.kind != Token::Kind::number || error != std::errc{} || next != end ||
        value < least || value > most) {
      expected(fmt::format("{}, {} to {}", what, least, most));
      return 0;
    }
    advance();
    return value;
  }
  bool take_any() {
    if (token_.kind != Token::Kind::number || token_.text != "-1") return false;
    advance();
    return true;
  }

  void rank() {
    expect_word("rank");
    const std::uint64_t line = token_.line;
    const std::uint64_t index = number("a rank number", 0, schedule_.ranks.size() - 1);
    expect_mark('{');
    if (!status_.ok()) return;
    GoalRank& rank = schedule_.ranks[index];
    if (!rank.operations.empty()) {
      return fail(line, fmt::format("rank {} is described twice", index));
    }
    labels_.clear();
    for (;;) {
      skip_stops();
      if (is_mark('}') || !status_.ok()) break;
      statement(&rank);
    }
    expect_mark('}');
  }

  void statement(GoalRank* rank) {
    if (token_.kind != Token::Kind::word) {
      return expected("calc, send, recv, a label or \"}\"");
    }
    if (is_word("calc") || is_word("send") || is_word("recv")) return operation(rank);
    const Token label = token_;
    advance();
    if (is_mark(':')) {
      advance();
      const auto index = static_cast<std::uint32_t>(rank->operations.size());
      operation(rank);
      if (status_.ok() && !labels_.emplace(label.text, index).second) {
        fail(label.line, fmt::format("duplicate label {}", label.text));
      }
      return;
    }
    const bool on_start = is_word("irequires");
    if (!on_start && !is_word("requires")) {
      return expected("\":\", \"requires\" or \"irequires\"");
    }
    advance();
    const Token before = token_;
    if (before.kind != Token::Kind::word) return expected("a label");
    advance();
    GoalDependency dependency{find(label), find(before), on_start};
    if (++events_ > limits_.events) return fail(label.line, "too many operations");
    rank->dependencies.push_back(dependency);
    expect_stop();
  }

  std::uint32_t find(const Token& label) {
    const auto found = labels_.find(label.text);
    if (found != labels_.end()) return found->second;
    fail(label.line,
         fmt::format("unknown label {}; a dependency must follow both of its operations",
                     label.text));
    return 0;
  }

  void operation(GoalRank* rank) {
    GoalOperation op;
    op.line = token_.line;
    const bool sends = is_word("send"), receives = is_word("recv");
    if (!sends && !receives && !is_word("calc")) return expected("calc, send or recv");
    advance();
    if (sends || receives) {
      op.kind = sends ? TraceEvent::Kind::send : TraceEvent::Kind::receive;
      op.amount = number("a number of bytes", 0, kMostTraceBytes);
      expect_word("b");
      expect_word(sends ? "to" : "from");
      if (receives && take_any()) {
        op.peer = GoalOperation::kAnyRank;
      } else {
        op.peer =
            static_cast<std::uint32_t>(number("a rank number", 0, schedule_.ranks.size() - 1));
      }
      attributes(&op);
    } else {
      op.amount = number("a number of nanoseconds", 0, kMostTraceCompute);
      attributes(&op);
    }
    if (!status_.ok()) return;
    if (++events_ > limits_.events) return fail(op.line, "too many operations");
    rank->operations.push_back(op);
    expect_stop();
  }

  // tag, cpu and nic, once each.
  void attributes(GoalOperation* op) {
    const bool message = op->kind != TraceEvent::Kind::compute;
    bool tag = false, cpu = false, nic = false;
    while (status_.ok() && token_.kind == Token::Kind::word) {
      if (message && !tag && is_word("tag")) {
        tag = true;
        advance();
        if (op->kind == TraceEvent::Kind::receive && take_any()) {
          op->tag = GoalOperation::kAnyTag;
        } else {
          op->tag = number("a tag", 0, std::numeric_limits<std::uint32_t>::max());
        }
      } else if (!cpu && is_word("cpu")) {
        cpu = true;
        advance();
        number("a cpu number", 0, 255);
      } else if (message && !nic && is_word("nic")) {
        nic = true;
        advance();
        number("a nic number", 0, 255);
      } else {
        expected(message ? "tag, cpu or nic, once each, or the end of the line"
                         : "cpu, once, or the end of the line");
      }
    }
  }

  Lexer lexer_;
  const std::string& file_;
  const TraceLimits& limits_;
  Token token_;
  Status status_;
  GoalSchedule schedule_;
  std::unordered_map<std::string, std::uint32_t> labels_;
  std::uint64_t events_ = 0;
};

}  // namespace

Result<GoalSchedule> parse_goal(std::istream& in, const std::string& file,
                                const TraceLimits& limits) {
  // Numbers of operations are 32 bits wide, and each may need a wait beside it.
  TraceLimits bounded = limits;
  bounded.events = std::min<std::uint64_t>(limits.events, kMostRequest / 2);
  return Parser(in, file, bounded).parse();
}

Result<Trace> read_goal(std::istream& in, const std::string& file, const TraceLimits& limits) {
  Result<GoalSchedule> schedule = parse_goal(in, file, limits);
  if (!schedule) return schedule.status();
  return order_goal(schedule.value(), file, limits);
}

Result<Trace> read_goal_file(const std::string& path, const TraceLimits& limits) {
  return read_stream(path, "GOAL schedule",
                     [&](std::istream& in) { return read_goal(in, path, limits); });
}

}  // namespace turnout::sim
