// SPDX-License-Identifier: BSD-3-Clause
#include "hca/device/key_list.h"

#include <endian.h>

#include <algorithm>
#include <cstring>

namespace turnout::hca {
namespace {

constexpr std::uint32_t kHalf = 0xffff;

std::uint32_t parts_of(const KeyEntry& head) noexcept {
  return static_cast<std::uint32_t>(head.address) & kHalf;
}

}  // namespace

KeyEntry read_key_entry(const std::byte* bytes) noexcept {
  struct {
    std::uint32_t length, key;
    std::uint64_t address;
  } raw;
  static_assert(sizeof raw == kKeyEntryBytes);
  std::memcpy(&raw, bytes, sizeof raw);
  return {be64toh(raw.address), be32toh(raw.length), be32toh(raw.key)};
}

bool is_well_formed(std::span<const KeyEntry> entries) noexcept {
  while (!entries.empty()) {
    const KeyEntry head = entries.front();
    entries = entries.subspan(1);
    if (head.key != kRepeatKey) continue;
    const std::uint32_t parts = parts_of(head);
    if (parts == 0 || parts > entries.size()) return false;
    std::uint64_t bytes = 0;
    for (const KeyEntry& part : entries.first(parts)) {
      if (part.key == kRepeatKey) return false;
      bytes += part.length & kHalf;
    }
    if (bytes != head.length) return false;
    entries = entries.subspan(parts);
  }
  return true;
}

KeyEntry KeyCursor::at(std::size_t entry) const noexcept {
  const volatile KeyEntry& shared = entries_[entry];
  return {shared.address, shared.length, shared.key};
}

bool KeyCursor::read_block(Block& block) const noexcept {
  const KeyEntry head = at(entry_);
  block = {static_cast<std::uint32_t>(head.address >> 32), parts_of(head), head.length};
  return block.parts != 0 && block.parts <= entries_.size() - entry_ - 1;
}

void KeyCursor::leave_entry(std::size_t entries) noexcept {
  entry_ += entries;
  pass_ = part_ = 0;
  within_ = 0;
}

bool KeyCursor::seek(std::uint64_t offset) noexcept {
  leave_entry(0);
  entry_ = 0;
  if (log_entry_ != 0) {
    const std::uint64_t index = offset >> log_entry_;
    if (index >= entries_.size()) return false;
    entry_ = index;
    within_ = offset & ((std::uint64_t{1} << log_entry_) - 1);
    return true;
  }
  while (entry_ < entries_.size()) {
    const KeyEntry e = at(entry_);
    if (e.key != kRepeatKey) {
      if (offset < e.length) {
        within_ = offset;
        return true;
      }
      offset -= e.length;
      leave_entry(1);
      continue;
    }
    Block block;
    if (!read_block(block)) return false;
    const std::uint64_t all = std::uint64_t{block.passes} * block.bytes;
    if (offset >= all) {
      offset -= all;
      leave_entry(std::size_t{1} + block.parts);
      continue;
    }
    pass_ = static_cast<std::uint32_t>(offset / block.bytes);
    offset %= block.bytes;
    for (; part_ < block.parts; ++part_) {
      const std::uint32_t bytes = at(entry_ + 1 + part_).length & kHalf;
      if (offset < bytes) {
        within_ = offset;
        return true;
      }
      offset -= bytes;
    }
    return false;  // its parts have fewer bytes than it says
  }
  return false;
}

std::size_t KeyCursor::next(std::uint64_t limit, std::span<KeyRun> out) noexcept {
  std::size_t count = 0;
  std::uint32_t empty = 0;  // parts in a row: of a damaged list all of a block may be
  // False: there is no room for it.
  const auto add = [&](const KeyRun& run) {
    if (count != 0) {
      KeyRun& last = out[count - 1];
      if (last.key == run.key && last.address + last.length == run.address) {
        last.length += run.length;
        limit -= run.length;
        return true;
      }
    }
    if (count == out.size()) return false;
    out[count++] = run;
    limit -= run.length;
    return true;
  };
  while (limit > 0 && entry_ < entries_.size()) {
    const KeyEntry e = at(entry_);
    if (log_entry_ != 0 || e.key != kRepeatKey) {
      const std::uint64_t length =
          log_entry_ != 0 ? std::uint64_t{1} << log_entry_ : std::uint64_t{e.length};
      const std::uint64_t n = within_ < length ? std::min(length - within_, limit) : 0;
      if (n != 0 && !add({e.key, e.address + within_, n})) break;
      within_ += n;
      if (within_ >= length) leave_entry(1);
      continue;
    }
    Block block;
    if (!read_block(block)) break;
    if (pass_ >= block.passes || block.bytes == 0) {
      leave_entry(std::size_t{1} + block.parts);
      continue;
    }
    const KeyEntry part = at(entry_ + 1 + part_);
    const std::uint64_t length = part.length & kHalf;
    const std::uint64_t n = within_ < length ? std::min(length - within_, limit) : 0;
    const std::uint64_t moved = std::uint64_t{part.length >> 16} * pass_;
    if (n != 0 && !add({part.key, part.address + moved + within_, n})) break;
    empty = n != 0 ? 0 : empty + 1;
    if (empty > block.parts) break;
    within_ += n;
    if (within_ < length) continue;
    within_ = 0;
    if (++part_ < block.parts) continue;
    part_ = 0;
    ++pass_;
  }
  return count;
}

}  // namespace turnout::hca
