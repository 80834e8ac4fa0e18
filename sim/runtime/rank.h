// SPDX-License-Identifier: BSD-3-Clause
// Rank: the interface of a simulated program, similar to MPI: nonblocking sends and receives with
// waits, a barrier, computation in virtual time.
//
// A program is a coroutine per rank. Nothing here blocks or spins: waiting takes no real time. The
// content of every message is generated from (source, destination, tag, number) and checked at the
// receiver, unless checks are off. Errors (a lost peer, a budget too small) are thrown as
// OperationError by the operation that failed, and violations of the simulation's rules as
// SimulationError. Owner: Simulation; one thread.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <stdexcept>

#include "base/split_mix.h"
#include "base/status.h"
#include "hca/virtual/profile.h"
#include "sim/runtime/task.h"

namespace turnout::sim {

using hca::Picoseconds;

class SimulationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The library ended or refused an operation: its peer is lost, or memory is. The program may catch
// it and go on.
class OperationError : public SimulationError {
 public:
  using SimulationError::SimulationError;
};

inline constexpr std::uint32_t kAnySource = 0xffffffff;
inline constexpr std::uint64_t kAnyTag = ~std::uint64_t{0};

// A generator of a rank's own, seeded from the simulation's seed and the rank.
class Random : public SplitMix64 {
 public:
  using SplitMix64::SplitMix64;
  // In [0, n); n > 0.
  std::uint64_t below(std::uint64_t n) noexcept { return next() % n; }
};

// One operation under way. Copyable handle; valid until it was waited for.
class Request {
 public:
  Request() = default;
  explicit Request(std::uint32_t index) noexcept : index_(index) {}
  [[nodiscard]] bool valid() const noexcept { return index_ != kNone; }
  [[nodiscard]] std::uint32_t index() const noexcept { return index_; }

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  std::uint32_t index_ = kNone;
};

struct Received {  // of a receive that has ended
  std::uint32_t source = kAnySource;
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;
};

class RankState;

// When a send has ended: see core/endpoint.h.
enum class SendEnds : std::uint8_t { when_copied, when_delivered, when_matched };

class Rank {
 public:
  struct StartAwaiter {
    enum class Kind : std::uint8_t { send, receive, put, get, add };
    RankState* state;
    std::uint32_t peer;
    std::uint64_t bytes, tag;
    Kind kind;
    Request request;
    std::uint64_t value = 0;             // of an add, whose tag is the cell; of a send: SendEnds
    std::exception_ptr error = nullptr;  // of one that had waited for room
    bool await_ready();
    void await_suspend(std::coroutine_handle<> handle);
    [[nodiscard]] Request await_resume();
  };
  struct WaitAwaiter {
    RankState* state;
    Request request;
    bool await_ready();
    void await_suspend(std::coroutine_handle<> handle);
    Received await_resume();
  };
  struct ComputeAwaiter {
    RankState* state;
    Picoseconds time;
    bool beside_thread;
    bool await_ready() noexcept { return time <= 0; }
    void await_suspend(std::coroutine_handle<> handle);
    void await_resume() noexcept {}
  };

  explicit Rank(RankState& state) noexcept : state_(&state) {}

  [[nodiscard]] std::uint32_t id() const noexcept;
  [[nodiscard]] std::uint32_t size() const noexcept;
  [[nodiscard]] Picoseconds now() const noexcept;
  [[nodiscard]] Random& random() noexcept;
  // Messages of every rank, from now on, end with this byte; below 0: with any. Asked for before
  // the first of them is sent.
  void end_messages_with(int byte) noexcept;

  // Starts an operation; suspends only while the library has no room for it.
  // co_await rank.isend(...) gives a Request.
  [[nodiscard]] StartAwaiter isend(std::uint32_t to, std::uint64_t bytes, std::uint64_t tag,
                                   SendEnds ends = SendEnds::when_copied) {
    return {state_, to, bytes, tag, StartAwaiter::Kind::send, {}, static_cast<std::uint64_t>(ends)};
  }
  // At most `bytes`; from kAnySource, with kAnyTag.
  [[nodiscard]] StartAwaiter irecv(std::uint32_t from, std::uint64_t bytes, std::uint64_t tag) {
    return {state_, from, bytes, tag, StartAwaiter::Kind::receive, {}};
  }

  // One-sided: writes into, or reads from, memory that the other rank lets everybody reach; nobody
  // tells it. At most 256 MiB.
  [[nodiscard]] StartAwaiter iput(std::uint32_t to, std::uint64_t bytes) {
    return {state_, to, bytes, 0, StartAwaiter::Kind::put, {}};
  }
  [[nodiscard]] StartAwaiter iget(std::uint32_t from, std::uint64_t bytes) {
    return {state_, from, bytes, 0, StartAwaiter::Kind::get, {}};
  }

  // Adds to a cell of the other rank, atomically; `tag` of what the wait gives is what it was
  // before. Cells are 64 bits wide and begin with 0.
  [[nodiscard]] StartAwaiter iadd(std::uint32_t to, std::uint32_t cell = 0,
                                  std::uint64_t value = 1) {
    return {state_, to, sizeof(std::uint64_t), cell, StartAwaiter::Kind::add, {}, value};
  }
  // The same for a rank of this node, itself too: memory that they share, no message; at once.
  std::uint64_t add_in_node(std::uint32_t to, std::uint32_t cell, std::uint64_t value);
  // Every rank has at least so many cells (1). Asked for before the first addition of any rank.
  void keep_cells(std::uint32_t count);

  // co_await rank.wait(request) gives a Received (zeros unless it receives or adds).
  [[nodiscard]] WaitAwaiter wait(Request request) { return {state_, request}; }
  [[nodiscard]] Task wait_all(std::span<const Request> requests);
  // Has it ended? Makes progress once. An ended request stays valid until waited for.
  [[nodiscard]] bool test(Request request);

  [[nodiscard]] Task send(std::uint32_t to, std::uint64_t bytes, std::uint64_t tag);
  // co_await gives nothing; use irecv and wait for what was received.
  [[nodiscard]] Task recv(std::uint32_t from, std::uint64_t bytes, std::uint64_t tag);
  // Dissemination over messages of 1 byte; tags from 2^48 upwards are its own.
  [[nodiscard]] Task barrier();
  // The rank computes: no progress is made meanwhile.
  [[nodiscard]] ComputeAwaiter compute(Picoseconds time) { return {state_, time, false}; }
  // The same while a thread with a processor of its own makes progress.
  [[nodiscard]] ComputeAwaiter compute_beside_thread(Picoseconds time) {
    return {state_, time, true};
  }

 private:
  RankState* state_;
};

// What every rank runs. Called once for each rank; captured data is shared by all.
using Program = std::function<Task(Rank)>;

}  // namespace turnout::sim
