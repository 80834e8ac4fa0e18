// SPDX-License-Identifier: BSD-3-Clause
// Tables: the records and the heap in the shared memory of a fabric.
//
// A view: the mapping is Fabric's. Another process may have damaged the memory, so what is read
// from it may be anything: offsets are checked here, indices are the caller's to check (kMax...).
// Any thread.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "hca/device/layout.h"

namespace turnout::hca {

// Entries of a queue, all of them in the heap; null: its record is damaged, or has none.
struct ReceiveRing {
  std::byte* start = nullptr;
  std::uint32_t mask = 0;
  std::uint32_t max_sge = 0;  // <= kMaxSge
  [[nodiscard]] ReceiveWqe* entry(std::uint32_t position) const noexcept {
    return reinterpret_cast<ReceiveWqe*>(start + (position & mask) * receive_stride(max_sge));
  }
};
struct CompletionRing {
  Cqe* start = nullptr;
  std::uint64_t mask = 0;
  [[nodiscard]] Cqe& entry(std::uint64_t position) const noexcept { return start[position & mask]; }
};

class Tables {
 public:
  [[nodiscard]] Header& header() const noexcept { return *at<Header>(0); }
  [[nodiscard]] ProcessRecord& process(std::uint32_t i) const noexcept {
    return at<ProcessRecord>(Layout::processes)[i];
  }
  [[nodiscard]] CopyRecord& copy(std::uint32_t i) const noexcept {
    return at<CopyRecord>(Layout::copies)[i];
  }
  [[nodiscard]] Hazard& hazard(std::uint32_t i) const noexcept {
    return at<Hazard>(Layout::hazards)[i];
  }
  [[nodiscard]] QpRecord& qp(std::uint32_t i) const noexcept {
    return at<QpRecord>(Layout::qps)[i];
  }
  [[nodiscard]] CqRecord& cq(std::uint32_t i) const noexcept {
    return at<CqRecord>(Layout::cqs)[i];
  }
  [[nodiscard]] SrqRecord& srq(std::uint32_t i) const noexcept {
    return at<SrqRecord>(Layout::srqs)[i];
  }
  [[nodiscard]] MrRecord& mr(std::uint32_t i) const noexcept {
    return at<MrRecord>(Layout::mrs)[i];
  }
  [[nodiscard]] XrcdRecord& xrcd(std::uint32_t i) const noexcept {
    return at<XrcdRecord>(Layout::xrcds)[i];
  }
  [[nodiscard]] XrcHandleRecord& xrc_handle(std::uint32_t i) const noexcept {
    return at<XrcHandleRecord>(Layout::xrc_handles)[i];
  }
  [[nodiscard]] MulticastRecord& multicast(std::uint32_t i) const noexcept {
    return at<MulticastRecord>(Layout::multicasts)[i];
  }
  [[nodiscard]] Mlx5CqRecord& mlx5_cq(std::uint32_t i) const noexcept {
    return at<Mlx5CqRecord>(Layout::mlx5_cqs)[i];
  }
  [[nodiscard]] Mlx5ReceiveRecord& mlx5_qp(std::uint32_t i) const noexcept {
    return at<Mlx5ReceiveRecord>(Layout::mlx5_qps)[i];
  }
  [[nodiscard]] Mlx5ReceiveRecord& mlx5_srq(std::uint32_t i) const noexcept {
    return at<Mlx5ReceiveRecord>(Layout::mlx5_srqs)[i];
  }
  // `bytes` of the heap at `offset`, null when they do not lie in it or begin inside a page.
  [[nodiscard]] void* heap(std::uint64_t offset, std::uint64_t bytes) const noexcept {
    if (offset < heap_begin_ || offset > size_ || bytes > size_ - offset || offset % kPage != 0) {
      return nullptr;
    }
    return base_ + offset;
  }
  // The rings of a queue as they are now: the record may change under our hands, this does not.
  [[nodiscard]] ReceiveRing ring(const ReceiveQueue& queue) const noexcept;
  [[nodiscard]] CompletionRing ring(const CqRecord& cq) const noexcept;

  // The owner of each page of the heap.
  [[nodiscard]] PageTag* tags() const noexcept { return at<PageTag>(Layout::tags); }

 protected:
  // base: null: nothing is mapped any more.
  void view(std::byte* base, std::uint64_t size) noexcept {
    base_ = base;
    size_ = size;
    heap_begin_ = base != nullptr ? Layout::heap(size) : 0;
  }
  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] std::uint64_t heap_begin() const noexcept { return heap_begin_; }

 private:
  // Read once, whatever the compiler thinks: what was checked is what is used.
  template <class T>
  [[nodiscard]] static T volatile_read(const T& value) noexcept {
    return *static_cast<const volatile T*>(&value);
  }
  template <class T>
  [[nodiscard]] T* at(std::uint64_t offset) const noexcept {
    assert(base_ != nullptr);
    return reinterpret_cast<T*>(base_ + offset);
  }

  std::byte* base_ = nullptr;
  std::uint64_t size_ = 0;
  std::uint64_t heap_begin_ = 0;
};

inline ReceiveRing Tables::ring(const ReceiveQueue& queue) const noexcept {
  const std::uint32_t slots = volatile_read(queue.slots), max_sge = volatile_read(queue.max_sge);
  if (slots == 0 || (slots & (slots - 1)) != 0 || max_sge > kMaxSge) return {};
  void* start = heap(volatile_read(queue.ring), slots * receive_stride(max_sge));
  return {static_cast<std::byte*>(start), slots - 1, max_sge};
}

inline CompletionRing Tables::ring(const CqRecord& cq) const noexcept {
  const std::uint64_t slots = volatile_read(cq.slots);
  if (slots == 0 || (slots & (slots - 1)) != 0) return {};
  void* start = heap(volatile_read(cq.ring), slots * sizeof(Cqe));
  return {static_cast<Cqe*>(start), slots - 1};
}

// Undoes what a process left half done when it died with a queue's lock, which the caller has.
void repair(const Tables& tables, ReceiveQueue& queue) noexcept;
void repair(const Tables& tables, CqRecord& cq) noexcept;
void repair(const ReceiveQueue& queue, Mlx5ReceiveRecord& record) noexcept;

}  // namespace turnout::hca
