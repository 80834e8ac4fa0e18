// SPDX-License-Identifier: BSD-3-Clause
// Registrations of user buffers: from the cache, while unmapped memory is monitored, otherwise for
// one operation.
//
// Before each lookup the log of unmapped ranges is read to its end, so an entry that is found is of
// memory that was not unmapped since its registration (unmap_log.h explains why none is missed).
// Under a virtual clock the process's own mappings are not relevant: the simulated program reports
// freed memory (forget_memory), so that cache hits depend on the program only.
#include "core/state/peer.h"

#include "base/log.h"
#include "core/memory/unmap_monitor.h"
#include "core/state/memory_registration.h"

namespace turnout {

void MemoryRegistration::start_registrations() {
  context_.account.set_spender(&registrations_, [](void* cache, std::uint64_t bytes) noexcept {
    return static_cast<RegistrationCache*>(cache)->give_back(bytes);
  });
  if (!context_.settings.registration_cache) {
    registrations_off_ = "TURNOUT_REGISTRATION_CACHE=0";
  } else if (!context_.device->is_simulated()) {
    if (context_.device->frees_pages_at_deregistration()) {
      registrations_off_ =
          "rdma-core's fork support requires memory to be deregistered before it is freed";
    } else if (const Status status = watch_unmapping(); status.ok()) {
      watches_ = context_.settings.break_rule != "stale-registrations";
      unmaps_seen_ = unmap_log.position();
    } else {
      registrations_off_ = status.text();
    }
  }
  if (!registrations_off_.empty()) {
    TURNOUT_LOG(memory, info, "registration cache disabled: {}", registrations_off_);
  }
}

// Drops entries of unmapped memory; false: some of it is in [begin, end).
bool MemoryRegistration::notice_unmapped(std::uintptr_t begin, std::uintptr_t end) {
  if (!watches_) return true;
  if (!watching_unmapping()) [[unlikely]] {
    watches_ = false;
    registrations_off_ = "libc's code was modified";
    registrations_.invalidate(0, UINTPTR_MAX);
    return false;
  }
  if (unmap_log.position() == unmaps_seen_) [[likely]]
    return true;
  bool whole = true;
  const bool all = unmap_log.read(&unmaps_seen_, [&](std::uintptr_t from, std::uintptr_t to) {
    registrations_.invalidate(from, to);
    whole = whole && (to <= begin || end <= from);
  });
  if (!all) registrations_.invalidate(0, UINTPTR_MAX);
  return all && whole;
}

Status MemoryRegistration::register_buffer(const iovec& part, int access,
                                           Registration* registration) {
  const auto begin = reinterpret_cast<std::uintptr_t>(part.iov_base);
  const std::uintptr_t end = begin + part.iov_len;
  bool keep = registrations_off_.empty();
  if (keep) {
    (void)notice_unmapped(begin, end);
    *registration = registrations_.find(begin, part.iov_len, static_cast<unsigned>(access));
    if (*registration) return {};
    keep = !watches_ || unmap_log.idle();
  }
  ibv_mr* region = (ibv_reg_mr)(context_.device->pd(), part.iov_base, part.iov_len, access);
  context_.charge(Work::register_memory, part.iov_len);
  if (region == nullptr && (errno == ENOMEM || errno == EAGAIN) && registrations_.drop_unused()) {
    region = (ibv_reg_mr)(context_.device->pd(), part.iov_base, part.iov_len, access);
    context_.charge(Work::register_memory, part.iov_len);
  }
  if (region == nullptr) {
    return verbs::failure("ibv_reg_mr", fmt::format("buffer of {} bytes", part.iov_len), errno);
  }
  if (keep && notice_unmapped(begin, end) && registrations_off_.empty()) {
    *registration = registrations_.keep(region, begin, part.iov_len, static_cast<unsigned>(access));
  } else {
    *registration = Registration(region);
  }
  return {};
}

// Whether register_buffer() would find it in the cache.
bool MemoryRegistration::is_registered(const iovec& part, int access) {
  const auto begin = reinterpret_cast<std::uintptr_t>(part.iov_base);
  return registrations_off_.empty() && notice_unmapped(begin, begin + part.iov_len) &&
         registrations_.covers(begin, part.iov_len, static_cast<unsigned>(access));
}

void MemoryRegistration::forget_memory(const void* address, std::size_t length) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  registrations_.invalidate(begin, begin + length);
}

// After a failure requests of a peer may still be in flight to memory that belongs to the
// application again: their key must be invalid.
void MemoryRegistration::release_regions(Transfer& transfer) {
  const bool failed = !transfer.status.ok() || (transfer.peer != nullptr && transfer.peer->lost);
  for (Registration& region : transfer.regions) failed ? region.discard() : region.reset();
}

}  // namespace turnout
