// SPDX-License-Identifier: BSD-3-Clause
#include "provider/errors.h"

#include <cstring>

namespace turnout::provider {

int fi_error(const Status& status) noexcept {
  switch (status.code()) {
    case Code::ok:
      return FI_SUCCESS;
    case Code::again:
      return FI_EAGAIN;
    case Code::no_message:
      return FI_ENOMSG;
    case Code::canceled:
      return FI_ECANCELED;
    case Code::truncated:
      return FI_ETRUNC;
    case Code::peer_lost:
      return FI_ECONNRESET;
    case Code::over_budget:
      return FI_ENOMEM;
    case Code::no_device:
      return FI_ENODEV;
    case Code::invalid:
      return FI_EINVAL;
    case Code::version:
      return FI_EOPNOTSUPP;
    case Code::permission:
      return FI_EACCES;
    case Code::unsupported:
      return FI_EOPNOTSUPP;
    case Code::system:
      return status.sys_errno() > 0 ? status.sys_errno() : FI_EIO;
    case Code::internal:
      return FI_EOTHER;
  }
  return FI_EOTHER;
}

// Codes are small and lie above every errno, so that one number tells which of the two it is.
namespace {
constexpr int kCodeBase = 1 << 16;
}

int provider_errno(const Status& status) noexcept {
  if (status.sys_errno() > 0) return status.sys_errno();
  return kCodeBase + static_cast<int>(status.code());
}

std::string_view provider_error_text(int prov_errno) noexcept {
  if (prov_errno >= kCodeBase && prov_errno <= kCodeBase + static_cast<int>(Code::internal)) {
    return code_name(static_cast<Code>(prov_errno - kCodeBase));
  }
  const char* text = prov_errno > 0 ? strerrordesc_np(prov_errno) : nullptr;
  return text != nullptr ? text : "unknown error";
}

}  // namespace turnout::provider
