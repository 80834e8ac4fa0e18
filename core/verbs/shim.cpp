// SPDX-License-Identifier: BSD-3-Clause
// The verbs symbols that the core's objects refer to, forwarded to the library that load() chose.
// Hidden: they are seen by nobody outside the object the core is linked into.
#include "core/verbs/library.h"

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

using turnout::verbs::functions;

extern "C" {

#define HIDDEN __attribute__((visibility("hidden")))

HIDDEN struct ibv_device** ibv_get_device_list(int* count) {
  return functions().ibv_get_device_list_fn(count);
}
HIDDEN void ibv_free_device_list(struct ibv_device** list) {
  functions().ibv_free_device_list_fn(list);
}
HIDDEN const char* ibv_get_device_name(struct ibv_device* device) {
  return functions().ibv_get_device_name_fn(device);
}
HIDDEN struct ibv_context* ibv_open_device(struct ibv_device* device) {
  return functions().ibv_open_device_fn(device);
}
HIDDEN int ibv_close_device(struct ibv_context* context) {
  return functions().ibv_close_device_fn(context);
}
HIDDEN int ibv_query_device(struct ibv_context* context, struct ibv_device_attr* attr) {
  return functions().ibv_query_device_fn(context, attr);
}
HIDDEN int ibv_query_port(struct ibv_context* context, uint8_t port,
                          struct _compat_ibv_port_attr* attr) {
  return functions().ibv_query_port_fn(context, port, attr);
}
HIDDEN int ibv_query_gid(struct ibv_context* context, uint8_t port, int index, union ibv_gid* gid) {
  return functions().ibv_query_gid_fn(context, port, index, gid);
}
HIDDEN struct ibv_pd* ibv_alloc_pd(struct ibv_context* context) {
  return functions().ibv_alloc_pd_fn(context);
}
HIDDEN int ibv_dealloc_pd(struct ibv_pd* pd) {
  return functions().ibv_dealloc_pd_fn(pd);
}
HIDDEN struct ibv_mr* ibv_reg_mr(struct ibv_pd* pd, void* address, size_t length, int access) {
  return functions().ibv_reg_mr_fn(pd, address, length, access);
}
HIDDEN struct ibv_mr* ibv_reg_mr_iova2(struct ibv_pd* pd, void* address, size_t length,
                                       uint64_t iova, unsigned int access) {
  return functions().ibv_reg_mr_iova2_fn(pd, address, length, iova, access);
}
HIDDEN struct ibv_mr* ibv_reg_dmabuf_mr(struct ibv_pd* pd, uint64_t offset, size_t length,
                                        uint64_t iova, int fd, int access) {
  return functions().ibv_reg_dmabuf_mr_fn(pd, offset, length, iova, fd, access);
}
HIDDEN int ibv_dereg_mr(struct ibv_mr* mr) {
  return functions().ibv_dereg_mr_fn(mr);
}
HIDDEN struct ibv_cq* ibv_create_cq(struct ibv_context* context, int cqe, void* user,
                                    struct ibv_comp_channel* channel, int vector) {
  return functions().ibv_create_cq_fn(context, cqe, user, channel, vector);
}
HIDDEN int ibv_destroy_cq(struct ibv_cq* cq) {
  return functions().ibv_destroy_cq_fn(cq);
}
HIDDEN struct ibv_srq* ibv_create_srq(struct ibv_pd* pd, struct ibv_srq_init_attr* attr) {
  return functions().ibv_create_srq_fn(pd, attr);
}
HIDDEN int ibv_destroy_srq(struct ibv_srq* srq) {
  return functions().ibv_destroy_srq_fn(srq);
}
HIDDEN int ibv_modify_srq(struct ibv_srq* srq, struct ibv_srq_attr* attr, int mask) {
  return functions().ibv_modify_srq_fn(srq, attr, mask);
}
HIDDEN int ibv_get_async_event(struct ibv_context* context, struct ibv_async_event* event) {
  return functions().ibv_get_async_event_fn(context, event);
}
HIDDEN void ibv_ack_async_event(struct ibv_async_event* event) {
  functions().ibv_ack_async_event_fn(event);
}
HIDDEN struct ibv_ah* ibv_create_ah(struct ibv_pd* pd, struct ibv_ah_attr* attr) {
  return functions().ibv_create_ah_fn(pd, attr);
}
HIDDEN int ibv_destroy_ah(struct ibv_ah* ah) {
  return functions().ibv_destroy_ah_fn(ah);
}
HIDDEN struct ibv_qp* ibv_create_qp(struct ibv_pd* pd, struct ibv_qp_init_attr* attr) {
  return functions().ibv_create_qp_fn(pd, attr);
}
HIDDEN int ibv_modify_qp(struct ibv_qp* qp, struct ibv_qp_attr* attr, int mask) {
  return functions().ibv_modify_qp_fn(qp, attr, mask);
}
HIDDEN int ibv_query_qp(struct ibv_qp* qp, struct ibv_qp_attr* attr, int mask,
                        struct ibv_qp_init_attr* init) {
  return functions().ibv_query_qp_fn(qp, attr, mask, init);
}
HIDDEN int ibv_destroy_qp(struct ibv_qp* qp) {
  return functions().ibv_destroy_qp_fn(qp);
}
HIDDEN struct ibv_qp_ex* ibv_qp_to_qp_ex(struct ibv_qp* qp) {
  return functions().ibv_qp_to_qp_ex_fn(qp);
}
HIDDEN const char* ibv_wc_status_str(enum ibv_wc_status status) {
  return functions().ibv_wc_status_str_fn(status);
}
HIDDEN bool mlx5dv_is_supported(struct ibv_device* device) {
  const auto supported = functions().mlx5dv_is_supported_fn;
  return supported != nullptr && supported(device);
}
HIDDEN struct ibv_qp* mlx5dv_create_qp(struct ibv_context* context,
                                       struct ibv_qp_init_attr_ex* attr,
                                       struct mlx5dv_qp_init_attr* mlx5_attr) {
  return functions().mlx5dv_create_qp_fn(context, attr, mlx5_attr);
}
HIDDEN struct mlx5dv_qp_ex* mlx5dv_qp_ex_from_ibv_qp_ex(struct ibv_qp_ex* qp) {
  return functions().mlx5dv_qp_ex_from_ibv_qp_ex_fn(qp);
}

}  // extern "C"
