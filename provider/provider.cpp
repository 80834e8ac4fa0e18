// SPDX-License-Identifier: BSD-3-Clause
// The entry point that libfabric finds in libturnout-fi.so (fi_provider(3), fi_provider(7)).
#include <fmt/format.h>
#include <rdma/providers/fi_prov.h>

#include <string>

#include "base/settings.h"
#include "provider/errors.h"
#include "provider/fabric.h"
#include "provider/fabric_log.h"
#include "provider/info.h"
#include "provider/library.h"

namespace turnout::provider {
namespace {

fi_provider description{};

int getinfo(std::uint32_t version, const char* node, const char* service, std::uint64_t flags,
            const fi_info* hints, fi_info** info) {
  return contain([&] {
    *info = nullptr;
    join_fabric_log(description);
    const Result<Settings>& settings = process_settings();
    if (settings.ok())
      return answer(settings.value(), {version, node, service, flags, hints}, info);
    // Only "is this provider there at all" can be answered without valid settings.
    if ((flags & FI_PROV_ATTR_ONLY) == 0) return -FI_ENODATA;
    return answer(Settings::defaults(), {version, node, service, flags, hints}, info);
  });
}

int fabric(fi_fabric_attr* attr, fid_fabric** made, void* context) {
  return contain([&] { return Fabric::open(attr, made, context); });
}

// Every object belongs to the program; all that is kept outside them is the way to the log.
void cleanup() {
  leave_fabric_log();
}

// Values with units are text to libfabric, which knows none.
fi_param_type type_of(std::string_view kind) noexcept {
  if (kind == "boolean") return FI_PARAM_BOOL;
  return kind == "count" ? FI_PARAM_SIZE_T : FI_PARAM_STRING;
}

// Every setting as a parameter of libfabric, for `fi_info -e`. Only tells: Settings::load reads
// FI_TURNOUT_* by itself, as the other programs of Turnout do where there is no libfabric.
void define_parameters() {
  if (library().param_define == nullptr) return;
  for (const SettingInfo& row : describe(Settings::defaults())) {
    if (row.tuning) continue;
    // libfabric copies both texts (fi_provider(3)). A refusal takes nothing but a line of fi_info.
    const std::string help = fmt::format("{} (default: {})", row.help,
                                         row.default_value.empty() ? "empty" : row.default_value);
    static_cast<void>(library().param_define(&description, std::string(row.name).c_str(),
                                             type_of(row.kind), "%s", help.c_str()));
  }
}

}  // namespace
}  // namespace turnout::provider

extern "C" __attribute__((visibility("default"))) fi_provider* fi_prov_ini(void) {
  using namespace turnout::provider;
  if (!library().find(__builtin_return_address(0))) return nullptr;
  description.version = kProviderVersion;
  // A provider that declares less than a program asks for is refused, one that declares more than
  // the library has is not loaded: declare exactly the library's. Newer layouts are handled in
  // compat.h.
  description.fi_version = library().version;
  description.name = "turnout";
  description.getinfo = getinfo;
  description.fabric = fabric;
  description.cleanup = cleanup;
  contain([] { define_parameters(); });
  return &description;
}
