// SPDX-License-Identifier: BSD-3-Clause
#include "record/ucx/pending_operation.h"

#include <bit>

namespace turnout::record::ucx {

PendingOperation::PendingOperation(Recorder& recorder, const Operation& operation,
                                   const RequestParam& given)
    : recorder_(recorder), operation_(operation) {
  const bool receives = operation.kind == Operation::Kind::receive;
  // Fields that are not set may lie behind the program's own.
  param_.set = given.set;
  param_.flags = given.flags;
  param_.request = given.request;
  if ((given.set & kCallback) != 0) callback_ = given.callback;
  if ((given.set & kUserData) != 0) user_data_ = given.user_data;
  if ((given.set & kDatatype) != 0) param_.datatype = given.datatype;
  if ((given.set & 1u << 5) != 0) param_.reply_buffer = given.reply_buffer;
  if ((given.set & 1u << 6) != 0) param_.memory_type = given.memory_type;
  if ((given.set & kReceiveInfo) != 0) param_.receive_info = given.receive_info;
  if ((given.set & 1u << 8) != 0) param_.memory_handle = given.memory_handle;
  param_.set |= kCallback | kUserData;
  param_.callback = receives ? std::bit_cast<void (*)()>(&PendingOperation::receive_callback)
                             : std::bit_cast<void (*)()>(&PendingOperation::send_callback);
  param_.user_data = this;
  if (receives && (given.set & kReceiveInfo) == 0) {
    param_.set |= kReceiveInfo;
    param_.receive_info = &info_;
  }
  const auto lock = recorder.guard();
  recorder.number(&operation_);
  // Before it starts: another thread may see it end before this one comes back.
  recorder.started(&operation_);
}

TagInfo PendingOperation::received() const noexcept {
  return *static_cast<const TagInfo*>(param_.receive_info);
}

void PendingOperation::end(bool succeeded, const TagInfo* info) {
  const auto lock = recorder_.guard();
  const bool receives = operation_.kind == Operation::Kind::receive;
  if (!succeeded || (receives && info == nullptr)) {
    recorder_.dropped(&operation_);
  } else if (receives) {
    recorder_.matched(&operation_, kAnyPeer, info->length, info->tag);
  } else {
    recorder_.ended(&operation_);
  }
}

// The program's callback is the program's, whatever of ours called it.
template <class... Args>
void PendingOperation::call_program(void* request, ucs_status status, Args... args) const {
  const Recorder::Program program;
  using Function = void (*)(void*, ucs_status, Args..., void*);
  if (callback_ != nullptr)
    std::bit_cast<Function>(callback_)(request, status, args..., user_data_);
}

void PendingOperation::send_callback(void* request, ucs_status status, void* data) {
  auto* const pending = static_cast<PendingOperation*>(data);
  pending->end(status == 0, nullptr);
  pending->call_program(request, status);
  delete pending;
}

void PendingOperation::receive_callback(void* request, ucs_status status, const TagInfo* info,
                                        void* data) {
  auto* const pending = static_cast<PendingOperation*>(data);
  pending->end(status == 0, info);
  pending->call_program(request, status, info);
  delete pending;
}

}  // namespace turnout::record::ucx
