// The functions behind libmlx5.so.1.
#include <cerrno>

#include "base/settings.h"
#include "hca/abi/verbs.h"
#include "hca/device/failed.h"
#include "hca/device/identity.h"

namespace turnout::hca {
namespace {

ibv_cq_ex* create_cq(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  return create_cq_ex(context, attr);
}

mlx5dv_qp_ex* qp_ex(ibv_qp_ex* ex) {
  Qp& qp = qp_of(ex);
  if (qp.magic == kObjectMagic && qp.extended) return &qp.dv;
  errno = EOPNOTSUPP;
  return nullptr;
}

ibv_context* open_device(ibv_device* device) {
  return identity().dynamically_connected ? ibv_open_device(device)
                                          : failed<ibv_context>(EOPNOTSUPP);
}

bool is_supported() {
  static const bool admitted = [] {
    const auto settings = Settings::load(UnknownNames::ignore);
    return !settings || settings.value().mlx5dv;
  }();
  return admitted && identity().dynamically_connected;
}

}  // namespace

const Mlx5Ops kMlx5Ops = {sizeof(Mlx5Ops), create_qp_dc, create_cq,
                          qp_ex,           open_device,  is_supported};

}  // namespace turnout::hca
