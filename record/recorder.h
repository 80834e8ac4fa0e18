// SPDX-License-Identifier: BSD-3-Clause
// Recorder: the recording of this process (docs/trace.md), written by a library that is preloaded
// into a program of others (docs/decisions/043-record.md).
//
// One for the process, made at the first call that is observed, and never destroyed: the program's
// last calls may come after any destructor. All threads; a lock guards it and whatever the front
// ends keep about operations (guard()). Times are nanoseconds, sizes bytes. No errors: what goes
// wrong is logged, and the program goes on. A child of fork() records nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/recording/computed_time.h"
#include "core/recording/recording_file.h"

namespace turnout::record {

// The folder, or path, of the recordings: set by `turnout record`, of the form of `TURNOUT_TRACE`.
// No setting of Turnout, which complains of variables TURNOUT_* that it does not know.
inline constexpr const char* kVariable = "LIBTURNOUT_RECORD";

struct Operation {
  enum class Kind : std::uint8_t { send, receive, receive_many, put, get, other };
  Kind kind = Kind::send;
  bool any_tag = false, tagged = false;
  bool written = false;    // its start is in the file
  PeerId peer = kAnyPeer;  // of a receive: any
  std::uint32_t number = 0;
  std::uint64_t bytes = 0, tag = 0;
};

class Recorder {
 public:
  // Null: this process records nothing.
  [[nodiscard]] static Recorder* get() noexcept;

  [[nodiscard]] std::unique_lock<std::mutex> guard() { return std::unique_lock(mutex_); }

  // All below with guard() held.
  // A name of this process, as others know it. Bytes of an address are hashed to one.
  void own_name(std::uint64_t name);
  [[nodiscard]] PeerId peer(std::uint64_t name);
  [[nodiscard]] static std::uint64_t name_of(std::span<const std::byte> address) noexcept;

  void number(Operation* operation) noexcept;
  // Its start, once.
  void started(Operation* operation);
  void ended(Operation* operation);    // a send, or what is one-sided
  void dropped(Operation* operation);  // it failed or was cancelled
  // A receive has this message; kAnyPeer: the library does not tell whose it is. One of many
  // messages goes on.
  void matched(Operation* operation, PeerId from, std::uint64_t bytes, std::uint64_t tag);

  // A call of the program into the library. What lies between two of one thread is the program's.
  // Not within another one: those are the library's own.
  class Call {
   public:
    explicit Call(Recorder* recorder, ComputedTime::Call call = ComputedTime::Call::acts) noexcept;
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    // Null: nothing is to be recorded.
    [[nodiscard]] Recorder* recorder() const noexcept { return recorder_; }

   private:
    Recorder* recorder_;
  };

  // While one lasts, the library calls the program back: what that calls is the program's.
  class Program {
   public:
    Program() noexcept;
    ~Program();
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

   private:
    int depth_;
  };

  // At the end of the process.
  void close() noexcept;

 private:
  explicit Recorder(std::string setting);
  [[nodiscard]] RecordingFile& file();
  [[nodiscard]] Nanoseconds age() noexcept;
  void write_computed();
  void introduce(PeerId peer);

  std::mutex mutex_;
  const std::string setting_;
  const Nanoseconds born_;
  std::optional<RecordingFile> file_;  // from the first event on
  bool closed_ = false;
  std::vector<std::uint64_t> own_names_;
  std::vector<std::uint64_t> peer_names_;  // by PeerId
  std::unordered_map<std::uint64_t, PeerId> peers_;
  std::uint32_t last_ = 0;  // number of an operation
  ComputedTime computed_;   // processor time
};

}  // namespace turnout::record
