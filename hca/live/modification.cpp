// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/modification.h"

#include "base/log.h"
#include "hca/device/qp_state.h"

namespace turnout::hca {

// The state that `attr` asks for, or EINVAL and a line in the log.
int checked_phase(const Qp& qp, QpPhase from, const ibv_qp_attr& attr, int mask, QpPhase& to) {
  const char* why = "";
  const int error = check_modification(qp.kind, from, attr, mask, to, &why);
  if (error != 0) {
    TURNOUT_LOG(hca, info,
                "ibv_modify_qp failed: queue pair {:#x}: from state {} to {}, mask {:#x}: {}",
                qp.number, static_cast<int>(from), static_cast<int>(to), mask, why);
  }
  return error;
}

}  // namespace turnout::hca
