// SPDX-License-Identifier: BSD-3-Clause
// A process that has loaded rdma-core's own libibverbs.so.1 uses ours by path, side by side: same
// SONAME, different code. Not linked to either. Arguments: rdma-core's libibverbs, folder of ours.
#include <dlfcn.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

int failures = 0;
void expect(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "failed: %s (%s)\n", what, dlerror());
  ++failures;
}
template <class F>
F* function(void* library, const char* name) {
  return reinterpret_cast<F*>(dlsym(library, name));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string name = "beside." + std::to_string(getpid());
  setenv("TURNOUT_FABRIC", name.c_str(), 1);
  setenv("TURNOUT_FABRIC_SIZE", "512MiB", 1);
  void* real = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
  expect(real != nullptr, "load rdma-core's libibverbs");
  void* ours = dlopen((std::string(argv[2]) + "/libibverbs.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
  void* mlx5 = dlopen((std::string(argv[2]) + "/libmlx5.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
  expect(ours != nullptr && mlx5 != nullptr, "load ours");
  if (failures != 0) return 1;
  expect(ours != real, "two libraries");
  using List = ibv_device**(int*);
  auto* list_ours = function<List>(ours, "ibv_get_device_list");
  auto* list_real = function<List>(real, "ibv_get_device_list");
  expect(list_ours != list_real, "two functions");
  int count = -1;
  if (ibv_device** theirs = list_real(&count)) {  // whatever it finds, it must not be us
    for (int i = 0; i < count; ++i) expect(std::strcmp(theirs[i]->name, "turnout0") != 0, "theirs");
    function<void(ibv_device**)>(real, "ibv_free_device_list")(theirs);
  }
  ibv_device** list = list_ours(&count);
  expect(count == 1 && std::strcmp(list[0]->name, "turnout0") == 0, "our device");
  ibv_device* device = list[0];
  function<void(ibv_device**)>(ours, "ibv_free_device_list")(list);
  expect(function<bool(ibv_device*)>(mlx5, "mlx5dv_is_supported")(device), "DC on ours");
  ibv_device foreign{};
  std::strcpy(foreign.name, "mlx5_0");
  expect(!function<bool(ibv_device*)>(mlx5, "mlx5dv_is_supported")(&foreign), "foreign device");
  // One queue pair of ours, made through both of our libraries.
  ibv_context* context = function<ibv_context*(ibv_device*)>(ours, "ibv_open_device")(device);
  expect(context != nullptr, "open");
  ibv_pd* pd = function<ibv_pd*(ibv_context*)>(ours, "ibv_alloc_pd")(context);
  ibv_cq* cq = function<ibv_cq*(ibv_context*, int, void*, ibv_comp_channel*, int)>(
      ours, "ibv_create_cq")(context, 16, nullptr, nullptr, 0);
  ibv_qp_init_attr_ex attr{};
  attr.send_cq = attr.recv_cq = cq;
  attr.cap = {4, 0, 1, 0, 64};
  attr.qp_type = IBV_QPT_DRIVER;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.pd = pd;
  attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
  mlx5dv_qp_init_attr dc{};
  dc.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
  dc.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
  ibv_qp* qp = function<ibv_qp*(ibv_context*, ibv_qp_init_attr_ex*, mlx5dv_qp_init_attr*)>(
      mlx5, "mlx5dv_create_qp")(context, &attr, &dc);
  expect(qp != nullptr, "DCI");
  ibv_qp_ex* ex = function<ibv_qp_ex*(ibv_qp*)>(ours, "ibv_qp_to_qp_ex")(qp);
  expect(ex != nullptr && function<mlx5dv_qp_ex*(ibv_qp_ex*)>(
                              mlx5, "mlx5dv_qp_ex_from_ibv_qp_ex")(ex) != nullptr,
         "builders");
  expect(function<int(ibv_qp*)>(ours, "ibv_destroy_qp")(qp) == 0, "destroy");
  expect(function<int(ibv_cq*)>(ours, "ibv_destroy_cq")(cq) == 0, "destroy CQ");
  expect(function<int(ibv_pd*)>(ours, "ibv_dealloc_pd")(pd) == 0, "dealloc PD");
  expect(function<int(ibv_context*)>(ours, "ibv_close_device")(context) == 0, "close");
  return failures == 0 ? 0 : 1;
}
