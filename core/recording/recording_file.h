// SPDX-License-Identifier: BSD-3-Clause
// RecordingFile: the event log of one endpoint (docs/trace.md). sim/recording converts it to a
// trace.
//
// The file is opened at the first event, so an endpoint without traffic leaves no file. A write
// error is logged once and ends the recording; the program continues. One thread at a time; bytes
// and nanoseconds. Each event carries its time since the creation of the endpoint; times never
// decrease.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/time/clock.h"
#include "core/types/address.h"
#include "core/types/completion.h"

namespace turnout {

class RecordingFile {
 public:
  // `setting` is the setting `trace`; `self` names the endpoint.
  RecordingFile(std::string setting, const Address& self);
  ~RecordingFile();  // writes what is left, without "end"
  RecordingFile(const RecordingFile&) = delete;
  RecordingFile& operator=(const RecordingFile&) = delete;

  // Before the peer's first event; once is enough.
  void on_wireup_request(PeerId peer, const Address& address);
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
  void matched(Nanoseconds at, std::uint32_t request, PeerId from, std::uint64_t bytes,
               std::uint64_t tag) {
    line("m {} {} {} {} {}\n", request, from, bytes, tag, at);
  }
  void ended(Nanoseconds at, std::uint32_t request) { line("w {} {}\n", request, at); }
  void dropped(Nanoseconds at, std::uint32_t request) { line("x {} {}\n", request, at); }
  void compute(Nanoseconds at, Nanoseconds duration) { line("c {} {}\n", duration, at); }
  void close();

  // The setting's path with %p (process), %r (rank, "x" when unknown) and %e (endpoint) filled in;
  // one that ends with a slash is a folder.
  [[nodiscard]] static std::string path_of(std::string_view setting, int rank, const Address& self);

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    if (failed_ || !open()) return;
    fmt::format_to(fmt::appender(pending_), format, std::forward<Args>(args)...);
    if (pending_.size() >= kFlushAt) flush();
  }
  [[nodiscard]] bool open();
  void flush();

  static constexpr std::size_t kFlushAt = 65536;

  std::string setting_, path_;
  Address self_;
  int fd_ = -1;
  bool failed_ = false;
  fmt::memory_buffer pending_;
  std::vector<bool> introduced_;  // by PeerId
};

}  // namespace turnout
