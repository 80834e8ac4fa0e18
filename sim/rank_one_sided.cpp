// One-sided operations of a rank: RankState::start_one_sided().
//
// Who reads or writes asks the simulation for the other's key: real programs exchange keys before,
// once. The window is registered when it is first needed and when it has to be larger, at the cost
// of the process it belongs to.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "sim/rank_state.h"

namespace turnout::sim {
namespace {
constexpr std::uint64_t kLeastWindow = 64 << 10;
}

MemoryKey RankState::window(std::uint64_t bytes) {
  if (!endpoint_) fail(fmt::format("the memory of rank {}, which has ended", id_));
  if (window_bytes_ >= std::max(bytes, kLeastWindow)) return window_;
  if (!shared_.window) shared_.window.reset(std::calloc(1, kLargestUnchecked));
  if (!shared_.window) fail("no memory for what one-sided operations reach");
  const std::uint64_t size = std::bit_ceil(std::max(bytes, kLeastWindow));
  hca::World& world = *shared_.world;
  const hca::ProcessIndex caller = world.current();
  world.enter(id_);
  // What is under way uses the region before, which goes with the endpoint.
  auto key = endpoint_->register_memory(shared_.window.get(), size,
                                        kAccessRemoteRead | kAccessRemoteWrite);
  world.enter(caller);
  if (!key) fail(fmt::format("the memory of rank {}: {}", id_, key.status().text()));
  window_ = key.value();
  window_bytes_ = size;
  return window_;
}

Status RankState::start_one_sided(const Rank::StartAwaiter& awaiter, Slot& slot) {
  if (awaiter.peer >= size() || awaiter.bytes > kLargestUnchecked) {
    fail(fmt::format("{} bytes of the memory of rank {}: expected at most {}, of a rank below {}",
                     awaiter.bytes, awaiter.peer, kLargestUnchecked, size()));
  }
  const bool puts = awaiter.kind == Rank::StartAwaiter::Kind::put;
  iovec piece{};
  piece.iov_len = awaiter.bytes;
  if (shared_.options->check_content) {
    make_room(slot);
    piece.iov_base = slot.buffer.data();
  } else {
    piece.iov_base = puts ? shared_.nothing.get() : shared_.anywhere.get();
  }
  RmaRequest request;
  request.peer = peer(awaiter.peer);
  request.write = puts;
  request.local = {&piece, 1};
  request.key = shared_.ranks[awaiter.peer]->window(awaiter.bytes).remote;
  request.remote_address = reinterpret_cast<std::uint64_t>(shared_.window.get());
  request.length = awaiter.bytes;
  request.report = Report{&queue_, &queue_, nullptr, &slot};
  return endpoint_->rma(request);
}

}  // namespace turnout::sim
