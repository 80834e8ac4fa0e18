// SPDX-License-Identifier: BSD-3-Clause
#include "core/verbs/handles.h"

#include <fmt/format.h>

#include <cstring>

#include "base/log.h"

namespace turnout::verbs {

void log_destroy_failure(const char* verb, int error) noexcept {
  TURNOUT_LOG(verbs, warn, "{} failed: {}", verb, std::strerror(error));
}

int close_xrcd(ibv_xrcd* domain) noexcept {
  return ibv_close_xrcd(domain);
}

Status failure(const char* verb, const std::string& object, int error) {
  const char* advice = "";
  Code code = Code::system;
  if (error == ENOMEM) {
    advice = "; raise the locked-memory limit (ulimit -l unlimited) or lower TURNOUT_MEMORY_BUDGET";
  } else if (error == EMFILE || error == ENFILE) {
    advice = "; raise the limit of open files (ulimit -n)";
  } else if (error == EFBIG) {
    advice = "; raise the limit of files' sizes (ulimit -f)";
  } else if (error == EPERM || error == EACCES) {
    code = Code::permission;
    advice = "; this user may not use the device";
  } else if (error == EOPNOTSUPP || error == ENOSYS) {
    code = Code::unsupported;
    advice = "; this device cannot do it";
  }
  return {code, fmt::format("{} of {} failed: {}{}", verb, object, std::strerror(error), advice),
          error};
}

}  // namespace turnout::verbs
