// SPDX-License-Identifier: BSD-3-Clause
#include "provider/parameters.h"

#include <fmt/format.h>

#include <string>

#include "base/settings.h"
#include "provider/library.h"

namespace turnout::provider {
namespace {

// Values with units are text to libfabric, which knows none.
fi_param_type type_of(std::string_view kind) noexcept {
  if (kind == "boolean") return FI_PARAM_BOOL;
  if (kind == "count") return FI_PARAM_SIZE_T;
  return FI_PARAM_STRING;
}

}  // namespace

void define_parameters(const fi_provider& provider) {
  if (library().param_define == nullptr) return;
  for (const SettingInfo& row : describe(Settings::defaults())) {
    if (row.tuning) continue;
    // libfabric copies both texts (fi_provider(3)). A refusal takes nothing but a line of fi_info.
    const std::string help = fmt::format("{} (default: {})", row.help,
                                         row.default_value.empty() ? "empty" : row.default_value);
    static_cast<void>(library().param_define(&provider, std::string(row.name).c_str(),
                                             type_of(row.kind), "%s", help.c_str()));
  }
}

}  // namespace turnout::provider
