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
    advice = "; raise the open-file limit (ulimit -n)";
  } else if (error == EFBIG) {
    advice = "; raise the file-size limit (ulimit -f)";
  } else if (error == EPERM || error == EACCES) {
    code = Code::permission;
    advice = "; this user has no permission to use the device";
  } else if (error == EOPNOTSUPP || error == ENOSYS) {
    code = Code::unsupported;
    advice = "; the device does not support it";
  }
  return {code, fmt::format("{} failed: {}: {}{}", verb, object, std::strerror(error), advice),
          error};
}

}  // namespace turnout::verbs
