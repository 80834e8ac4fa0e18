// SPDX-License-Identifier: BSD-3-Clause
// A verbs library with one device that does nothing: objects are made, requests are taken and never
// complete. For tests of components that need registered memory or a queue pair, see
// component_world.h. It is loaded in place of libibverbs and libmlx5, see core/verbs/library.h.
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define STUB extern "C" __attribute__((visibility("default")))

namespace {

ibv_device device{};
ibv_context context{};
std::uint32_t last_number = 0;

template <class Object>
Object* make() {
  auto* const object = new Object{};
  object->context = &context;
  return object;
}
template <class Object>
int destroy(Object* object) {
  delete object;
  return 0;
}
ibv_mr* make_region(ibv_pd* pd, void* address, std::size_t length) {
  auto* const region = make<ibv_mr>();
  region->pd = pd;
  region->addr = address;
  region->length = length;
  region->lkey = region->rkey = ++last_number;
  return region;
}

}  // namespace

STUB ibv_device** ibv_get_device_list(int* count) {
  static ibv_device* list[] = {&device, nullptr};
  std::strcpy(device.name, "stub");
  *count = 1;
  return list;
}
STUB void ibv_free_device_list(ibv_device** /*list*/) {}
STUB const char* ibv_get_device_name(ibv_device* of) {
  return of->name;
}
STUB ibv_context* ibv_open_device(ibv_device* of) {
  context.device = of;
  context.async_fd = -1;
  context.ops.post_srq_recv = [](ibv_srq*, ibv_recv_wr*, ibv_recv_wr**) { return 0; };
  context.ops.post_recv = [](ibv_qp*, ibv_recv_wr*, ibv_recv_wr**) { return 0; };
  context.ops.post_send = [](ibv_qp*, ibv_send_wr*, ibv_send_wr**) { return 0; };
  return &context;
}
STUB int ibv_close_device(ibv_context* /*context*/) {
  return 0;
}
STUB int ibv_query_device(ibv_context* /*context*/, ibv_device_attr* attributes) {
  *attributes = {};
  std::strcpy(attributes->fw_ver, "virtual clock");  // all memory is this process's
  attributes->phys_port_cnt = 1;
  attributes->max_qp = 1 << 16;
  attributes->max_qp_wr = attributes->max_srq_wr = 1 << 15;
  attributes->max_cqe = 1 << 22;
  attributes->max_srq = attributes->max_cq = 1 << 16;
  attributes->max_sge = attributes->max_srq_sge = 30;
  return 0;
}
STUB int ibv_query_port(ibv_context* /*context*/, std::uint8_t /*port*/,
                        _compat_ibv_port_attr* attributes) {
  auto& port = *reinterpret_cast<ibv_port_attr*>(attributes);
  port.state = IBV_PORT_ACTIVE;
  port.active_mtu = IBV_MTU_4096;
  port.link_layer = IBV_LINK_LAYER_INFINIBAND;
  return 0;
}
STUB int ibv_query_gid(ibv_context*, std::uint8_t, int, ibv_gid*) {
  return -1;
}
STUB ibv_pd* ibv_alloc_pd(ibv_context* /*context*/) {
  return make<ibv_pd>();
}
STUB int ibv_dealloc_pd(ibv_pd* pd) {
  return destroy(pd);
}
STUB ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, std::size_t length, int /*access*/) {
  return make_region(pd, address, length);
}
STUB ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, std::size_t length, std::uint64_t /*iova*/,
                              unsigned /*access*/) {
  return make_region(pd, address, length);
}
STUB ibv_mr* ibv_reg_dmabuf_mr(ibv_pd*, std::uint64_t, std::size_t, std::uint64_t, int, int) {
  errno = EOPNOTSUPP;
  return nullptr;
}
STUB int ibv_dereg_mr(ibv_mr* region) {
  return destroy(region);
}
STUB ibv_cq* ibv_create_cq(ibv_context*, int, void*, ibv_comp_channel*, int) {
  return make<ibv_cq>();
}
STUB int ibv_destroy_cq(ibv_cq* queue) {
  return destroy(queue);
}
STUB ibv_srq* ibv_create_srq(ibv_pd* /*pd*/, ibv_srq_init_attr* /*attributes*/) {
  return make<ibv_srq>();
}
STUB int ibv_destroy_srq(ibv_srq* queue) {
  return destroy(queue);
}
STUB int ibv_modify_srq(ibv_srq*, ibv_srq_attr*, int) {
  return 0;
}
STUB int ibv_get_async_event(ibv_context*, ibv_async_event*) {
  return -1;
}
STUB void ibv_ack_async_event(ibv_async_event* /*event*/) {}
STUB ibv_ah* ibv_create_ah(ibv_pd* /*pd*/, ibv_ah_attr* /*attributes*/) {
  return make<ibv_ah>();
}
STUB int ibv_destroy_ah(ibv_ah* handle) {
  return destroy(handle);
}
STUB ibv_qp* ibv_create_qp(ibv_pd* /*pd*/, ibv_qp_init_attr* /*attributes*/) {
  auto* const made = make<ibv_qp>();
  made->qp_num = ++last_number;
  return made;
}
STUB int ibv_modify_qp(ibv_qp*, ibv_qp_attr*, int) {
  return 0;
}
STUB int ibv_query_qp(ibv_qp*, ibv_qp_attr*, int, ibv_qp_init_attr*) {
  return 0;
}
STUB int ibv_destroy_qp(ibv_qp* pair) {
  return destroy(pair);
}
STUB ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* /*pair*/) {
  return nullptr;
}
STUB const char* ibv_wc_status_str(ibv_wc_status /*status*/) {
  return "status";
}
STUB bool mlx5dv_is_supported(ibv_device* /*device*/) {
  return false;
}
STUB ibv_qp* mlx5dv_create_qp(ibv_context*, ibv_qp_init_attr_ex*, mlx5dv_qp_init_attr*) {
  errno = EOPNOTSUPP;
  return nullptr;
}
STUB mlx5dv_qp_ex* mlx5dv_qp_ex_from_ibv_qp_ex(ibv_qp_ex* /*pair*/) {
  return nullptr;
}
