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

struct Row {
  std::string_view name;
  std::string_view default_value;
  bool tuning;
};

constexpr Row kTable[] = {
#define TURNOUT_SETTING(name, kind, default_value, help) {#name, default_value, false},
#define TURNOUT_TUNING(name, kind, default_value, help) {#name, default_value, true},
#include "base/settings.def"
#undef TURNOUT_SETTING
};

// Names of earlier versions.
struct OldName {
  std::string_view old, name;
};
constexpr OldName kOldNames[] = {
    {"start_channel", "default_transport"},
    {"victim", "eviction"},
    {"own_receive_first", "private_receive_first"},
    {"own_receive_buffers", "private_receive_buffers"},
    {"own_receive_threshold", "private_receive_threshold"},
    {"offer_wait", "rtr_wait"},
    {"offer_last_byte", "rtr_sentinel"},
};

const Row* find_row(std::string_view name) {
  for (const Row& row : kTable) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

// Today's name of a setting.
std::string_view current_name(std::string_view name) {
  for (const OldName& one : kOldNames) {
    if (one.old == name) return one.name;
  }
  return name;
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

// As errors name it: TURNOUT_CREDITS, or credit_qps in TURNOUT_TUNING.
std::string shown_name(std::string_view prefix, std::string_view name) {
  const Row* const row = find_row(name);
  if (row == nullptr || !row->tuning) return variable_of(prefix, name);
  return fmt::format("{}: {}", variable_of(prefix, "tuning"), name);
}

void note_given(Settings* settings, const Settings::Given& now) {
  for (Settings::Given& earlier : settings->given) {
    if (earlier.name == now.name) {
      earlier = now;
      return;
    }
  }
  settings->given.push_back(now);
}

Status set_from(Settings* settings, std::string_view given_name, std::string_view value,
                std::string_view where, std::string_view prefix = kPrefix) {
  const std::string_view name = current_name(given_name);
#define TURNOUT_SETTING(field, kind, default_value, help)                                      \
  if (name == #field) {                                                                        \
    const Status status = kind##_kind::parse(value, &settings->field);                         \
    note_given(settings, {#field, prefix});                                                    \
    if (status.ok()) return status;                                                            \
    return {Code::invalid, fmt::format("{} = \"{}\"{}: {}", shown_name(prefix, #field), value, \
                                       where, status.text())};                                 \
  }
#include "base/settings.def"
#undef TURNOUT_SETTING
  return {Code::invalid, fmt::format("unknown setting \"{}\"{}", name, where)};
}

// Whether this is told for the first time in the life of the process.
bool is_news(std::string_view text) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> told;
  const std::scoped_lock lock(mutex);
  return told.emplace(text).second;
}

// `near`: a known name that resembles it, or empty.
void warn_unknown(std::string_view what, std::string_view shown, std::string_view near) {
  if (!is_news(shown)) return;
  if (near.empty()) {
    TURNOUT_LOG(base, warn, "unknown {} {} has no effect; `turnout info --config` lists all", what,
                shown);
  } else {
    TURNOUT_LOG(base, warn, "unknown {} {} has no effect; did you mean {}?", what, shown, near);
  }
}

void warn_old(std::string_view old, std::string_view now) {
  if (is_news(old)) TURNOUT_LOG(base, warn, "{} is deprecated; use {}", old, now);
}

// What to write in place of an old variable.
std::string replacement(std::string_view prefix, std::string_view name) {
  const Row* const row = find_row(name);
  if (row == nullptr || !row->tuning) return variable_of(prefix, name);
  return fmt::format("{}={}=...", variable_of(prefix, "tuning"), name);
}

void warn_unknown_variable(std::string_view variable, std::string_view prefix) {
  std::string name;
  for (const char c : variable.substr(prefix.size())) {
    name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  // Only the upper-case spelling is read.
  if (find_row(current_name(name)) != nullptr && variable_of(prefix, name) == variable) return;
  const std::string_view near = nearest_setting(name);
  warn_unknown("variable", variable, near.empty() ? std::string{} : replacement(prefix, near));
}

void warn_about_environment() {
  for (const Row& row : kTable) {
    const char* const own = value_of(kPrefix, row.name);
    const char* const libfabric = value_of(kLibfabricPrefix, row.name);
    if (own == nullptr || libfabric == nullptr || std::string_view(own) == libfabric) continue;
    const std::string variable = variable_of(kPrefix, row.name);
    const std::string text =
        fmt::format("{} = \"{}\" overrides {} = \"{}\"; unset one of them", variable, own,
                    variable_of(kLibfabricPrefix, row.name), libfabric);
    if (is_news(text)) TURNOUT_LOG(base, warn, "{}", text);
  }
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view line(*entry);
    const std::string_view variable = line.substr(0, line.find('='));
    // Of `turnout verbs` to its programs.
    if (variable == "TURNOUT_SHIM_ROOT" || variable == "TURNOUT_SHIM_MLX5") continue;
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

// Keys of a file, or with `tuning` of its table [tuning].
Status apply_table(Settings* settings, const toml::table& table, std::string_view file,
                   bool tuning) {
  for (const auto& [key, node] : table) {
    const std::string_view name = key.str();
    const std::string where = fmt::format(" ({}, line {})", file, key.source().begin.line);
    if (!tuning && name == "tuning" && node.is_table()) {
      if (Status s = apply_table(settings, *node.as_table(), file, true); !s.ok()) return s;
      continue;
    }
    const std::string_view current = current_name(name);
    const Row* const row = find_row(current);
    if (row == nullptr || (tuning && !row->tuning)) {
      warn_unknown("key", fmt::format("\"{}\"{}", name, where), nearest_setting(name));
      continue;
    }
    if (name != current || (row->tuning && !tuning)) {
      warn_old(
          fmt::format("\"{}\"{}", name, where),
          row->tuning ? fmt::format("{} in the table [tuning]", current) : std::string(current));
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
    if (Status s = set_from(settings, name, *value, where); !s.ok()) return s;
    if (name == "tuning") {
      if (Status s = settings->apply_tuning(*value, fmt::format("\"tuning\"{}", where)); !s.ok()) {
        return s;
      }
    }
  }
  return {};
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
  return apply_table(this, parsed.table(), file, false);
}

Status Settings::apply_tuning(std::string_view list, std::string_view where) {
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(','), list.size());
    const std::string_view item = list.substr(0, end);
    list.remove_prefix(std::min(end + 1, list.size()));
    if (item.empty()) continue;
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) {
      return {Code::invalid,
              fmt::format("{} = \"{}\": expected name=value,name=value", where, item)};
    }
    const std::string_view name = item.substr(0, equals);
    const Row* const row = find_row(current_name(name));
    if (row != nullptr && !row->tuning) {
      return {Code::invalid, fmt::format("{}: \"{}\" is a setting of its own; set {}", where, name,
                                         replacement(kPrefix, row->name))};
    }
    if (row == nullptr) {
      const std::string_view near = nearest_setting(name);
      return {Code::invalid, fmt::format("{}: no tuning parameter is called \"{}\"{}", where, name,
                                         near.empty() ? "; `turnout info --config=tuning` lists all"
                                                      : fmt::format("; did you mean {}?", near))};
    }
    if (Status s = set_from(this, row->name, item.substr(equals + 1), ""); !s.ok()) return s;
  }
  return {};
}

Status Settings::apply_environment() {
  for (const OldName& one : kOldNames) {
    const Found found = find_in_environment(one.old);
    if (found.value == nullptr) continue;
    warn_old(variable_of(found.prefix, one.old), replacement(found.prefix, one.name));
    if (Status s = set_from(this, one.name, found.value, "", found.prefix); !s.ok()) return s;
  }
  for (const Row& row : kTable) {
    const Found found = find_in_environment(row.name);
    if (found.value == nullptr) continue;
    if (row.tuning) {
      warn_old(variable_of(found.prefix, row.name), replacement(found.prefix, row.name));
    }
    if (Status s = set_from(this, row.name, found.value, "", found.prefix); !s.ok()) return s;
  }
  const Found list = find_in_environment("tuning");
  return list.value == nullptr ? Status{}
                               : apply_tuning(list.value, variable_of(list.prefix, "tuning"));
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
  if (Status s = settings.apply_environment(); !s.ok()) return s;
  if (Status s = settings.validate(); !s.ok()) return s;
  static_cast<void>(log::configure(settings.log, settings.log_file));
  if (unknown == UnknownNames::warn) warn_about_environment();
  return settings;
}

std::string Settings::variable(std::string_view name) const {
  const Given* const one = find_given(name);
  return shown_name(one != nullptr ? one->prefix : kPrefix, name);
}

const char* environment_value(std::string_view name) {
  return find_in_environment(name).value;
}

std::vector<SettingInfo> describe(const Settings& settings) {
  std::vector<SettingInfo> table;
#define TURNOUT_ROW(name, kind, default_value, help, tuning)                    \
  table.push_back({#name, settings.variable(#name), #kind, default_value, help, \
                   kind##_kind::print(settings.name), tuning});
#define TURNOUT_SETTING(name, kind, default_value, help) \
  TURNOUT_ROW(name, kind, default_value, help, false)
#define TURNOUT_TUNING(name, kind, default_value, help) \
  TURNOUT_ROW(name, kind, default_value, help, true)
#include "base/settings.def"
#undef TURNOUT_SETTING
#undef TURNOUT_ROW
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
