// SPDX-License-Identifier: BSD-3-Clause
#include "base/text_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace turnout {

Result<std::string> read_text_file(const std::string& path, std::string_view shown,
                                   std::string_view what, std::uint64_t largest) {
  const auto failed = [&](int error) {
    return Status{error == EACCES ? Code::permission : Code::system,
                  fmt::format("reading the {} {} failed: {}", what, shown,
                              std::generic_category().message(error)),
                  error};
  };
  // Non-blocking: a pipe without a writer must not hang the program at start.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return failed(errno);
  struct stat info {};
  Status status;
  std::string text;
  if (::fstat(fd, &info) != 0) {
    status = failed(errno);
  } else if (!S_ISREG(info.st_mode)) {
    status = {Code::invalid, fmt::format("{} is not a regular file", shown)};
  } else if (std::cmp_greater(info.st_size, largest)) {
    status = {Code::invalid, fmt::format("{} has {} bytes; a {} may have at most {}", shown,
                                         info.st_size, what, largest)};
  } else {
    text.resize(static_cast<std::size_t>(info.st_size));
    std::size_t done = 0;
    while (done < text.size()) {
      const ssize_t n = ::read(fd, text.data() + done, text.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) status = failed(errno);
      if (n <= 0) break;
      done += static_cast<std::size_t>(n);
    }
    text.resize(done);
  }
  ::close(fd);
  if (!status.ok()) return status;
  return text;
}

}  // namespace turnout
