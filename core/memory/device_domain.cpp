// SPDX-License-Identifier: BSD-3-Clause
#include "core/memory/device_domain.h"

#include <fmt/format.h>

#include <cerrno>

#include "base/log.h"
#include "core/memory/unmap_monitor.h"

namespace turnout {

Result<std::shared_ptr<MemoryDomain>> MemoryDomain::open(const Settings& settings) {
  if (settings.registration_cache) prepare_to_watch_unmapping();  // a device may bring threads
  auto device = verbs::Device::open(settings);
  if (!device) return device.status();
  return std::shared_ptr<MemoryDomain>(std::make_shared<DeviceDomain>(std::move(device).value()));
}

Result<MemoryKey> DeviceDomain::register_memory(void* address, std::size_t length,
                                                unsigned access) {
  unsigned flags = IBV_ACCESS_LOCAL_WRITE;
  if ((access & kAccessRemoteRead) != 0) flags |= IBV_ACCESS_REMOTE_READ;
  if ((access & kAccessRemoteWrite) != 0) flags |= IBV_ACCESS_REMOTE_WRITE;
  verbs::Mr region((ibv_reg_mr)(device_->pd(), address, length, static_cast<int>(flags)));
  if (!region) return verbs::failure("ibv_reg_mr", fmt::format("{} bytes", length), errno);
  const MemoryKey key{next_handle_++, region->rkey};
  regions_.insert_or_assign(key.remote,
                            Region{std::move(region), key.handle, access, nullptr, nullptr});
  return key;
}

bool DeviceDomain::take_limit_event(const ibv_srq* queue) {
  for (ibv_async_event event; device_->take_event(&event);) {
    if (event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED) {
      low_.push_back(event.element.srq);
    } else {
      TURNOUT_LOG(verbs, debug, "{}: asynchronous event {}", device_->name(),
                  static_cast<unsigned>(event.event_type));
    }
  }
  return std::erase(low_, queue) > 0;
}

}  // namespace turnout
