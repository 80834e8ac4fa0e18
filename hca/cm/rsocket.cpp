// SPDX-License-Identifier: BSD-3-Clause
#include "hca/cm/rsocket.h"

#include <sys/eventfd.h>

#include <algorithm>

namespace turnout::cm {

void Rsocket::remove_waiter(int eventfd) {
  const auto found = std::find(waiters_.begin(), waiters_.end(), eventfd);
  if (found != waiters_.end()) waiters_.erase(found);
}

void Rsocket::changed() const {
  for (const int waiter : waiters_) eventfd_write(waiter, 1);
}

void Rsocket::mark_closed() {
  closed_ = true;
  changed();
}

}  // namespace turnout::cm
