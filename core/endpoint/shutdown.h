// SPDX-License-Identifier: BSD-3-Clause
// Shutdown: closes an endpoint: delivers accepted messages and notifies peers.
#pragma once

#include "core/endpoint/components.h"

namespace turnout {

class Shutdown : ComponentsUser {
 public:
  using ComponentsUser::ComponentsUser;

  [[nodiscard]] bool close();

 private:
  void abandon_user_buffers();
  [[nodiscard]] bool receives_still(PeerId id) noexcept;
  [[nodiscard]] const SendRecord* owed(const SendQueue& queue) noexcept;
  void flush(MessageQueue& queue);
  [[nodiscard]] const Peer* find_owed();
  void send_shutdowns();
  void pass_the_gone(MessageQueue& queue);

  Nanoseconds close_moved_ = 0;         // last progress in the phase
  Nanoseconds next_close_warning_ = 0;  // when to log which peer it waits for
  Nanoseconds close_deadline_ = 0;      // of shutting_down
};

}  // namespace turnout
