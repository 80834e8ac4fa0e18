// SPDX-License-Identifier: BSD-3-Clause
// MemoryRegistration: memory regions of user buffers, from the cache where it may keep them, and
// their invalidation when the memory is unmapped.
//
// The endpoint owns it; the thread that drives the endpoint calls it. Errors: of ibv_reg_mr.
#pragma once

#include <cerrno>

#include "core/memory/registration_cache.h"
#include "core/protocol/operation.h"
#include "core/state/endpoint_context.h"
#include "core/verbs/registered_memory.h"

namespace turnout {

class MemoryRegistration {
 public:
  explicit MemoryRegistration(EndpointContext& context)
      : context_(context),
        registrations_(context.account, context.settings.registration_cache_entries,
                       context.settings.registration_cache_bytes,
                       [](ibv_mr* region) noexcept { verbs::Mr(region).reset(); }) {}

  void forget_memory(const void* address, std::size_t length);
  void start_registrations();
  bool notice_unmapped(std::uintptr_t begin, std::uintptr_t end);
  // Errors: of ibv_reg_mr.
  [[nodiscard]] Status register_buffer(const iovec& part, int access, Registration* registration);
  [[nodiscard]] bool is_registered(const iovec& part, int access);
  static void release_regions(Transfer& transfer);
  // Of a failure of register_buffer(): the adapter or the limit on locked memory has no room, but
  // the memory itself may be read and written, so its bytes can travel in messages.
  [[nodiscard]] static bool may_copy(const Status& failure) noexcept {
    return failure.sys_errno() == ENOMEM || failure.sys_errno() == EAGAIN;
  }
  [[nodiscard]] const RegistrationCache& registrations() const noexcept { return registrations_; }
  [[nodiscard]] const std::string& registrations_off() const noexcept { return registrations_off_; }

 private:
  EndpointContext& context_;

  RegistrationCache registrations_;  // before the operations that use it
  std::string registrations_off_;    // why the cache is disabled; empty: it is enabled
  bool watches_ = false;             // unmap_log reports unmapped memory
  std::uint64_t unmaps_seen_ = 0;    // of unmap_log
};

}  // namespace turnout
