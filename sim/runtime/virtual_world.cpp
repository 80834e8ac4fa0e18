// SPDX-License-Identifier: BSD-3-Clause
#include "sim/runtime/virtual_world.h"

#include <fmt/format.h>

#include "core/verbs/library.h"

namespace turnout::sim {

Result<Settings> virtual_settings() {
  Settings settings = Settings::defaults();
  const std::pair<std::string, std::string> fixed[] = {{"device", "virtual"}, {"report", "0"}};
  for (const auto& [name, value] : fixed) {
    if (Status status = settings.set(name, value); !status.ok()) return status;
  }
  if (const char* path = environment_value("verbs_path"); path != nullptr) {
    if (Status status = settings.set("verbs_path", path); !status.ok()) return status;
  }
  return settings;
}

Result<std::unique_ptr<hca::World>> create_world(const hca::WorldOptions& options,
                                                 const Settings& settings) {
  if (Status status = verbs::load(verbs::Library::virtual_adapter, settings); !status.ok()) {
    return status;
  }
  auto* const create = reinterpret_cast<hca::CreateWorld*>(verbs::symbol("turnout_create_world"));
  if (create == nullptr) {
    return Status{Code::version, fmt::format("the virtual adapter in {} is too old: it has no "
                                             "virtual clock; rebuild it or set TURNOUT_VERBS_PATH",
                                             verbs::virtual_folder(settings))};
  }
  return std::unique_ptr<hca::World>(create(options));
}

}  // namespace turnout::sim
