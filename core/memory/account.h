// SPDX-License-Identifier: BSD-3-Clause
// MemoryAccount: counts every byte that the core allocates, by kind, against a hard budget
// (TURNOUT_MEMORY_BUDGET).
//
// Call reserve() before allocating and release() after freeing. A refusal is normal and changes
// nothing, so the budget is never exceeded. Before it refuses, the account calls the registered
// reclaim function, if any. Both calls may pass the number of objects (buffers, ring entries, queue
// pairs, records), which only the report uses. promise() sets aside a part of the budget for
// reserve_promised(). One per endpoint, its thread only.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/index_of.h"

namespace turnout {

enum class MemoryKind : std::uint8_t {
  queue_pairs,
  queues,  // completion and shared receive queues
  rings,
  receive_buffers,
  send_buffers,
  unexpected,     // messages nobody waits for
  peers,          // records of peers heard of
  operations,     // pending sends and receives
  statistics,     // tables of the selection
  decisions,      // kept for the report
  registrations,  // of the application's buffers: records and what the driver keeps for them
  count,
};

[[nodiscard]] constexpr std::string_view name(MemoryKind kind) noexcept {
  constexpr std::array<std::string_view, 11> kNames = {
      "queue pairs",   "completion and receive queues",
      "rings",         "receive buffers",
      "send buffers",  "unexpected messages",
      "peer records",  "operations",
      "statistics",    "decisions",
      "registrations",
  };
  return name_of(kNames, kind);
}

class MemoryAccount {
 public:
  struct Line {
    std::uint64_t now = 0, peak = 0;
    std::uint64_t objects = 0, objects_peak = 0;
  };

  // `enforced` is false in tests of tests only: then nothing is refused.
  explicit MemoryAccount(std::uint64_t budget, bool enforced = true) noexcept
      : budget_(budget), limit_(enforced ? budget : std::uint64_t{1} << 62) {}

  // `spare` bytes of the budget are left to others; what is promised and not taken yet is a part of
  // them.
  [[nodiscard]] bool reserve(MemoryKind kind, std::uint64_t bytes, std::uint64_t spare = 0,
                             std::uint64_t objects = 0) noexcept {
    spare = std::max(spare, promised_);
    if (!fits(bytes, spare) &&
        (spender_ == nullptr || !give_back_(spender_, bytes + spare) || !fits(bytes, spare))) {
      return false;
    }
    add(kind, bytes, objects);
    return true;
  }
  // So many bytes more are for reserve_promised() only. False: they are not there.
  [[nodiscard]] bool promise(std::uint64_t bytes) noexcept {
    if (!fits(bytes, promised_)) return false;
    promised_ += bytes;
    return true;
  }
  // Bytes that were promised and not taken yet: never refused.
  void reserve_promised(MemoryKind kind, std::uint64_t bytes, std::uint64_t objects = 0) noexcept {
    promised_ -= bytes;
    add(kind, bytes, objects);
  }
  void release(MemoryKind kind, std::uint64_t bytes, std::uint64_t objects = 0) noexcept {
    used_ -= bytes;
    Line& line = lines_[static_cast<std::size_t>(kind)];
    line.now -= bytes;
    line.objects -= objects;
  }

  // Who is asked, before a reservation is refused, to give back until so many bytes are available;
  // false: it cannot. Its own reservations ask it, too.
  void set_spender(void* spender, bool (*give_back)(void*, std::uint64_t) noexcept) noexcept {
    spender_ = spender;
    give_back_ = give_back;
  }

  [[nodiscard]] std::uint64_t budget() const noexcept { return budget_; }
  [[nodiscard]] std::uint64_t used() const noexcept { return used_; }
  [[nodiscard]] std::uint64_t peak() const noexcept { return peak_; }
  [[nodiscard]] std::uint64_t available() const noexcept { return limit_ - used_; }
  [[nodiscard]] const Line& line(MemoryKind kind) const noexcept {
    return lines_[static_cast<std::size_t>(kind)];
  }

 private:
  void add(MemoryKind kind, std::uint64_t bytes, std::uint64_t objects) noexcept {
    used_ += bytes;
    if (used_ > peak_) peak_ = used_;
    Line& line = lines_[static_cast<std::size_t>(kind)];
    line.now += bytes;
    if (line.now > line.peak) line.peak = line.now;
    line.objects += objects;
    if (line.objects > line.objects_peak) line.objects_peak = line.objects;
  }
  [[nodiscard]] bool fits(std::uint64_t bytes, std::uint64_t spare) const noexcept {
    return bytes <= limit_ - used_ && spare <= limit_ - used_ - bytes;
  }
  std::uint64_t budget_;
  std::uint64_t limit_;
  void* spender_ = nullptr;
  bool (*give_back_)(void*, std::uint64_t) noexcept = nullptr;
  std::uint64_t used_ = 0;
  std::uint64_t peak_ = 0;
  std::uint64_t promised_ = 0;
  std::array<Line, static_cast<std::size_t>(MemoryKind::count)> lines_{};
};

// A reservation that ends with its owner. Move-only.
class Reservation {
 public:
  // Empty (false) when the budget refuses.
  [[nodiscard]] static Reservation take(MemoryAccount& account, MemoryKind kind,
                                        std::uint64_t bytes, std::uint64_t spare = 0,
                                        std::uint64_t objects = 0) noexcept {
    Reservation reservation;
    if (account.reserve(kind, bytes, spare, objects)) {
      reservation.taken_ = {&account, Release{kind, bytes, objects}};
    }
    return reservation;
  }
  // Holds what `other` does, too, which is of the same account and kind.
  void add(Reservation&& other) noexcept {
    if (!taken_) {
      taken_ = std::move(other.taken_);
      return;
    }
    Release &all = taken_.get_deleter(), &more = other.taken_.get_deleter();
    [[maybe_unused]] const MemoryAccount* const account = other.taken_.release();
    assert(taken_.get() == account && all.kind == more.kind);
    all.bytes += more.bytes;
    all.objects += more.objects;
  }
  explicit operator bool() const noexcept { return taken_ != nullptr; }
  [[nodiscard]] std::uint64_t bytes() const noexcept {
    return taken_ ? taken_.get_deleter().bytes : 0;
  }

 private:
  struct Release {
    MemoryKind kind;
    std::uint64_t bytes, objects;
    void operator()(MemoryAccount* account) const noexcept {
      account->release(kind, bytes, objects);
    }
  };
  std::unique_ptr<MemoryAccount, Release> taken_;
};

// What a queue pair takes at an mlx5 adapter: its send queue by rdma-core's providers/mlx5/verbs.c
// (spec/cost-model.md, Memory) and 4 KiB for context and doorbell record.
enum class QpService : std::uint8_t { rc, dci, dct, ud };
[[nodiscard]] constexpr std::uint64_t queue_pair_bytes(QpService service, std::uint32_t max_send_wr,
                                                       std::uint32_t max_sge,
                                                       std::uint32_t max_inline) noexcept {
  constexpr std::uint64_t kContext = 4096;
  if (service == QpService::dct) return kContext;  // a target has no send queue
  const auto align = [](std::uint64_t value, std::uint64_t to) {
    return (value + to - 1) / to * to;
  };
  std::uint64_t overhead = 16 + 16;              // control and remote-address segments
  if (service != QpService::rc) overhead += 48;  // address vector
  const std::uint64_t with_sges = overhead + 16 * std::uint64_t{max_sge};
  const std::uint64_t with_inline = overhead + align(4 + std::uint64_t{max_inline}, 16);
  const std::uint64_t entry = align(std::max(with_sges, with_inline), 64);
  return kContext + std::bit_ceil(std::max<std::uint64_t>(max_send_wr, 1) * entry);
}

}  // namespace turnout
