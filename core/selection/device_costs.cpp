// SPDX-License-Identifier: BSD-3-Clause
#include "core/selection/device_costs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text_file.h"
#include "base/toml.h"
#include "base/value.h"

namespace turnout::selection {

namespace {

constexpr std::array<std::string_view, 8> kTags = {"S", "V", "A", "R", "D", "F", "M", "assumed"};
constexpr std::size_t kLongestText = 1000;
constexpr std::uint64_t kLargestFile = std::uint64_t{1} << 20;
constexpr double kMostTime = 3600e9;      // ns
constexpr double kMostCount = 1 << 24;    // queue pairs: what 24 bits can name
constexpr double kMostUncertainty = 100;  // nothing is known

struct UnitName {
  std::string_view unit, name;
  double factor;
};
constexpr UnitName kUnits[] = {
    {"ns", "ns", 1}, {"ns", "us", 1e3}, {"ns", "ms", 1e6}, {"ns", "s", 1e9}, {"count", "count", 1}};

std::string units_of(std::string_view unit) {
  std::vector<std::string_view> names;
  for (const UnitName& u : kUnits) {
    if (u.unit == unit) names.push_back(u.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

class Reader {
 public:
  Reader(const std::string& file, CostsFile* out) : file_(file), out_(*out) {}

  Status read(const toml::table& table) {
    const toml::node* const found = table.get("device");
    if (found == nullptr || !found->is_table()) {
      return {Code::invalid,
              fmt::format("{}: no [device] table with a name; not a device costs file", file_)};
    }
    out_.device.clear();
    for (const auto& [key, node] : table) {
      const toml::table* const group = node.as_table();
      if (group == nullptr) return wrong(key, key.str(), "expected a table");
      Status status = key.str() == "device" ? read_device(*group) : read_group(key, *group);
      if (!status.ok()) return status;
    }
    if (out_.device.empty()) {
      return {Code::invalid,
              fmt::format("{}: device.name is missing; add the adapter's name", file_)};
    }
    const double first = out_.costs.context_first_entries.value;
    const double second = out_.costs.context_second_entries.value;
    if (first <= second) return {};
    return {Code::invalid,
            fmt::format("{}: context.first_entries {} exceeds context.second_entries {}", file_,
                        first, second)};
  }

 private:
  Status wrong(const toml::key& key, std::string_view name, std::string_view expected) const {
    return {Code::invalid,
            fmt::format("{}, line {}: {}: {}", file_, key.source().begin.line, name, expected)};
  }
  Status unknown(const toml::key& key, const std::string& name, std::string_view what,
                 std::span<const std::string_view> known) const {
    const std::string_view near = value::nearest_name(key.str(), known);
    return wrong(key, name,
                 near.empty() ? fmt::format("no such {}", what)
                              : fmt::format("no such {}; did you mean {}?", what, near));
  }
  Status read_text(const toml::key& key, const std::string& name, const toml::node& node,
                   std::string* out) const {
    const auto* const text = node.as_string();
    if (text == nullptr) return wrong(key, name, "expected text in quotes");
    const bool printable = std::ranges::all_of(
        text->get(), [](char c) { return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f; });
    if (text->get().size() > kLongestText || !printable) {
      return wrong(key, name,
                   fmt::format("expected one line of at most {} characters", kLongestText));
    }
    *out = text->get();
    return {};
  }
  Status read_number(const toml::key& key, const std::string& name, const toml::node* node,
                     double* out) const {
    if (node == nullptr) return wrong(key, name, "missing; expected a number");
    if (const auto* const i = node->as_integer()) {
      *out = static_cast<double>(i->get());
    } else if (const auto* const f = node->as_floating_point()) {
      *out = f->get();
    } else {
      return wrong(key, name, "expected a number");
    }
    if (!std::isfinite(*out)) return wrong(key, name, "expected a finite number");
    return {};
  }

  Status read_device(const toml::table& table) {
    static constexpr std::array<std::string_view, 2> known = {"name", "note"};
    for (const auto& [key, node] : table) {
      const std::string name = fmt::format("device.{}", key.str());
      if (key.str() != "name" && key.str() != "note") return unknown(key, name, "key", known);
      Status s = read_text(key, name, node, key.str() == "name" ? &out_.device : &out_.note);
      if (!s.ok()) return s;
    }
    return {};
  }

  Status read_group(const toml::key& group, const toml::table& table) {
    std::vector<std::string_view> names, groups{"device"};
    for (const CostRow& row : cost_table()) {
      if (groups.back() != row.group) groups.push_back(row.group);
      if (row.group == group.str()) names.push_back(row.name);
    }
    if (names.empty()) return unknown(group, std::string(group.str()), "group", groups);
    for (const auto& [key, node] : table) {
      const std::string name = fmt::format("{}.{}", group.str(), key.str());
      const auto& rows = cost_table();
      const auto row = std::ranges::find_if(rows, [&, &key = key](const CostRow& r) {
        return r.group == group.str() && r.name == key.str();
      });
      if (row == rows.end()) return unknown(key, name, "cost", names);
      if (Status s = read_cost(key, name, node, *row); !s.ok()) return s;
    }
    return {};
  }

  Status read_cost(const toml::key& key, const std::string& name, const toml::node& node,
                   const CostRow& row) {
    const toml::table* const table = node.as_table();
    if (table == nullptr) {
      return wrong(key, name,
                   fmt::format("expected {{ value = 1, unit = \"{}\", uncertainty = 0.1, source = "
                               "\"M how it was measured\" }}",
                               row.unit));
    }
    static constexpr std::array<std::string_view, 4> known = {"value", "unit", "uncertainty",
                                                              "source"};
    std::string unit, source;
    for (const auto& [inner, entry] : *table) {
      const std::string inner_name = fmt::format("{}.{}", name, inner.str());
      if (std::ranges::find(known, inner.str()) == known.end()) {
        return unknown(inner, inner_name, "field", known);
      }
      if (inner.str() != "unit" && inner.str() != "source") continue;
      Status s = read_text(inner, inner_name, entry, inner.str() == "unit" ? &unit : &source);
      if (!s.ok()) return s;
    }
    const auto* const known_unit =
        std::find_if(std::begin(kUnits), std::end(kUnits),
                     [&](const UnitName& u) { return u.unit == row.unit && u.name == unit; });
    if (known_unit == std::end(kUnits)) {
      return wrong(key, name + ".unit",
                   fmt::format("\"{}\": expected {}", unit, units_of(row.unit)));
    }
    CostValue cost;
    Status s = read_number(key, name + ".value", table->get("value"), &cost.value);
    if (s.ok()) {
      s = read_number(key, name + ".uncertainty", table->get("uncertainty"), &cost.uncertainty);
    }
    if (!s.ok()) return s;
    cost.value *= known_unit->factor;
    const bool count = row.unit == "count";
    const double least = count ? 1 : 0, most = count ? kMostCount : kMostTime;
    if (cost.value < least || cost.value > most) {
      return wrong(
          key, name + ".value",
          count ? fmt::format("expected 1 to {:.0f}", kMostCount) : "expected 0 to 3600 s");
    }
    if (cost.uncertainty < 0 || cost.uncertainty > kMostUncertainty) {
      return wrong(key, name + ".uncertainty",
                   fmt::format("expected a fraction of the value, 0 to {:.0f}", kMostUncertainty));
    }
    const std::string_view tag = std::string_view(source).substr(0, source.find(' '));
    if (std::ranges::find(kTags, tag) == kTags.end() || tag.size() == source.size()) {
      return wrong(
          key, name + ".source",
          fmt::format("expected a tag ({}), then the source of the value", fmt::join(kTags, ", ")));
    }
    out_.set(row.field, cost, source);
    return {};
  }

  const std::string& file_;
  CostsFile& out_;
};

// '\' and '"' of a text between double quotes.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

// Four figures, never with an exponent.
std::string figures(double value) {
  const double magnitude = std::abs(value);
  const int decimals = magnitude >= 1000  ? 0
                       : magnitude >= 100 ? 1
                       : magnitude >= 10  ? 2
                       : magnitude >= 1   ? 3
                                          : 5;
  std::string text = fmt::format("{:.{}f}", value, decimals);
  if (text.find('.') != std::string::npos) {
    while (text.back() == '0') text.pop_back();
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

// Settings that were given replace the table's values.
void override_with(const Settings& settings, CostsFile* file) {
  const auto put = [&](std::string_view setting, CostValue DeviceCosts::*field, double value) {
    if (!settings.is_given(setting)) return;
    file->set(field, {value, 0}, fmt::format("S the setting {}", setting));
  };
  const double base = file->costs.receiver_dc_sendrecv.value;
  put("saving_dc_rdma", &DeviceCosts::receiver_dc_rdma,
      base - static_cast<double>(settings.saving_dc_rdma));
  put("saving_rc_rdma", &DeviceCosts::receiver_rc_rdma,
      base - static_cast<double>(settings.saving_rc_rdma));
  put("cost_poll", &DeviceCosts::receiver_poll, static_cast<double>(settings.cost_poll));
  put("cost_credit", &DeviceCosts::receiver_credit, static_cast<double>(settings.cost_credit));
  put("cost_setup_dc", &DeviceCosts::setup_dc_processor,
      static_cast<double>(settings.cost_setup_dc));
  put("cost_setup_rc", &DeviceCosts::setup_rc_processor,
      static_cast<double>(settings.cost_setup_rc));
}

}  // namespace

const std::vector<CostRow>& cost_table() {
  static const std::vector<CostRow> table = {
#define TURNOUT_COST(group, name, unit, value, uncertainty, source, help) \
  {#group, #name, #unit, help, &DeviceCosts::group##_##name, {value, uncertainty}, source},
#include "core/selection/device_costs.def"
#undef TURNOUT_COST
  };
  return table;
}

Result<CostsFile> parse_costs(std::string_view text, const std::string& file) {
  const Result<std::string> ascii = toml_ascii(text, file);
  if (!ascii) return ascii.status();
  const toml::parse_result parsed = toml::parse(ascii.value(), file);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    return Status{Code::invalid,
                  fmt::format("{}, line {}, column {}: {}", file, error.source().begin.line,
                              error.source().begin.column, error.description())};
  }
  CostsFile out;
  if (Status s = Reader(file, &out).read(parsed.table()); !s.ok()) return s;
  return out;
}

std::string print_costs(const CostsFile& file) {
  std::string text = fmt::format("[device]\nname = {}\n", quoted(file.device));
  if (!file.note.empty()) text += fmt::format("note = {}\n", quoted(file.note));
  std::string_view group;
  const auto& rows = cost_table();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].group != group) text += fmt::format("\n[{}]\n", group = rows[i].group);
    const CostValue& cost = file.costs.*rows[i].field;
    text += fmt::format("{} = {{ value = {}, unit = \"{}\", uncertainty = {}, source = {} }}\n",
                        rows[i].name, figures(cost.value), rows[i].unit, figures(cost.uncertainty),
                        quoted(file.sources[i]));
  }
  return text;
}

Result<CostsFile> load_costs(const Settings& settings) {
  CostsFile file;
  if (!settings.costs.empty()) {
    const std::string shown = fmt::format("{} (TURNOUT_COSTS)", settings.costs);
    const Result<std::string> text =
        read_text_file(settings.costs, shown, "device costs file", kLargestFile);
    if (!text) return text.status();
    Result<CostsFile> read = parse_costs(text.value(), settings.costs);
    if (!read) return read.status();
    file = std::move(read).value();
  }
  override_with(settings, &file);
  return file;
}

std::string costs_page() {
  std::string page =
      "# Device costs\n"
      "\n"
      "<!-- Written from core/selection/device_costs.def: make docs -->\n"
      "\n"
      "The policies `aqps` and `turnout` compare channels by these costs. The built-in values are\n"
      "those of a Connect-IB, mostly from Table 2 of the AQPS paper. `turnout calibrate` measures\n"
      "the local adapter, or with `--profile NAME` a modelled one, and writes a file for\n"
      "`TURNOUT_COSTS=FILE`. Values missing in the file keep their built-in value. The tuning\n"
      "parameters `saving_*` and `cost_*` override the file.\n"
      "\n"
      "```toml\n"
      "[device]\n"
      "name = \"mlx5_0\"\n"
      "[receiver]\n"
      "dc_rdma = { value = 1714, unit = \"ns\", uncertainty = 0.01, source = \"M 15 rounds\" }\n"
      "```\n"
      "\n"
      "Times are in ns, us, ms or s. The uncertainty is one standard error as a fraction of the\n"
      "value; the policy `turnout` ignores gains within the measurement error. A source begins\n"
      "with a tag of docs/profiles.md, or with M for measured.\n"
      "\n"
      "| value | built in | uncertainty | source | meaning |\n"
      "|---|---:|---:|---|---|\n";
  for (const CostRow& row : cost_table()) {
    page += fmt::format("| `{}.{}` | {}{} | {:.0f} % | {} | {} |\n", row.group, row.name,
                        figures(row.built_in.value), row.unit == "count" ? "" : " ns",
                        row.built_in.uncertainty * 100, row.built_in_source, row.help);
  }
  return page;
}

DeviceCosts with_ud(DeviceCosts costs) {
  costs.receiver_dc_sendrecv.value =
      std::max(costs.receiver_dc_sendrecv.value - costs.receiver_ud_below_dc.value,
               costs.receiver_rc_rdma.value + 1);
  costs.sender_post_dc_switch = costs.sender_post_dc;
  costs.sender_switch_latency = {};
  return costs;
}

DeviceCosts shared_by(DeviceCosts costs, std::uint64_t processes) {
  const auto share = [processes](double entries) {
    return std::max(entries / static_cast<double>(std::max<std::uint64_t>(processes, 1)), 1.0);
  };
  costs.context_first_entries.value = share(costs.context_first_entries.value);
  costs.context_second_entries.value = share(costs.context_second_entries.value);
  return costs;
}

CostModel cost_model(const DeviceCosts& costs, std::uint32_t ring_entries) {
  CostModel model;
  model.saving_dc_rdma = costs.receiver_dc_sendrecv.value - costs.receiver_dc_rdma.value;
  model.saving_rc_rdma = costs.receiver_dc_sendrecv.value - costs.receiver_rc_rdma.value;
  model.poll = costs.receiver_poll.value;
  model.credit = costs.receiver_credit.value;
  model.setup_dc = costs.setup_dc_processor.value;
  model.setup_rc = costs.setup_rc_processor.value;
  model.ring_entries = ring_entries;
  return model;
}

}  // namespace turnout::selection
