// SPDX-License-Identifier: BSD-3-Clause
// SIGBUS, which the emulated mlx5 device needs for its doorbells: a store to one faults
// (hca/mlx5/device_calls.h). The program keeps an action of its own for the signal.
//
// From handle_bus_errors() on the system's action is ours. sigaction() and its like set and report
// the program's, which is done for a fault that is not the device's, with the program's mask and
// flags (sigaction(2)). SIGBUS is kept unblocked in every thread, since a fault whose signal is
// blocked ends the process: in the masks that a program sets, of handlers and of new threads.
// Not seen are sigset(3), sighold(3) and BSD's sigblock(3) and sigsetmask(3), which are obsolete.
//
// Any thread, and signal handlers.
#pragma once

#include <signal.h>

namespace turnout::shim {

using BusErrorOfDevice = bool (*)(const siginfo_t* info, void* context);

// Makes the system's action ours, once; errors there cannot be.
void handle_bus_errors(BusErrorOfDevice of_device) noexcept;
// In this thread, and those that it makes.
void unblock_bus_error() noexcept;

// sigaction(2) while a device is there, for all signals.
[[nodiscard]] int set_action(int number, const struct sigaction* action,
                             struct sigaction* old) noexcept;
// signal(2) for SIGBUS, with the flags of its variant.
[[nodiscard]] sighandler_t set_bus_handler(sighandler_t handler, int flags) noexcept;

// `set`, or a copy in `space` that lacks SIGBUS.
[[nodiscard]] const sigset_t* without_bus_error(const sigset_t* set, sigset_t& space) noexcept;

// Around fork(): no other thread is changing the action.
void hold_bus_actions() noexcept;
void release_bus_actions() noexcept;

}  // namespace turnout::shim
