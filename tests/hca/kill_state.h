// SPDX-License-Identifier: BSD-3-Clause
// StateView: the memory of a fabric seen from outside. It is only read: who looks is not attached,
// so looking reaps nothing that the processes of the fabric left lying.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "hca/device/layout.h"

namespace turnout::hca::kill_test {

// Records and pages in use.
struct Census {
  std::uint64_t processes = 0, qps = 0, cqs = 0, srqs = 0, mrs = 0, pages = 0;
  std::uint64_t others = 0;    // XRC handles, attachments to multicast groups
  std::uint64_t receives = 0;  // posted to SRQs and not used
  std::uint64_t foreign = 0;   // of all these, those that belong to none of the living
  bool operator==(const Census&) const = default;
  [[nodiscard]] std::string text() const;
};

class StateView {
 public:
  // Of the fabric that this process is in. Throws std::runtime_error.
  StateView(const std::string& fabric, pid_t pid);
  ~StateView();
  StateView(const StateView&) = delete;
  StateView& operator=(const StateView&) = delete;

  [[nodiscard]] Census count(const std::vector<pid_t>& living) const;

 private:
  template <class T>
  [[nodiscard]] const T* at(std::uint64_t offset) const {
    return reinterpret_cast<const T*>(base_ + offset);
  }
  const std::byte* base_ = nullptr;
  std::uint64_t size_ = 0;
};

// Open file descriptors of a process, and mappings in its address space.
[[nodiscard]] std::uint64_t open_files(pid_t pid);
[[nodiscard]] std::uint64_t mappings(pid_t pid);

}  // namespace turnout::hca::kill_test
