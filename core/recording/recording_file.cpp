// SPDX-License-Identifier: BSD-3-Clause
#include "core/recording/recording_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/log.h"
#include "base/private_folder.h"
#include "core/types/launcher.h"

namespace turnout {

RecordingFile::RecordingFile(std::string setting, const Address& self)
    : setting_(std::move(setting)), self_(self) {}

RecordingFile::~RecordingFile() {
  flush();
  if (fd_ >= 0) ::close(fd_);
}

std::string RecordingFile::path_of(std::string_view setting, int rank, const Address& self) {
  std::string pattern(setting);
  if (pattern.ends_with('/')) pattern += "rank-%r.%p.%e.recording";
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const std::string_view field = std::string_view(pattern).substr(i, 2);
    if (field == "%p") {
      path += std::to_string(self.pid);
    } else if (field == "%r") {
      path += rank < 0 ? std::string("x") : std::to_string(rank);
    } else if (field == "%e") {
      path += fmt::format("{:016x}", self.id);
    } else {
      path += pattern[i];
      continue;
    }
    ++i;
  }
  return path;
}

bool RecordingFile::open() {
  if (fd_ >= 0) return true;
  if (failed_) return false;
  const LauncherIdentity launcher = launcher_identity();
  path_ = path_of(setting_, launcher.rank, self_);
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), error);
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0600);
  if (fd_ < 0) {
    failed_ = true;
    TURNOUT_LOG(endpoint, error, "recording failed: {}: {}; TURNOUT_TRACE has no effect", path_,
                std::generic_category().message(errno));
    return false;
  }
  const auto number = [](int n) { return n < 0 ? std::string("-") : std::to_string(n); };
  fmt::format_to(fmt::appender(pending_),
                 "turnout-recording 2\nendpoint {:016x}\nrank {} {}\n"
                 "pid {}\n",
                 self_.id, number(launcher.rank), number(launcher.ranks), self_.pid);
  if (!launcher.job.empty()) {
    fmt::format_to(fmt::appender(pending_), "job {}\n", launcher.job);
  }
  return true;
}

void RecordingFile::flush() {
  if (fd_ >= 0 && !failed_) {
    const Status status = write_all(fd_, {pending_.data(), pending_.size()});
    if (!status.ok()) {
      failed_ = true;
      TURNOUT_LOG(endpoint, error, "recording failed: {}: {}; the recording ends here", path_,
                  status.text());
    }
  }
  pending_.clear();
}

void RecordingFile::on_wireup_request(PeerId peer, const Address& address) {
  if (peer < introduced_.size() && introduced_[peer]) return;
  if (peer >= introduced_.size()) introduced_.resize(std::size_t{peer} + 1);
  introduced_[peer] = true;
  line("p {} {:016x}\n", peer, address.id);
}

void RecordingFile::close() {
  if (fd_ < 0) return;
  line("end\n");
  flush();
  ::close(std::exchange(fd_, -1));
  failed_ = true;  // nothing follows
}

}  // namespace turnout
