// SPDX-License-Identifier: BSD-3-Clause
// The functions behind libmlx5.so.1.
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/settings.h"
#include "hca/abi/verbs.h"
#include "hca/device/identity.h"

namespace turnout::hca {
namespace {

ibv_cq_ex* create_cq(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  // A variable of mlx5's, which programs' scripts may set.
  const char* size = std::getenv("MLX5_CQE_SIZE");
  if (size != nullptr && std::strcmp(size, "64") != 0 && std::strcmp(size, "128") != 0) {
    return failed(EINVAL);
  }
  return create_cq_ex(context, attr);
}

mlx5dv_qp_ex* qp_ex(ibv_qp_ex* ex) {
  Qp& qp = qp_of(ex);
  if (qp.magic == kObjectMagic && qp.extended) return &qp.dv;
  return failed(EOPNOTSUPP);
}

ibv_context* open_device(ibv_device* device) {
  return identity().dynamically_connected ? ibv_open_device(device) : failed(EOPNOTSUPP);
}

int reset_stream(ibv_qp* qp, std::uint16_t stream) {
  return objects_of(qp).reset_stream(qp_of(qp), stream);
}

int reserve_number(ibv_context* context, std::uint32_t* number) {
  return objects_of(context).reserve_number(*number);
}

int release_number(ibv_context* context, std::uint32_t number) {
  return objects_of(context).release_number(number);
}

void capabilities(ibv_context* context, mlx5dv_dci_streams_caps* streams, std::uint32_t* paging) {
  const bool live = !context_of(context).virtual_clock;
  *streams = {};
  if (live) streams->max_log_num_concurent = streams->max_log_num_errored = kMaxLogStreams;
  *paging = live && identity().on_demand
                ? IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE |
                      IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV
                : 0;
}

bool is_supported() {
  static const bool admitted = [] {
    const auto settings = Settings::load(UnknownNames::ignore);
    return !settings || settings.value().mlx5dv;
  }();
  return admitted && identity().dynamically_connected;
}

}  // namespace

const Mlx5Ops kMlx5Ops = {.size = sizeof(Mlx5Ops),
                          .create_qp = create_qp_dc,
                          .create_cq = create_cq,
                          .qp_ex = qp_ex,
                          .open_device = open_device,
                          .is_supported = is_supported,
                          .reset_stream = reset_stream,
                          .reserve_number = reserve_number,
                          .release_number = release_number,
                          .capabilities = capabilities};

}  // namespace turnout::hca
