// SPDX-License-Identifier: BSD-3-Clause
#include "core/memory/registration_cache.h"

#include <algorithm>

#include "core/verbs/handles.h"

namespace turnout {
namespace {

// What an adapter's driver keeps for a region: an address for each page (mlx5: an MTT entry).
constexpr std::uint64_t kPage = 4096, kTranslation = 8;

// Of the most pages that so many bytes lie on: where a program's memory lies is chance, and what a
// budget has room for must not be.
std::uint64_t translation_bytes(std::uint64_t length) noexcept {
  return ((length + kPage - 2) / kPage + 1) * kTranslation;
}

}  // namespace

void Registration::End::operator()(ibv_mr* region) const noexcept {
  if (range != nullptr) {
    range->cache->release(*range);
  } else {
    verbs::Mr(region).reset();
  }
}

void Registration::discard() noexcept {
  RegisteredRange* const range = region_.get_deleter().range;
  if (region_ && range != nullptr) range->cache->discard(*range);
  reset();
}

RegistrationCache::RegistrationCache(MemoryAccount& account, std::uint64_t most_unused,
                                     std::uint64_t most_unused_bytes,
                                     Deregister deregister) noexcept
    : account_(account),
      most_unused_(most_unused),
      most_unused_bytes_(most_unused_bytes),
      deregister_(deregister),
      // A vector that grows has twice as much room as it needs, for a moment three times.
      records_(account, MemoryKind::registrations, 3 * sizeof(Row)) {}

RegistrationCache::~RegistrationCache() {
  drop_unused();
}

std::size_t RegistrationCache::behind(std::uintptr_t address) const noexcept {
  return static_cast<std::size_t>(std::ranges::upper_bound(rows_, address, {}, &Row::begin) -
                                  rows_.begin());
}

std::size_t RegistrationCache::at_or_behind(std::uintptr_t address) const noexcept {
  return static_cast<std::size_t>(std::ranges::lower_bound(rows_, address, {}, &Row::begin) -
                                  rows_.begin());
}

void RegistrationCache::renew_reach(std::size_t from) noexcept {
  std::uintptr_t reach = from > 0 ? rows_[from - 1].reach : 0;
  for (std::size_t i = from; i < rows_.size(); ++i) {
    reach = std::max(reach, rows_[i].end);
    rows_[i].reach = reach;
  }
}

RegisteredRange* RegistrationCache::covering(std::uintptr_t begin, std::size_t length,
                                             unsigned access) const noexcept {
  const std::uintptr_t end = begin + length;
  for (std::size_t i = behind(begin); i-- > 0 && rows_[i].reach >= end;) {
    if (rows_[i].end >= end && (access & ~rows_[i].range->access) == 0) return rows_[i].range;
  }
  return nullptr;
}

Registration RegistrationCache::find(std::uintptr_t begin, std::size_t length,
                                     unsigned access) noexcept {
  RegisteredRange* const range = covering(begin, length, access);
  if (range == nullptr) {
    ++counts_.misses;
    return {};
  }
  ++counts_.hits;
  if (range->uses++ == 0) leave_unused(*range);
  return Registration(*range);
}

Registration RegistrationCache::keep(ibv_mr* region, std::uintptr_t begin, std::size_t length,
                                     unsigned access) {
  const std::uintptr_t end = begin + length;
  const std::uint64_t bytes = translation_bytes(length);
  // Both may take unused entries back, so rows are looked for afterwards.
  RegisteredRange* const range = records_.take();
  if (range == nullptr) return Registration(region);
  if (!account_.reserve(MemoryKind::registrations, bytes)) {
    records_.give_back(range);
    return Registration(region);
  }
  range->cache = this;
  range->region = region;
  range->begin = begin;
  range->end = end;
  range->accounted = bytes;
  range->access = access;
  range->uses = 1;
  range->listed = true;
  counts_.evictions += take_out(at_or_behind(begin), at_or_behind(end), [&](const Row& row) {
    return row.end <= end && (row.range->access & ~access) == 0;
  });
  const std::size_t at = behind(begin);
  rows_.insert(rows_.begin() + static_cast<std::ptrdiff_t>(at), Row{begin, end, 0, range});
  renew_reach(at);
  counts_.bytes += length;
  counts_.bytes_peak = std::max(counts_.bytes_peak, counts_.bytes);
  return Registration(*range);
}

void RegistrationCache::leave_unused(RegisteredRange& range) noexcept {
  unused_.remove(&range);
  unused_bytes_ -= range.end - range.begin;
  unused_accounted_ -= range.accounted;
}

void RegistrationCache::release(RegisteredRange& range) noexcept {
  if (--range.uses > 0) return;
  if (!range.listed) {
    destroy(range);
    return;
  }
  unused_.push_back(&range);
  unused_bytes_ += range.end - range.begin;
  unused_accounted_ += range.accounted;
  while (unused_.size() > most_unused_ || unused_bytes_ > most_unused_bytes_) {
    evict(*unused_.first());
  }
}

void RegistrationCache::discard(RegisteredRange& range) noexcept {
  if (!range.listed) return;
  unlist(range);
  range.listed = false;  // and it is in use: its last release destroys it
}

// An unused one, which leaves the rows.
void RegistrationCache::evict(RegisteredRange& range) noexcept {
  ++counts_.evictions;
  unlist(range);
  leave_unused(range);
  destroy(range);
}

void RegistrationCache::unlist(RegisteredRange& range) noexcept {
  std::size_t i = at_or_behind(range.begin);
  while (rows_[i].range != &range) ++i;
  rows_.erase(rows_.begin() + static_cast<std::ptrdiff_t>(i));
  renew_reach(i);
}

// In no list any more.
void RegistrationCache::destroy(RegisteredRange& range) noexcept {
  counts_.bytes -= range.end - range.begin;
  deregister_(range.region);
  account_.release(MemoryKind::registrations, range.accounted);
  records_.give_back(&range);
}

template <class Goes>
std::uint64_t RegistrationCache::take_out(std::size_t first, std::size_t last,
                                          Goes&& goes) noexcept {
  std::size_t kept = first;
  for (std::size_t i = first; i < last; ++i) {
    if (!goes(rows_[i])) {
      rows_[kept++] = rows_[i];
      continue;
    }
    RegisteredRange& range = *rows_[i].range;
    range.listed = false;
    if (range.uses > 0) continue;
    leave_unused(range);
    destroy(range);
  }
  if (kept == last) return 0;
  rows_.erase(rows_.begin() + static_cast<std::ptrdiff_t>(kept),
              rows_.begin() + static_cast<std::ptrdiff_t>(last));
  renew_reach(first);
  return last - kept;
}

void RegistrationCache::invalidate(std::uintptr_t begin, std::uintptr_t end) noexcept {
  if (begin >= end || rows_.empty() || begin >= rows_.back().reach) return;
  const std::size_t last = at_or_behind(end);
  std::size_t first = last;
  while (first > 0 && rows_[first - 1].reach > begin) --first;
  counts_.invalidations += take_out(first, last, [&](const Row& row) { return row.end > begin; });
}

bool RegistrationCache::drop_unused() noexcept {
  const std::uint64_t gone =
      take_out(0, rows_.size(), [](const Row& row) { return row.range->uses == 0; });
  counts_.evictions += gone;
  return gone > 0;
}

bool RegistrationCache::give_back(std::uint64_t bytes) noexcept {
  const std::uint64_t free = account_.available();
  if (unused_accounted_ == 0 || bytes > free + unused_accounted_) return false;
  while (account_.available() < bytes) evict(*unused_.first());
  return true;
}

}  // namespace turnout
