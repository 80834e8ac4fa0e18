// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/firmware.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/file_descriptor.h"
#include "base/log.h"
#include "base/signal_free_thread.h"
#include "hca/live/mlx5_queues.h"

namespace turnout::hca {

Status Firmware::start() {
  assert(!thread_.joinable());
  Result<std::thread> thread = start_signal_free_thread("turnout-hca", [this] { main(); });
  if (!thread.ok()) return thread.status();
  thread_ = std::move(*thread);
  return {};
}

void Firmware::stop() noexcept {
  if (!thread_.joinable()) return;
  if (fabric.pid() == getpid()) {
    stop_.store(true, std::memory_order_release);
    fabric.wake(fabric.me());
    thread_.join();
  } else {
    thread_.detach();  // a fork's child has no such thread
  }
}

void Firmware::main() noexcept {
  prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);  // RNR timers begin at 10 us, the default slack is 50 us

  struct Watch {
    Token token;
    Descriptor pidfd;  // none: it could not be had (seccomp, no descriptor is free)
  };
  // How often those without a pidfd are looked at: no person notices, and it takes less than a
  // thousandth of a processor.
  constexpr std::uint64_t kLook = 50'000'000;
  std::uint64_t look_at = 0;
  bool told = false;
  std::uint64_t flush_at = UINT64_MAX;
  std::vector<Watch> watches;
  std::vector<pollfd> polls;
  const auto refresh = [&] {
    const std::uint32_t high = std::min(fabric.header().process_high.load(), kMaxProcesses);
    std::erase_if(watches, [&](const Watch& w) {
      if (fabric.process(slot_of(w.token)).token.load() == w.token) return false;
      fabric.pipes().forget(w.token);  // another process reaped it
      return true;
    });
    for (std::uint32_t slot = 0; slot < high; ++slot) {
      const Token token = fabric.process(slot).token.load(std::memory_order_acquire);
      if (token == 0 || token == fabric.me() || slot_of(token) != slot) continue;
      if (std::any_of(watches.begin(), watches.end(),
                      [&](const Watch& w) { return w.token == token; })) {
        continue;
      }
      Descriptor fd(static_cast<int>(
          syscall(SYS_pidfd_open, static_cast<pid_t>(fabric.process(slot).pid), 0)));
      if (!fd) {
        const int error = errno;
        fabric.reap(token);  // does nothing when the process lives
        if (fabric.process(slot).token.load() != token) continue;
        if (!told && error != ESRCH) {
          told = true;
          TURNOUT_LOG(hca, warn,
                      "pidfd_open failed: process {}: {}; polling for its exit every {} ms",
                      fabric.process(slot).pid, std::strerror(error), kLook / 1'000'000);
        }
      }
      watches.push_back({token, std::move(fd)});
    }
  };
  refresh();
  while (!stop_.load(std::memory_order_acquire)) {
    polls.clear();
    polls.push_back({fabric.wake_read(), POLLIN, 0});
    for (const Watch& w : watches) polls.push_back({w.pidfd.get(), POLLIN, 0});
    std::uint64_t next = std::min({send_queues.next_retry(), faults.next_due(), flush_at});
    const bool looks =
        std::any_of(watches.begin(), watches.end(), [](const Watch& w) { return !w.pidfd; });
    timespec wait{};
    timespec* limit = nullptr;
    if (looks || next < UINT64_MAX - 1) {
      const std::uint64_t now = monotonic();
      if (looks) next = std::min(next, look_at);
      const std::uint64_t left = next > now ? next - now : 0;
      wait = {static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
      limit = &wait;
    }
    if (ppoll(polls.data(), polls.size(), limit, nullptr) < 0 && errno != EINTR) {
      TURNOUT_LOG(hca, error, "ppoll failed: firmware thread: {}; retrying", std::strerror(errno));
      usleep(10'000);
    }
    bool changed = false;
    if ((polls[0].revents & POLLIN) != 0) {
      char bytes[256];
      while (read(fabric.wake_read(), bytes, sizeof bytes) > 0) {
      }
      changed = true;
    }
    for (std::size_t i = 0; i < watches.size(); ++i) {
      if (polls[i + 1].revents == 0) continue;
      fabric.reap(watches[i].token);
      // Where a damaged record named another process it lives on: refresh() watches the right one.
      watches[i].pidfd.reset();
      changed = true;
    }
    const bool look = looks && monotonic() >= look_at;
    if (changed || look) {
      look_at = monotonic() + kLook;
      // refresh() tries again for those that have no pidfd, and reaps those that have ended.
      std::erase_if(watches, [](const Watch& w) { return !w.pidfd; });
      refresh();
      memory.sweep();
      mlx5_queues.move_own();
    }
    if (changed || flush_at != UINT64_MAX) flush_at = mlx5_queues.flush_posted();
    faults.run_due();
    send_queues.retry_due(Caller::firmware);
  }
}

}  // namespace turnout::hca
