// SPDX-License-Identifier: BSD-3-Clause
// The functions that set actions and masks of signals (functions.def): SIGBUS is the emulated
// device's first, where there is one.
#include <pthread.h>
#include <signal.h>

#include "hca/shim/bus_error.h"
#include "hca/shim/mlx5.h"
#include "hca/shim/real.h"

using namespace turnout::shim;

extern "C" {

#define TURNOUT_SHIM_SIGACTION(name)                                                             \
  TURNOUT_SHIM(int, name, (int number, const struct sigaction* action, struct sigaction* old)) { \
    return has_device() ? set_action(number, action, old)                                        \
                        : call_real<int>(Function::name, number, action, old);                   \
  }
TURNOUT_SHIM_SIGACTION(sigaction)
TURNOUT_SHIM_SIGACTION(__sigaction)

#define TURNOUT_SHIM_SIGNAL(name, flags)                                   \
  TURNOUT_SHIM(sighandler_t, name, (int number, sighandler_t handler)) {   \
    return number == SIGBUS && has_device()                                \
               ? set_bus_handler(handler, flags)                           \
               : call_real<sighandler_t>(Function::name, number, handler); \
  }
TURNOUT_SHIM_SIGNAL(signal, SA_RESTART)
TURNOUT_SHIM_SIGNAL(bsd_signal, SA_RESTART)
TURNOUT_SHIM_SIGNAL(ssignal, SA_RESTART)
TURNOUT_SHIM_SIGNAL(sysv_signal, static_cast<int>(SA_RESETHAND | SA_NODEFER))
TURNOUT_SHIM_SIGNAL(__sysv_signal, static_cast<int>(SA_RESETHAND | SA_NODEFER))

#define TURNOUT_SHIM_MASK(name)                                                  \
  TURNOUT_SHIM(int, name, (int how, const sigset_t* set, sigset_t* old)) {       \
    sigset_t space;                                                              \
    if (has_device() && how != SIG_UNBLOCK) set = without_bus_error(set, space); \
    return call_real<int>(Function::name, how, set, old);                        \
  }
TURNOUT_SHIM_MASK(sigprocmask)
TURNOUT_SHIM_MASK(pthread_sigmask)

TURNOUT_SHIM(int, pthread_attr_setsigmask_np, (pthread_attr_t * attributes, const sigset_t* set)) {
  sigset_t space;
  if (has_device()) set = without_bus_error(set, space);
  return call_real<int>(Function::pthread_attr_setsigmask_np, attributes, set);
}

}  // extern "C"
