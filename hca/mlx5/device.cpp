// SPDX-License-Identifier: BSD-3-Clause
// libturnout-mlx5.so: the device behind /dev/infiniband/uverbsN of the shim; see device_calls.h.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "base/file_descriptor.h"
#include "base/log.h"
#include "hca/device/export.h"
#include "hca/mlx5/command_file.h"
#include "hca/mlx5/device_calls.h"

#include <rdma/ib_user_verbs.h>

namespace turnout::hca {
namespace {

void (*mark_descriptor)(int fd, bool ours, bool command) = nullptr;

// The descriptors of this process that are the device's.
class OpenFiles final : public EventFiles {
 public:
  struct File {
    std::shared_ptr<CommandFile> commands;
    bool is_command = false;
    Channel* channel = nullptr;  // of a completion channel
    std::shared_ptr<AsyncAnswers> answers;
  };

  static OpenFiles& instance() {
    static auto* const one = new OpenFiles;  // the program may use it while it exits
    return *one;
  }

  // A new command file; -1 and errno.
  int open() {
    const std::lock_guard lock(mutex_);
    if (!pages_ && !make_pages()) return -1;
    const int fd = fcntl(pages_.get(), F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return -1;
    files_[fd] = {std::make_shared<CommandFile>(*this), true, nullptr, nullptr};
    mark_descriptor(fd, true, true);
    return fd;
  }

  // What the descriptor is; nothing: not ours.
  File find(int fd) {
    const std::lock_guard lock(mutex_);
    const auto found = files_.find(fd);
    return found != files_.end() ? found->second : File{};
  }

  int close(int fd) {
    forget(fd);
    return ::close(fd);
  }

  // `to` has become what `from` is, which may be nothing of ours.
  void duplicate(int from, int to) {
    forget(to);
    const std::lock_guard lock(mutex_);
    const auto found = files_.find(from);
    if (found == files_.end()) return;
    const File file = found->second;
    files_[to] = file;
    mark_descriptor(to, true, file.is_command);
  }

  int add(CommandFile& file, Channel* channel, int pipe) override {
    return add(file, pipe, {nullptr, false, channel, nullptr});
  }

  Channel* channel_of(const CommandFile& file, int fd) override {
    const File found = find(fd);
    return found.commands.get() == &file ? found.channel : nullptr;
  }

  int add(CommandFile& file, std::shared_ptr<AsyncAnswers> answers) override {
    const int end = answers->read_end();
    return add(file, end, {nullptr, false, nullptr, std::move(answers)});
  }

  std::shared_ptr<AsyncAnswers> answers_of(const CommandFile& file, int fd) override {
    const File found = find(fd);
    return found.commands.get() == &file ? found.answers : nullptr;
  }

 private:
  // A descriptor for what `pipe` is, of the same commands as `file`. -1 and errno.
  int add(const CommandFile& file, int pipe, File added) {
    const int fd = fcntl(pipe, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return -1;
    const std::lock_guard lock(mutex_);
    for (const auto& [number, open] : files_) {
      if (open.is_command && open.commands.get() == &file) {
        added.commands = open.commands;
        files_[fd] = std::move(added);
        mark_descriptor(fd, true, false);
        return fd;
      }
    }
    ::close(fd);
    errno = EBADF;
    return -1;
  }

  // The file that command files are: empty, so that its mappings are doorbells.
  bool make_pages() {
    Descriptor fd(memfd_create("turnout-mlx5", MFD_CLOEXEC));
    struct stat st {};
    if (!fd || fstat(fd.get(), &st) != 0) return false;
    Doorbells::instance().add_file(st.st_dev, st.st_ino);
    pages_ = std::move(fd);
    return true;
  }

  // The descriptor stands for nothing any more. Its commands end with their last descriptor.
  void forget(int fd) {
    File gone;
    {
      const std::lock_guard lock(mutex_);
      const auto found = files_.find(fd);
      mark_descriptor(fd, false, false);
      if (found == files_.end()) return;
      gone = std::move(found->second);
      files_.erase(found);
      const bool more = std::any_of(files_.begin(), files_.end(), [&](const auto& other) {
        return other.second.is_command && other.second.commands == gone.commands;
      });
      if (!gone.is_command || more) return;
    }
    gone.commands->end();
    Doorbells::instance().remove_file();
  }

  std::mutex mutex_;
  std::map<int, File> files_;
  Descriptor pages_;
};

ssize_t failure(int error) noexcept {
  errno = error;
  return -1;
}

int open_file(int) {
  return OpenFiles::instance().open();
}

ssize_t write_file(int fd, const void* bytes, std::size_t count) {
  const OpenFiles::File file = OpenFiles::instance().find(fd);
  if (!file.is_command) return failure(EINVAL);
  const int error = file.commands->write(bytes, count);
  return error == 0 ? static_cast<ssize_t>(count) : failure(error);
}

ssize_t read_file(int fd, void* bytes, std::size_t count) {
  const OpenFiles::File file = OpenFiles::instance().find(fd);
  if (file.commands == nullptr || file.is_command) return failure(EINVAL);
  if (file.answers != nullptr) {
    const ssize_t read = AsyncAnswers::read(fd, bytes, count);
    return read >= 0 ? read : failure(static_cast<int>(-read));
  }
  if (file.channel == nullptr) {
    if (count < sizeof(ib_uverbs_async_event_desc)) return failure(EINVAL);
    const int error = file.commands->read_event(bytes);
    return error == 0 ? static_cast<ssize_t>(sizeof(ib_uverbs_async_event_desc)) : failure(error);
  }
  const ssize_t read = file.commands->read_channel(*file.channel, bytes, count);
  return read >= 0 ? read : failure(static_cast<int>(-read));
}

int control(int fd, unsigned long request, void* argument) {
  const OpenFiles::File file = OpenFiles::instance().find(fd);
  if (!file.is_command) return static_cast<int>(failure(ENOTTY));
  const int error = file.commands->control(request, argument);
  return error == 0 ? 0 : static_cast<int>(failure(error));
}

void duplicate(int from, int to) {
  OpenFiles::instance().duplicate(from, to);
}

int close_file(int fd) {
  return OpenFiles::instance().close(fd);
}

bool bus_error(const siginfo_t* info, void* ucontext) {
  return Doorbells::instance().store(*info, ucontext);
}

constexpr Mlx5DeviceCalls kCalls = {sizeof(Mlx5DeviceCalls),
                                    open_file,
                                    write_file,
                                    read_file,
                                    control,
                                    close_file,
                                    duplicate,
                                    bus_error};

}  // namespace
}  // namespace turnout::hca

TURNOUT_EXPORT const turnout::hca::Mlx5DeviceCalls* turnout_mlx5_device(
    void (*mark)(int fd, bool ours, bool command)) {
  turnout::hca::mark_descriptor = mark;
  return &turnout::hca::kCalls;
}
