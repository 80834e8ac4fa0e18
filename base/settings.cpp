// SPDX-License-Identifier: BSD-3-Clause
#include "base/settings.h"

#include <cctype>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <set>

#include "base/log.h"
#include "base/text_file.h"
#include "base/toml.h"
#include "base/value.h"

extern char** environ;  // NOLINT: POSIX names it so

namespace turnout {

namespace {

constexpr std::string_view kPrefix = "TURNOUT_";
constexpr std::string_view kLibfabricPrefix = "FI_TURNOUT_";  // libfabric's name for the same
// A settings file is some dozen lines; what is larger is another file.
constexpr std::uint64_t kMaxFile = 1 << 20;

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

std::string variable_of(std::string_view prefix, std::string_view name) {
  std::string variable(prefix);
  for (const char c : name) {
    variable += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return variable;
}

// An empty variable counts as one that is not set, as people write `TURNOUT_REPORT= command`.
const char* value_of(std::string_view prefix, std::string_view name) {
  const char* const value = std::getenv(variable_of(prefix, name).c_str());
  return value == nullptr || *value == '\0' ? nullptr : value;
}

struct Found {
  std::string_view prefix;
  const char* value = nullptr;
};
Found find_in_environment(std::string_view name) {
  if (const char* const value = value_of(kPrefix, name)) return {kPrefix, value};
  return {kLibfabricPrefix, value_of(kLibfabricPrefix, name)};
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

void note_given(Settings* settings, const Settings::Given& now) {
  for (Settings::Given& earlier : settings->given) {
    if (earlier.name == now.name) {
      earlier = now;
      return;
    }
  }
  settings->given.push_back(now);
}

Status set_from(Settings* settings, std::string_view name, std::string_view value,
                std::string_view where, std::string_view prefix = kPrefix) {
#define TURNOUT_SETTING(field, kind, default_value, help)                                     \
  if (name == #field) {                                                                       \
    const Status status = kind##_kind::parse(value, &settings->field);                        \
    note_given(settings, {#field, prefix});                                                   \
    if (status.ok()) return status;                                                           \
    return {Code::invalid, fmt::format("{} = \"{}\"{}: {}", variable_of(prefix, name), value, \
                                       where, status.text())};                                \
  }
#include "base/settings.def"
#undef TURNOUT_SETTING
  return {Code::invalid, fmt::format("no setting is called \"{}\"{}", name, where)};
}

// Whether this is told for the first time in the life of the process.
bool is_news(std::string_view text) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> told;
  const std::scoped_lock lock(mutex);
  return told.emplace(text).second;
}

// A name that nobody knows; `near` is one that was perhaps meant.
void warn_unknown(std::string_view what, std::string_view shown, std::string_view near) {
  if (!is_news(shown)) return;
  if (near.empty()) {
    TURNOUT_LOG(base, warn, "{} {} is not known and has no effect; see `turnout info --config`",
                what, shown);
  } else {
    TURNOUT_LOG(base, warn, "{} {} is not known and has no effect; did you mean {}?", what, shown,
                near);
  }
}

void warn_unknown_variable(std::string_view variable, std::string_view prefix) {
  std::string name;
  for (const char c : variable.substr(prefix.size())) {
    name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  // Only the upper-case spelling is read.
  if (find_row(name) != nullptr && variable_of(prefix, name) == variable) return;
  const std::string_view near = nearest_setting(name);
  warn_unknown("variable", variable, near.empty() ? std::string{} : variable_of(prefix, near));
}

void warn_about_environment() {
  for (const Row& row : kTable) {
    const char* const own = value_of(kPrefix, row.name);
    const char* const libfabric = value_of(kLibfabricPrefix, row.name);
    if (own == nullptr || libfabric == nullptr || std::string_view(own) == libfabric) continue;
    const std::string variable = variable_of(kPrefix, row.name);
    const std::string text = fmt::format("{} = \"{}\" wins over {} = \"{}\"", variable, own,
                                         variable_of(kLibfabricPrefix, row.name), libfabric);
    if (is_news(text)) TURNOUT_LOG(base, warn, "{}", text);
  }
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view line(*entry);
    const std::string_view variable = line.substr(0, line.find('='));
    if (variable == "TURNOUT_SHIM_ROOT") continue;  // of `turnout verbs` to its programs
    for (const std::string_view prefix : {kPrefix, kLibfabricPrefix}) {
      if (variable.starts_with(prefix)) warn_unknown_variable(variable, prefix);
    }
  }
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
  settings.given.clear();
  return settings;
}

Status Settings::set(std::string_view name, std::string_view value) {
  return set_from(this, name, value, "");
}

Status Settings::apply_toml(std::string_view text, std::string_view file) {
  const Result<std::string> ascii = toml_ascii(text, file);
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
      warn_unknown("the key", fmt::format("\"{}\"{}", name, where), nearest_setting(name));
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
  if (const Found file = find_in_environment("config"); file.value != nullptr) {
    const std::string variable = variable_of(file.prefix, "config");
    const Result<std::string> text = read_text_file(
        file.value, fmt::format("{} ({})", file.value, variable), "settings file", kMaxFile);
    if (!text) return text.status();
    if (Status s = settings.apply_toml(text.value(), file.value); !s.ok()) return s;
  }
  for (const Row& row : kTable) {
    const Found found = find_in_environment(row.name);
    if (found.value == nullptr) continue;
    if (Status s = set_from(&settings, row.name, found.value, "", found.prefix); !s.ok()) return s;
  }
  if (Status s = settings.validate(); !s.ok()) return s;
  static_cast<void>(log::configure(settings.log, settings.log_file));
  if (unknown == UnknownNames::warn) warn_about_environment();
  return settings;
}

std::string Settings::variable(std::string_view name) const {
  const Given* const one = find_given(name);
  return variable_of(one != nullptr ? one->prefix : kPrefix, name);
}

const char* environment_value(std::string_view name) {
  return find_in_environment(name).value;
}

std::vector<SettingInfo> describe(const Settings& settings) {
  std::vector<SettingInfo> table;
#define TURNOUT_SETTING(name, kind, default_value, help)                        \
  table.push_back({#name, settings.variable(#name), #kind, default_value, help, \
                   kind##_kind::print(settings.name)});
#include "base/settings.def"
#undef TURNOUT_SETTING
  return table;
}

std::string_view nearest_setting(std::string_view name) {
  static const std::vector<std::string_view> known = [] {
    std::vector<std::string_view> names;
    for (const Row& row : kTable) names.push_back(row.name);
    return names;
  }();
  return value::nearest_name(name, known);
}

}  // namespace turnout
