// SPDX-License-Identifier: BSD-3-Clause
// SendCompletions: completions of work requests: whose they are, what they end, and failures.
#pragma once

#include "core/endpoint/components.h"

namespace turnout {

class SendCompletions : ComponentsUser {
 public:
  using ComponentsUser::ComponentsUser;

  bool poll_send_queue();
  void retire(const SendRecord& record);
  void on_transfer_done(Transfer& transfer, Status status);

 private:
  void on_send_completion(const ibv_wc& wc);
  void on_rc_completion(RcQueue& queue, const ibv_wc& wc);
  void recover(MessageQueue& queue, const ibv_wc& wc);
  void end_of_lost(const SendRecord& record);
};

}  // namespace turnout
