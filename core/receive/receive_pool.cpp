// SPDX-License-Identifier: BSD-3-Clause
#include "core/receive/receive_pool.h"

namespace turnout {
namespace {
constexpr std::size_t kMostChunks = 1 << 16;
void append(std::size_t chunk, std::uint32_t count, std::vector<std::uint32_t>* fresh) {
  for (std::uint32_t i = 0; i < count; ++i) {
    fresh->push_back(static_cast<std::uint32_t>(chunk) << 16 | i);
  }
}
}  // namespace

Result<ReceivePool> ReceivePool::create(const verbs::Device& device, std::uint32_t count,
                                        std::uint32_t size, std::vector<std::uint32_t>* fresh) {
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

Result<std::size_t> ReceivePool::add_chunk(const verbs::Device& device, MemoryAccount& account,
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

Status ReceivePool::grow(const verbs::Device& device, MemoryAccount& account, std::uint32_t count,
                         std::uint64_t spare, std::vector<std::uint32_t>* fresh) {
  auto at = add_chunk(device, account, count, spare);
  if (!at) return at.status();
  count_ += count;
  append(*at, count, fresh);
  return {};
}

Result<std::uint32_t> ReceivePool::add_private_receives(const verbs::Device& device,
                                                        MemoryAccount& account, std::uint32_t count,
                                                        std::uint64_t spare, std::uint32_t peer) {
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

void ReceivePool::drop_private(std::uint32_t chunk) {
  chunks_[chunk] = Chunk();
  --private_chunks_;
}

std::size_t ReceivePool::youngest() const noexcept {
  std::size_t at = chunks_.size();
  while (at > 0 && (chunks_[at - 1].count == 0 || chunks_[at - 1].private_chunk != nullptr)) --at;
  return at == 0 ? 0 : at - 1;
}

std::uint32_t ReceivePool::would_shrink_by() const noexcept {
  const std::size_t at = youngest();
  return at == 0 || going_ != 0 ? 0 : chunks_[at].count;
}

bool ReceivePool::begin_shrink() noexcept {
  if (would_shrink_by() == 0) return false;
  going_ = youngest();
  count_ -= chunks_[going_].count;
  return true;
}

void ReceivePool::call_back(std::vector<std::uint32_t>* fresh) {
  if (going_ == 0) return;
  Chunk& chunk = chunks_[going_];
  fresh->insert(fresh->end(), chunk.kept.begin(), chunk.kept.end());
  chunk.kept.clear();
  count_ += chunk.count;
  going_ = 0;
}

bool ReceivePool::keep(std::uint32_t buffer) {
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

}  // namespace turnout
