// SPDX-License-Identifier: BSD-3-Clause
#include "sim/formats/profile_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstddef>

#include "base/toml.h"
#include "base/value.h"

namespace turnout::sim {
namespace {

enum class Unit : std::uint8_t { ns, rate, count, bytes, ppm };

struct Parameter {
  std::string_view group, name, help;
  Unit unit;
  double ideal;
  std::int64_t hca::Profile::*field;
};

constexpr Parameter kParameters[] = {
#define TURNOUT_PARAMETER(group, name, unit_name, ideal, help) \
  {#group, #name, help, Unit::unit_name, ideal, &hca::Profile::group##_##name},
#include "hca/virtual/profile.def"
#undef TURNOUT_PARAMETER
};
constexpr std::size_t kCount = std::size(kParameters);

constexpr std::array<std::string_view, 7> kTags = {"S", "V", "A", "R", "D", "F", "assumed"};

// A chain of parents is as long as a device has relatives.
constexpr std::size_t kMostParents = 8;
constexpr std::size_t kLongestText = 1000;

struct UnitName {
  Unit unit;
  std::string_view name;
  double factor;  // to what Profile's `unit` functions take
};
constexpr UnitName kUnitNames[] = {
    {Unit::ns, "ps", 1e-3},
    {Unit::ns, "ns", 1},
    {Unit::ns, "us", 1e3},
    {Unit::ns, "ms", 1e6},
    {Unit::ns, "s", 1e9},
    {Unit::rate, "MB/s", 1e-3},
    {Unit::rate, "GB/s", 1},
    {Unit::count, "count", 1},
    {Unit::bytes, "bytes", 1},
    {Unit::bytes, "KiB", 1024.0},
    {Unit::bytes, "MiB", 1048576.0},
    {Unit::ppm, "ppm", 1},
};

std::string units_of(Unit unit) {
  std::string out;
  for (const UnitName& u : kUnitNames) {
    if (u.unit == unit) out += fmt::format("{}{}", out.empty() ? "" : ", ", u.name);
  }
  return out;
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' ||
                  c == '-';
         });
}

// What a value may be, in the unit of profile.def. Empty: it is in range.
std::string out_of_range(const Parameter& parameter, double value) {
  const std::string_view group = parameter.group, name = parameter.name;
  // A packet and the number of fetches divide.
  const bool positive =
      (group == "wire" && name == "packet") || (group == "cache" && name == "fetches");
  switch (parameter.unit) {
    case Unit::ns:
      if (value >= 0 && value <= 3600e9) return {};
      return "expected 0 to 3600 s";
    case Unit::rate:
      if (value == 0 || (value >= 1e-3 && value <= 1e5)) return {};
      return "expected 0.001 to 100000 GB/s, or \"unlimited\"";
    case Unit::count:
    case Unit::bytes: {
      const double most = parameter.unit == Unit::count ? 4294967295.0 : 1073741824.0;
      if (value >= (positive ? 1 : 0) && value <= most && value == std::floor(value)) return {};
      return fmt::format("expected a whole number, {} to {:.0f}", positive ? 1 : 0, most);
    }
    case Unit::ppm:
      if (value >= 0 && value <= 1e6 && value == std::floor(value)) return {};
      return "expected a whole number, 0 to 1000000";
  }
  return "expected a known unit";
}

struct UnitRule {
  std::string_view name;  // of profile.def
  std::int64_t (*stored)(double value);
};
// By Unit.
constexpr std::array<UnitRule, 5> kUnits = {{{"ns", hca::unit::ns},
                                             {"GB/s", hca::unit::rate},
                                             {"count", hca::unit::count},
                                             {"bytes", hca::unit::bytes},
                                             {"ppm", hca::unit::ppm}}};
const UnitRule& rule_of(Unit unit) {
  return kUnits[static_cast<std::size_t>(unit)];
}

ProfileValue of_table(const Parameter& parameter) {
  ProfileValue value;
  value.group = parameter.group;
  value.name = parameter.name;
  value.help = parameter.help;
  value.value = parameter.unit == Unit::rate && parameter.ideal <= 0
                    ? std::string("unlimited")
                    : fmt::format("{}", parameter.ideal);
  value.unit = rule_of(parameter.unit).name;
  value.provenance = "-";
  value.source = "not given: only LogGP's parameters have a cost";
  return value;
}

// Reads one file over what its parents gave.
class Reader {
 public:
  Reader(const std::string& file, ProfileFile* out) : file_(file), out_(*out) {}

  Status read(const toml::table& table) {
    for (const auto& [key, node] : table) {
      const std::string_view group = key.str();
      if (group == "profile") continue;  // read_header() did
      if (!known_group(group)) {
        return unknown(key, "group of parameters", value::nearest_name(group, groups()), "");
      }
      const toml::table* const parameters = node.as_table();
      if (parameters == nullptr) return wrong(key, group, "expected a table of parameters");
      for (const auto& [name, parameter] : *parameters) {
        if (Status s = read_parameter(group, name, parameter); !s.ok()) return s;
      }
    }
    return {};
  }

  Status read_header(const toml::table& table) {
    const toml::node* const found = table.get("profile");
    const toml::table* const header = found != nullptr ? found->as_table() : nullptr;
    if (header == nullptr) {
      return {Code::invalid,
              fmt::format("{}: no [profile] table with name and device; not a profile", file_)};
    }
    out_.name = out_.device = out_.note = out_.inherits = {};
    for (const auto& [key, node] : *header) {
      static constexpr std::array<std::string_view, 4> known = {"name", "device", "inherits",
                                                                "note"};
      std::string* const fields[] = {&out_.name, &out_.device, &out_.inherits, &out_.note};
      const auto at = std::find(known.begin(), known.end(), key.str());
      if (at == known.end()) {
        return unknown(key, "key of [profile]", value::nearest_name(key.str(), known), "profile");
      }
      if (Status s = read_text(key, fmt::format("profile.{}", key.str()), node,
                               fields[at - known.begin()]);
          !s.ok()) {
        return s;
      }
    }
    for (const auto& [key, value] : {std::pair{"name", &out_.name}, {"inherits", &out_.inherits}}) {
      if (value->empty() && std::string_view(key) == "inherits") continue;
      if (!is_plain_name(*value)) {
        return {Code::invalid, fmt::format("{}: profile.{} = \"{}\": expected 1 to 64 letters, "
                                           "digits, '.', '_' or '-', not starting with '.'",
                                           file_, key, *value)};
      }
    }
    if (out_.device.empty()) {
      return {Code::invalid,
              fmt::format("{}: profile.device is missing; add the adapter's name", file_)};
    }
    return {};
  }

 private:
  static bool known_group(std::string_view group) {
    return std::any_of(std::begin(kParameters), std::end(kParameters),
                       [&](const Parameter& p) { return p.group == group; });
  }
  static std::span<const std::string_view> groups() {
    static const std::vector<std::string_view> all = [] {
      std::vector<std::string_view> names{"profile"};
      for (const Parameter& p : kParameters) {
        if (names.back() != p.group) names.push_back(p.group);
      }
      return names;
    }();
    return all;
  }

  Status wrong(const toml::key& key, std::string_view name, std::string_view expected) const {
    return {Code::invalid,
            fmt::format("{}, line {}: {}: {}", file_, key.source().begin.line, name, expected)};
  }
  Status unknown(const toml::key& key, std::string_view what, std::string_view near,
                 std::string_view group) const {
    const std::string dot = group.empty() ? "" : fmt::format("{}.", group);
    return wrong(key, fmt::format("{}{}", dot, key.str()),
                 near.empty() ? fmt::format("no such {}", what)
                              : fmt::format("no such {}; did you mean {}{}?", what, dot, near));
  }
  Status read_text(const toml::key& key, const std::string& name, const toml::node& node,
                   std::string* out) const {
    const auto* const text = node.as_string();
    if (text == nullptr) return wrong(key, name, "expected text in quotes");
    if (text->get().size() > kLongestText) {
      return wrong(key, name, fmt::format("expected at most {} characters", kLongestText));
    }
    const bool printable = std::all_of(text->get().begin(), text->get().end(), [](char c) {
      return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
    });
    if (!printable) return wrong(key, name, "expected one line without control characters");
    *out = text->get();
    return {};
  }

  Status read_parameter(std::string_view group, const toml::key& key, const toml::node& node) {
    std::size_t at = 0;
    std::vector<std::string_view> known;
    for (; at < kCount; ++at) {
      if (kParameters[at].group != group) continue;
      if (kParameters[at].name == key.str()) break;
      known.push_back(kParameters[at].name);
    }
    if (at == kCount) {
      return unknown(key, "parameter", value::nearest_name(key.str(), known), group);
    }
    const Parameter& parameter = kParameters[at];
    const std::string name = fmt::format("{}.{}", group, key.str());
    const toml::table* const table = node.as_table();
    if (table == nullptr) {
      return wrong(key, name,
                   fmt::format("a value needs a unit and a source: {{ value = 1, unit = \"{}\", "
                               "source = \"V where it was read\" }}",
                               rule_of(parameter.unit).name));
    }
    ProfileValue row = of_table(parameter);
    row.from = out_.name;
    const toml::node* number = nullptr;
    std::string unit, source;
    for (const auto& [inner, entry] : *table) {
      static constexpr std::array<std::string_view, 3> fields = {"value", "unit", "source"};
      const std::string inner_name = fmt::format("{}.{}", name, inner.str());
      if (inner.str() == "value") {
        number = &entry;
      } else if (inner.str() == "unit" || inner.str() == "source") {
        Status s = read_text(inner, inner_name, entry, inner.str() == "unit" ? &unit : &source);
        if (!s.ok()) return s;
      } else {
        return unknown(inner, "field", value::nearest_name(inner.str(), fields), name);
      }
    }
    double amount = 0;
    if (Status s = read_amount(key, name, parameter, number, unit, &amount, &row.value); !s.ok()) {
      return s;
    }
    row.unit = unit;
    const std::string_view tag = std::string_view(source).substr(0, source.find(' '));
    if (std::find(kTags.begin(), kTags.end(), tag) == kTags.end() || tag.size() == source.size()) {
      return wrong(
          key, name + ".source",
          fmt::format("expected a tag ({}), then the source of the value", fmt::join(kTags, ", ")));
    }
    row.provenance = tag;
    row.source = source.substr(tag.size() + 1);
    out_.profile.*parameter.field = rule_of(parameter.unit).stored(amount);
    out_.values[at] = std::move(row);
    return {};
  }

  // The amount in the unit of profile.def, and as it was written.
  Status read_amount(const toml::key& key, const std::string& name, const Parameter& parameter,
                     const toml::node* number, const std::string& unit, double* amount,
                     std::string* written) const {
    const auto known =
        std::find_if(std::begin(kUnitNames), std::end(kUnitNames),
                     [&](const UnitName& u) { return u.unit == parameter.unit && u.name == unit; });
    if (known == std::end(kUnitNames)) {
      return wrong(key, name + ".unit",
                   fmt::format("\"{}\": expected {}", unit, units_of(parameter.unit)));
    }
    if (number == nullptr) return wrong(key, name + ".value", "missing; expected a number");
    if (const auto* const i = number->as_integer()) {
      *amount = static_cast<double>(i->get());
      *written = fmt::format("{}", i->get());
    } else if (const auto* const f = number->as_floating_point()) {
      *amount = f->get();
      *written = fmt::format("{}", f->get());
    } else if (const auto* const s = number->as_string();
               s != nullptr && s->get() == "unlimited" && parameter.unit == Unit::rate) {
      *amount = 0;
      *written = "unlimited";
    } else {
      return wrong(key, name + ".value", "expected a number");
    }
    if (!std::isfinite(*amount)) return wrong(key, name + ".value", "expected a finite number");
    const double in_table_unit = *amount * known->factor;
    if (const std::string why = out_of_range(parameter, in_table_unit); !why.empty()) {
      return wrong(key, name + ".value", fmt::format("{} {}: {}", *written, unit, why));
    }
    *amount = in_table_unit;
    if (parameter.unit == Unit::rate && in_table_unit == 0) *written = "unlimited";
    return {};
  }

  const std::string& file_;
  ProfileFile& out_;
};

// Relations between values; checked once all parents have been read.
Status check_together(const ProfileFile& file, const std::string& shown) {
  const hca::Profile& p = file.profile;
  if (p.dc_nack_wait > p.dc_nack_wait_most) {
    return {Code::invalid, fmt::format("{}: dc.nack_wait exceeds dc.nack_wait_most", shown)};
  }
  // A first level without limit never asks the second.
  if (p.cache_second_entries != 0 && p.cache_first_entries > p.cache_second_entries) {
    return {Code::invalid,
            fmt::format("{}: cache.first_entries exceeds cache.second_entries", shown)};
  }
  return {};
}

// `heirs`: the names of the profiles that led here, the first asked for first.
Status read_over(std::string_view text, const std::string& file, const ReadProfile& parent,
                 std::vector<std::string>* heirs, ProfileFile* out) {
  const Result<std::string> ascii = toml_ascii(text, file);
  if (!ascii) return ascii.status();
  const toml::parse_result parsed = toml::parse(ascii.value(), file);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    return {Code::invalid,
            fmt::format("{}, line {}, column {}: {}", file, error.source().begin.line,
                        error.source().begin.column, error.description())};
  }
  ProfileFile header;
  if (Status s = Reader(file, &header).read_header(parsed.table()); !s.ok()) return s;
  heirs->push_back(header.name);
  if (!header.inherits.empty()) {
    if (std::find(heirs->begin(), heirs->end(), header.inherits) != heirs->end()) {
      return {Code::invalid,
              fmt::format("{}: profile.inherits = \"{}\": circular inheritance: {}, {}", file,
                          header.inherits, fmt::join(*heirs, ", "), header.inherits)};
    }
    if (heirs->size() > kMostParents) {
      return {Code::invalid, fmt::format("{}: profile.inherits: chain of more than {} profiles",
                                         file, kMostParents)};
    }
    const Result<std::string> above = parent(header.inherits);
    if (!above) {
      return {above.status().code(),
              fmt::format("{}: profile.inherits = \"{}\": {}", file, header.inherits,
                          above.status().text()),
              above.status().sys_errno()};
    }
    Status s =
        read_over(above.value(), fmt::format("profile {}", header.inherits), parent, heirs, out);
    if (!s.ok()) return s;
  }
  out->name = header.name;
  out->device = header.device;
  out->note = header.note;
  out->inherits = header.inherits;
  return Reader(file, out).read(parsed.table());
}

}  // namespace

Result<ProfileFile> parse_profile(std::string_view text, const std::string& file,
                                  const ReadProfile& parent) {
  ProfileFile out;
  out.values.reserve(kCount);
  for (const Parameter& parameter : kParameters) out.values.push_back(of_table(parameter));
  std::vector<std::string> heirs;
  if (Status s = read_over(text, file, parent, &heirs, &out); !s.ok()) return s;
  if (Status s = check_together(out, file); !s.ok()) return s;
  return out;
}

double stated_error(const ProfileValue& value) noexcept {
  const auto parameter = std::find_if(
      std::begin(kParameters), std::end(kParameters),
      [&](const Parameter& p) { return p.group == value.group && p.name == value.name; });
  if (parameter == std::end(kParameters)) return 0;
  if (parameter->unit != Unit::ns && parameter->unit != Unit::rate) return 0;
  struct Error {
    std::string_view tag;
    double part;
  };
  constexpr Error kErrors[] = {{"S", 0.05}, {"V", 0.10}, {"F", 0.10},      {"A", 0.15},
                               {"D", 0.15}, {"R", 0.20}, {"assumed", 0.30}};
  for (const Error& error : kErrors) {
    if (value.provenance == error.tag) return error.part;
  }
  return 0;
}

void vary(ProfileFile* profile, const std::function<double(const ProfileValue&)>& factor) {
  for (ProfileValue& value : profile->values) {
    const auto parameter = std::find_if(
        std::begin(kParameters), std::end(kParameters),
        [&](const Parameter& p) { return p.group == value.group && p.name == value.name; });
    if (parameter == std::end(kParameters) || parameter->field == nullptr) continue;
    if (parameter->unit != Unit::ns && parameter->unit != Unit::rate) continue;
    std::int64_t& stored = profile->profile.*parameter->field;
    stored = std::llround(static_cast<double>(stored) * factor(value));
    value.value = fmt::format("{}", stored);
    value.unit = parameter->unit == Unit::ns ? "ps" : "ps/KiB";
  }
}

}  // namespace turnout::sim
