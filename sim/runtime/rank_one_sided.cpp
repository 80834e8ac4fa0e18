// SPDX-License-Identifier: BSD-3-Clause
// One-sided operations of a rank: RankState::start_one_sided(), start_add(), add_in_node().
//
// Who reads or writes asks the simulation for the other's key: real programs exchange keys before,
// once. The window is registered when it is first needed and when it has to be larger, at the cost
// of the process it belongs to.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "sim/runtime/content.h"
#include "sim/runtime/rank_state.h"

namespace turnout::sim {
namespace {
constexpr std::uint64_t kLeastWindow = 64 << 10;

std::uint64_t reach_key(std::uint32_t from, std::uint32_t to, bool puts,
                        std::uint32_t number) noexcept {
  return content_key(from, to, puts ? 1 : 2, number);
}
}  // namespace

MemoryKey RankState::window(std::uint64_t bytes) {
  if (!endpoint_) fail(fmt::format("memory of rank {}, which has exited", id_));
  if (window_bytes_ >= std::max(bytes, kLeastWindow)) return window_;
  if (!shared_.window) shared_.window.reset(std::calloc(1, kLargestUnchecked));
  if (!shared_.window) fail("no memory for the targets of one-sided operations");
  const std::uint64_t size = std::bit_ceil(std::max(bytes, kLeastWindow));
  window_ = let_reach(static_cast<std::byte*>(shared_.window.get()), size);
  window_bytes_ = size;
  return window_;
}

// What is under way uses the region before, which goes with the endpoint.
MemoryKey RankState::let_reach(std::byte* memory, std::uint64_t size) {
  hca::World& world = *shared_.world;
  const hca::ProcessIndex caller = world.current();
  world.enter(id_);
  auto key =
      endpoint_->memory().register_memory(memory, size, kAccessRemoteRead | kAccessRemoteWrite);
  world.enter(caller);
  if (!key) fail(fmt::format("memory of rank {}: {}", id_, key.status().text()));
  return key.value();
}

ReachedMemory::Place RankState::place(std::uint64_t bytes) {
  if (!endpoint_) fail(fmt::format("memory of rank {}, which has exited", id_));
  if (const auto place = reached_.take(bytes)) return *place;
  if (killed_) throw OperationError(fmt::format("rank {} was killed; its keys are unknown", id_));
  const std::uint64_t size = reached_.least(bytes);
  reached_.set_key(let_reach(reached_.add_region(size), size));
  return reached_.take(bytes).value();
}

Status RankState::start_one_sided(const Rank::StartAwaiter& awaiter, Slot& slot) {
  if (awaiter.peer >= size() || awaiter.bytes > kLargestUnchecked) {
    fail(fmt::format(
        "{} bytes of the memory of rank {}: expected at most {} bytes of a rank below {}",
        awaiter.bytes, awaiter.peer, kLargestUnchecked, size()));
  }
  const bool puts = awaiter.kind == Rank::StartAwaiter::Kind::put;
  iovec piece{};
  piece.iov_len = awaiter.bytes;
  RmaRequest request;
  request.peer = peer(awaiter.peer);
  request.write = puts;
  request.local = {&piece, 1};
  request.length = awaiter.bytes;
  request.report = Report{&queue_, &queue_, nullptr, &slot};
  RankState& target = *shared_.ranks[awaiter.peer];
  if (!shared_.options->check_content) {
    piece.iov_base = puts ? shared_.nothing.get() : shared_.anywhere.get();
    request.key = target.window(awaiter.bytes).remote;
    request.remote_address = reinterpret_cast<std::uint64_t>(shared_.window.get());
    return endpoint_->rma(request);
  }
  slot.place = target.place(awaiter.bytes);
  slot.number = reaches_;
  const std::uint64_t key = reach_key(id_, slot.peer, puts, slot.number);
  make_room(slot);
  fill_content(slot.buffer.data(), 0, slot.bytes, puts ? key : ~key);
  puts ? target.reached_.spoil(slot.place, key) : target.reached_.fill(slot.place, key);
  piece.iov_base = slot.buffer.data();
  request.key = target.reached_.key(slot.place).remote;
  request.remote_address = reinterpret_cast<std::uint64_t>(target.reached_.data(slot.place));
  const Status status = endpoint_->rma(request);
  slot.reaches = status.ok();
  if (status.ok()) {
    ++reaches_;
  } else {
    target.reached_.give_back(slot.place);
  }
  return status;
}

// What a put has written is there, what a get has read is what was there, and nothing else of the
// target's was touched.
void RankState::check_reached(Slot& slot) {
  slot.reaches = false;
  const bool puts = slot.kind == Rank::StartAwaiter::Kind::put;
  const std::uint64_t key = reach_key(id_, slot.peer, puts, slot.number);
  ReachedMemory& there = shared_.ranks[slot.peer]->reached_;
  const auto tell = [&](std::uint64_t at, const char* where) {
    fail(fmt::format("wrong byte {} {}: {} {} rank {} ({} bytes)", at, where,
                     puts ? "put to" : "get from", slot.number, slot.peer, slot.bytes));
  };
  if (const auto wrong = there.first_wrong(slot.place, key)) tell(*wrong, "at the target");
  const std::size_t other = first_other(slot.buffer.data(), 0, slot.bytes, key);
  if (other < slot.bytes) tell(other, "here");
  there.give_back(slot.place);
}

void RankState::keep_cells(std::uint32_t count) {
  if (count <= shared_.cells) return;
  if (shared_.cells_used) {
    fail(fmt::format("{} cells requested after the first addition to one of {}", count,
                     shared_.cells));
  }
  shared_.cells = count;
}

std::uint64_t* RankState::cells() {
  if (cells_.empty()) {
    shared_.cells_used = true;
    cells_.resize(shared_.cells);
  }
  return cells_.data();
}

MemoryKey RankState::cells_key() {
  if (!endpoint_) fail(fmt::format("cells of rank {}, which has exited", id_));
  if (cells_registered_) return cells_key_;
  hca::World& world = *shared_.world;
  const hca::ProcessIndex caller = world.current();
  std::uint64_t* const begin = cells();
  world.enter(id_);
  auto key = endpoint_->memory().register_memory(begin, cells_.size() * sizeof *begin,
                                                 kAccessRemoteRead | kAccessRemoteWrite);
  world.enter(caller);
  if (!key) fail(fmt::format("cells of rank {}: {}", id_, key.status().text()));
  cells_key_ = key.value();
  cells_registered_ = true;
  return cells_key_;
}

std::uint64_t RankState::add_in_node(std::uint32_t to, std::uint32_t cell, std::uint64_t value) {
  const std::uint32_t per_node = shared_.options->ranks_per_node;
  if (to >= size() || to / per_node != id_ / per_node || cell >= shared_.cells) {
    fail(fmt::format(
        "add to cell {} of rank {} in memory: expected a cell below {} of a rank on the same node",
        cell, to, shared_.cells));
  }
  std::uint64_t& at = shared_.ranks[to]->cells()[cell];
  const std::uint64_t before = at;
  at += value;
  return before;
}

Status RankState::start_add(const Rank::StartAwaiter& awaiter, Slot& slot) {
  if (awaiter.peer >= size() || awaiter.tag >= shared_.cells) {
    fail(fmt::format("add to cell {} of rank {}: expected a cell below {} of a rank below {}",
                     awaiter.tag, awaiter.peer, shared_.cells, size()));
  }
  RankState& target = *shared_.ranks[awaiter.peer];
  std::uint64_t value = awaiter.value;
  const iovec operand{&value, sizeof value}, result{&slot.fetched, sizeof slot.fetched};
  AtomicRequest request;
  request.peer = peer(awaiter.peer);
  request.form = AtomicForm::fetch;
  request.op = AtomicOp::sum;
  request.type = AtomicType::uint64;
  request.count = 1;
  request.operands = {&operand, 1};
  request.result = {&result, 1};
  request.key = target.cells_key().remote;
  request.remote_address = reinterpret_cast<std::uint64_t>(target.cells() + awaiter.tag);
  request.report = Report{&queue_, &queue_, nullptr, &slot};
  return endpoint_->atomic(request);
}

}  // namespace turnout::sim
