// SPDX-License-Identifier: BSD-3-Clause
// VirtualEngine: a world, put together: the kernel, the tables, the two sides of the adapters, and
// the verbs of the processes in it.
//
// A work request goes through the stages of the cost model, each an event: ready at the adapter ->
// departs (send side, memory, link) -> arrives (port, receive side) -> lands (memory written,
// receive completed) -> answered (sender told) -> completed. Data moves when it lands, from the
// memory of the sender. Acknowledgements and requests to read take time, but no bandwidth; the
// switch between the ports has as much of it as all of them. One thread.
#pragma once

#include <functional>
#include <utility>

#include "hca/virtual/data_path.h"
#include "hca/virtual/object_verbs.h"
#include "hca/virtual/responder.h"
#include "hca/virtual/world.h"

namespace turnout::hca {

class VirtualEngine final : public World {
 public:
  explicit VirtualEngine(const WorldOptions& options);
  ~VirtualEngine() override;
  // The engine of this process's world; null: there is none, the live engine serves.
  [[nodiscard]] static VirtualEngine* present() noexcept;
  // Opens the adapter of the current process.
  void open(Context& context);

  [[nodiscard]] const Profile& profile() const noexcept override { return profile_; }
  [[nodiscard]] ProcessIndex add_process(std::uint32_t node, Callback wake,
                                         void* context) override {
    return processes_.add(node, wake, context);
  }
  void enter(ProcessIndex process) override { processes_.enter(process); }
  [[nodiscard]] bool stand_still() override { return processes_.stand_still(); }
  [[nodiscard]] ProcessIndex current() const noexcept override { return processes_.current(); }
  [[nodiscard]] Picoseconds process_time() const noexcept override { return processes_.time(); }
  void charge(Picoseconds time) noexcept override { processes_.charge(time); }
  [[nodiscard]] Picoseconds busy_until(ProcessIndex process) const noexcept override {
    return processes_[process].busy;
  }
  void kill(ProcessIndex process) override;
  [[nodiscard]] bool alive(ProcessIndex process) const noexcept override {
    return processes_[process].alive;
  }
  [[nodiscard]] std::uint64_t rnr_waits(ProcessIndex process) const noexcept override {
    return processes_[process].rnr_waits;
  }
  [[nodiscard]] Picoseconds now() const noexcept override { return kernel_.now(); }
  void at(Picoseconds time, Callback callback, void* context, std::uint64_t argument) override {
    kernel_.at(time, callback, context, argument);
  }
  bool run_one() override;
  [[nodiscard]] std::uint64_t random() noexcept override { return kernel_.random(); }
  [[nodiscard]] const WorldStatistics& statistics() const noexcept override {
    return kernel_.statistics();
  }
  void set_trace(std::function<void(const Trace&)> trace) override { trace_.set(std::move(trace)); }

 private:
  void fetch_ahead() const noexcept;
  void run(EventKind kind, Operation& operation);

  Profile profile_;
  Kernel kernel_;
  Processes processes_;
  NumberTable<VirtualQp*> qps_{kFirstQp, 1024};
  EngineParts parts_{kernel_,  profile_, processes_,   qps_,         operations_, events_,
                     regions_, srqs_,    trace_,       completions_, receives_,   contexts_,
                     network_, data_,    work_queues_, requester_,   xrc_,        queue_pairs_};
  Operations operations_{kernel_};
  AsyncEvents events_{parts_};
  Regions regions_{parts_};
  SharedReceiveQueues srqs_{parts_};
  Tracer trace_{parts_};
  Completions completions_{parts_};
  Receives receives_{parts_};
  AdapterContexts contexts_{parts_};
  Network network_{parts_};
  DataMover data_{parts_};
  WorkQueues work_queues_{parts_};
  Requester requester_{parts_};
  Responder responder_{parts_};
  XrcDomains xrc_{parts_};
  QueuePairs queue_pairs_{parts_};
  VirtualDataPath data_path_{parts_};
  VirtualObjectVerbs objects_{parts_};
};

}  // namespace turnout::hca
