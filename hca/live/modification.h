// SPDX-License-Identifier: BSD-3-Clause
// What ibv_modify_qp(3) asks for, checked, with a line in the log where it is refused. Any thread.
#pragma once

#include "hca/device/objects.h"

namespace turnout::hca {

// `to`: the state that `attr` asks for. 0 or EINVAL.
[[nodiscard]] int checked_phase(const Qp& qp, QpPhase from, const ibv_qp_attr& attr, int mask,
                                QpPhase& to);

}  // namespace turnout::hca
