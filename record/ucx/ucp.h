// SPDX-License-Identifier: BSD-3-Clause
// The types of libucp's calls, as far as the recorder needs them: UCX's headers need not be there.
//
// All is UCX's; nothing is owned here. Sizes are bytes. Source: ucp/api/ucp.h of UCX 1.10 to 1.20,
// whose layouts are part of its ABI.
#pragma once

#include <cstddef>
#include <cstdint>

namespace turnout::record::ucx {

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

// ucp_worker_attr_t: which fields are asked for, the mode of threads, flags of the address, and the
// address.
struct WorkerAttributes {
  std::uint64_t set;
  int thread_mode;
  std::uint32_t address_flags;
  void* address;
  std::size_t address_length;
};

// ucp_ep_params_t, its beginning.
struct EndpointParameters {
  std::uint64_t set;
  const void* address;
};

[[nodiscard]] inline bool is_error(StatusPointer pointer) noexcept {
  return reinterpret_cast<std::uintptr_t>(pointer) >= static_cast<std::uintptr_t>(-100);
}

}  // namespace turnout::record::ucx
