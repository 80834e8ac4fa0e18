// SPDX-License-Identifier: BSD-3-Clause
// RankState: one simulated process with its endpoint, requests and coroutine; SimulationState: what
// the ranks share. Internal to sim/.
//
// A wake-up runs one round of progress and resumes the coroutine if its operation is complete.
// Rounds repeat in virtual time while they make progress; then the rank sleeps.
#pragma once

#include <coroutine>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/endpoint.h"
#include "core/types/completion.h"
#include "hca/device/fifo.h"
#include "sim/runtime/profile_costs.h"
#include "sim/runtime/reached_memory.h"
#include "sim/runtime/simulation.h"

namespace turnout::sim {

struct SimulationState;
class RankState;

class RankClock final : public Clock {
 public:
  explicit RankClock(hca::World& world) noexcept : world_(&world) {}
  Nanoseconds now() noexcept override { return world_->process_time() / hca::kNanosecond; }

 private:
  hca::World* world_;
};

// A process's thread that makes queue pairs: a job changes the adapter when it is started and is
// done after the time that takes, one after the other; the program's own time goes on beside it.
class RankBackground final : public Background {
 public:
  // The rank is woken when a job is done.
  RankBackground(hca::World& world, RankState& rank) noexcept : world_(&world), rank_(&rank) {}
  void start(std::unique_ptr<Job> job) override;
  std::unique_ptr<Job> done() override;

 private:
  struct Started {
    Picoseconds done;
    std::unique_ptr<Job> job;
  };
  hca::World* world_;
  RankState* rank_;
  std::deque<Started> jobs_;
  Picoseconds free_ = 0;
};

class RankState {
 public:
  RankState(SimulationState& shared, std::uint32_t id);
  RankState(const RankState&) = delete;
  RankState& operator=(const RankState&) = delete;
  ~RankState();

  [[nodiscard]] Status open();  // the endpoint; the rank was entered
  void start(const Program& program);
  void wake();  // at the world's time
  [[nodiscard]] bool ended() const noexcept { return ended_; }
  [[nodiscard]] bool killed() const noexcept { return killed_; }
  void kill();
  // Ends the endpoint in steps; wakes drive it.
  void begin_close();
  [[nodiscard]] bool closed() const noexcept { return closed_; }
  void release();
  [[nodiscard]] Endpoint& endpoint() noexcept { return *endpoint_; }
  [[nodiscard]] bool has_endpoint() const noexcept { return endpoint_ != nullptr; }
  [[nodiscard]] std::string waiting_for() const;

  // For Rank and its awaiters.
  [[nodiscard]] std::uint32_t id() const noexcept { return id_; }
  [[nodiscard]] std::uint32_t size() const noexcept;
  [[nodiscard]] Picoseconds now() const noexcept;
  [[nodiscard]] Random& random() noexcept { return random_; }
  void end_messages_with(int byte) noexcept;
  bool try_start(Rank::StartAwaiter& awaiter);
  [[nodiscard]] bool is_done(Request request) const noexcept;
  [[nodiscard]] Received take(Request request);
  void progress_once();
  void suspend_start(Rank::StartAwaiter& awaiter, std::coroutine_handle<> handle);
  void suspend_wait(Request request, std::coroutine_handle<> handle);
  void suspend_compute(Picoseconds time, std::coroutine_handle<> handle);
  void suspend_beside_thread(Picoseconds time, std::coroutine_handle<> handle);
  std::uint64_t add_in_node(std::uint32_t to, std::uint32_t cell, std::uint64_t value);
  void keep_cells(std::uint32_t count);
  // Whom it asked or told something, in that order, never one twice in a row.
  [[nodiscard]] std::vector<std::uint32_t>& partners() noexcept { return partners_; }

  std::uint32_t barriers = 0;

 private:
  enum class Waits : std::uint8_t { nothing, start, request, compute, beside_thread };
  struct Slot {
    Rank::StartAwaiter::Kind kind{};
    bool used = false, done = false;
    std::uint32_t peer = 0;
    std::uint64_t bytes = 0, tag = 0;
    std::uint32_t number = 0;
    bool ordered = false;  // a receive that must get message `number` of its source and tag
    Received received;
    std::string error;
    std::vector<std::byte> buffer;
    std::uint64_t filled = 0;  // the content that the buffer has; 0: any
    std::uint64_t fetched = 0;
    bool reaches = false;  // a put or get whose content is checked
    ReachedMemory::Place place;
  };
  struct Stream {  // of messages of one (source, tag) that have not been received
    hca::Fifo<Picoseconds> started;
  };
  struct Checked {            // of one (source, tag): numbers received
    std::uint32_t below = 0;  // all of them
    std::vector<std::uint32_t> beyond;
  };

  void run();
  bool drain();
  [[nodiscard]] bool resume();
  void sleep();
  void schedule(Picoseconds time);
  [[nodiscard]] PeerId peer(std::uint32_t rank);
  [[nodiscard]] Status start_one_sided(const Rank::StartAwaiter& awaiter, Slot& slot);
  [[nodiscard]] Status start_add(const Rank::StartAwaiter& awaiter, Slot& slot);
  // The cells that others add to, made when they are first needed; and their registration.
  [[nodiscard]] std::uint64_t* cells();
  [[nodiscard]] MemoryKey cells_key();
  // Of this rank's memory that others may reach, at least so many bytes of it.
  [[nodiscard]] MemoryKey window(std::uint64_t bytes);
  // The same of bytes that no other operation reaches, while content is checked.
  [[nodiscard]] ReachedMemory::Place place(std::uint64_t bytes);
  [[nodiscard]] MemoryKey let_reach(std::byte* memory, std::uint64_t size);
  void check_reached(Slot& slot);
  // Makes room for slot.bytes in its buffer.
  void make_room(Slot& slot);
  void fill(Slot& slot);
  void check(const Slot& slot, const Completion& completion, std::uint32_t source);
  [[noreturn]] void fail(const std::string& what) const;

  SimulationState& shared_;
  std::uint32_t id_;
  RankClock clock_;
  std::unique_ptr<Endpoint> endpoint_;
  CompletionQueue queue_{16};
  Random random_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<std::uint32_t> free_slots_;
  std::unordered_map<std::uint32_t, PeerId> peers_;
  std::unordered_map<std::uint64_t, std::uint32_t> sent_numbers_;   // by hash of (peer, tag)
  std::unordered_map<std::uint64_t, std::uint32_t> asked_numbers_;  // receives of (source, tag)
  bool wild_ = false;  // a wildcard receive was posted: what others get is not known any more
  std::unordered_map<std::uint64_t, Stream> streams_;
  ReachedMemory reached_;
  std::uint32_t reaches_ = 0;  // puts and gets of this rank that were begun
  MemoryKey window_;
  std::uint64_t window_bytes_ = 0;
  std::vector<std::uint64_t> cells_;  // as large as ever from the first use on
  bool cells_registered_ = false;
  MemoryKey cells_key_;
  std::vector<std::uint32_t> partners_;
  std::unordered_map<std::uint64_t, Checked> checked_;
  std::unique_ptr<Program> program_;  // a lambda's captures live as long as its coroutine
  Task root_;
  Waits waits_ = Waits::nothing;
  std::coroutine_handle<> handle_;
  Rank::StartAwaiter* starting_ = nullptr;
  Request wanted_;
  Picoseconds compute_until_ = 0;
  Picoseconds scheduled_ = -1;  // when run() is due; -1: not
  Picoseconds timer_ = -1;
  bool started_ = false, ended_ = false, killed_ = false, closing_ = false, closed_ = false;
  bool stood_still_ = false;  // before the step that comes now
  bool failed_ = false;       // its program has ended with an error
};

// The largest message when content is not checked: the size of the two buffers below.
inline constexpr std::uint64_t kLargestUnchecked = std::uint64_t{256} << 20;

// An endpoint's id holds its rank.
inline std::uint32_t rank_of(std::uint64_t endpoint_id) noexcept {
  return static_cast<std::uint32_t>(endpoint_id & 0xff'ffff);
}

// A data server of options.data_servers.
inline bool serves(const Options& options, std::uint32_t rank) noexcept {
  return options.data_servers && rank % options.ranks_per_node == 0;
}

struct SimulationState {
  const Options* options = nullptr;
  hca::World* world = nullptr;
  Settings settings, settings_of_servers;
  std::optional<ProfileCosts> costs;
  PolicyOverride policy;
  std::vector<std::unique_ptr<RankState>> ranks;
  std::vector<Address> addresses;
  // Where messages come from and go to when content is not checked; pages are there when touched.
  std::unique_ptr<void, void (*)(void*)> nothing{nullptr, std::free};
  std::unique_ptr<void, void (*)(void*)> anywhere{nullptr, std::free};
  int last_byte = -1;  // of all messages; below 0: any
  // What one-sided operations read and write, the same for all ranks.
  std::unique_ptr<void, void (*)(void*)> window{nullptr, std::free};
  std::uint32_t cells = 1;  // of each rank
  bool cells_used = false;
  std::uint32_t ended = 0;
  std::uint32_t closed = 0;
  Picoseconds last_step = 0;  // when a coroutine last went on
  std::string error;          // of the first rank that failed
  std::vector<std::pair<std::uint32_t, std::string>> errors;
  std::vector<Picoseconds> ended_at;
  std::uint64_t messages = 0, bytes = 0;
  std::vector<Picoseconds> latencies;
};

}  // namespace turnout::sim
