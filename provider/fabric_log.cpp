// SPDX-License-Identifier: BSD-3-Clause
#include "provider/fabric_log.h"

#include <rdma/providers/fi_log.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <string_view>

#include "base/log.h"
#include "provider/library.h"

namespace turnout::provider {
namespace {

using log::Level;
using log::Subsystem;

// fi_log cuts what is longer than its 1,024 bytes with the prefix.
constexpr std::size_t kLongest = 800;

std::atomic<const fi_provider*> joined{nullptr};

// By Level; FI_LOG_TRACE is coarser than FI_LOG_INFO.
constexpr std::array kLevels = {FI_LOG_DEBUG, FI_LOG_DEBUG, FI_LOG_INFO, FI_LOG_WARN, FI_LOG_WARN};
static_assert(kLevels.size() == static_cast<std::size_t>(Level::off));

// By Subsystem: base, hca and so on.
constexpr std::array kSubsystems = {FI_LOG_CORE,    FI_LOG_DOMAIN,  FI_LOG_DOMAIN,  FI_LOG_EP_DATA,
                                    FI_LOG_EP_CTRL, FI_LOG_EP_DATA, FI_LOG_EP_CTRL, FI_LOG_MR,
                                    FI_LOG_EP_CTRL, FI_LOG_FABRIC,  FI_LOG_CORE};
static_assert(kSubsystems.size() == static_cast<std::size_t>(Subsystem::count));

fi_log_level level_of(Level level) noexcept {
  return kLevels[static_cast<std::size_t>(level)];
}

fi_log_subsys subsystem_of(Subsystem subsystem) noexcept {
  return kSubsystems[static_cast<std::size_t>(subsystem)];
}

bool takes(Subsystem subsystem, Level level) noexcept {
  const fi_provider* const provider = joined.load(std::memory_order_acquire);
  return provider != nullptr &&
         library().log_enabled(provider, level_of(level), subsystem_of(subsystem)) != 0;
}

void write(Subsystem subsystem, Level level, std::string_view text) {
  const fi_provider* const provider = joined.load(std::memory_order_acquire);
  if (provider == nullptr) return;
  // Where others tell the function, libfabric's subsystem being coarser than ours.
  const std::string place(log::name(subsystem));
  while (!text.empty()) {
    const std::string piece(text.substr(0, std::min(text.find('\n'), kLongest)));
    library().log(provider, level_of(level), subsystem_of(subsystem), place.c_str(), 0, "%s\n",
                  piece.c_str());
    text.remove_prefix(piece.size());
    if (text.starts_with('\n')) text.remove_prefix(1);
  }
}

constexpr log::Host kHost = {.takes = takes, .write = write};

}  // namespace

void join_fabric_log(const fi_provider& provider) {
  if (library().log_enabled == nullptr || library().log == nullptr) return;
  joined.store(&provider, std::memory_order_release);
  log::set_host(&kHost);
}

void leave_fabric_log() {
  log::set_host(nullptr);
  joined.store(nullptr, std::memory_order_release);
}

}  // namespace turnout::provider
