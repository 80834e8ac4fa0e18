// SPDX-License-Identifier: BSD-3-Clause
// The settings as libfabric's parameters, which `fi_info -e` lists.
#pragma once

#include <rdma/providers/fi_prov.h>

namespace turnout::provider {

// Defines every setting under `provider`'s name. Only tells: Settings::load reads FI_TURNOUT_* by
// itself, as the other programs of Turnout do where there is no libfabric. Nothing where the
// library has no fi_param_define.
void define_parameters(const fi_provider& provider);

}  // namespace turnout::provider
