// SPDX-License-Identifier: BSD-3-Clause
// Objects of another context, or another process, used here: ibv_import_pd(3), ibv_import_mr(3),
// ibv_import_dm(3). The device itself is in device.cpp.
#include "hca/abi/verbs.h"

using namespace turnout::hca;

TURNOUT_EXPORT ibv_pd* ibv_import_pd(ibv_context* context, std::uint32_t handle) {
  Pd* pd = context_of(context).objects->import_pd(context_of(context), handle);
  return pd != nullptr ? &pd->verbs : nullptr;
}

TURNOUT_EXPORT void ibv_unimport_pd(ibv_pd* pd) {
  ibv_dealloc_pd(pd);
}

TURNOUT_EXPORT ibv_mr* ibv_import_mr(ibv_pd* pd, std::uint32_t handle) {
  Mr* mr = context_of(pd->context).objects->import_region(*reinterpret_cast<Pd*>(pd), handle);
  return mr != nullptr ? &mr->verbs : nullptr;
}

TURNOUT_EXPORT void ibv_unimport_mr(ibv_mr* mr) {
  ibv_dereg_mr(mr);
}
