// SPDX-License-Identifier: BSD-3-Clause
#include "sim/runtime/rank_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "sim/runtime/content.h"

namespace turnout::sim {
namespace {

// Endpoints of a simulation are told apart by an id whose low half is the rank, so that the pools'
// (i + j) mod n of AQPS 3.1 is that of ranks.
std::uint64_t endpoint_id(std::uint64_t seed, std::uint32_t rank) noexcept {
  return (mix(seed, rank) & 0xffff'ffff'ff00'0000ULL) | std::uint64_t{1} << 63 | rank;
}

constexpr std::size_t kNumberBytes = 4;  // a message begins with its number

const char* words_of(Rank::StartAwaiter::Kind kind) noexcept {
  constexpr std::array kWords = {"send to", "receive from", "put to", "get from", "add to"};
  return kWords[static_cast<std::size_t>(kind)];
}

}  // namespace

void RankBackground::start(std::unique_ptr<Job> job) {
  const Picoseconds now = world_->process_time();
  job->run();
  const Picoseconds took = world_->process_time() - now;
  world_->charge(-took);
  free_ = std::max(free_, now) + took;
  jobs_.push_back({free_, std::move(job)});
  world_->at(
      free_, [](void* rank, std::uint64_t) { static_cast<RankState*>(rank)->wake(); }, rank_, 0);
}

std::unique_ptr<Background::Job> RankBackground::done() {
  if (jobs_.empty() || jobs_.front().done > world_->process_time()) return nullptr;
  std::unique_ptr<Job> job = std::move(jobs_.front().job);
  jobs_.pop_front();
  return job;
}

RankState::RankState(SimulationState& shared, std::uint32_t id)
    : shared_(shared), id_(id), clock_(*shared.world), random_(mix(shared.options->seed, id)) {}

RankState::~RankState() = default;

Status RankState::open() {
  EndpointOptions options;
  options.simulation = {&*shared_.costs, &*shared_.costs, &shared_.policy};
  options.id = endpoint_id(shared_.options->seed, id_);
  if (shared_.settings.setup_thread) {
    options.background = std::make_unique<RankBackground>(*shared_.world, *this);
  }
  const Settings& settings =
      serves(*shared_.options, id_) ? shared_.settings_of_servers : shared_.settings;
  auto endpoint = Endpoint::create(settings, clock_, std::move(options));
  if (!endpoint) return endpoint.status();
  endpoint_ = std::move(endpoint).value();
  endpoint_->expect_peers(shared_.options->ranks);  // as MPI libraries insert all addresses
  return {};
}

void RankState::start(const Program& program) {
  program_ = std::make_unique<Program>(program);
  root_ = (*program_)(Rank(*this));
  started_ = true;
}

std::uint32_t RankState::size() const noexcept {
  return shared_.options->ranks;
}

Picoseconds RankState::now() const noexcept {
  return shared_.world->process_time();
}

void RankState::fail(const std::string& what) const {
  throw SimulationError(what);
}

void RankState::kill() {
  shared_.world->kill(id_);
  killed_ = true;
  if (!ended_) ++shared_.ended;
  ended_ = true;
  if (!closed_) ++shared_.closed;
  closed_ = true;
  if (endpoint_) endpoint_->abandon();
}

void RankState::wake() {
  if (killed_ || closed_) return;
  schedule(std::max(shared_.world->now(), shared_.world->busy_until(id_)));
}

void RankState::schedule(Picoseconds time) {
  if (scheduled_ >= 0 && scheduled_ <= time) return;
  scheduled_ = time;
  shared_.world->at(
      time,
      [](void* self, std::uint64_t due) {
        auto* rank = static_cast<RankState*>(self);
        // A later one that an earlier replaced has nothing to do.
        if (rank->scheduled_ == static_cast<Picoseconds>(due)) rank->run();
      },
      this, static_cast<std::uint64_t>(time));
}

void RankState::run() {
  scheduled_ = -1;
  if (killed_ || closed_ || !endpoint_) return;
  hca::World& world = *shared_.world;
  world.enter(id_);
  stood_still_ = !stood_still_ && world.stand_still();
  if (stood_still_) {
    schedule(world.process_time());
    return;
  }
  try {
    if (started_ && !ended_ && waits_ == Waits::nothing) {  // its very first step
      root_.start();
      shared_.last_step = world.now();
    } else if (waits_ == Waits::compute) {
      if (world.process_time() < compute_until_) {
        schedule(compute_until_);
        return;
      }
      waits_ = Waits::nothing;
      std::exchange(handle_, nullptr).resume();
      shared_.last_step = world.now();
    }
    bool moved = closing_ ? !(closed_ = endpoint_->close()) : endpoint_->progress();
    if (closing_) {
      if (closed_) {
        ++shared_.closed;
        if (failed_) endpoint_.reset();  // nobody answers for a process that has ended
        return;
      }
      moved = false;
    }
    moved |= drain();
    while (resume()) moved = true;
    if (started_ && !ended_ && root_.done()) {
      root_.rethrow();
      ended_ = true;
      ++shared_.ended;
      shared_.ended_at[id_] = world.process_time();
    }
    if (moved || waits_ == Waits::compute) {
      schedule(std::max(world.process_time(), world.now()));
      return;
    }
  } catch (const std::exception& error) {
    if (shared_.options->go_on_after_errors && !ended_) {
      shared_.errors.emplace_back(id_, error.what());
      ended_ = true;
      ++shared_.ended;
      shared_.ended_at[id_] = world.process_time();
      waits_ = Waits::nothing;
      handle_ = nullptr;
      failed_ = true;
      begin_close();  // as the process's end would
      return;
    }
    if (shared_.error.empty()) {
      shared_.error = fmt::format("rank {} at {:.3f} us: {}", id_,
                                  static_cast<double>(world.process_time()) / 1e6, error.what());
    }
    return;
  }
  sleep();
}

// Nothing moves: the next arrival wakes the rank, or what it has to do by itself.
void RankState::sleep() {
  const Picoseconds deadline = endpoint_->next_deadline() * hca::kNanosecond + hca::kNanosecond;
  if (timer_ >= 0 && timer_ <= deadline && timer_ > shared_.world->now()) return;
  timer_ = deadline;
  shared_.world->at(
      deadline, [](void* self, std::uint64_t) { static_cast<RankState*>(self)->wake(); }, this, 0);
}

// Goes on with the coroutine if what it waits for is there.
bool RankState::resume() {
  switch (waits_) {
    case Waits::start:
      try {
        if (!try_start(*starting_)) return false;
      } catch (const OperationError&) {
        starting_->error = std::current_exception();
      }
      break;
    case Waits::request:
      if (!is_done(wanted_)) return false;
      break;
    case Waits::beside_thread:
      if (shared_.world->process_time() < compute_until_) return false;
      break;
    case Waits::nothing:
    case Waits::compute:
      return false;
  }
  waits_ = Waits::nothing;
  shared_.last_step = shared_.world->now();
  std::exchange(handle_, nullptr).resume();
  return true;
}

bool RankState::drain() {
  bool moved = false;
  while (queue_.has_error()) {
    const ErrorCompletion error = queue_.pop_error();
    Slot& slot = *static_cast<Slot*>(error.context);
    slot.done = true;
    slot.error = error.status.text();
    slot.reaches = false;  // what it did there nobody knows, nor whether it is done
    moved = true;
  }
  while (queue_.size() > 0) {
    const Completion completion = queue_.front();
    queue_.pop();
    Slot& slot = *static_cast<Slot*>(completion.context);
    slot.done = true;
    moved = true;
    if (slot.kind == Rank::StartAwaiter::Kind::add) slot.received.tag = slot.fetched;
    if (slot.reaches) check_reached(slot);
    if (slot.kind != Rank::StartAwaiter::Kind::receive) continue;
    const std::uint32_t source = rank_of(endpoint_->peer_address(completion.source).id);
    slot.received = {source, completion.tag, completion.length};
    const std::uint64_t key = mix(source, completion.tag);
    if (shared_.options->keep_latencies) {
      const auto found = streams_.find(key);
      if (found != streams_.end() && !found->second.started.empty()) {
        shared_.latencies.push_back(now() - found->second.started.front());
        found->second.started.pop_front();
        if (found->second.started.empty()) streams_.erase(found);
      }
    }
    if (shared_.options->check_content) check(slot, completion, source);
  }
  return moved;
}

PeerId RankState::peer(std::uint32_t rank) {
  const auto found = peers_.find(rank);
  if (found != peers_.end()) return found->second;
  auto made = endpoint_->peer(shared_.addresses[rank]);
  if (!made) fail(made.status().text());
  peers_.emplace(rank, made.value());
  return made.value();
}

// A slot's buffer is memory of its own, which only grows: by giving it back and getting another, as
// free and malloc would. Where the process really has it is not seen: kept registrations depend on
// what the program does only.
void RankState::make_room(Slot& slot) {
  if (slot.bytes > slot.buffer.capacity()) {
    endpoint_->forget_memory(slot.buffer.data(), slot.buffer.capacity());
    slot.buffer = {};
    slot.buffer.reserve(slot.bytes);
  }
  slot.buffer.resize(slot.bytes);
}

// An operation that waits for room is begun again and again.
void RankState::fill(Slot& slot) {
  const std::uint64_t key = content_key(id_, slot.peer, slot.tag, slot.number);
  if (slot.filled == key && slot.buffer.size() == slot.bytes) return;
  make_room(slot);
  slot.filled = key;
  const std::size_t head = std::min<std::size_t>(slot.bytes, kNumberBytes);
  if (head == kNumberBytes) std::memcpy(slot.buffer.data(), &slot.number, kNumberBytes);
  const std::size_t from = head == kNumberBytes ? head : 0;
  fill_content(slot.buffer.data(), from, slot.bytes, key);
  if (shared_.last_byte >= 0 && slot.bytes > from) {
    slot.buffer.back() = static_cast<std::byte>(shared_.last_byte);
  }
}

void RankState::end_messages_with(int byte) noexcept {
  shared_.last_byte = byte;
}

// Whole, of the message it says it is, in MPI's order, and that one only once. A message too short
// to say its number has the one its receive must get; behind a wildcard that is not known.
void RankState::check(const Slot& slot, const Completion& completion, std::uint32_t source) {
  std::uint32_t number = slot.number;
  std::size_t at = 0;
  if (completion.length >= kNumberBytes) {
    std::memcpy(&number, slot.buffer.data(), kNumberBytes);
    at = kNumberBytes;
  } else if (!slot.ordered) {
    return;
  }
  if (slot.ordered && number != slot.number) {
    fail(fmt::format("message {} from rank {} (tag {}) arrived out of MPI order, expected {}",
                     number, source, completion.tag, slot.number));
  }
  Checked& checked = checked_[mix(source, completion.tag)];
  const auto before = std::find(checked.beyond.begin(), checked.beyond.end(), number);
  if (number < checked.below || before != checked.beyond.end()) {
    fail(fmt::format("message {} from rank {} (tag {}) arrived twice", number, source,
                     completion.tag));
  }
  const std::uint64_t key = content_key(source, id_, completion.tag, number);
  const std::size_t length = completion.length;
  const bool last_is_set = shared_.last_byte >= 0 && length > at;
  const std::size_t end = last_is_set ? length - 1 : length;
  std::size_t other = std::min(first_other(slot.buffer.data(), at, end, key), end);
  if (other == end && last_is_set &&
      slot.buffer[end] == static_cast<std::byte>(shared_.last_byte)) {
    other = length;
  }
  if (other < length) {
    fail(fmt::format("wrong byte {} of message {} from rank {} (tag {}, {} bytes)", other, number,
                     source, completion.tag, length));
  }
  checked.beyond.push_back(number);
  for (auto next = checked.beyond.end();
       (next = std::find(checked.beyond.begin(), checked.beyond.end(), checked.below)) !=
       checked.beyond.end();) {
    *next = checked.beyond.back();
    checked.beyond.pop_back();
    ++checked.below;
  }
}

bool RankState::try_start(Rank::StartAwaiter& awaiter) {
  std::uint32_t index;
  if (free_slots_.empty()) {
    index = static_cast<std::uint32_t>(slots_.size());
    slots_.push_back(std::make_unique<Slot>());
  } else {
    index = free_slots_.back();
    free_slots_.pop_back();
  }
  Slot& slot = *slots_[index];
  slot.used = true;
  slot.done = false;
  slot.kind = awaiter.kind;
  slot.peer = awaiter.peer;
  slot.bytes = awaiter.bytes;
  slot.tag = awaiter.tag;
  slot.received = {};
  slot.ordered = false;
  if (awaiter.kind != Rank::StartAwaiter::Kind::send) slot.filled = 0;
  slot.error.clear();
  const bool checked = shared_.options->check_content;
  if (!checked && awaiter.bytes > kLargestUnchecked) {
    fail(fmt::format("message of {} bytes: at most {} without a content check", awaiter.bytes,
                     kLargestUnchecked));
  }
  iovec piece{};
  piece.iov_len = awaiter.bytes;
  Status status;
  using Kind = Rank::StartAwaiter::Kind;
  if (awaiter.kind == Kind::put || awaiter.kind == Kind::get) {
    status = start_one_sided(awaiter, slot);
  } else if (awaiter.kind == Kind::add) {
    status = start_add(awaiter, slot);
  } else if (awaiter.kind == Kind::send) {
    if (awaiter.peer >= size()) fail(fmt::format("send to rank {} of {}", awaiter.peer, size()));
    std::uint32_t& number = sent_numbers_[mix(awaiter.peer, awaiter.tag)];
    slot.number = number;
    if (checked) fill(slot);
    piece.iov_base = checked ? slot.buffer.data() : shared_.nothing.get();
    SendRequest request;
    request.peer = peer(awaiter.peer);
    request.data = {&piece, 1};
    request.tagged = true;
    request.tag = awaiter.tag;
    request.report = Report{&queue_, &queue_, nullptr, &slot};
    const Picoseconds begun = now();
    status = endpoint_->send(request);
    if (status.ok()) {
      ++number;
      ++shared_.messages;
      shared_.bytes += awaiter.bytes;
      if (shared_.options->keep_latencies) {
        shared_.ranks[awaiter.peer]->streams_[mix(id_, awaiter.tag)].started.push_back(begun);
      }
    }
  } else {
    if (checked) {
      make_room(slot);
      std::fill(slot.buffer.begin(), slot.buffer.end(), std::byte{0});
    }
    wild_ = wild_ || awaiter.peer == kAnySource || awaiter.tag == kAnyTag;
    slot.ordered = checked && !wild_;
    piece.iov_base = checked ? slot.buffer.data() : shared_.anywhere.get();
    RecvRequest request;
    request.peer = awaiter.peer == kAnySource ? kAnyPeer : peer(awaiter.peer);
    request.buffer = {&piece, 1};
    request.tagged = true;
    request.tag = awaiter.tag == kAnyTag ? 0 : awaiter.tag;
    request.ignore = awaiter.tag == kAnyTag ? ~std::uint64_t{0} : 0;
    request.report = Report{&queue_, &queue_, nullptr, &slot};
    if (slot.ordered) slot.number = asked_numbers_[mix(awaiter.peer, awaiter.tag)];
    status = endpoint_->recv(request);
    if (status.ok() && slot.ordered) ++asked_numbers_[mix(awaiter.peer, awaiter.tag)];
  }
  if (status.ok()) {
    awaiter.request = Request(index);
    if (shared_.options->keep_partners && awaiter.kind != Kind::receive &&
        (partners_.empty() || partners_.back() != awaiter.peer)) {
      partners_.push_back(awaiter.peer);
    }
    return true;
  }
  slot.used = false;
  free_slots_.push_back(index);
  if (status.code() != Code::again) throw OperationError(status.text());
  return false;
}

bool RankState::is_done(Request request) const noexcept {
  return request.index_ < slots_.size() && slots_[request.index_]->done;
}

Received RankState::take(Request request) {
  if (!request.valid() || request.index_ >= slots_.size() || !slots_[request.index_]->used) {
    fail("waiting for a request that has already completed");
  }
  Slot& slot = *slots_[request.index_];
  slot.used = false;
  slot.done = false;
  free_slots_.push_back(request.index_);
  if (!slot.error.empty()) {
    throw OperationError(fmt::format("{} rank {}, {} bytes, tag {}: {}", words_of(slot.kind),
                                     slot.peer, slot.bytes, slot.tag, slot.error));
  }
  return slot.received;
}

void RankState::progress_once() {
  endpoint_->progress();
  drain();
}

void RankState::suspend_start(Rank::StartAwaiter& awaiter, std::coroutine_handle<> handle) {
  starting_ = &awaiter;
  handle_ = handle;
  waits_ = Waits::start;
}

void RankState::suspend_wait(Request request, std::coroutine_handle<> handle) {
  wanted_ = request;
  handle_ = handle;
  waits_ = Waits::request;
}

void RankState::suspend_compute(Picoseconds time, std::coroutine_handle<> handle) {
  shared_.world->charge(time);
  compute_until_ = now();
  handle_ = handle;
  waits_ = Waits::compute;
}

// The thread's processor is not the program's: what it does takes nothing of the program's time.
void RankState::suspend_beside_thread(Picoseconds time, std::coroutine_handle<> handle) {
  compute_until_ = now() + time;
  handle_ = handle;
  waits_ = Waits::beside_thread;
  shared_.world->at(
      compute_until_, [](void* self, std::uint64_t) { static_cast<RankState*>(self)->wake(); },
      this, 0);
}

void RankState::begin_close() {
  if (closed_ || closing_) return;
  closing_ = true;
  wake();
}

void RankState::release() {
  if (!endpoint_) return;
  shared_.world->enter(id_);
  endpoint_.reset();
  root_ = Task();
}

std::string RankState::waiting_for() const {
  switch (waits_) {
    case Waits::start:
      return fmt::format("a slot to {} rank {}", words_of(starting_->kind), starting_->peer);
    case Waits::request: {
      const Slot& slot = *slots_[wanted_.index_];
      return fmt::format("completion ({} rank {}, {} bytes, tag {})", words_of(slot.kind),
                         slot.peer == kAnySource ? "any" : std::to_string(slot.peer), slot.bytes,
                         slot.tag);
    }
    case Waits::compute:
    case Waits::beside_thread:
      return "the end of a computation";
    case Waits::nothing:
      break;
  }
  return "nothing";
}

}  // namespace turnout::sim
