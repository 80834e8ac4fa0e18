// SPDX-License-Identifier: BSD-3-Clause
// DeviceCosts: the costs of one device that the selection uses (device_costs.def), built in or read
// from a file that `turnout calibrate` writes and the setting `costs` names.
//
//   [device]
//   name = "mlx5_0"                # as in the report
//   note = "..."                   # optional
//   [receiver]                     # a table for each group of device_costs.def
//   dc_rdma = { value = 1714, unit = "ns", uncertainty = 0.01, source = "M 15 rounds" }
//
// Values missing in a file keep their built-in value. The first word of a source is its tag, as in
// docs/profiles.md; M: measured. The text is untrusted: every value is range-checked, and an
// unknown key is an error. Plain values, any thread. Times are nanoseconds. Errors: invalid, with
// the file, the line, the key and what is accepted; load_costs() also permission and system.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/settings.h"
#include "base/status.h"
#include "core/selection/policy.h"

namespace turnout::selection {

struct CostValue {
  double value = 0;
  double uncertainty = 0;  // one standard error, as a part of the value
  [[nodiscard]] double error() const { return value * uncertainty; }
};

struct DeviceCosts {
  // receiver_dc_rdma, sender_dci_switch, ...
#define TURNOUT_COST(group, name, unit, value, uncertainty, source, help) \
  CostValue group##_##name{value, uncertainty};
#include "core/selection/device_costs.def"
#undef TURNOUT_COST
};

// One row of the table.
struct CostRow {
  std::string_view group, name, unit, help;
  CostValue DeviceCosts::*field;
  CostValue built_in;
  std::string_view built_in_source;
};
[[nodiscard]] const std::vector<CostRow>& cost_table();

struct CostsFile {
  std::string device = "Connect-IB";
  std::string note;
  DeviceCosts costs;
  std::vector<std::string> sources;  // by row of cost_table()
  CostsFile() {
    for (const CostRow& row : cost_table()) sources.emplace_back(row.built_in_source);
  }
  void set(CostValue DeviceCosts::*field, const CostValue& value, const std::string& source) {
    costs.*field = value;
    const auto row = std::ranges::find(cost_table(), field, &CostRow::field);
    sources[static_cast<std::size_t>(row - cost_table().begin())] = source;
  }
};

// `file` is for messages.
[[nodiscard]] Result<CostsFile> parse_costs(std::string_view text, const std::string& file);
// The file as parse_costs() reads it back; the values to four figures.
[[nodiscard]] std::string print_costs(const CostsFile& costs);
// Of the setting `costs`; built in when that is empty. Settings of AQPS Table 2 that were given
// (saving_*, cost_*) replace the file's values, without uncertainty.
[[nodiscard]] Result<CostsFile> load_costs(const Settings& settings);
// The text of docs/device-costs.md.
[[nodiscard]] std::string costs_page();

// The same device with UD in DC's place: a message over UD takes receiver_ud_below_dc less than one
// over DC, and turns no initiator.
[[nodiscard]] DeviceCosts with_ud(DeviceCosts costs);

// What is left for one of `processes` that share the adapter: its part of the context cache.
[[nodiscard]] DeviceCosts shared_by(DeviceCosts costs, std::uint64_t processes);

// What AQPS needs of it.
[[nodiscard]] CostModel cost_model(const DeviceCosts& costs, std::uint32_t ring_entries);

}  // namespace turnout::selection
