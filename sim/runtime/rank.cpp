// SPDX-License-Identifier: BSD-3-Clause
#include "sim/runtime/rank.h"

#include "sim/runtime/rank_state.h"

namespace turnout::sim {
namespace {

ProgramStep::Kind kind_of(Rank::StartAwaiter::Kind kind) noexcept {
  using Kind = Rank::StartAwaiter::Kind;
  switch (kind) {
    case Kind::send:
      return ProgramStep::Kind::send;
    case Kind::receive:
      return ProgramStep::Kind::receive;
    case Kind::put:
      return ProgramStep::Kind::put;
    case Kind::get:
      return ProgramStep::Kind::get;
    case Kind::add:
      break;
  }
  return ProgramStep::Kind::add;
}

void tell(RankState& state, const ProgramStep& step) {
  const auto& told = state.job().options.step;
  if (told) told(state.id(), step);
}

}  // namespace

constexpr std::uint64_t kBarrierTags = std::uint64_t{1} << 48;

std::uint32_t Rank::id() const noexcept {
  return state_->id();
}
std::uint32_t Rank::size() const noexcept {
  return state_->job().options.ranks;
}
Picoseconds Rank::now() const noexcept {
  return state_->job().world.process_time();
}
Random& Rank::random() noexcept {
  return state_->random();
}
void Rank::end_messages_with(int byte) noexcept {
  state_->job().last_byte = byte;
}

std::uint64_t Rank::add_in_node(std::uint32_t to, std::uint32_t cell, std::uint64_t value) {
  return state_->operations().add_in_node(to, cell, value);
}
void Rank::keep_cells(std::uint32_t count) {
  state_->job().cells.keep(count);
}
bool Rank::StartAwaiter::await_ready() {
  return state->operations().try_start(*this);
}
void Rank::StartAwaiter::await_suspend(std::coroutine_handle<> handle) {
  state->program().suspend({.kind = RankProgram::Waits::start, .starting = this}, handle);
}
Request Rank::StartAwaiter::await_resume() {
  if (error) std::rethrow_exception(error);
  tell(*state, {kind_of(kind), peer, tag, bytes, request.index()});
  return request;
}

bool Rank::WaitAwaiter::await_ready() {
  return !request.valid() || state->operations().requests().is_done(request);
}
void Rank::WaitAwaiter::await_suspend(std::coroutine_handle<> handle) {
  state->program().suspend({.kind = RankProgram::Waits::request, .request = request}, handle);
}
Received Rank::WaitAwaiter::await_resume() {
  const Received received = state->operations().requests().take(request);
  if (request.valid()) {
    tell(*state, {ProgramStep::Kind::wait, received.source, received.tag, 0, request.index()});
  }
  return received;
}

bool Rank::test(Request request) {
  state_->progress();
  return state_->operations().requests().is_done(request);
}

Task Rank::wait_all(std::span<const Request> requests) {
  for (const Request request : requests) co_await wait(request);
}

Task Rank::send(std::uint32_t to, std::uint64_t bytes, std::uint64_t tag) {
  const Request request = co_await isend(to, bytes, tag);
  co_await wait(request);
}

Task Rank::recv(std::uint32_t from, std::uint64_t bytes, std::uint64_t tag) {
  const Request request = co_await irecv(from, bytes, tag);
  co_await wait(request);
}

Task Rank::barrier() {
  const std::uint64_t tag = kBarrierTags + state_->next_barrier();
  for (std::uint32_t distance = 1; distance < size(); distance *= 2) {
    const Request in = co_await irecv((id() + size() - distance) % size(), 1, tag);
    const Request out = co_await isend((id() + distance) % size(), 1, tag);
    co_await wait(in);
    co_await wait(out);
  }
}

void Rank::ComputeAwaiter::await_suspend(std::coroutine_handle<> handle) {
  tell(*state, {ProgramStep::Kind::compute, 0, 0, static_cast<std::uint64_t>(time), 0});
  state->compute(time, beside_thread, handle);
}

}  // namespace turnout::sim
