// SPDX-License-Identifier: BSD-3-Clause
// The interface of libfabric's profiling (<rdma/fi_profile.h> of 1.21 and later), in names of our
// own: 1.17, whose headers this is built with, has none. Plain data. Source: fi_profile(3), and the
// numbers that fi_tostr of libfabric 2.5.1 knows.
#pragma once

#include <rdma/fabric.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace turnout::provider {

enum ProfileVariable : std::uint32_t {  // FI_VAR_*
  kUnexpectedCount = 0,
  kUnexpectedQueue = 1,
  kQueueCount = 2,
  kConnectionCount = 3,
  kMemory = 7,
};
enum ProfileEvent : std::uint32_t {  // FI_EVENT_*
  kUnexpectedArrived = 0,
  kUnexpectedMatched = 1,
};

struct ProfileDesc {  // fi_profile_desc
  std::uint32_t id;
  std::uint32_t datatype_sel;  // 0: an fi_datatype; 1: an fi_type
  std::uint32_t datatype;
  std::uint64_t flags;
  std::size_t size;
  const char* name;
  const char* desc;
};
inline constexpr std::uint32_t kCqErrEntryType = 33;  // FI_TYPE_CQ_ERR_ENTRY
inline constexpr std::size_t kProfileClass = 30;      // FI_CLASS_PROFILE

struct ProfileFid;
using ProfileCallback = int (*)(ProfileFid*, ProfileDesc* event, void* param, std::size_t size,
                                void* context);

struct ProfileOps {  // fi_profile_ops
  std::size_t size;
  void (*reset)(ProfileFid*, std::uint64_t flags);
  ssize_t (*query_vars)(ProfileFid*, ProfileDesc*, std::size_t* count);
  ssize_t (*query_events)(ProfileFid*, ProfileDesc*, std::size_t* count);
  ssize_t (*read_var)(ProfileFid*, std::uint32_t id, void* data, std::size_t* size);
  int (*reg_callback)(ProfileFid*, std::uint32_t id, ProfileCallback, void* context);
  void (*start_reads)(ProfileFid*, std::uint64_t flags);
  void (*end_reads)(ProfileFid*, std::uint64_t flags);
};

struct ProfileFid {  // fid_profile
  ::fid fid;
  ProfileOps* ops;  // fi_open_ops answers where this is
};

static_assert(sizeof(ProfileDesc) == 48 && offsetof(ProfileDesc, flags) == 16);
static_assert(sizeof(ProfileOps) == 64 && offsetof(ProfileFid, ops) == sizeof(::fid));

}  // namespace turnout::provider
