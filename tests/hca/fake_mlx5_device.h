// SPDX-License-Identifier: BSD-3-Clause
// A library in the place of the emulated mlx5 device, for tests of the shim: it counts its calls
// and has one doorbell. The state is in the library and lives as long as the process; any thread.
#pragma once

#include <atomic>
#include <cstddef>

namespace turnout::test {

struct FakeMlx5Device {
  std::atomic<int> opens{0}, writes{0}, reads{0}, controls{0}, closes{0}, faults{0}, duplicates{0};
  std::atomic<int> last_flags{0};
  static constexpr int kFiles = 1024;
  std::atomic<bool> is_file[kFiles] = {};
  std::atomic<bool> marks_its_files{true};
  // A store to its first page faults until the device has seen one since the file was made empty.
  int doorbell_file = -1;
  char* doorbell = nullptr;
};

// Exported by the library: what it is, and a new event file of it, from which read() takes counters
// of eight bytes. Its other end is the second.
inline constexpr char kFakeMlx5Device[] = "fake_mlx5_device";
using FakeMlx5DeviceEntry = FakeMlx5Device*();
inline constexpr char kFakeMlx5Event[] = "fake_mlx5_event";
using FakeMlx5EventEntry = void(int (&ends)[2]);

inline constexpr unsigned long kFakeRequest = 0xC0181B01;

}  // namespace turnout::test
