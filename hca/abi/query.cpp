// SPDX-License-Identifier: BSD-3-Clause
// Queries: what the device and its port say about themselves.
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "hca/abi/verbs.h"
#include "hca/device/attributes.h"

#undef ibv_query_port

using namespace turnout::hca;

namespace turnout::hca {

int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attr, std::size_t size) {
  if (port != kPort) return EINVAL;
  const ibv_port_attr a = port_attributes(context_of(context));
  std::memset(attr, 0, size);
  std::memcpy(attr, &a, std::min(size, sizeof a));
  return 0;
}

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* attr, std::size_t size) {
  if (input != nullptr && input->comp_mask != 0) return EINVAL;
  if (size < sizeof(ibv_device_attr)) return EINVAL;
  const ibv_device_attr_ex a = extended_attributes(context_of(context));
  std::memset(attr, 0, size);
  std::memcpy(attr, &a, std::min(size, sizeof a));
  return 0;
}

int query_rt_values(ibv_context*, ibv_values_ex* values) {
  if ((values->comp_mask & ~static_cast<unsigned>(IBV_VALUES_MASK_RAW_CLOCK)) != 0) return EINVAL;
  if ((values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) != 0) {
    // rdma-core gives the raw counter in both fields; ours counts nanoseconds.
    clock_gettime(CLOCK_MONOTONIC, &values->raw_clock);
  }
  return 0;
}

}  // namespace turnout::hca

TURNOUT_EXPORT int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
  *attr = device_attributes(context_of(context));
  return 0;
}

// The old struct: ibv_port_attr up to `link_layer` and `flags` (44's ABI keeps these 44 bytes).
TURNOUT_EXPORT int ibv_query_port(ibv_context* context, std::uint8_t port,
                                  struct _compat_ibv_port_attr* attr) {
  return query_port(context, port, reinterpret_cast<ibv_port_attr*>(attr),
                    offsetof(ibv_port_attr, port_cap_flags2));
}

TURNOUT_EXPORT int ibv_query_gid(ibv_context* context, std::uint8_t port, int index, ibv_gid* gid) {
  if (port != kPort || index < 0 || index >= kGids) return result_of(EINVAL);
  *gid = {};
  if (index != 0) return 0;  // an entry that nobody has filled
  gid->global.subnet_prefix = htobe64(0xfe80'0000'0000'0000ULL);
  gid->global.interface_id = node_guid(context_of(context));
  return 0;
}

TURNOUT_EXPORT int _ibv_query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index,
                                     ibv_gid_entry* entry, std::uint32_t flags, std::size_t size) {
  if (flags != 0 || port != kPort || size < sizeof(ibv_gid_entry)) return EINVAL;
  if (index >= kGids) return EINVAL;
  if (index != 0) return ENODATA;
  *entry = {};
  ibv_query_gid(context, kPort, 0, &entry->gid);
  entry->port_num = port;
  entry->gid_type = IBV_GID_TYPE_IB;
  return 0;
}

TURNOUT_EXPORT ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries,
                                            std::size_t max_entries, std::uint32_t flags,
                                            std::size_t size) {
  if (flags != 0 || size < sizeof(ibv_gid_entry)) return -EINVAL;
  if (max_entries == 0) return -EINVAL;
  const int error = _ibv_query_gid_ex(context, kPort, 0, entries, 0, size);
  return error != 0 ? -error : 1;
}

TURNOUT_EXPORT int ibv_query_pkey(ibv_context*, std::uint8_t port, int index, __be16* pkey) {
  if (port != kPort || index != 0) return result_of(EINVAL);
  *pkey = kDefaultPkey;
  return 0;
}

TURNOUT_EXPORT int ibv_get_pkey_index(ibv_context*, std::uint8_t port, __be16 pkey) {
  return result_of(port == kPort && pkey == kDefaultPkey ? 0 : EINVAL);
}

// Attempts of the queue pairs of this context that found no receive at their target: what a kernel
// has in sysfs, by port, as hw_counters/rnr_nak_retry_err.
TURNOUT_EXPORT std::uint64_t turnout_rnr_retries(ibv_context* context) {
  return context_of(context).rnr_retries.load(std::memory_order_relaxed);
}
