// SPDX-License-Identifier: BSD-3-Clause
// World: thousands of adapters in one process under one virtual clock (engine 2 of the virtual
// adapter).
//
// The events of all nodes stand in one queue in integer picoseconds; equal times keep the order of
// insertion, and everything random is drawn from one seed, so a run is repeatable to the bit. Made
// by turnout_create_world(), an export of the virtual adapter's libibverbs.so.1; from then on, and
// until it is destroyed, ibv_open_device() in that process opens the adapter of the process that
// was entered last. One thread drives it and calls verbs.
//
// A process has a time of its own, ahead of the world's while its code runs: verbs calls and
// charge() move it; what it posts starts then. Its Wake is called when something reached it (a
// completion, a write into its memory, an event) at the world's time.
#pragma once

#include <cstdint>
#include <functional>

#include "hca/virtual/profile.h"

namespace turnout::hca {

using ProcessIndex = std::uint32_t;

struct WorldOptions {
  Profile profile;
  std::uint64_t seed = 1;
  std::uint32_t nodes = 1;
};

struct WorldStatistics {
  std::uint64_t events = 0;
  // Over time and kind of every event, and the queue pairs and bytes of its operation: equal runs
  // have equal ones.
  std::uint64_t hash = 0;
  std::uint64_t operations = 0, bytes = 0;
  std::uint64_t dc_connects = 0, dc_nacks = 0;
  std::uint64_t first_misses = 0, second_misses = 0;
  std::uint64_t rnr_waits = 0, retransmissions = 0;
  std::uint64_t faults = 0;
  std::uint64_t qps_created = 0, qps_alive = 0, regions_alive = 0;
};

// What happened, for timelines; null fields are not used by the kind.
struct Trace {
  enum class Kind : std::uint8_t {
    post,
    depart,
    arrive,
    complete,
    connect,
    nack,
    miss,
    rnr,
    fault
  };
  Kind kind;
  Picoseconds time;
  ProcessIndex process;
  ProcessIndex peer;
  std::uint32_t qp;
  std::uint32_t bytes;
};

class World {
 public:
  using Callback = void (*)(void* context, std::uint64_t argument);

  World() = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  virtual ~World() = default;  // after the contexts of all its processes were closed

  [[nodiscard]] virtual const Profile& profile() const noexcept = 0;

  // Processes. `wake(context, process)` is called inside run_one().
  [[nodiscard]] virtual ProcessIndex add_process(std::uint32_t node, Callback wake,
                                                 void* context) = 0;
  // The code that follows is that process's, and begins at the world's time or when what it did
  // before has ended, if that is later.
  virtual void enter(ProcessIndex process) = 0;
  // May the host have given the processor of the current process to another (fault.slow)? If so its
  // code goes on at process_time(), not now. Asked before a step, not twice for one.
  [[nodiscard]] virtual bool stand_still() = 0;
  [[nodiscard]] virtual ProcessIndex current() const noexcept = 0;
  // Of the current process.
  [[nodiscard]] virtual Picoseconds process_time() const noexcept = 0;
  virtual void charge(Picoseconds time) noexcept = 0;
  [[nodiscard]] virtual Picoseconds busy_until(ProcessIndex process) const noexcept = 0;
  // Ends it as SIGKILL would: its queue pairs answer nobody, nothing wakes it any more. What it
  // shared, XRC domains and targets, is left to the others that have it open.
  virtual void kill(ProcessIndex process) = 0;
  [[nodiscard]] virtual bool alive(ProcessIndex process) const noexcept = 0;
  // How often a message for it found no receive posted and had to come again.
  [[nodiscard]] virtual std::uint64_t rnr_waits(ProcessIndex process) const noexcept = 0;

  // The kernel.
  [[nodiscard]] virtual Picoseconds now() const noexcept = 0;
  virtual void at(Picoseconds time, Callback callback, void* context, std::uint64_t argument) = 0;
  // Takes the next event; false: there is none.
  virtual bool run_one() = 0;
  [[nodiscard]] virtual std::uint64_t random() noexcept = 0;  // of the world's seed
  [[nodiscard]] virtual const WorldStatistics& statistics() const noexcept = 0;
  // Null: no trace. Called inside verbs calls and run_one().
  virtual void set_trace(std::function<void(const Trace&)> trace) = 0;
};

// The signature of the exported turnout_create_world. The caller deletes the world.
using CreateWorld = World*(const WorldOptions&);

}  // namespace turnout::hca
