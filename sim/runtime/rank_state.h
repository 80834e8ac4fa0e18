// SPDX-License-Identifier: BSD-3-Clause
// RankState: one simulated process: its endpoint, its program, and its life from open() to
// release().
//
// A run makes one round of progress and resumes the program if its operation is complete. Runs
// repeat in virtual time while they make progress; then the rank sleeps. Owned by the simulation;
// in its thread.
#pragma once

#include <cassert>
#include <coroutine>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/endpoint.h"
#include "sim/runtime/job.h"
#include "sim/runtime/rank.h"
#include "sim/runtime/rank_environment.h"
#include "sim/runtime/rank_operations.h"
#include "sim/runtime/rank_scheduler.h"

namespace turnout::sim {

// RankProgram: the coroutine of a simulated rank, and what it waits for.
//
// It goes on only in begin() and resume(), which the rank calls when what it waits for is there.
// Owned by the rank; in the simulation's thread. Exceptions of the program come out of ended().
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

class RankState;

// The ranks of a simulation, and how far they are. Owned by run(); one thread.
struct SimulationState {
  SimulationState(const Options& options, hca::World& world, RankSettings settings);
  ~SimulationState();

  Job job;
  RankEnvironment environment;
  std::vector<std::unique_ptr<RankState>> ranks;
  std::uint32_t ended = 0, closed = 0;  // ranks
  std::vector<Picoseconds> ended_at;
  Picoseconds last_step = 0;                                  // when a program last went on
  std::string error;                                          // of the first rank that failed
  std::vector<std::pair<std::uint32_t, std::string>> errors;  // with go_on_after_errors
};

class RankState {
 public:
  RankState(SimulationState& shared, std::uint32_t id);
  RankState(const RankState&) = delete;
  RankState& operator=(const RankState&) = delete;
  ~RankState();

  [[nodiscard]] Status open();  // the endpoint; the rank was entered
  // It begins at that time at the earliest.
  void create_program(const Program& program, Picoseconds begins) {
    program_.create(program, Rank(*this));
    begins_ = begins;
  }
  // Ends the endpoint in steps; wakes drive it.
  void begin_close();
  void kill();                                                  // as by SIGKILL
  void release();                                               // frees the endpoint
  [[nodiscard]] bool ended() const noexcept { return ended_; }  // its program
  [[nodiscard]] bool killed() const noexcept { return killed_; }
  [[nodiscard]] bool closed() const noexcept { return closed_; }
  [[nodiscard]] Endpoint* endpoint() noexcept { return endpoint_.get(); }  // null: has exited
  [[nodiscard]] RankScheduler& scheduler() noexcept { return scheduler_; }
  void wake();  // something has reached it
  [[nodiscard]] std::string waiting_for();

  // For Rank and its awaiters.
  [[nodiscard]] std::uint32_t id() const noexcept { return id_; }
  [[nodiscard]] Job& job() noexcept { return shared_.job; }
  [[nodiscard]] Random& random() noexcept { return random_; }
  [[nodiscard]] RankOperations& operations() noexcept { return operations_; }
  [[nodiscard]] RankProgram& program() noexcept { return program_; }
  void progress();
  void compute(Picoseconds time, bool beside_thread, std::coroutine_handle<> handle);
  [[nodiscard]] std::uint32_t next_barrier() noexcept { return barriers_++; }

 private:
  void run();
  void make_round();
  void on_error(const char* what);
  // What the program waits for is there: it has gone on.
  [[nodiscard]] bool resume();
  void resume_program();
  void end_program();
  void close();
  void free_endpoint();
  [[nodiscard]] Result<MemoryKey> register_memory(void* memory, std::uint64_t bytes);
  [[nodiscard]] bool may_begin();

  SimulationState& shared_;
  std::uint32_t id_;
  RankScheduler scheduler_;
  RankOperations operations_;
  RankProgram program_;
  Picoseconds begins_ = 0;
  bool knows_addresses_ = false;
  Random random_;
  std::unique_ptr<Endpoint> endpoint_;
  std::uint32_t barriers_ = 0;
  bool ended_ = false, killed_ = false, closing_ = false, closed_ = false;
  bool stood_still_ = false;  // before the step that comes now
  bool failed_ = false;       // its program has ended with an error
};

}  // namespace turnout::sim
