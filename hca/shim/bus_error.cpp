// SPDX-License-Identifier: BSD-3-Clause
#include "hca/shim/bus_error.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "hca/shim/real.h"

namespace turnout::shim {

namespace {

using KernelSet = std::uint64_t;  // the kernel's sigset_t

KernelSet set_kernel_mask(KernelSet mask) noexcept {
  KernelSet old = 0;
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, &old, sizeof mask);
  return old;
}

std::atomic<bool> held{false};
KernelSet mask_at_fork = 0;  // of the thread that holds the lock around fork()

// No signal handler of this thread may wait for a lock that the thread has.
KernelSet hold() noexcept {
  const KernelSet old = set_kernel_mask(~KernelSet{0});
  while (held.exchange(true, std::memory_order_acquire)) sched_yield();
  return old;
}

void release(KernelSet mask) noexcept {
  held.store(false, std::memory_order_release);
  set_kernel_mask(mask);
}

class Held {
 public:
  Held() noexcept : errno_(errno), mask_(hold()) {}
  ~Held() {
    release(mask_);
    errno = errno_;
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  int errno_;
  KernelSet mask_;
};

std::atomic<BusErrorOfDevice> device_bus_error{nullptr};
bool installed = false;            // guarded by `held`
struct sigaction programs_action;  // guarded by `held`; what it is once `installed`

bool is_function(const struct sigaction& action) noexcept {
  return action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
}

int set_system_action(const struct sigaction* action, struct sigaction* old) noexcept {
  return call_real<int>(Function::sigaction, SIGBUS, action, old);
}

void set_default() noexcept {
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  set_system_action(&action, nullptr);
}

struct sigaction take_action() noexcept {
  const Held lock;
  const struct sigaction action = programs_action;
  if ((static_cast<unsigned>(action.sa_flags) & SA_RESETHAND) != 0)
    programs_action.sa_handler = SIG_DFL;
  return action;
}

void on_bus_error(int number, siginfo_t* info, void* context) {
  const int before = errno;
  // Others are sent by processes: kill(2), sigqueue(3).
  const bool is_fault = info->si_code > 0;
  if (is_fault) {
    const bool done = device_bus_error.load(std::memory_order_acquire)(info, context);
    errno = before;
    if (done) return;
  }
  const struct sigaction action = take_action();
  if (is_function(action)) {
    sigset_t space;
    call_real<int>(Function::sigprocmask, SIG_BLOCK, without_bus_error(&action.sa_mask, space),
                   static_cast<sigset_t*>(nullptr));
    errno = before;
    if ((action.sa_flags & SA_SIGINFO) != 0) {
      action.sa_sigaction(number, info, context);
    } else {
      action.sa_handler(number);
    }
    return;
  }
  // A fault cannot be ignored: the store would be made again for ever.
  if (is_fault || action.sa_handler == SIG_DFL) {
    set_default();
    // A fault comes again by itself.
    if (!is_fault) syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), number, info);
  }
  errno = before;
}

// With the lock held.
int install() noexcept {
  struct sigaction ours = {};
  ours.sa_sigaction = on_bus_error;
  // Doorbells are rung in handlers of this signal, too. Where the program has its handlers' stack
  // is its own affair.
  const int programs = is_function(programs_action) ? programs_action.sa_flags : SA_RESTART;
  ours.sa_flags = SA_SIGINFO | SA_NODEFER | (programs & (SA_ONSTACK | SA_RESTART));
  return set_system_action(&ours, nullptr);
}

int set_bus_action(const struct sigaction* action, struct sigaction* old) noexcept {
  // Their memory may not be accessible: not while the signals are blocked.
  struct sigaction wanted = {};
  if (action != nullptr) wanted = *action;
  struct sigaction found = {};
  int result = 0;
  {
    const Held lock;
    if (!installed) {
      result = set_system_action(action == nullptr ? nullptr : &wanted, &found);
    } else {
      found = programs_action;
      if (action != nullptr) {
        programs_action = wanted;
        result = install();
      }
    }
  }
  if (result == 0 && old != nullptr) *old = found;
  return result;
}

}  // namespace

void handle_bus_errors(BusErrorOfDevice of_device) noexcept {
  device_bus_error.store(of_device, std::memory_order_release);
  unblock_bus_error();
  const Held lock;
  if (installed) return;
  set_system_action(nullptr, &programs_action);
  install();
  installed = true;
}

void unblock_bus_error() noexcept {
  const KernelSet bus_error = KernelSet{1} << (SIGBUS - 1);
  syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &bus_error, nullptr, sizeof bus_error);
}

int set_action(int number, const struct sigaction* action, struct sigaction* old) noexcept {
  struct sigaction unblocked;
  if (action != nullptr) {
    unblocked = *action;
    sigdelset(&unblocked.sa_mask, SIGBUS);
    action = &unblocked;
  }
  if (number == SIGBUS) return set_bus_action(action, old);
  return call_real<int>(Function::sigaction, number, action, old);
}

sighandler_t set_bus_handler(sighandler_t handler, int flags) noexcept {
  if (handler == SIG_ERR) {
    errno = EINVAL;
    return SIG_ERR;
  }
  struct sigaction action = {};
  struct sigaction old = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  return set_bus_action(&action, &old) == 0 ? old.sa_handler : SIG_ERR;
}

const sigset_t* without_bus_error(const sigset_t* set, sigset_t& space) noexcept {
  if (set == nullptr || sigismember(set, SIGBUS) != 1) return set;
  space = *set;
  sigdelset(&space, SIGBUS);
  return &space;
}

void hold_bus_actions() noexcept {
  const KernelSet mask = hold();
  mask_at_fork = mask;
}

void release_bus_actions() noexcept {
  release(mask_at_fork);
}

}  // namespace turnout::shim
