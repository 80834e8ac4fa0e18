#include "base/settings.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>

#include "base/log.h"
#include "base/value.h"

#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#ifdef __GNUC__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#endif
#include <toml++/toml.h>
#ifdef __GNUC__
#pragma GCC diagnostic pop
#endif

extern char** environ;  // NOLINT: POSIX names it so

namespace turnout {

namespace {

constexpr std::string_view kPrefix = "TURNOUT_";
// A settings file is some dozen lines; what is larger is another file.
constexpr off_t kMaxFile = 1 << 20;

enum class Kind { text, boolean, count, bytes, duration, real };

struct Row {
  std::string_view name;
  Kind kind;
  std::string_view kind_name;
  std::string_view default_value;
  std::string_view help;
};

constexpr Row kTable[] = {
#define TURNOUT_SETTING(name, kind, default_value, help) \
  {#name, Kind::kind, #kind, default_value, help},
#include "base/settings.def"
#undef TURNOUT_SETTING
};

const Row* find_row(std::string_view name) {
  for (const Row& row : kTable) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

std::string variable_of(std::string_view name) {
  std::string variable(kPrefix);
  for (const char c : name) {
    variable += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return variable;
}

template <class T>
Status store(Result<T> parsed, T* field) {
  if (!parsed) return parsed.status();
  *field = std::move(parsed).value();
  return {};
}

// What an alias of Settings alone does not tell: count and bytes are one type.
struct text_kind {
  static Status parse(std::string_view value, std::string* field) {
    *field = value;
    return {};
  }
  static std::string print(const std::string& v) { return v; }
};
struct boolean_kind {
  static Status parse(std::string_view value, bool* field) {
    return store(value::parse_boolean(value), field);
  }
  static std::string print(bool v) { return v ? "1" : "0"; }
};
struct count_kind {
  static Status parse(std::string_view value, std::uint64_t* field) {
    return store(value::parse_count(value), field);
  }
  static std::string print(std::uint64_t v) { return fmt::format("{}", v); }
};
struct bytes_kind {
  static Status parse(std::string_view value, std::uint64_t* field) {
    return store(value::parse_bytes(value), field);
  }
  static std::string print(std::uint64_t v) { return value::print_bytes(v); }
};
struct duration_kind {
  static Status parse(std::string_view value, std::int64_t* field) {
    return store(value::parse_duration(value), field);
  }
  static std::string print(std::int64_t v) { return value::print_duration(v); }
};
struct real_kind {
  static Status parse(std::string_view value, double* field) {
    return store(value::parse_real(value), field);
  }
  static std::string print(double v) { return fmt::format("{}", v); }
};

Status wrong_value(std::string_view name, std::string_view value, const Status& why,
                   std::string_view where) {
  return {Code::invalid,
          fmt::format("{} = \"{}\"{}: {}", variable_of(name), value, where, why.text())};
}

Status set_from(Settings* settings, std::string_view name, std::string_view value,
                std::string_view where) {
#define TURNOUT_SETTING(field, kind, default_value, help)                  \
  if (name == #field) {                                                    \
    Status status = kind##_kind::parse(value, &settings->field);           \
    return status.ok() ? status : wrong_value(name, value, status, where); \
  }
#include "base/settings.def"
#undef TURNOUT_SETTING
  return {Code::invalid, fmt::format("no setting is called \"{}\"{}", name, where)};
}

// Warns about a name that nobody knows, once in the life of the process.
void warn_unknown(std::string_view what, std::string_view shown, std::string_view name) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> told;
  {
    const std::scoped_lock lock(mutex);
    if (!told.emplace(shown).second) return;
  }
  const std::string_view near = nearest_setting(name);
  if (near.empty()) {
    TURNOUT_LOG(base, warn, "{} {} is not known and has no effect; see `turnout info --config`",
                what, shown);
  } else {
    TURNOUT_LOG(base, warn, "{} {} is not known and has no effect; did you mean {}?", what, shown,
                what == "variable" ? variable_of(near) : std::string(near));
  }
}

Result<std::string> read_file(const std::string& path) {
  const auto failed = [&](int error) {
    return Status{error == EACCES ? Code::permission : Code::system,
                  fmt::format("cannot read the settings file {} (TURNOUT_CONFIG): {}", path,
                              std::generic_category().message(error)),
                  error};
  };
  // Non-blocking: a pipe without a writer must not hang the program at start.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return failed(errno);
  struct stat info {};
  Status status;
  std::string text;
  if (::fstat(fd, &info) != 0) {
    status = failed(errno);
  } else if (!S_ISREG(info.st_mode)) {
    status = {Code::invalid, fmt::format("{} (TURNOUT_CONFIG) is not a regular file", path)};
  } else if (info.st_size > kMaxFile) {
    status = {Code::invalid,
              fmt::format("{} (TURNOUT_CONFIG) has {} bytes; a settings file has at most {}", path,
                          info.st_size, kMaxFile)};
  } else {
    text.resize(static_cast<std::size_t>(info.st_size));
    std::size_t done = 0;
    while (done < text.size()) {
      const ssize_t n = ::read(fd, text.data() + done, text.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) status = failed(errno);
      if (n <= 0) break;
      done += static_cast<std::size_t>(n);
    }
    text.resize(done);
  }
  ::close(fd);
  if (!status.ok()) return status;
  return text;
}

// The text as toml++ may have it. Version 3.3 tests characters for exotic blanks with a function
// whose end is marked unreachable and reached for letters such as U+0206
// (is_non_ascii_horizontal_whitespace): undefined behaviour. So it gets ASCII only: other letters
// vanish from comments and are refused elsewhere, where TOML's \u00fc says the same.
Result<std::string> as_ascii(std::string_view text, std::string_view file) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // a byte-order mark is allowed
  std::string ascii(text);
  std::size_t line = 1;
  std::string_view quote;  // what ends the string we are in
  bool comment = false;
  for (std::size_t i = 0; i < ascii.size(); ++i) {
    const char c = ascii[i];
    const std::string_view rest = std::string_view(ascii).substr(i);
    if (c == '\n') {
      ++line;
      comment = false;
      if (quote.size() == 1) quote = {};  // an error, which toml++ tells about
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      if (!comment) {
        return Status{Code::invalid,
                      fmt::format("{}, line {}: a letter outside ASCII; write it as \\u00fc in a "
                                  "string with double quotes",
                                  file, line)};
      }
      ascii[i] = '?';
    } else if (comment) {
      continue;
    } else if (!quote.empty()) {
      if (c == '\\' && quote.front() == '"') {
        if (rest.size() > 1 && rest[1] != '\n') ++i;
      } else if (rest.starts_with(quote)) {
        i += quote.size() - 1;
        quote = {};
      }
    } else if (c == '#') {
      comment = true;
    } else if (c == '"' || c == '\'') {
      const std::string_view triple = c == '"' ? R"(""")" : "'''";
      quote = rest.starts_with(triple) ? triple : triple.substr(0, 1);
      i += quote.size() - 1;
    }
  }
  return ascii;
}

// A TOML value as the text that the environment would hold; nothing for tables, arrays and dates.
std::optional<std::string> as_text(const toml::node& node) {
  if (const auto* s = node.as_string()) return s->get();
  if (const auto* i = node.as_integer()) return fmt::format("{}", i->get());
  if (const auto* f = node.as_floating_point()) return fmt::format("{}", f->get());
  if (const auto* b = node.as_boolean()) return std::string(b->get() ? "1" : "0");
  return std::nullopt;
}

}  // namespace

Settings Settings::defaults() {
  Settings settings;
  for (const Row& row : kTable) {
    // A default that does not parse is found by the tests; there is nobody to tell here.
    static_cast<void>(set_from(&settings, row.name, row.default_value, " (default)").ok());
  }
  return settings;
}

Status Settings::set(std::string_view name, std::string_view value) {
  return set_from(this, name, value, "");
}

Status Settings::apply_toml(std::string_view text, std::string_view file) {
  const Result<std::string> ascii = as_ascii(text, file);
  if (!ascii) return ascii.status();
  const toml::parse_result parsed = toml::parse(ascii.value(), std::string(file));
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    return {Code::invalid,
            fmt::format("{}, line {}, column {}: {}", file, error.source().begin.line,
                        error.source().begin.column, error.description())};
  }
  for (const auto& [key, node] : parsed.table()) {
    const std::string_view name = key.str();
    const std::string where = fmt::format(" ({}, line {})", file, key.source().begin.line);
    if (find_row(name) == nullptr) {
      warn_unknown("the key", fmt::format("\"{}\"{}", name, where), name);
      continue;
    }
    if (name == "config") {
      return {Code::invalid,
              fmt::format("\"config\"{}: a settings file cannot name another", where)};
    }
    const std::optional<std::string> value = as_text(node);
    if (!value) {
      return {Code::invalid,
              fmt::format("\"{}\"{}: expected a single value, not a table, array or date", name,
                          where)};
    }
    if (Status s = set_from(this, name, *value, where); !s.ok()) return s;
  }
  return {};
}

Result<Settings> Settings::load(UnknownNames unknown) {
  Settings settings = defaults();
  if (const char* const path = std::getenv("TURNOUT_CONFIG"); path != nullptr && *path != '\0') {
    const Result<std::string> text = read_file(path);
    if (!text) return text.status();
    if (Status s = settings.apply_toml(text.value(), path); !s.ok()) return s;
  }
  for (const Row& row : kTable) {
    const std::string variable = variable_of(row.name);
    const char* const value = std::getenv(variable.c_str());
    // An empty variable counts as one that is not set, as people write `TURNOUT_REPORT= command`.
    if (value == nullptr || *value == '\0') continue;
    if (Status s = set_from(&settings, row.name, value, ""); !s.ok()) return s;
  }
  if (Status s = settings.validate(); !s.ok()) return s;
  static_cast<void>(log::configure(settings.log, settings.log_file));
  if (unknown == UnknownNames::warn && environ != nullptr) {
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string_view line(*entry);
      if (!line.starts_with(kPrefix)) continue;
      const std::string_view variable = line.substr(0, line.find('='));
      std::string name;
      for (const char c : variable.substr(kPrefix.size())) {
        name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      }
      // Only the upper-case spelling is read.
      if (find_row(name) == nullptr || variable_of(name) != variable) {
        warn_unknown("variable", variable, name);
      }
    }
  }
  return settings;
}

std::vector<SettingInfo> describe(const Settings& settings) {
  std::vector<SettingInfo> table;
#define TURNOUT_SETTING(name, kind, default_value, help) \
  table.push_back(                                       \
      {#name, variable_of(#name), #kind, default_value, help, kind##_kind::print(settings.name)});
#include "base/settings.def"
#undef TURNOUT_SETTING
  return table;
}

std::string_view nearest_setting(std::string_view name) {
  // Two slips in a long name, one in a short one; a third of the letters is another word.
  std::string_view best;
  std::size_t best_distance = name.size() / 3 + 1;
  for (const Row& row : kTable) {
    const std::size_t distance = value::edit_distance(name, row.name);
    if (distance < best_distance) {
      best_distance = distance;
      best = row.name;
    }
  }
  if (!best.empty()) return best;
  // Words left out or added: TURNOUT_BUDGET, TURNOUT_MEMORY_BUDGET_BYTES.
  for (const Row& row : kTable) {
    const std::string_view shorter = name.size() < row.name.size() ? name : row.name;
    const std::string_view longer = name.size() < row.name.size() ? row.name : name;
    if (shorter.size() >= 4 && longer.find(shorter) != std::string_view::npos) return row.name;
  }
  return {};
}

}  // namespace turnout
