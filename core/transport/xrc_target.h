// SPDX-License-Identifier: BSD-3-Clause
// XrcTarget: this process's handle of the XRC queue pair that is connected to the initiator of one
// remote process (ibv_create_qp_ex(3), ibv_open_qp(3)).
//
// The first process of a node that a sender contacts creates it, the others open it. The adapter
// counts the handles and destroys it with the last. All writes of that sender to the node's
// processes use it, so a process that moves it to the error state affects all of them. One thread
// at a time.
#pragma once

#include <array>
#include <cstdint>

#include "core/transport/dc_queue.h"
#include "core/transport/qp_id.h"
#include "core/transport/xrc_domain.h"

namespace turnout {

// The sender's end.
struct XrcInitiator {
  std::uint32_t qp_id = 0;  // see qp_id.h
  std::uint16_t lid = 0;
  std::array<std::uint8_t, 16> gid{};
};

class XrcTarget {
 public:
  // Connected with the initiator. Errors: system, unsupported.
  [[nodiscard]] Status make(const verbs::Device& device, const XrcDomain& domain,
                            const XrcInitiator& initiator, const QpTuning& tuning);
  // Another process made it. Errors: again (it is gone, or another's by now).
  [[nodiscard]] Status open(const verbs::Device& device, const XrcDomain& domain,
                            std::uint32_t number, const XrcInitiator& initiator);
  // Nothing comes over it any more, to any process.
  [[nodiscard]] Status fail();
  void close() noexcept { qp_.reset(); }

  [[nodiscard]] explicit operator bool() const noexcept { return qp_ != nullptr; }
  [[nodiscard]] std::uint32_t number() const noexcept { return qp_->qp_num; }

 private:
  verbs::Qp qp_;
};

}  // namespace turnout
