// SPDX-License-Identifier: BSD-3-Clause
#include "provider/errors.h"

#include <cstring>
#include <iterator>

namespace turnout::provider {

namespace {

// By Code.
constexpr int kErrors[] = {FI_SUCCESS,    FI_EAGAIN,     FI_ENOMSG, FI_ECANCELED, FI_ETRUNC,
                           FI_ECONNRESET, FI_ENOMEM,     FI_ENODEV, FI_EINVAL,    FI_EOPNOTSUPP,
                           FI_EACCES,     FI_EOPNOTSUPP, FI_EIO,    FI_EOTHER};
static_assert(std::size(kErrors) == static_cast<std::size_t>(Code::internal) + 1);
// Codes are small and lie above every errno, so that one number tells which of the two it is.
constexpr int kCodeBase = 1 << 16;

}  // namespace

int fi_error(const Status& status) noexcept {
  if (status.code() == Code::system && status.sys_errno() > 0) return status.sys_errno();
  return kErrors[static_cast<std::size_t>(status.code())];
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
