// SPDX-License-Identifier: BSD-3-Clause
#include "base/status.h"

namespace turnout {

std::string_view code_name(Code code) noexcept {
  switch (code) {
    case Code::ok:
      return "ok";
    case Code::again:
      return "try again";
    case Code::no_message:
      return "no message";
    case Code::canceled:
      return "cancelled";
    case Code::truncated:
      return "truncated";
    case Code::peer_lost:
      return "peer lost";
    case Code::over_budget:
      return "over the memory budget";
    case Code::no_device:
      return "no such device";
    case Code::invalid:
      return "invalid";
    case Code::version:
      return "version mismatch";
    case Code::permission:
      return "permission denied";
    case Code::unsupported:
      return "unsupported";
    case Code::system:
      return "system call failed";
    case Code::internal:
      return "internal error";
  }
  return "?";
}

const std::string& Status::text() const noexcept {
  static const std::string none;
  return detail_ ? detail_->text : none;
}

}  // namespace turnout
