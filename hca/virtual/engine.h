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
  void run(EventKind kind, Operation& operation);

  Profile profile_;
  Kernel kernel_;
  Processes processes_;
  NumberTable<VirtualQp*> qps_{kFirstQp, 1024};
  WorldParts world_{kernel_, profile_, processes_, qps_};
  Operations operations_{kernel_};
  AsyncEvents events_{kernel_, profile_};
  Regions regions_{world_};
  SharedReceiveQueues srqs_{processes_, events_};
  Tracer trace_{kernel_, qps_, srqs_};
  Completions completions_{world_, events_};
  Receives receives_{world_, events_, completions_, srqs_};
  AdapterContexts contexts_{world_, trace_};
  Network network_{world_};
  DataMover data_{regions_};
  EngineParts parts_{world_,       operations_, events_,   regions_, srqs_, trace_,
                     completions_, receives_,   contexts_, network_, data_};
  WorkQueues work_queues_{parts_};
  Requester requester_{parts_, work_queues_};
  Responder responder_{parts_, work_queues_};
  XrcDomains xrc_{parts_, work_queues_};
  QueuePairs queue_pairs_{parts_, work_queues_, requester_, xrc_};
  VirtualDataPath data_path_{parts_, work_queues_};
  VirtualObjectVerbs objects_{parts_, queue_pairs_, xrc_};
};

}  // namespace turnout::hca
