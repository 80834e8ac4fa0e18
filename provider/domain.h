// SPDX-License-Identifier: BSD-3-Clause
// Domain: libfabric's fid_domain; the objects of one program that share a lock and memory regions.
//
// Owned by the program (fi_close); endpoints, queues, counters, vectors and regions opened on it
// count as references. `lock` is null if the program serializes its calls (FI_THREAD_DOMAIN) and
// there is no progress thread. Otherwise every call on every object of the domain takes it, so one
// mutex covers the vector, the queues and the endpoints of a call.
//
// The first endpoint or region opens the device, which all share: a region's key belongs to the
// domain and is valid at each of its endpoints. Source: fi_domain(3).
#pragma once

#include <rdma/fi_domain.h>

#include <atomic>
#include <cassert>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.h"
#include "core/endpoint.h"
#include "provider/address_format.h"
#include "provider/deferred_work_queue.h"
#include "provider/domain_lock.h"
#include "provider/fabric.h"
#include "provider/idle_backoff.h"
#include "provider/ops.h"
#include "provider/progress_thread.h"

namespace turnout::provider {

struct Cntr;
struct Cq;
struct Ep;
struct EventQueue;
class PeerReceives;
class Profile;

struct Domain final : Object<Domain, fid_domain> {
  explicit Domain(Fabric& owner) : fabric(owner) { fabric.references.fetch_add(1); }
  ~Domain() {
    assert(references.load() == 0);
    progress_thread.reset();  // it looks at the rest
    fabric.references.fetch_sub(1);
  }

  Fabric& fabric;
  std::uint32_t api = 0;  // the version that the program asked for
  bool atomics = false;   // FI_ATOMIC
  AddressFormat format;
  bool remote_events = false;  // FI_RMA_EVENT
  DomainLock domain_lock;
  DomainLock* lock = nullptr;  // &domain_lock, or null: see above
  std::atomic<unsigned> references{0};
  EventQueue* events = nullptr;  // bound by the program, may be null
  std::vector<Ep*> endpoints;
  std::vector<PeerReceives*> peer_receives;  // FI_PEER: whose owners have the receives
  std::vector<Cntr*> peer_counters;          // FI_PEER: whose owners count
  std::vector<Profile*> profiles;            // that are open
  std::uint64_t names_known = 1;             // changes when addresses are inserted
  DeferredWorkQueue work{*this};
  IdleBackoff<> idle_backoff;                       // of who reads without waiting
  bool automatic = false;                           // FI_PROGRESS_AUTO
  std::unique_ptr<ProgressThread> progress_thread;  // null: nobody asked for it

  // Gives a queue or counter what the program is to wait with: the thread signals a wait object.
  // `set` for FI_WAIT_SET. 0 or -FI_E*.
  [[nodiscard]] int watch(Cq& queue, fi_wait_obj wait, fid_wait* set);
  [[nodiscard]] int watch(Cntr& counter, fi_wait_obj wait, fid_wait* set);
  void stop_watching(Cq& queue) noexcept;
  void stop_watching(Cntr& counter) noexcept;
  // Any thread, without the lock: a queue or counter has a wait object.
  [[nodiscard]] bool is_watched() const noexcept {
    return watched_.load(std::memory_order_relaxed) != 0;
  }
  // The same: without the thread something would never move.
  [[nodiscard]] bool needs_thread() const noexcept { return automatic || is_watched(); }
  // Signals the wait objects of those with something new; under the lock.
  void signal_waiters() noexcept;
  // An endpoint is enabled; under the lock. 0, or -FI_E* where a thread is needed and
  // cannot be had.
  [[nodiscard]] int start_thread();

  // Of a read that does not wait. True: call sched_yield, without the lock.
  template <class Look>
  [[nodiscard, gnu::always_inline]] bool read(Look&& look) {
    return idle_backoff.read(look, [this] { return lock != nullptr && lock->is_wanted(); });
  }
  // The program makes progress; under the lock.
  void count_call() noexcept {
    if (progress_thread != nullptr) progress_thread->count_call();
  }
  // Opened at its first use. Errors: as MemoryDomain::open.
  [[nodiscard]] Result<std::shared_ptr<MemoryDomain>> memory();

  static int open(Fabric& fabric, fi_info* info, fid_domain** domain, void* context);

 private:
  template <class Watched>
  [[nodiscard]] int watch(std::vector<Watched*>& watched, Watched& object, fi_wait_obj wait,
                          fid_wait* set);

  std::mutex thread_mutex_;  // of who makes progress_thread; before the domain's lock

  std::shared_ptr<MemoryDomain> memory_;  // null: not opened yet
  std::vector<Cq*> watched_queues_;
  std::vector<Cntr*> watched_counters_;
  std::atomic<std::size_t> watched_{0};
};

// An object that is opened on a domain.
template <class T, class Fid>
struct ObjectOfDomain : Object<T, Fid> {
  explicit ObjectOfDomain(Domain& owner) noexcept : domain(owner) {
    domain.references.fetch_add(1);
  }
  ObjectOfDomain(const ObjectOfDomain&) = delete;
  ObjectOfDomain& operator=(const ObjectOfDomain&) = delete;
  ~ObjectOfDomain() { domain.references.fetch_sub(1); }

  // fi_close of what endpoints are bound to.
  static int close(::fid* f) {
    T& object = T::of(f);
    {
      const Guard guard(object.domain.lock);
      if (object.in_use()) return -FI_EBUSY;
      // From here on no other thread may find it.
      if constexpr (requires { object.leave_domain(); }) object.leave_domain();
    }
    delete &object;
    return 0;
  }

  Domain& domain;
};

// The registration calls (mr.cpp).
[[nodiscard]] fi_ops_mr& region_ops() noexcept;

}  // namespace turnout::provider
