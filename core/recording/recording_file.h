// SPDX-License-Identifier: BSD-3-Clause
// RecordingFile: the event log of one endpoint (docs/trace.md). sim/recording converts it to a
// trace.
//
// The file is opened at the first event, so an endpoint without traffic leaves no file. A write
// error is logged once and ends the recording; the program continues. One thread at a time; bytes
// and nanoseconds. Each event carries its time since the creation of the endpoint; times never
// decrease.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/launcher.h"
#include "base/log.h"
#include "base/private_folder.h"
#include "core/time/clock.h"
#include "core/types/address.h"
#include "core/types/completion.h"

namespace turnout {

class RecordingFile {
 public:
  // `setting` is the setting `trace`; `self` names the endpoint.
  RecordingFile(std::string setting, const Address& self)
      : setting_(std::move(setting)), self_(self) {}
  // Writes what is left, without "end".
  ~RecordingFile() {
    flush();
    if (fd_ >= 0) ::close(fd_);
  }
  RecordingFile(const RecordingFile&) = delete;
  RecordingFile& operator=(const RecordingFile&) = delete;

  // Before the peer's first event; once is enough.
  void on_wireup_request(PeerId peer, std::uint64_t endpoint_id) {
    if (peer < introduced_.size() && introduced_[peer]) return;
    if (peer >= introduced_.size()) introduced_.resize(std::size_t{peer} + 1);
    introduced_[peer] = true;
    line("p {} {:016x}\n", peer, endpoint_id);
  }
  // Another name of this process for its peers, if it has several.
  void also(std::uint64_t endpoint_id) { line("also {:016x}\n", endpoint_id); }
  void send(Nanoseconds at, std::uint32_t request, PeerId to, std::uint64_t bytes,
            std::uint64_t tag, bool tagged) {
    line("s {} {} {} {} {} {}\n", request, to, bytes, tag, tagged ? 0 : 1, at);
  }
  // kAnyPeer: from anyone.
  void receive(Nanoseconds at, std::uint32_t request, PeerId from, std::uint64_t bytes,
               std::uint64_t tag, bool any_tag, bool tagged) {
    line("r {} {} {} {} {} {}\n", request, from == kAnyPeer ? "*" : std::to_string(from), bytes,
         any_tag ? "*" : std::to_string(tag), tagged ? 0 : 1, at);
  }
  // One-sided: a put, or a get.
  void access(Nanoseconds at, std::uint32_t request, bool put, PeerId peer, std::uint64_t bytes) {
    line("{} {} {} {} {}\n", put ? 'u' : 'g', request, peer, bytes, at);
  }
  // kAnyPeer: not known whose it is.
  void matched(Nanoseconds at, std::uint32_t request, PeerId from, std::uint64_t bytes,
               std::uint64_t tag) {
    line("m {} {} {} {} {}\n", request, from == kAnyPeer ? "*" : std::to_string(from), bytes, tag,
         at);
  }
  void ended(Nanoseconds at, std::uint32_t request) { line("w {} {}\n", request, at); }
  void dropped(Nanoseconds at, std::uint32_t request) { line("x {} {}\n", request, at); }
  void compute(Nanoseconds at, Nanoseconds duration) { line("c {} {}\n", duration, at); }
  void close() {
    if (fd_ < 0) return;
    line("end\n");
    flush();
    ::close(std::exchange(fd_, -1));
    failed_ = true;  // nothing follows
  }

  // The setting's path with %p (process), %r (rank, "x" when unknown) and %e (endpoint) filled in;
  // one that ends with a slash is a folder.
  [[nodiscard]] static std::string path_of(std::string_view setting, int rank,
                                           const Address& self) {
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

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    if (failed_ || !open()) return;
    fmt::format_to(fmt::appender(pending_), format, std::forward<Args>(args)...);
    if (pending_.size() >= kFlushAt) flush();
  }
  [[nodiscard]] bool open() {
    if (fd_ >= 0) return true;
    if (failed_) return false;
    const LauncherIdentity launcher = launcher_identity();
    path_ = path_of(setting_, launcher.rank, self_);
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), error);
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0600);
    if (fd_ < 0) {
      failed_ = true;
      TURNOUT_LOG(endpoint, error, "recording failed: {}: {}; nothing is recorded", path_,
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
  void flush() {
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

  static constexpr std::size_t kFlushAt = 65536;

  std::string setting_, path_;
  Address self_;
  int fd_ = -1;
  bool failed_ = false;
  fmt::memory_buffer pending_;
  std::vector<bool> introduced_;  // by PeerId
};

}  // namespace turnout
