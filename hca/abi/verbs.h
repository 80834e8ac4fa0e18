// SPDX-License-Identifier: BSD-3-Clause
// The exported verbs of libibverbs.so.1 that other files of this folder call or put into op tables.
// Public prototypes are rdma-core's (<infiniband/verbs.h>); these are ours. Any thread may call.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "hca/abi/export.h"
#include "hca/device/data_path.h"
#include "hca/device/object_verbs.h"

namespace turnout::hca {

// What of a context serves an object; a context is its own.
[[nodiscard]] inline ObjectVerbs& objects_of(ibv_context* context) noexcept {
  return *context_of(context).objects;
}
template <class T>
[[nodiscard]] ObjectVerbs& objects_of(const T* object) noexcept {
  return objects_of(object->context);
}
template <class T>
[[nodiscard]] DataPath& data_path_of(const T* object) noexcept {
  return *context_of(object->context).data_path;
}
// What the program is given of an object, null of none.
template <class T>
[[nodiscard]] auto* verbs_of(T* object) noexcept {
  return object != nullptr ? &object->verbs : nullptr;
}
// The result of verbs that tell an errno value by -1 and errno; 0 of none.
[[nodiscard]] inline int result_of(int error) noexcept {
  if (error == 0) return 0;
  errno = error;
  return -1;
}

// The beginning of a request, with no data and no address.
void begin_request(SendWqe& wqe, std::uint64_t id, ibv_wr_opcode opcode, unsigned flags) noexcept;
// Where a datagram goes.
void set_datagram_address(const Qp& qp, SendWqe& wqe, const ibv_ah* ah, std::uint32_t number,
                          std::uint32_t qkey) noexcept;
// Fills the work-request builders of a queue pair.
void fill_builders(Qp& qp, std::uint64_t send_ops);

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr);
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr);
ibv_qp* create_qp_dc(ibv_context* context, ibv_qp_init_attr_ex* attr, mlx5dv_qp_init_attr* dc);
ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr);
int get_srq_num(ibv_srq* srq, std::uint32_t* number);
ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attr);
int close_xrcd(ibv_xrcd* xrcd);
ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attr);
int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* attr, std::size_t size);
int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attr, std::size_t size);
ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type);
int dealloc_mw(ibv_mw* mw);
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);
// The part of a request that is a window's binding under `key`.
void set_binding(SendWqe& wqe, const ibv_mw& mw, std::uint32_t key,
                 const ibv_mw_bind_info& info) noexcept;
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr);
ibv_mr* alloc_null_mr(ibv_pd* pd);
int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* list,
              std::uint32_t count);
ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attr);
int free_dm(ibv_dm* dm);
ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, std::uint64_t offset, std::size_t length,
                  unsigned access);
int query_rt_values(ibv_context* context, ibv_values_ex* values);
int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr);
ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr);
int dealloc_td(ibv_td* td);

int poll_cq(ibv_cq* cq, int entries, ibv_wc* wc);
int req_notify_cq(ibv_cq* cq, int solicited_only);
int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad);
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad);
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad);

// Where queues lie, as MLX_CQ_ALLOC_TYPE, MLX_QP_ALLOC_TYPE and MLX_SRQ_ALLOC_TYPE of rdma-core's
// mlx5 say (its README). Here that is the fabric's shared memory, never huge pages: HUGE makes the
// creation of a queue fail, all other values have no effect. 0, or ENOMEM.
[[nodiscard]] inline int check_queue_memory(const char* variable) noexcept {
  const char* kind = std::getenv(variable);
  return kind != nullptr && std::strcmp(kind, "HUGE") == 0 ? ENOMEM : 0;
}

// One line, once for each name; returns EOPNOTSUPP.
int unsupported(const char* name);

}  // namespace turnout::hca
