// SPDX-License-Identifier: BSD-3-Clause
// LiveEngine: verbs among the processes of one host, put together: this process's attachment to one
// fabric, its objects on it, and the thread that stands in for firmware.
//
// One per process and fabric, shared by the contexts opened on it; it ends with the last of them.
// Any thread.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/status.h"
#include "hca/live/data_path.h"
#include "hca/live/faulty_data_path.h"
#include "hca/live/firmware.h"
#include "hca/live/idle_polls.h"
#include "hca/live/indirect_keys.h"
#include "hca/live/mlx5_queues.h"
#include "hca/live/object_verbs.h"
#include "hca/live/shared_copies.h"

namespace turnout::hca {

class LiveEngine {
 public:
  // The engine of `fabric` (empty: which the settings name), with a context on it. Errors:
  // Fabric::open's and those of the settings.
  static Result<LiveEngine*> open(Context& context, const std::string& fabric = {});
  [[nodiscard]] Mlx5Queues& mlx5_queues() noexcept { return mlx5_queues_; }
  [[nodiscard]] LiveEvents& events() noexcept { return events_; }
  [[nodiscard]] IndirectKeys& indirect_keys() noexcept { return indirect_keys_; }
  [[nodiscard]] LiveRegions& regions() noexcept { return regions_; }
  [[nodiscard]] const std::string& fabric_name() const noexcept { return fabric_->name(); }
  ~LiveEngine() { stop(); }
  // The engine ends with its last context.
  void close(Context& context);
  // As Fabric's.
  static std::mutex& open_mutex() noexcept;
  // Ends the firmware thread. At exit or destruction.
  void stop() noexcept;

 private:
  LiveEngine(std::shared_ptr<Fabric> fabric, FaultPlan plan)
      : fabric_(std::move(fabric)), faults_(parts_, std::move(plan)) {}
  Status start();

  std::shared_ptr<Fabric> fabric_;
  std::uint32_t contexts_ = 0;  // guarded by the registry's mutex
  Memory memory_{*fabric_};
  LocalObjects local_;
  IdlePolls idle_polls_;
  LiveParts parts_{*fabric_,  local_,         memory_,      idle_polls_, shared_copies_,
                   events_,   hazards_,       completions_, receives_,   regions_,
                   windows_,  indirect_keys_, multicast_,   numbers_,    direct_writes_,
                   executor_, faults_,        send_queues_, xrc_,        queue_pairs_,
                   srqs_,     mlx5_queues_};
  SharedCopies shared_copies_{parts_};
  LiveEvents events_{parts_};
  Hazards hazards_{parts_};
  LiveCompletions completions_{parts_};
  LiveReceives receives_{parts_};
  LiveRegions regions_{parts_};
  LiveWindows windows_{parts_};
  IndirectKeys indirect_keys_{parts_};
  LiveMulticast multicast_{parts_};
  QpNumbers numbers_{parts_};
  DirectWrites direct_writes_{parts_};
  Executor executor_{parts_};
  Faults faults_;
  LiveSendQueues send_queues_{parts_};
  LiveXrc xrc_{parts_};
  LiveQueuePairs queue_pairs_{parts_};
  LiveSrqs srqs_{parts_};
  Mlx5Queues mlx5_queues_{parts_};
  Firmware firmware_{parts_};
  LiveDataPath data_path_{parts_};
  FaultyDataPath faulty_data_path_{parts_, data_path_};
  LiveObjectVerbs objects_{parts_, *this};
};

}  // namespace turnout::hca
