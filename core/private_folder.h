// Folders in which the processes of one user leave reports, or meet: private, checked to be the
// user's own, files written whole or not at all.
//
// Plain functions over descriptors that their Fd owns; any thread, any process. Errors: permission
// (a folder of another user, one that is open to others, a link in its place), system with errno;
// invalid for a file that is too long.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace turnout {

class Fd {
 public:
  explicit Fd(int fd = -1) noexcept : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd();
  [[nodiscard]] int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  int fd_;
};

// XDG_RUNTIME_DIR if it can be written to, else /tmp.
[[nodiscard]] std::string runtime_folder();

// The folder, made if need be: ours, private, and no link that somebody put in its place. Without
// `make` an empty Fd says that it is not there.
[[nodiscard]] Result<Fd> open_private(const std::string& path, bool make);

// Written beside its place, then renamed. `path` is the folder's, for messages.
[[nodiscard]] Status write_whole(const Fd& folder, const std::string& path,
                                 const std::string& file_name, std::string_view text);
[[nodiscard]] Result<std::string> read_report_file(const Fd& folder, const std::string& file_name);
// Names of what is in the folder; empty if it cannot be read.
[[nodiscard]] std::vector<std::string> entries(const Fd& folder);

[[nodiscard]] Status write_all(int fd, std::string_view text);
// "cannot WHAT PATH: ..."
[[nodiscard]] Status folder_failure(std::string_view what, const std::string& path, int error);

}  // namespace turnout
