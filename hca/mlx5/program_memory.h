// SPDX-License-Identifier: BSD-3-Clause
// Memory of the program that a command names: commands may name anything, and a kernel answers
// EFAULT where a process would crash.
//
// Through process_vm_readv(2) on the process itself. Any thread; not for hot paths.
#pragma once

#include <cstddef>
#include <cstdint>

namespace turnout::hca {

// False: some of it is not there, or may not be written.
[[nodiscard]] bool copy_from_program(void* to, std::uint64_t from, std::size_t bytes) noexcept;
[[nodiscard]] bool copy_to_program(std::uint64_t to, const void* from, std::size_t bytes) noexcept;
// Can all of it be read and written? Writes what it has read: nobody else may use it yet.
[[nodiscard]] bool is_writable(std::uint64_t address, std::uint64_t bytes) noexcept;

}  // namespace turnout::hca
