// SPDX-License-Identifier: BSD-3-Clause
// Firmware: the thread that reaps dead peers and retries stalled queue pairs.
//
// One per process and fabric. It sleeps in ppoll until a peer dies, a wake byte arrives or a time
// is due. start() and stop() by the thread that owns the engine.
#pragma once

#include <atomic>
#include <thread>

#include "hca/live/faults.h"
#include "hca/live/memory.h"
#include "hca/live/send_queues.h"

namespace turnout::hca {

class Firmware : LiveParts {
 public:
  explicit Firmware(const LiveParts& parts) : LiveParts(parts) {}

  // Errors: system (no thread).
  Status start();
  // Ends the thread; nothing where there is none. In a fork's child it was never there.
  void stop() noexcept;

 private:
  void main() noexcept;

  std::thread thread_;
  std::atomic<bool> stop_{false};
};

}  // namespace turnout::hca
