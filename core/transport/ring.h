// SPDX-License-Identifier: BSD-3-Clause
// Rings of an RDMA channel: the receive side (memory that one peer writes) and the send side (where
// to write) (AQPS 3.1: s entries, detected by polling memory).
//
// A message is right-aligned in its entry, with the header last; its last byte is the phase. If
// data are placed in order, the phase proves that the message is complete. Otherwise the ring is
// checked: a checksum over all bytes proves completeness (docs/decisions/007). Entries are returned
// (credits) in order; an entry with an unexpected message may stay in use while later ones are
// read.
#pragma once

#include <atomic>
#include <bit>
#include <bitset>
#include <cassert>
#include <cstdint>
#include <cstring>

#include "base/split_mix.h"
#include "core/memory/account.h"
#include "core/transport/crc32c.h"
#include "core/transport/wire.h"
#include "core/verbs/registered_memory.h"

namespace turnout {

inline constexpr std::uint32_t kMaxRingEntries = 128;

struct RingShape {
  std::uint32_t entries = 0;
  std::uint32_t entry_size = 0;

  friend bool operator==(const RingShape&, const RingShape&) = default;
  [[nodiscard]] constexpr std::uint64_t bytes() const noexcept {
    return std::uint64_t{entries} * entry_size;
  }
  // Of messages in half of the entries: their sender need not wait until any is read.
  [[nodiscard]] constexpr std::size_t half() const noexcept {
    return std::size_t{entries / 2} * (entry_size - sizeof(wire::Header));
  }
};

// An entry of a ring, and its phase: 1 to 255, another one each time round.
struct RingCursor {
  std::uint32_t entry = 0;
  std::uint8_t phase = 1;

  constexpr void advance(std::uint32_t entries) noexcept {
    if (++entry < entries) return;
    entry = 0;
    phase = phase == 255 ? std::uint8_t{1} : static_cast<std::uint8_t>(phase + 1);
  }
};

// Of a message in a checked ring; the header's index does not count.
[[nodiscard]] inline std::uint32_t ring_checksum(std::uint32_t of_payload,
                                                 wire::Header header) noexcept {
  header.index = 0;
  return crc32c(of_payload, &header, sizeof header);
}

class RingReceiver {
 public:
  // Leaves `spare` bytes of the budget. The number of entries is a power of two.
  [[nodiscard]] static Result<RingReceiver> create(const verbs::Device& device,
                                                   MemoryAccount& account, RingShape shape,
                                                   std::uint64_t spare) {
    assert(std::has_single_bit(shape.entries) && shape.entries <= kMaxRingEntries);
    return create(device, reserve(account, shape, spare), shape);
  }
  [[nodiscard]] static Reservation reserve(MemoryAccount& account, RingShape shape,
                                           std::uint64_t spare) noexcept {
    return Reservation::take(account, MemoryKind::rings, shape.bytes(), spare, shape.entries);
  }
  // In memory that was reserved; any thread. After a failure the reservation is the caller's still:
  // only the endpoint's thread may release it.
  [[nodiscard]] static Result<RingReceiver> create(const verbs::Device& device,
                                                   Reservation&& reserved, RingShape shape) {
    if (!reserved) return Status{Code::over_budget, "no memory within the budget for a ring"};
    auto memory = verbs::RegisteredMemory::create(device, shape.bytes(),
                                                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (!memory) return memory.status();
    RingReceiver ring;
    ring.reservation_ = std::move(reserved);
    ring.memory_ = std::move(memory).value();
    ring.entries_ = shape.entries;
    ring.entry_size_ = shape.entry_size;
    ring.head_end_ = ring.memory_.data() + shape.entry_size;
    return ring;
  }

  // As created; nobody writes to it any more.
  void reset() noexcept {
    for (std::uint64_t i = 0; i < entries_; ++i) *(entry_end(i) - 1) = std::byte{0};
    head_ = {};
    head_end_ = memory_.data() + entry_size_;
    position_ = returned_ = whole_ = 0;
    checked_ = false;
    freed_.reset();
  }
  // Its memory is deregistered; any thread. What is reserved stays so.
  void deregister() noexcept { memory_ = {}; }
  // Its room is another's, which is made after it was deregistered. Only the endpoint's thread.
  void give_back() noexcept { reservation_ = {}; }

  // Messages carry checksums from the first on. For a ring that no request has named yet.
  void check() noexcept {
    checked_ = true;
    for (std::uint64_t i = 0; i < entries_; ++i) overwrite(i, entry_size_);
  }
  [[nodiscard]] bool checked() const noexcept { return checked_; }

  // The entry at the head has the phase of a message. In a checked ring it may not be whole.
  [[nodiscard]] bool may_have_message() const noexcept {
    return is_written(head_end_, head_.phase);
  }
  // True when the entry at the head holds a message; its header is copied out.
  [[nodiscard]] bool poll(wire::Header* header) noexcept {
    if (!may_have_message()) return false;
    std::memcpy(header, head_end_ - sizeof(wire::Header), sizeof(wire::Header));
    if (checked_) [[unlikely]]
      return whole(*header);
    return true;
  }
  // If a message lies at the head, its sender is ahead of us: asks the sender's cache for the end
  // of the next entry, too, which is waited for otherwise when it is polled.
  void prefetch_behind_head() const noexcept {
    if (!may_have_message()) return;
    const bool wraps = head_.entry + 1 == entries_;
    __builtin_prefetch((wraps ? memory_.data() + entry_size_ : head_end_ + entry_size_) - 1);
  }
  [[nodiscard]] RingCursor head() const noexcept { return head_; }
  // The header of the message there, at the head or behind it. False: none is there, or the ring is
  // checked.
  [[nodiscard]] bool peek(RingCursor at, wire::Header* header) const noexcept {
    const std::byte* const end = entry_end(at.entry);
    if (checked_ || !is_written(end, at.phase)) return false;
    std::memcpy(header, end - sizeof *header, sizeof *header);
    return true;
  }
  [[nodiscard]] const std::byte* payload(const wire::Header& header) const noexcept {
    return head_end_ - sizeof(wire::Header) - header.length;
  }
  [[nodiscard]] bool fits(const wire::Header& header) const noexcept {
    return header.length + sizeof(wire::Header) <= entry_size_;
  }
  // Moves past the head entry, which stays in use until free(position) is called.
  std::uint64_t advance() noexcept {
    head_.advance(entries_);
    head_end_ = head_.entry == 0 ? memory_.data() + entry_size_ : head_end_ + entry_size_;
    return position_++;
  }
  // Returns how many entries became free to be handed back (in order).
  std::uint32_t free(std::uint64_t position) noexcept {
    if (checked_) [[unlikely]]
      overwrite_message(position);
    if (position == returned_ && position + 1 == position_) {  // the only one in use
      ++returned_;
      return 1;
    }
    return free_among_others(position);
  }

  [[nodiscard]] std::uint64_t address() const noexcept {
    return reinterpret_cast<std::uint64_t>(memory_.data());
  }
  [[nodiscard]] std::uint32_t rkey() const noexcept { return memory_.rkey(); }
  [[nodiscard]] std::uint32_t entries() const noexcept { return entries_; }
  [[nodiscard]] std::uint32_t entry_size() const noexcept { return entry_size_; }
  [[nodiscard]] RingShape shape() const noexcept { return {entries_, entry_size_}; }
  // No entry is kept by an unexpected message.
  [[nodiscard]] bool all_returned() const noexcept { return returned_ == position_; }

 private:
  // The entry that ends there has a message of this phase.
  [[nodiscard]] static bool is_written(const std::byte* end, std::uint8_t phase) noexcept {
    const auto* const last = reinterpret_cast<const std::atomic<std::uint8_t>*>(end - 1);
    return last->load(std::memory_order_acquire) == phase;
  }
  [[nodiscard]] std::size_t entry_of(std::uint64_t position) const noexcept {
    return position & (entries_ - 1);
  }
  [[nodiscard]] std::byte* entry_end(std::uint64_t position) const noexcept {
    return memory_.data() + (entry_of(position) + 1) * entry_size_;
  }
  [[gnu::noinline]] void overwrite_message(std::uint64_t position) noexcept {
    wire::Header header;  // it may have been written to since
    std::memcpy(&header, entry_end(position) - sizeof header, sizeof header);
    if (fits(header)) overwrite(position, header.length + sizeof header);
  }
  [[gnu::noinline]] std::uint32_t free_among_others(std::uint64_t position) noexcept {
    freed_.set(entry_of(position));
    std::uint32_t n = 0;
    while (returned_ < position_ && freed_.test(entry_of(returned_))) {
      freed_.reset(entry_of(returned_));
      ++returned_;
      ++n;
    }
    return n;
  }
  // Each byte changes once, from its old value to the message's: bytes with a valid checksum do not
  // change any more.
  [[nodiscard]] bool whole(const wire::Header& header) noexcept {
    if (whole_ == position_ + 1) return true;
    if (!fits(header)) return false;  // its length is still that of an old message
    const std::uint32_t sum = ring_checksum(crc32c(0, payload(header), header.length), header);
    if (sum != header.index) return false;
    whole_ = position_ + 1;
    return true;
  }
  // Overwrites the last `bytes` of the entry, except the phase, with a pattern that no message has,
  // so that a missing part of the next message is detected. Otherwise that message could be read,
  // and its entry or ring freed, before the part arrives.
  void overwrite(std::uint64_t position, std::size_t bytes) noexcept {
    SplitMix64 pattern(position);
    std::byte* at = entry_end(position) - bytes;
    for (--bytes; bytes > 0;) {
      const std::uint64_t word = pattern.next();
      const std::size_t n = bytes < sizeof word ? bytes : sizeof word;
      std::memcpy(at, &word, n);
      at += n;
      bytes -= n;
    }
  }
  Reservation reservation_;
  verbs::RegisteredMemory memory_;
  std::uint32_t entries_ = 0;
  std::uint32_t entry_size_ = 0;
  RingCursor head_;  // next to read
  const std::byte* head_end_ = nullptr;
  std::uint64_t position_ = 0;  // of the head, counted on
  std::uint64_t returned_ = 0;  // all before it were handed back
  std::uint64_t whole_ = 0;     // checked: 1 + the position found whole last
  bool checked_ = false;
  std::bitset<kMaxRingEntries> freed_;
};

struct RingSender {
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
  std::uint32_t entries = 0;
  std::uint32_t entry_size = 0;
  std::uint32_t credits = 0;
  std::uint32_t request = 0;  // number of the request that named it: identifies its credits
  RingCursor next;
  bool checked = false;         // messages carry checksums
  std::uint8_t large_sent = 0;  // up to `entries`
  std::uint32_t returned = 0;   // by credit messages and writes, see credit_words.h

  [[nodiscard]] RingShape shape() const noexcept { return {entries, entry_size}; }
  // As many large messages as entries: the first one in an entry finds pages that nobody has
  // touched, which takes many times as long as later ones.
  [[nodiscard]] bool touched() const noexcept { return large_sent >= entries; }
  void count_large(std::size_t messages) noexcept {
    large_sent = static_cast<std::uint8_t>(std::min<std::size_t>(large_sent + messages, entries));
  }
  // So many entries are free again.
  void give_credits(std::uint32_t freed) noexcept { credits = std::min(credits + freed, entries); }
  // So many, modulo 2^16, were returned by credit messages and writes since the request `of`. Of
  // another ring, or less than is known, or more than a ring has: nothing.
  void take_total(std::uint32_t of, std::uint32_t total) noexcept {
    const auto more = static_cast<std::uint16_t>(total - returned);
    if (of != request || more > entries) return;
    returned += more;
    give_credits(more);
  }
  // Address behind the entry that the next message goes to.
  [[nodiscard]] std::uint64_t entry_end() const noexcept {
    return address + (std::uint64_t{next.entry} + 1) * entry_size;
  }
};

}  // namespace turnout
