// SPDX-License-Identifier: BSD-3-Clause
// LiveEngine: verbs among the processes of one host, put together: this process's attachment to one
// fabric, its objects on it, and the thread that stands in for firmware.
//
// One per process and fabric, shared by the contexts opened on it; it ends with the last of them.
// Any thread.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "hca/live/data_path.h"
#include "hca/live/firmware.h"
#include "hca/live/object_verbs.h"

namespace turnout::hca {

class LiveEngine {
 public:
  // The engine of `fabric` (empty: which the settings name), with a context on it. Errors:
  // Fabric::open's and those of the settings.
  static Result<LiveEngine*> open(Context& context, const std::string& fabric = {});
  [[nodiscard]] const std::string& fabric_name() const noexcept { return fabric_->name(); }
  LiveEngine(const LiveEngine&) = delete;
  LiveEngine& operator=(const LiveEngine&) = delete;
  ~LiveEngine();
  // The engine ends with its last context.
  void close(Context& context);
  // As Fabric's.
  static void before_fork();
  static void after_fork();
  // Ends the firmware thread. Once, at exit or destruction.
  void stop() noexcept { firmware_.stop(); }

 private:
  explicit LiveEngine(std::shared_ptr<Fabric> fabric);
  Status start();

  std::shared_ptr<Fabric> fabric_;
  std::uint32_t contexts_ = 0;  // guarded by the registry's mutex
  Memory memory_;
  LocalObjects local_;
  LiveEvents events_;
  Hazards hazards_;
  LiveCompletions completions_;
  LiveReceives receives_;
  LiveRegions regions_;
  LiveWindows windows_;
  LiveMulticast multicast_;
  Executor executor_;
  LiveSendQueues send_queues_;
  QpNumbers numbers_;
  LiveXrc xrc_;
  LiveQueuePairs queue_pairs_;
  LiveSrqs srqs_;
  Firmware firmware_;
  LiveDataPath data_path_;
  LiveObjectVerbs objects_;
};

}  // namespace turnout::hca
