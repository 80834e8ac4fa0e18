// Domain: libfabric's fid_domain; the objects of one program that share a lock and memory regions.
//
// Owned by the program (fi_close); endpoints, queues, counters, vectors and regions opened on it
// count as references. `lock` is null when the program promised to serialize its calls
// (FI_THREAD_DOMAIN) and there is no progress thread; every other threading model takes it around
// every call on every object of the domain, so one mutex covers the vector, the queues and the
// endpoints that meet in one call.
//
// Memory is registered with a core endpoint while libfabric registers it with a domain. A domain
// has one endpoint as a rule: regions belong to it. A region made before any endpoint creates the
// core endpoint that the first fi_endpoint will take over, so that its key is valid at once.
#pragma once

#include <rdma/fi_domain.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "core/endpoint.h"
#include "provider/fabric.h"
#include "provider/ops.h"
#include "provider/progress_thread.h"

namespace turnout::provider {

struct Ep;
struct EventQueue;
struct Region;

struct Domain final : fid_domain {
  explicit Domain(Fabric& owner) : fabric(owner) { fabric.references.fetch_add(1); }
  ~Domain() { fabric.references.fetch_sub(1); }

  Fabric& fabric;
  std::uint32_t api = 0;  // the version that the program asked for
  bool atomics = false;   // FI_ATOMIC
  DomainLock domain_lock;
  DomainLock* lock = nullptr;  // &domain_lock, or null: see above
  std::atomic<unsigned> references{0};
  EventQueue* events = nullptr;  // bound by the program, may be null
  std::vector<Ep*> endpoints;
  std::vector<Region*> regions;                     // with remote access
  std::unique_ptr<Endpoint> spare;                  // made for a region, taken by the next endpoint
  std::unique_ptr<ProgressThread> progress_thread;  // last, so first to go; null: not asked for

  // The program makes progress; under the lock.
  void count_call() noexcept {
    if (progress_thread != nullptr) progress_thread->count_call();
  }
  // A core endpoint for a new fi_endpoint. Errors: as Endpoint::create.
  [[nodiscard]] Result<std::unique_ptr<Endpoint>> take_core();
  // The core endpoint that regions belong to. Errors: as Endpoint::create; unsupported when the
  // domain has several.
  [[nodiscard]] Result<Endpoint*> core_of_regions();
  // Before a core endpoint goes: its regions are deregistered and belong to nobody.
  void forget_core(Endpoint* core);

  static int open(Fabric& fabric, fi_info* info, fid_domain** domain, void* context);
  [[nodiscard]] static Domain& of(fid_domain* f) noexcept { return *static_cast<Domain*>(f); }
  [[nodiscard]] static Domain& of(::fid* f) noexcept {
    return of(reinterpret_cast<fid_domain*>(f));
  }
};

}  // namespace turnout::provider
