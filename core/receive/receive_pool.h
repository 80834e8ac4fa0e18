// SPDX-License-Identifier: BSD-3-Clause
// ReceivePool: the registered buffers of the shared receive queue and of private receive queues.
//
// It starts with one chunk, grows by chunks within the budget and releases them again. A chunk to
// be released collects its returned buffers until it has all of them; until then the release can be
// cancelled. Buffers are named by chunk and index in it, 16 bits each. The owner posts them. The
// owner accounts the first chunk, which stays. The buffers of a private receive queue are separate
// chunks, released as a whole. Sizes are bytes; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/memory/account.h"
#include "core/verbs/registered_memory.h"

namespace turnout {

class ReceivePool {
 public:
  ReceivePool() = default;
  // The numbers of the new buffers are appended to `fresh`.
  [[nodiscard]] static Result<ReceivePool> create(const verbs::Device& device, std::uint32_t count,
                                                  std::uint32_t size,
                                                  std::vector<std::uint32_t>* fresh) {
    auto memory =
        verbs::RegisteredMemory::create(device, std::size_t{count} * size, IBV_ACCESS_LOCAL_WRITE);
    if (!memory) return memory.status();
    ReceivePool pool;
    pool.size_ = size;
    pool.count_ = count;
    pool.chunks_.push_back({std::move(memory).value(), Reservation(), count, {}, nullptr});
    append(0, count, fresh);
    return pool;
  }
  // Errors: over_budget (leaving `spare` bytes of it), system, again: the pool has no numbers left;
  // nothing has changed then.
  [[nodiscard]] Status grow(const verbs::Device& device, MemoryAccount& account,
                            std::uint32_t count, std::uint64_t spare,
                            std::vector<std::uint32_t>* fresh) {
    auto at = add_chunk(device, account, count, spare);
    if (!at) return at.status();
    count_ += count;
    append(*at, count, fresh);
    return {};
  }

  [[nodiscard]] std::byte* data(std::uint32_t buffer) const noexcept {
    return chunks_[buffer >> 16].memory.data() + std::size_t{buffer & 0xffffu} * size_;
  }
  [[nodiscard]] std::uint32_t lkey(std::uint32_t buffer) const noexcept {
    return chunks_[buffer >> 16].memory.lkey();
  }
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  // Buffers that serve; those of a chunk that shall go do not count.
  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }

  // Lets the youngest chunk go. False: there is only the first, or one is going already.
  [[nodiscard]] bool begin_shrink() noexcept {
    if (would_shrink_by() == 0) return false;
    going_ = youngest();
    count_ -= chunks_[going_].count;
    return true;
  }
  // Of that chunk; 0: there is none to let go.
  [[nodiscard]] std::uint32_t would_shrink_by() const noexcept {
    const std::size_t at = youngest();
    return at == 0 || going_ != 0 ? 0 : chunks_[at].count;
  }
  [[nodiscard]] bool shrinking() const noexcept { return going_ != 0; }
  // The chunk that was to go serves again; what it has kept is appended to `fresh`.
  void call_back(std::vector<std::uint32_t>* fresh) {
    if (going_ == 0) return;
    Chunk& chunk = chunks_[going_];
    fresh->insert(fresh->end(), chunk.kept.begin(), chunk.kept.end());
    chunk.kept.clear();
    count_ += chunk.count;
    going_ = 0;
  }
  // While shrinking(): true if the buffer, which came back, is kept; the chunk goes with its last.
  [[nodiscard]] bool keep(std::uint32_t buffer) {
    if (buffer >> 16 != going_) return false;
    Chunk& chunk = chunks_[going_];
    chunk.kept.push_back(buffer);
    if (chunk.kept.size() == chunk.count) {
      chunk = Chunk();
      going_ = 0;
      ++gone_;
    }
    return true;
  }
  [[nodiscard]] std::uint64_t chunks_gone() const noexcept { return gone_; }

  // State of one chunk of a private receive queue.
  struct PrivateChunk {
    enum class State : std::uint8_t { idle, posted, out };  // out: a message lies in it
    std::uint32_t peer = 0;                                 // PeerId whose messages take them
    std::uint32_t lifetime = 0;  // of the queue: completions of an earlier one are stale
    std::uint32_t out = 0;       // buffers of that state
    bool closed = false;         // the queue takes no more
    bool left = false;           // and its adapter writes into them no more
    std::vector<State> states;
  };
  // Adds a chunk for a private receive queue, all idle. Returns its number. Errors as grow().
  [[nodiscard]] Result<std::uint32_t> add_private_receives(const verbs::Device& device,
                                                           MemoryAccount& account,
                                                           std::uint32_t count, std::uint64_t spare,
                                                           std::uint32_t peer) {
    auto at = add_chunk(device, account, count, spare);
    if (!at) return at.status();
    chunks_[*at].private_chunk = std::make_unique<PrivateChunk>();
    ++private_chunks_;
    PrivateChunk& chunk = *chunks_[*at].private_chunk;
    chunk.peer = peer;
    chunk.states.assign(count, PrivateChunk::State::idle);
    begin_lifetime(chunk);
    return static_cast<std::uint32_t>(*at);
  }
  void drop_private(std::uint32_t chunk) {
    chunks_[chunk] = Chunk();
    --private_chunks_;
  }
  [[nodiscard]] bool is_private(std::uint32_t buffer) const noexcept {
    return private_chunks_ > 0 && chunks_[buffer >> 16].private_chunk != nullptr;
  }
  // Null: no such chunk of a private receive queue.
  [[nodiscard]] PrivateChunk* private_chunk(std::uint32_t chunk) noexcept {
    return chunk < chunks_.size() ? chunks_[chunk].private_chunk.get() : nullptr;
  }
  // Completions of receives posted before are ignored.
  void begin_lifetime(PrivateChunk& chunk) noexcept {
    chunk.lifetime = ++lifetimes_ & kMostLifetime;
  }
  static constexpr std::uint32_t kMostLifetime = (1u << 30) - 1;

 private:
  static constexpr std::size_t kMostChunks = 1 << 16;
  static void append(std::size_t chunk, std::uint32_t count, std::vector<std::uint32_t>* fresh) {
    for (std::uint32_t i = 0; i < count; ++i) {
      fresh->push_back(static_cast<std::uint32_t>(chunk) << 16 | i);
    }
  }

  struct Chunk {
    verbs::RegisteredMemory memory;
    Reservation reservation;
    std::uint32_t count = 0;  // 0: gone, its place is free
    std::vector<std::uint32_t> kept;
    std::unique_ptr<PrivateChunk> private_chunk;  // null: of the shared receive queue
  };
  // One that serves the shared queue, at a free place; its number.
  [[nodiscard]] Result<std::size_t> add_chunk(const verbs::Device& device, MemoryAccount& account,
                                              std::uint32_t count, std::uint64_t spare) {
    std::size_t at = 1;
    while (at < chunks_.size() && chunks_[at].count != 0) ++at;
    if (at == kMostChunks) return Status{Code::again, "no free receive-buffer number"};
    const std::uint64_t bytes = std::uint64_t{count} * size_;
    Reservation reservation =
        Reservation::take(account, MemoryKind::receive_buffers, bytes, spare, count);
    if (!reservation)
      return Status{Code::over_budget, "no memory within the budget for more receive buffers"};
    auto memory = verbs::RegisteredMemory::create(device, bytes, IBV_ACCESS_LOCAL_WRITE);
    if (!memory) return memory.status();
    if (at == chunks_.size()) chunks_.emplace_back();
    chunks_[at] = {std::move(memory).value(), std::move(reservation), count, {}, nullptr};
    return at;
  }
  [[nodiscard]] std::size_t youngest() const noexcept {
    std::size_t at = chunks_.size();
    while (at > 0 && (chunks_[at - 1].count == 0 || chunks_[at - 1].private_chunk != nullptr)) --at;
    return at == 0 ? 0 : at - 1;
  }
  std::vector<Chunk> chunks_;
  std::uint32_t size_ = 0;
  std::uint32_t count_ = 0;
  std::size_t going_ = 0;  // the chunk that shall go; the first never does
  std::uint64_t gone_ = 0;
  std::size_t private_chunks_ = 0;  // of private receive queues
  std::uint32_t lifetimes_ = 0;
};

}  // namespace turnout
