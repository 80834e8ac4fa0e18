// SPDX-License-Identifier: BSD-3-Clause
// What a program does over UCX: messages with tags and one-sided operations are observed in front
// of libucp. Older forms of the calls (ucp_tag_send_nb and the like) call these from within libucp,
// so they are observed too.
//
// - UCX does not tell whose message a receive got: the merging of the recordings finds it by the
//   tag, which holds the sender's rank in every MPI library.
// - Active messages are not recorded: their receivers are told no tag, and MPI libraries use them
//   for one-sided operations only.
//
// Any thread. Source: ucp/api/ucp.h of UCX 1.10 to 1.20.
#include "record/ucx/ucp.h"

#include "record/next_function.h"
#include "record/recorder.h"
#include "record/ucx/objects.h"
#include "record/ucx/pending_operation.h"

namespace turnout::record::ucx {
namespace {

// A send or a one-sided operation over an endpoint.
template <class Post>
StatusPointer over(Operation::Kind kind, Endpoint endpoint, const void* buffer, std::size_t count,
                   std::uint64_t tag, const RequestParam* param, Post&& post) {
  const Recorder::Call call(Recorder::get());
  Recorder* const recorder = call.recorder();
  if (recorder == nullptr) return post(param);
  Operation operation{
      .kind = kind, .tagged = true, .peer = Objects::get().peer_of(*recorder, endpoint)};
  operation.bytes = Objects::get().bytes_of(*recorder, buffer, count, param);
  operation.tag = tag;
  return start_operation(*recorder, operation, param, post,
                         [](const RequestParam*) { return TagInfo{}; });
}

template <class Function>
Function next(const char* name, const void* caller) {
  return reinterpret_cast<Function>(next_function(name, caller).address);
}

}  // namespace
}  // namespace turnout::record::ucx

// What `name` stands in front of; found once, as its first caller would.
#define TURNOUT_NEXT(name)                                                \
  static const auto real = turnout::record::ucx::next<decltype(&(name))>( \
      #name, __builtin_extract_return_addr(__builtin_return_address(0)))

extern "C" {
#pragma GCC visibility push(default)
using namespace turnout::record;
using namespace turnout::record::ucx;

StatusPointer ucp_tag_send_nbx(Endpoint ep, const void* buffer, std::size_t count,
                               std::uint64_t tag, const RequestParam* param) {
  TURNOUT_NEXT(ucp_tag_send_nbx);
  return over(Operation::Kind::send, ep, buffer, count, tag, param,
              [&](const RequestParam* p) { return real(ep, buffer, count, tag, p); });
}

StatusPointer ucp_tag_send_sync_nbx(Endpoint ep, const void* buffer, std::size_t count,
                                    std::uint64_t tag, const RequestParam* param) {
  TURNOUT_NEXT(ucp_tag_send_sync_nbx);
  return over(Operation::Kind::send, ep, buffer, count, tag, param,
              [&](const RequestParam* p) { return real(ep, buffer, count, tag, p); });
}

StatusPointer ucp_tag_recv_nbx(Worker worker, void* buffer, std::size_t count, std::uint64_t tag,
                               std::uint64_t mask, const RequestParam* param) {
  TURNOUT_NEXT(ucp_tag_recv_nbx);
  static const auto test = turnout::record::ucx::next<ucs_status (*)(void*, TagInfo*)>(
      "ucp_request_test", __builtin_extract_return_addr(__builtin_return_address(0)));
  const Recorder::Call call(Recorder::get());
  if (call.recorder() == nullptr) return real(worker, buffer, count, tag, mask, param);
  Operation operation{
      .kind = Operation::Kind::receive, .any_tag = mask != UINT64_MAX, .tagged = true};
  operation.tag = tag;
  return start_operation(
      *call.recorder(), operation, param,
      [&](const RequestParam* p) { return real(worker, buffer, count, tag, mask, p); },
      [](const RequestParam* given) {
        // A request of the program's own knows, and nothing else does.
        TagInfo info;
        if ((given->set & kRequest) != 0 && test != nullptr) (void)test(given->request, &info);
        return info;
      });
}

StatusPointer ucp_tag_msg_recv_nbx(Worker worker, void* buffer, std::size_t count, void* message,
                                   const RequestParam* param) {
  TURNOUT_NEXT(ucp_tag_msg_recv_nbx);
  const Recorder::Call call(Recorder::get());
  if (call.recorder() == nullptr) return real(worker, buffer, count, message, param);
  const Operation operation{.kind = Operation::Kind::receive, .any_tag = true, .tagged = true};
  const TagInfo found = Objects::get().take_probed(*call.recorder(), message);
  return start_operation(
      *call.recorder(), operation, param,
      [&](const RequestParam* p) { return real(worker, buffer, count, message, p); },
      [&](const RequestParam*) { return found; });
}

void* ucp_tag_probe_nb(Worker worker, std::uint64_t tag, std::uint64_t mask, int removes,
                       TagInfo* info) {
  TURNOUT_NEXT(ucp_tag_probe_nb);
  const Recorder::Call call(Recorder::get(), turnout::ComputedTime::Call::polls);
  void* const message = real(worker, tag, mask, removes, info);
  if (message != nullptr && removes != 0 && call.recorder() != nullptr)
    Objects::get().probed(*call.recorder(), message, *info);
  return message;
}

StatusPointer ucp_put_nbx(Endpoint ep, const void* buffer, std::size_t count, std::uint64_t address,
                          void* key, const RequestParam* param) {
  TURNOUT_NEXT(ucp_put_nbx);
  return over(Operation::Kind::put, ep, buffer, count, 0, param,
              [&](const RequestParam* p) { return real(ep, buffer, count, address, key, p); });
}

StatusPointer ucp_get_nbx(Endpoint ep, void* buffer, std::size_t count, std::uint64_t address,
                          void* key, const RequestParam* param) {
  TURNOUT_NEXT(ucp_get_nbx);
  return over(Operation::Kind::get, ep, buffer, count, 0, param,
              [&](const RequestParam* p) { return real(ep, buffer, count, address, key, p); });
}

unsigned ucp_worker_progress(Worker worker) {
  TURNOUT_NEXT(ucp_worker_progress);
  const Recorder::Call call(Recorder::get(), turnout::ComputedTime::Call::polls);
  return real(worker);
}

ucs_status ucp_worker_get_address(Worker worker, void** address, std::size_t* length) {
  TURNOUT_NEXT(ucp_worker_get_address);
  const Recorder::Call call(Recorder::get());
  const ucs_status status = real(worker, address, length);
  if (status == 0 && call.recorder() != nullptr) {
    const auto lock = call.recorder()->guard();
    call.recorder()->own_name(worker_name(*address));
  }
  return status;
}

ucs_status ucp_worker_query(Worker worker, WorkerAttributes* attributes) {
  TURNOUT_NEXT(ucp_worker_query);
  constexpr std::uint64_t kAddress = 1u << 1;
  const Recorder::Call call(Recorder::get());
  const ucs_status status = real(worker, attributes);
  if (status == 0 && (attributes->set & kAddress) != 0 && call.recorder() != nullptr) {
    const auto lock = call.recorder()->guard();
    call.recorder()->own_name(worker_name(attributes->address));
  }
  return status;
}

ucs_status ucp_ep_create(Worker worker, const EndpointParameters* parameters, Endpoint* ep) {
  TURNOUT_NEXT(ucp_ep_create);
  constexpr std::uint64_t kAddress = 1u << 0;
  const Recorder::Call call(Recorder::get());
  const ucs_status status = real(worker, parameters, ep);
  if (status == 0 && (parameters->set & kAddress) != 0 && call.recorder() != nullptr)
    Objects::get().made_endpoint(*call.recorder(), *ep, parameters->address);
  return status;
}

ucs_status ucp_dt_create_generic(const GenericOps* ops, void* context, std::uint64_t* datatype) {
  TURNOUT_NEXT(ucp_dt_create_generic);
  const ucs_status status = real(ops, context, datatype);
  if (Recorder* const recorder = Recorder::get(); status == 0 && recorder != nullptr)
    Objects::get().made_datatype(*recorder, *datatype, {*ops, context});
  return status;
}

#pragma GCC visibility pop
}  // extern "C"
