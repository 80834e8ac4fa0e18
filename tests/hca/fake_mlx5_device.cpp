// SPDX-License-Identifier: BSD-3-Clause
#include "tests/hca/fake_mlx5_device.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "hca/mlx5/device_calls.h"

namespace {

using turnout::hca::Mlx5DeviceCalls;
using turnout::test::FakeMlx5Device;

constexpr std::size_t kPage = 4096;

FakeMlx5Device fake;
void (*mark)(int fd, bool ours, bool command) = nullptr;

int open_fake(int flags) {
  ++fake.opens;
  fake.last_flags = flags;
  const int fd = memfd_create("fake-mlx5", MFD_CLOEXEC);
  if (fake.marks_its_files) mark(fd, true, true);
  if (fd >= 0 && fd < FakeMlx5Device::kFiles) fake.is_file[fd] = true;
  return fd;
}

ssize_t write_fake(int fd, const void* bytes, std::size_t count) {
  ++fake.writes;
  // What the device does with its own files is the system's.
  return ::write(fd, bytes, count);
}

ssize_t read_fake(int fd, void* bytes, std::size_t count) {
  ++fake.reads;
  return ::read(fd, bytes, count);
}

int control_fake(int, unsigned long request, void* argument) {
  ++fake.controls;
  if (request == turnout::test::kFakeRequest) return *static_cast<int*>(argument);
  errno = ENOTTY;
  return -1;
}

int close_fake(int fd) {
  ++fake.closes;
  if (fd < FakeMlx5Device::kFiles) fake.is_file[fd] = false;
  mark(fd, false, false);
  return ::close(fd);
}

void duplicate_fake(int from, int to) {
  ++fake.duplicates;
  const bool ours = from < FakeMlx5Device::kFiles && fake.is_file[from];
  if (to < FakeMlx5Device::kFiles) fake.is_file[to] = ours;
  mark(to, ours, ours);
}

bool see_fault(const siginfo_t* info, void*) {
  ++fake.faults;
  if (info->si_addr != fake.doorbell) return false;
  errno = EIO;  // what it calls may change it
  return ftruncate(fake.doorbell_file, kPage) == 0;
}

constexpr Mlx5DeviceCalls kCalls = {
    sizeof(Mlx5DeviceCalls), open_fake, write_fake, read_fake, control_fake, close_fake,
    duplicate_fake,          see_fault};

}  // namespace

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

FAKE_EXPORT const Mlx5DeviceCalls* turnout_mlx5_device(void (*marker)(int, bool, bool)) {
  mark = marker;
  fake.doorbell_file = memfd_create("fake-doorbell", MFD_CLOEXEC);
  void* const page =
      mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fake.doorbell_file, 0);
  if (page == MAP_FAILED) return nullptr;
  fake.doorbell = static_cast<char*>(page);
  return &kCalls;
}

FAKE_EXPORT FakeMlx5Device* fake_mlx5_device() {
  return &fake;
}

FAKE_EXPORT void fake_mlx5_event(int (&ends)[2]) {
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  mark(ends[0], true, false);
}
