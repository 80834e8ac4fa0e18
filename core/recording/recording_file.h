// SPDX-License-Identifier: BSD-3-Clause
// RecordingFile: what one endpoint did, written down while it does it (docs/trace.md). Made into a
// trace by sim/recording.
//
// Opened at the first event, so that endpoints that only look around leave nothing. A file that
// cannot be written is told about once and then forgotten: the program goes on. One thread at a
// time; bytes and nanoseconds. Every event is given the time it happened at, since the endpoint's
// creation; times do not run backwards.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/address.h"
#include "core/clock.h"
#include "core/completion.h"

namespace turnout {

class RecordingFile {
 public:
  // `setting` is the setting `trace`; `self` names the endpoint.
  RecordingFile(std::string setting, const Address& self);
  ~RecordingFile();  // writes what is left, without "end"
  RecordingFile(const RecordingFile&) = delete;
  RecordingFile& operator=(const RecordingFile&) = delete;

  void introduce(PeerId peer, const Address& address);  // before its first event; once is enough
  void send(Nanoseconds at, std::uint32_t request, PeerId to, std::uint64_t bytes,
            std::uint64_t tag, bool tagged);
  // kAnyPeer: from anyone.
  void receive(Nanoseconds at, std::uint32_t request, PeerId from, std::uint64_t bytes,
               std::uint64_t tag, bool any_tag, bool tagged);
  // One-sided.
  void put(Nanoseconds at, std::uint32_t request, PeerId to, std::uint64_t bytes);
  void get(Nanoseconds at, std::uint32_t request, PeerId from, std::uint64_t bytes);
  void matched(Nanoseconds at, std::uint32_t request, PeerId from, std::uint64_t bytes,
               std::uint64_t tag);
  void ended(Nanoseconds at, std::uint32_t request);
  void dropped(Nanoseconds at, std::uint32_t request);
  void compute(Nanoseconds at, Nanoseconds duration);
  void close();

  // The setting's path with %p (process), %r (rank, "x" when unknown) and %e (endpoint) filled in;
  // one that ends with a slash is a folder.
  [[nodiscard]] static std::string path_of(std::string_view setting, int rank, const Address& self);

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args);
  [[nodiscard]] bool open();
  void flush();

  std::string setting_, path_;
  Address self_;
  int fd_ = -1;
  bool failed_ = false;
  fmt::memory_buffer pending_;
  std::vector<bool> introduced_;  // by PeerId
};

}  // namespace turnout
