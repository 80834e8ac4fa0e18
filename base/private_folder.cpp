// SPDX-License-Identifier: BSD-3-Clause
#include "base/private_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <system_error>

namespace turnout {

namespace {

// A report of 4096 decisions and as many peers has some MiB.
constexpr std::size_t kMaxFile = 64u << 20;
constexpr int kOpenTries = 8;

}  // namespace

Status folder_failure(std::string_view what, const std::string& path, int error) {
  return {error == EACCES || error == EPERM ? Code::permission : Code::system,
          fmt::format("{} failed: {}: {}", what, path, std::generic_category().message(error)),
          error};
}

std::string runtime_folder() {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  std::string base = runtime != nullptr && *runtime == '/' ? runtime : "/tmp";
  // Launchers hand the variable on to hosts and containers where the folder does not exist.
  if (::access(base.c_str(), W_OK | X_OK) != 0) base = "/tmp";
  return base;
}

Result<Descriptor> open_private(const std::string& path, bool make) {
  Descriptor fd;
  // Another process may remove the folder between the two calls.
  for (int attempt = 0; !fd && attempt < kOpenTries; ++attempt) {
    if (make && ::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
      return folder_failure("create", path, errno);
    }
    fd = Descriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!fd && (errno != ENOENT || !make)) break;
  }
  if (!fd && errno == ENOENT && !make) return fd;
  if (!fd) return folder_failure("open", path, errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return folder_failure("stat", path, errno);
  if (info.st_uid != ::geteuid() || (info.st_mode & 077) != 0) {
    return Status{Code::permission,
                  fmt::format("opening {} failed: it belongs to another user or is accessible to "
                              "others; remove it, or set TURNOUT_REPORT to another folder",
                              path)};
  }
  return fd;
}

Status write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return {Code::system, std::generic_category().message(errno), errno};
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

// Whole or not at all: written beside its place, then renamed.
Status write_whole(const Descriptor& folder, const std::string& path, const std::string& file_name,
                   std::string_view text) {
  const std::string temporary = fmt::format(".{}.{}", file_name, ::getpid());
  ::unlinkat(folder.get(), temporary.c_str(), 0);
  const Descriptor file(::openat(folder.get(), temporary.c_str(),
                                 O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return folder_failure("write", path, errno);
  Status status = write_all(file.get(), text);
  if (status.ok() &&
      ::renameat(folder.get(), temporary.c_str(), folder.get(), file_name.c_str()) != 0) {
    status = {Code::system, "", errno};
  }
  if (status.ok()) return status;
  ::unlinkat(folder.get(), temporary.c_str(), 0);
  return folder_failure("write", path, status.sys_errno());
}

Result<std::string> read_report_file(const Descriptor& folder, const std::string& file_name) {
  const Descriptor file(
      ::openat(folder.get(), file_name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file) return folder_failure("read", file_name, errno);
  std::string text;
  std::array<char, 65536> part{};
  while (text.size() <= kMaxFile) {
    const ssize_t n = ::read(file.get(), part.data(), part.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return folder_failure("read", file_name, errno);
    if (n == 0) return text;
    text.append(part.data(), static_cast<std::size_t>(n));
  }
  return Status{Code::invalid, fmt::format("{}: too large for a report", file_name)};
}

bool for_each_entry(const Descriptor& folder, const std::function<void(std::string_view)>& call) {
  const int copy = ::openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return false;
  DIR* const directory = ::fdopendir(copy);
  if (directory == nullptr) {
    ::close(copy);
    return false;
  }
  while (const dirent* entry = ::readdir(directory)) {
    const std::string_view name(entry->d_name);
    if (name != "." && name != "..") call(name);
  }
  ::closedir(directory);
  return true;
}

std::vector<std::string> entries(const Descriptor& folder) {
  std::vector<std::string> names;
  for_each_entry(folder, [&](std::string_view name) { names.emplace_back(name); });
  return names;
}

}  // namespace turnout
