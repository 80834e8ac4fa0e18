// SPDX-License-Identifier: BSD-3-Clause
// The parts of domains, address handles, regions, completion queues and SRQs that do not depend on
// the engine: the verbs struct, and which objects are in use by which.
//
// begin_...() fills the verbs struct of a fresh object and counts it as a user of what it uses,
// end_...() is the opposite of the counting. Any thread. Sources: ibv_alloc_pd(3),
// ibv_create_ah(3), ibv_reg_mr(3), ibv_create_cq(3), ibv_create_srq(3).
#pragma once

#include "hca/device/objects.h"

namespace turnout::hca {

[[nodiscard]] Pd* make_domain(Context& context, std::uint32_t number);
// 0, or EBUSY: something belongs to it still.
[[nodiscard]] int destroy_domain(Pd& pd);

// Does the address name a multicast group? IBTA 4.1.1.
[[nodiscard]] inline bool is_multicast(const ibv_gid& gid) noexcept {
  constexpr std::uint8_t kPrefix = 0xff;
  return gid.raw[0] == kPrefix;
}
// Null with errno EINVAL when `attr` names a port or an entry of the GID table that is not there.
[[nodiscard]] Ah* make_address_handle(Pd& pd, const ibv_ah_attr& attr, bool reachable);
void destroy_address_handle(Ah& ah) noexcept;
// Is this the address of the one port that a live adapter has?
[[nodiscard]] bool names_this_port(const ibv_ah_attr& attr, const Context& context) noexcept;

void begin_region(Mr& mr, Pd& pd, void* address, std::uint64_t length, std::uint32_t index,
                  std::uint32_t key) noexcept;

// 0, or EINVAL: more entries than the device has, or a completion vector that is not there.
[[nodiscard]] int check_creation(const ibv_cq_init_attr_ex& attr) noexcept;
void begin_cq(Cq& cq, Context& context, const ibv_cq_init_attr_ex& attr, std::uint32_t entries);
void end_cq(Cq& cq) noexcept;

// 0, or EINVAL. A queue of nothing is asked for, too: it is given an entry with a part.
[[nodiscard]] int check_creation(ibv_srq_init_attr& attr) noexcept;
// xrcd, cq: both or neither.
void begin_srq(Srq& srq, Pd& pd, const ibv_srq_init_attr& attr, Xrcd* xrcd, Cq* cq);
void end_srq(Srq& srq) noexcept;

// Waits until as many events of an object are acknowledged as its program has read.
template <class Verbs>
void wait_acknowledged(Verbs& object, const std::uint32_t& completed, std::uint32_t read) {
  pthread_mutex_lock(&object.mutex);
  while (completed != read) pthread_cond_wait(&object.cond, &object.mutex);
  pthread_mutex_unlock(&object.mutex);
}

}  // namespace turnout::hca
