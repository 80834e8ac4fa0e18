// SPDX-License-Identifier: BSD-3-Clause
// PendingOperation: an operation that UCX has not ended. start_operation() starts one.
//
// It has the parameter that UCX is given in the place of the program's: with a callback of ours,
// which records the end and calls the program's.
//
// Made with new, and deleted by the callback, or by start_operation() of an operation that ends at
// once: no callback is called of it. Any thread; the recorder's lock is taken within. Sizes are
// bytes. Errors: UCX's own status. Source: ucp/api/ucp.h, ucp_request_param_t.
#pragma once

#include "record/recorder.h"
#include "record/ucx/ucp.h"

namespace turnout::record::ucx {

class PendingOperation {
 public:
  // `given`: the program's parameter. Records the start.
  PendingOperation(Recorder& recorder, const Operation& operation, const RequestParam& given);
  PendingOperation(const PendingOperation&) = delete;
  PendingOperation& operator=(const PendingOperation&) = delete;

  [[nodiscard]] const RequestParam* param() const noexcept { return &param_; }
  // Of a receive that has ended: what it got, where UCX wrote it.
  [[nodiscard]] TagInfo received() const noexcept;
  // Records the end. `info`: what a receive got; null: nothing.
  void end(bool succeeded, const TagInfo* info);

 private:
  static void send_callback(void* request, ucs_status status, void* data);
  static void receive_callback(void* request, ucs_status status, const TagInfo* info, void* data);
  template <class... Args>
  void call_program(void* request, ucs_status status, Args... args) const;

  Recorder& recorder_;
  Operation operation_;
  TagInfo info_;  // where the program asked for none
  RequestParam param_{};
  void (*callback_)() = nullptr;  // the program's
  void* user_data_ = nullptr;
};

// Starts an operation by `post`, with a parameter of ours. `ask` is for what a receive got that
// ended at once and was told nothing.
template <class Post, class Ask>
StatusPointer start_operation(Recorder& recorder, const Operation& operation,
                              const RequestParam* given, Post&& post, Ask&& ask) {
  auto* const pending = new PendingOperation(recorder, operation, *given);
  const StatusPointer status = post(pending->param());
  if (status != nullptr && !is_error(status)) return status;
  TagInfo info;
  if (status == nullptr && operation.kind == Operation::Kind::receive) {
    info = pending->received();
    if (info.tag == 0 && info.length == 0) info = ask(given);
  }
  pending->end(status == nullptr, &info);
  delete pending;
  return status;
}

}  // namespace turnout::record::ucx
