// SPDX-License-Identifier: BSD-3-Clause
// What a program does over UCX: messages with tags, one-sided operations, and active messages'
// sends are observed in front of libucp. Older forms of the calls (ucp_tag_send_nb and the like)
// call these from within libucp, so they are observed too.
//
// - UCX does not tell whose message a receive got: the merging of the recordings finds it by the
//   tag, which holds the sender's rank in every MPI library.
// - A process is known by the beginning of its workers' addresses: the version and the worker's
//   own number, the same in every address of a worker.
// - An operation that does not end at once gets a callback of ours, which calls the program's.
// - Active messages are not recorded: their receivers are told no tag, and MPI libraries use them
//   for one-sided operations only.
//
// Any thread. Source: ucp/api/ucp.h of UCX 1.10 to 1.20, whose layouts are part of its ABI and are
// written down here as far as they are needed: UCX's headers need not be there.
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "record/next_function.h"
#include "record/recorder.h"
#include "record/sum.h"

namespace turnout::record {
namespace {

using Endpoint = void*;
using Worker = void*;
using StatusPointer = void*;  // null: done; an error; or the request
using ucs_status = std::int8_t;

struct TagInfo {  // ucp_tag_recv_info_t
  std::uint64_t tag = 0;
  std::size_t length = 0;
};

// ucp_request_param_t, up to its last field that is used here; its first field says which are set.
struct RequestParam {
  std::uint32_t set;
  std::uint32_t flags;
  void* request;
  void (*callback)();  // by kind
  std::uint64_t datatype;
  void* user_data;
  void* reply_buffer;
  int memory_type;
  void* receive_info;  // TagInfo of a tagged receive
  void* memory_handle;
};
static_assert(offsetof(RequestParam, receive_info) == 56);
constexpr std::uint32_t kRequest = 1u << 0, kCallback = 1u << 1, kUserData = 1u << 2,
                        kDatatype = 1u << 3, kReceiveInfo = 1u << 7;

struct Piece {  // ucp_dt_iov_t
  void* buffer;
  std::size_t length;
};

struct GenericOps {  // ucp_generic_dt_ops_t
  void* (*start_pack)(void* context, const void* buffer, std::size_t count);
  void* (*start_unpack)(void* context, void* buffer, std::size_t count);
  std::size_t (*packed_size)(void* state);
  std::size_t (*pack)(void* state, std::size_t offset, void* to, std::size_t most);
  ucs_status (*unpack)(void* state, std::size_t offset, const void* from, std::size_t length);
  void (*finish)(void* state);
};
struct Generic {
  GenericOps ops;
  void* context;
};

// What is known of UCX's objects; guarded by the recorder.
struct Known {
  std::unordered_map<Endpoint, PeerId> endpoints;
  std::unordered_map<std::uint64_t, Generic> datatypes;
  std::unordered_map<void*, TagInfo> messages;  // found by a probe, to be received
};
Known& known() {
  static Known& one = *new Known;
  return one;
}

bool is_error(StatusPointer pointer) noexcept {
  return reinterpret_cast<std::uintptr_t>(pointer) >= static_cast<std::uintptr_t>(-100);
}

// Longer addresses than this are all there are.
std::uint64_t worker_name(const void* address) noexcept {
  return Recorder::name_of({static_cast<const std::byte*>(address), 9});
}

// Of ucp_datatype_t: the class is in its lowest three bits.
std::uint64_t bytes_of(Recorder& recorder, const void* buffer, std::size_t count,
                       const RequestParam* param) {
  const std::uint64_t type = (param->set & kDatatype) != 0 ? param->datatype : 1u << 3;
  switch (type & 7) {
    case 0:
      return count * (type >> 3);
    case 2:
      return sum_of(static_cast<const Piece*>(buffer), count, &Piece::length);
    case 7: {
      Generic generic{};
      {
        const auto lock = recorder.guard();
        const auto found = known().datatypes.find(type);
        if (found == known().datatypes.end()) return 0;
        generic = found->second;
      }
      void* const state = generic.ops.start_pack(generic.context, buffer, count);
      const std::size_t length = generic.ops.packed_size(state);
      generic.ops.finish(state);
      return length;
    }
    default:
      return 0;
  }
}

// An operation that has not ended: its callback is ours, with this as the program's data.
struct Pending {
  Recorder* recorder;
  Operation operation;
  TagInfo info;  // where the program asked for none
  RequestParam param;
  void (*callback)() = nullptr;
  void* user_data = nullptr;

  // The program's callback is the program's, whatever of ours called it.
  template <class... Args>
  void call(void* request, ucs_status status, Args... args) const {
    const Recorder::Program program;
    using Function = void (*)(void*, ucs_status, Args..., void*);
    if (callback != nullptr) std::bit_cast<Function>(callback)(request, status, args..., user_data);
  }
};

void sent(void* request, ucs_status status, void* data) {
  const auto* const pending = static_cast<Pending*>(data);
  {
    const auto lock = pending->recorder->guard();
    Operation operation = pending->operation;
    status == 0 ? pending->recorder->ended(&operation) : pending->recorder->dropped(&operation);
  }
  pending->call(request, status);
  delete pending;
}

void received(void* request, ucs_status status, const TagInfo* info, void* data) {
  const auto* const pending = static_cast<Pending*>(data);
  {
    const auto lock = pending->recorder->guard();
    Operation operation = pending->operation;
    if (status == 0 && info != nullptr) {
      pending->recorder->matched(&operation, kAnyPeer, info->length, info->tag);
    } else {
      pending->recorder->dropped(&operation);
    }
  }
  pending->call(request, status, info);
  delete pending;
}

// Starts an operation by `post`, with a parameter of ours. `ask` is for what a receive got that
// ended at once and was told nothing.
template <class Post, class Ask>
StatusPointer start(Recorder& recorder, Operation operation, const RequestParam* given, Post&& post,
                    Ask&& ask) {
  const bool receives = operation.kind == Operation::Kind::receive;
  auto* const pending =
      new Pending{.recorder = &recorder, .operation = operation, .info = {}, .param = {}};
  RequestParam& param = pending->param;
  // Fields that are not set may lie behind the program's own.
  param.set = given->set;
  param.flags = given->flags;
  param.request = given->request;
  if ((given->set & kCallback) != 0) pending->callback = given->callback;
  if ((given->set & kUserData) != 0) pending->user_data = given->user_data;
  if ((given->set & kDatatype) != 0) param.datatype = given->datatype;
  if ((given->set & 1u << 5) != 0) param.reply_buffer = given->reply_buffer;
  if ((given->set & 1u << 6) != 0) param.memory_type = given->memory_type;
  if ((given->set & kReceiveInfo) != 0) param.receive_info = given->receive_info;
  if ((given->set & 1u << 8) != 0) param.memory_handle = given->memory_handle;
  param.set |= kCallback | kUserData;
  param.callback =
      receives ? std::bit_cast<void (*)()>(&received) : std::bit_cast<void (*)()>(&sent);
  param.user_data = pending;
  if (receives && (given->set & kReceiveInfo) == 0) {
    param.set |= kReceiveInfo;
    param.receive_info = &pending->info;
  }
  {
    const auto lock = recorder.guard();
    recorder.number(&pending->operation);
    // Before it starts: another thread may see it end before this one comes back.
    recorder.started(&pending->operation);
  }
  const StatusPointer status = post(&param);
  if (status != nullptr && !is_error(status)) return status;
  const auto lock = recorder.guard();
  if (status != nullptr) {
    recorder.dropped(&pending->operation);
  } else if (receives) {
    TagInfo info = *static_cast<const TagInfo*>(param.receive_info);
    if (info.tag == 0 && info.length == 0) info = ask(given);
    recorder.matched(&pending->operation, kAnyPeer, info.length, info.tag);
  } else {
    recorder.ended(&pending->operation);
  }
  delete pending;
  return status;
}

PeerId peer_of(Recorder& recorder, Endpoint endpoint) {
  const auto lock = recorder.guard();
  const auto found = known().endpoints.find(endpoint);
  return found == known().endpoints.end() ? kAnyPeer : found->second;
}

// A send or a one-sided operation over an endpoint.
template <class Post>
StatusPointer over(Operation::Kind kind, Endpoint endpoint, const void* buffer, std::size_t count,
                   std::uint64_t tag, const RequestParam* param, Post&& post) {
  const Recorder::Call call(Recorder::get());
  Recorder* const recorder = call.recorder();
  if (recorder == nullptr) return post(param);
  Operation operation{.kind = kind, .tagged = true, .peer = peer_of(*recorder, endpoint)};
  operation.bytes = bytes_of(*recorder, buffer, count, param);
  operation.tag = tag;
  return start(*recorder, operation, param, post, [](const RequestParam*) { return TagInfo{}; });
}

template <class Function>
Function next(const char* name, const void* caller) {
  return reinterpret_cast<Function>(next_function(name, caller).address);
}

}  // namespace
}  // namespace turnout::record

// What `name` stands in front of; found once, as its first caller would.
#define TURNOUT_NEXT(name)                                         \
  static const auto real = turnout::record::next<decltype(&name)>( \
      #name, __builtin_extract_return_addr(__builtin_return_address(0)))

extern "C" {
#pragma GCC visibility push(default)
using namespace turnout::record;

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
  static const auto test = turnout::record::next<ucs_status (*)(void*, TagInfo*)>(
      "ucp_request_test", __builtin_extract_return_addr(__builtin_return_address(0)));
  const Recorder::Call call(Recorder::get());
  if (call.recorder() == nullptr) return real(worker, buffer, count, tag, mask, param);
  Operation operation{
      .kind = Operation::Kind::receive, .any_tag = mask != UINT64_MAX, .tagged = true};
  operation.tag = tag;
  return start(
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
  TagInfo found;
  {
    const auto lock = call.recorder()->guard();
    if (const auto at = known().messages.extract(message); !at.empty()) found = at.mapped();
  }
  return start(
      *call.recorder(), operation, param,
      [&](const RequestParam* p) { return real(worker, buffer, count, message, p); },
      [&](const RequestParam*) { return found; });
}

void* ucp_tag_probe_nb(Worker worker, std::uint64_t tag, std::uint64_t mask, int removes,
                       TagInfo* info) {
  TURNOUT_NEXT(ucp_tag_probe_nb);
  const Recorder::Call call(Recorder::get(), turnout::ComputedTime::Call::polls);
  void* const message = real(worker, tag, mask, removes, info);
  if (message != nullptr && removes != 0 && call.recorder() != nullptr) {
    const auto lock = call.recorder()->guard();
    known().messages[message] = *info;
  }
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

// ucp_worker_attr_t: which fields are asked for, the mode of threads, flags of the address, and the
// address.
struct WorkerAttributes {
  std::uint64_t set;
  int thread_mode;
  std::uint32_t address_flags;
  void* address;
  std::size_t address_length;
};

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

// ucp_ep_params_t, its beginning.
struct EndpointParameters {
  std::uint64_t set;
  const void* address;
};

ucs_status ucp_ep_create(Worker worker, const EndpointParameters* parameters, Endpoint* ep) {
  TURNOUT_NEXT(ucp_ep_create);
  constexpr std::uint64_t kAddress = 1u << 0;
  const Recorder::Call call(Recorder::get());
  const ucs_status status = real(worker, parameters, ep);
  if (status == 0 && (parameters->set & kAddress) != 0 && call.recorder() != nullptr) {
    const auto lock = call.recorder()->guard();
    known().endpoints[*ep] = call.recorder()->peer(worker_name(parameters->address));
  }
  return status;
}

ucs_status ucp_dt_create_generic(const GenericOps* ops, void* context, std::uint64_t* datatype) {
  TURNOUT_NEXT(ucp_dt_create_generic);
  const ucs_status status = real(ops, context, datatype);
  if (Recorder* const recorder = Recorder::get(); status == 0 && recorder != nullptr) {
    const auto lock = recorder->guard();
    known().datatypes[*datatype] = {*ops, context};
  }
  return status;
}

#pragma GCC visibility pop
}  // extern "C"
