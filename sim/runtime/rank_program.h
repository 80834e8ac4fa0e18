// SPDX-License-Identifier: BSD-3-Clause
// RankProgram: the coroutine of a simulated rank, and what it waits for.
//
// It goes on only in begin() and resume(), which the rank calls when what it waits for is there.
// Owned by the rank; in the simulation's thread. Exceptions of the program come out of ended().
#pragma once

#include <cassert>
#include <coroutine>
#include <memory>
#include <utility>

#include "sim/runtime/rank.h"

namespace turnout::sim {

class RankProgram {
 public:
  enum class Waits : std::uint8_t { nothing, start, request, compute, beside_thread };
  struct Wait {
    Waits kind = Waits::nothing;
    Rank::StartAwaiter* starting = nullptr;  // start
    Request request = {};                    // request
    Picoseconds until = 0;                   // compute, beside_thread
  };

  void create(const Program& program, Rank rank) {
    program_ = std::make_unique<Program>(program);
    root_ = (*program_)(rank);
  }
  [[nodiscard]] bool created() const noexcept { return program_ != nullptr; }
  void begin() { root_.start(); }  // up to its first wait
  void suspend(const Wait& wait, std::coroutine_handle<> handle) noexcept {
    assert(wait_.kind == Waits::nothing && wait.kind != Waits::nothing);
    wait_ = wait;
    handle_ = handle;
  }
  [[nodiscard]] const Wait& wait() const noexcept { return wait_; }
  void resume() {
    assert(wait_.kind != Waits::nothing);
    wait_.kind = Waits::nothing;
    std::exchange(handle_, nullptr).resume();
  }
  [[nodiscard]] bool ended() const {
    if (!root_.done()) return false;
    root_.rethrow();
    return true;
  }
  // It goes on no more.
  void give_up() noexcept {
    wait_.kind = Waits::nothing;
    handle_ = nullptr;
  }
  void destroy() { root_ = Task(); }

 private:
  std::unique_ptr<Program> program_;  // a lambda's captures live as long as its coroutine
  Task root_;
  Wait wait_;
  std::coroutine_handle<> handle_;
};

}  // namespace turnout::sim
