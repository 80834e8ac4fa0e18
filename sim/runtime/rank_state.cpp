// SPDX-License-Identifier: BSD-3-Clause
#include "sim/runtime/rank_state.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/runtime/content_checker.h"

namespace turnout::sim {

using Waits = RankProgram::Waits;

SimulationState::SimulationState(const Options& options, hca::World& world, RankSettings settings)
    : job{options, world},
      environment(options, world, std::move(settings)),
      ended_at(options.ranks) {}
SimulationState::~SimulationState() = default;

RankState::RankState(SimulationState& shared, std::uint32_t id)
    : shared_(shared),
      id_(id),
      scheduler_(
          shared.job.world, id, [](void* self) { static_cast<RankState*>(self)->run(); }, this),
      operations_(shared.job, id),
      random_(mix(shared.job.options.seed, id)) {
  shared.job.memories.push_back(std::make_unique<OneSidedMemory>(
      id, shared.job.cells,
      [this](void* memory, std::uint64_t bytes) { return register_memory(memory, bytes); }));
}

RankState::~RankState() = default;

Status RankState::open() {
  auto endpoint = shared_.environment.open(id_, scheduler_);
  if (!endpoint) return endpoint.status();
  endpoint_ = std::move(endpoint).value();
  operations_.use(*endpoint_);
  return {};
}

Result<MemoryKey> RankState::register_memory(void* memory, std::uint64_t bytes) {
  hca::World& world = shared_.job.world;
  const hca::ProcessIndex caller = world.current();
  world.enter(id_);
  auto key =
      endpoint_->memory().register_memory(memory, bytes, kAccessRemoteRead | kAccessRemoteWrite);
  world.enter(caller);
  return key;
}

void RankState::kill() {
  shared_.job.world.kill(id_);
  shared_.job.memories[id_]->set_state(OneSidedMemory::State::killed);
  scheduler_.stop();
  killed_ = true;
  if (!ended_) ++shared_.ended;
  ended_ = true;
  if (!closed_) ++shared_.closed;
  closed_ = true;
  if (endpoint_) endpoint_->abandon();
}

// Others run before it does.
void RankState::wake() {
  scheduler_.wake();
  if (endpoint_) endpoint_->prepare_progress();
}

void RankState::run() {
  if (!endpoint_) return;
  hca::World& world = shared_.job.world;
  world.enter(id_);
  stood_still_ = !stood_still_ && world.stand_still();
  if (stood_still_) return scheduler_.run_at(world.process_time());
  try {
    make_round();
  } catch (const std::exception& error) {
    on_error(error.what());
  }
}

void RankState::make_round() {
  hca::World& world = shared_.job.world;
  const bool running = program_.created() && !ended_;
  const RankProgram::Wait& wait = program_.wait();
  if (running && wait.kind == Waits::nothing) {
    if (!may_begin()) {
      const bool moved = endpoint_->progress();
      const Picoseconds due = endpoint_->next_deadline() * hca::kNanosecond + hca::kNanosecond;
      return moved ? scheduler_.run_at(std::max(world.process_time(), world.now()))
                   : scheduler_.sleep_until(std::min(begins_, due));
    }
    program_.begin();
    shared_.last_step = world.now();
  } else if (wait.kind == Waits::compute) {
    if (world.process_time() < wait.until) return scheduler_.run_at(wait.until);
    resume_program();
  }
  if (closing_ && endpoint_->close()) return close();
  bool moved =
      operations_.drain();  // progress only if nothing is there, as the provider's fi_cq_read
  if (!moved) {
    moved = !closing_ && endpoint_->progress();
    moved |= operations_.drain();
  }
  while (resume()) moved = true;
  if (running && program_.ended()) end_program();
  if (moved || wait.kind == Waits::compute) {
    scheduler_.run_at(std::max(world.process_time(), world.now()));
  } else {  // the next arrival wakes the rank, or what it has to do by itself
    scheduler_.sleep_until(endpoint_->next_deadline() * hca::kNanosecond + hca::kNanosecond);
  }
}

// All addresses were exchanged before.
bool RankState::may_begin() {
  if (!std::exchange(knows_addresses_, true)) {
    endpoint_->expect_peers(shared_.job.addresses.size(), shared_.job.addresses);
  }
  return shared_.job.world.process_time() >= begins_;
}

void RankState::close() {
  closed_ = true;
  scheduler_.stop();
  ++shared_.closed;
  if (failed_) free_endpoint();  // nobody answers for a process that has ended
}

void RankState::end_program() {
  ended_ = true;
  ++shared_.ended;
  shared_.ended_at[id_] = shared_.job.world.process_time();
}

void RankState::on_error(const char* what) {
  if (shared_.job.options.go_on_after_errors && !ended_) {
    shared_.errors.emplace_back(id_, what);
    end_program();
    program_.give_up();
    failed_ = true;
    begin_close();  // as the process's end would
  } else if (shared_.error.empty()) {
    const double now = static_cast<double>(shared_.job.world.process_time()) / 1e6;
    shared_.error = fmt::format("rank {} at {:.3f} us: {}", id_, now, what);
  }
}

bool RankState::resume() {
  const RankProgram::Wait& wait = program_.wait();
  switch (wait.kind) {
    case Waits::start:
      try {
        if (!operations_.try_start(*wait.starting)) return false;
      } catch (const OperationError&) {
        wait.starting->error = std::current_exception();
      }
      break;
    case Waits::request:
      if (!operations_.requests().is_done(wait.request)) return false;
      break;
    case Waits::beside_thread:
      if (shared_.job.world.process_time() < wait.until) return false;
      break;
    case Waits::nothing:
    case Waits::compute:
      return false;
  }
  resume_program();
  return true;
}

void RankState::resume_program() {
  shared_.last_step = shared_.job.world.now();
  program_.resume();
}

void RankState::progress() {
  endpoint_->progress();
  operations_.drain();
}

// A thread's processor is not the program's: what it does takes nothing of the program's time.
void RankState::compute(Picoseconds time, bool beside_thread, std::coroutine_handle<> handle) {
  hca::World& world = shared_.job.world;
  if (!beside_thread) world.charge(time);
  const Picoseconds until = world.process_time() + (beside_thread ? time : 0);
  const Waits kind = beside_thread ? Waits::beside_thread : Waits::compute;
  program_.suspend({.kind = kind, .until = until}, handle);
  if (beside_thread) scheduler_.wake_at(until);
}

void RankState::begin_close() {
  if (closed_ || closing_) return;
  closing_ = true;
  scheduler_.wake();
}

void RankState::free_endpoint() {
  shared_.job.memories[id_]->set_state(OneSidedMemory::State::exited);
  endpoint_.reset();
}

void RankState::release() {
  if (!endpoint_) return;
  shared_.job.world.enter(id_);
  free_endpoint();
  program_.destroy();
}

std::string RankState::waiting_for() {
  const RankProgram::Wait& wait = program_.wait();
  switch (wait.kind) {
    case Waits::start:
      return fmt::format("a slot to {} rank {}", words_of(wait.starting->kind),
                         wait.starting->peer);
    case Waits::request:
      return fmt::format("completion ({})", operations_.requests().text(wait.request));
    case Waits::compute:
    case Waits::beside_thread:
      return "the end of a computation";
    case Waits::nothing:
      break;
  }
  return "nothing";
}

}  // namespace turnout::sim
