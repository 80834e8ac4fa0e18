// SPDX-License-Identifier: BSD-3-Clause
// CreditWord: eight bytes of registered memory into which the peer of an RC queue pair writes how
// many entries of its ring it has returned, by an RDMA write that consumes no receive and completes
// at nobody's. CreditWords: those of all queue pairs of an endpoint.
//
// Each half has the low 16 bits of the request that made the ring, and of the number of entries
// returned by such writes and by credit messages since then: what is written twice, or late,
// changes nothing. Both halves are the same. Where they differ, the adapter has placed one and not
// yet the other: some place the end of a write first.
//
// Source: credits written by RDMA are what rsockets(7) and MVAPICH's RDMA channel have; AQPS sends
// messages. Memory: a page for 64 queue pairs, accounted as rings. The endpoint owns the words; one
// thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/memory/account.h"
#include "core/verbs/registered_memory.h"

namespace turnout {

struct CreditWord {
  std::byte* at = nullptr;  // null: there is none
  std::uint32_t rkey = 0;

  struct Written {
    std::uint16_t request = 0, total = 0;

    friend bool operator==(const Written&, const Written&) = default;
  };
  [[nodiscard]] static constexpr std::uint64_t value(std::uint32_t request,
                                                     std::uint32_t total) noexcept {
    const std::uint64_t half = (request & 0xffff) << 16 | (total & 0xffff);
    return half << 32 | half;
  }
  // What the peer wrote last; zeros: nothing yet. Empty: it is not all there.
  [[nodiscard]] std::optional<Written> read() const noexcept {
    const std::uint64_t value =
        reinterpret_cast<const std::atomic<std::uint64_t>*>(at)->load(std::memory_order_acquire);
    const auto half = static_cast<std::uint32_t>(value);
    if (value >> 32 != half) return std::nullopt;
    return Written{static_cast<std::uint16_t>(half >> 16), static_cast<std::uint16_t>(half)};
  }
  // As if the peer had written nothing: another one may write next.
  void clear() const noexcept {
    if (at != nullptr)
      reinterpret_cast<std::atomic<std::uint64_t>*>(at)->store(0, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t address() const noexcept {
    return reinterpret_cast<std::uint64_t>(at);
  }
};

class CreditWords {
 public:
  // Memory for the first ones, if the budget has room: registering it takes time.
  void prepare(const verbs::Device& device, MemoryAccount& account) {
    (void)grow(device, account, account.budget() / 2);
  }
  // One that holds 0; none if the budget has no room for more. `spare` bytes of it are left.
  [[nodiscard]] CreditWord take(const verbs::Device& device, MemoryAccount& account,
                                std::uint64_t spare) {
    if (free_.empty() && !grow(device, account, spare)) return {};
    const CreditWord word = free_.back();
    free_.pop_back();
    word.clear();
    return word;
  }
  // Nothing is connected any more that knows of it.
  void give_back(const CreditWord& word) noexcept {
    if (word.at != nullptr) free_.push_back(word);
  }

 private:
  static constexpr std::size_t kPage = 4096, kLine = 64;  // bytes; a cache line for each word

  [[nodiscard]] bool grow(const verbs::Device& device, MemoryAccount& account,
                          std::uint64_t spare) {
    Reservation reserved = Reservation::take(account, MemoryKind::rings, kPage, spare, 1);
    if (!reserved) return false;
    auto made = verbs::RegisteredMemory::create(device, kPage,
                                                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (!made) return false;
    free_.reserve((pages_.size() + 1) * (kPage / kLine));
    const verbs::RegisteredMemory& memory =
        pages_.emplace_back(std::move(reserved), std::move(made).value()).second;
    for (std::size_t at = kPage; at > 0;) {
      at -= kLine;
      free_.push_back({memory.data() + at, memory.rkey()});
    }
    return true;
  }

  std::vector<std::pair<Reservation, verbs::RegisteredMemory>> pages_;
  std::vector<CreditWord> free_;
};

}  // namespace turnout
