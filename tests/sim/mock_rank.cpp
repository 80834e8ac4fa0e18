// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/mock_rank.h"

#include <fmt/format.h>

#include <deque>
#include <list>
#include <memory>
#include <queue>
#include <vector>

namespace turnout::sim {

namespace {

constexpr Picoseconds kLatency = hca::kMicrosecond;

struct Message {
  std::uint32_t source, sender_slot;
  std::uint64_t bytes, tag;
};

struct Event {
  Picoseconds time;
  std::uint64_t number;
  std::function<void()> action;
};
struct Later {
  bool operator()(const Event& a, const Event& b) const {
    return a.time != b.time ? a.time > b.time : a.number > b.number;
  }
};

}  // namespace

class RankState {
 public:
  struct World {
    mock::Options options;
    mock::Outcome outcome;
    Picoseconds now = 0;
    std::uint64_t number = 0;
    std::priority_queue<Event, std::vector<Event>, Later> events;
    std::deque<RankState> ranks;
    std::vector<std::coroutine_handle<>> at_barrier;
    std::uint32_t cells = 1;

    void at(Picoseconds time, std::function<void()> action) {
      events.push({time, number++, std::move(action)});
    }
  };

  RankState(World& world, std::uint32_t id)
      : world(&world), id(id), random(world.options.seed * 1000 + id) {}

  struct Slot {
    bool used = false, done = false;
    Received result;
    std::coroutine_handle<> waiter;
  };
  struct Posted {
    std::uint32_t from, slot;
    std::uint64_t bytes, tag;
  };

  static std::uint32_t index(Request request) { return request.index(); }
  static Request request(std::uint32_t index) { return Request(index); }

  std::uint32_t take() {
    std::uint32_t index = 0;
    while (index < slots.size() && slots[index].used) ++index;
    if (index == slots.size()) slots.emplace_back();
    slots[index] = {};
    slots[index].used = true;
    world->outcome.most_requests = std::max(world->outcome.most_requests, ++used);
    return index;
  }
  Slot& slot(Request request) {
    if (!request.valid() || index(request) >= slots.size() || !slots[index(request)].used) {
      throw SimulationError(fmt::format("rank {} waits for a request it does not have", id));
    }
    return slots[index(request)];
  }
  void end(std::uint32_t index, Received result) {
    Slot& s = slots[index];
    s.done = true;
    s.result = result;
    if (s.waiter) world->at(world->now, [h = s.waiter] { h.resume(); });
  }
  static bool fits(const Posted& p, const Message& m) {
    return (p.from == kAnySource || p.from == m.source) && (p.tag == kAnyTag || p.tag == m.tag);
  }
  void match(const Posted& p, const Message& m) {
    if (m.bytes > p.bytes) {
      world->outcome.failure =
          fmt::format("rank {}: {} bytes for a receive of {}", id, m.bytes, p.bytes);
    }
    end(p.slot, {m.source, m.tag, m.bytes});
    if (world->options.synchronous) world->ranks[m.source].end(m.sender_slot, {});
  }
  void arrive(const Message& m) {
    for (auto p = posted.begin(); p != posted.end(); ++p) {
      if (!fits(*p, m)) continue;
      const Posted found = *p;
      posted.erase(p);
      match(found, m);
      return;
    }
    unexpected.push_back(m);
  }
  Request start(bool sends, std::uint32_t peer, std::uint64_t bytes, std::uint64_t tag) {
    if (peer == id || (peer >= world->ranks.size() && (sends || peer != kAnySource))) {
      throw SimulationError(fmt::format("rank {}: no peer {}", id, peer));
    }
    const std::uint32_t slot = take();
    if (sends) {
      mock::Outcome& o = world->outcome;
      ++o.messages;
      o.bytes += bytes;
      ++o.pairs[{id, peer}];
      meet(peer);
      Random mixed(o.hash ^ (std::uint64_t{id} << 40 | std::uint64_t{peer} << 16) ^ bytes ^
                   tag << 56 ^ static_cast<std::uint64_t>(world->now));
      o.hash = mixed.next();
      if (!world->options.synchronous) end(slot, {});
      world->at(world->now + kLatency,
                [to = &world->ranks[peer], m = Message{id, slot, bytes, tag}] { to->arrive(m); });
      return request(slot);
    }
    const Posted p{peer, slot, bytes, tag};
    for (auto m = unexpected.begin(); m != unexpected.end(); ++m) {
      if (!fits(p, *m)) continue;
      const Message found = *m;
      unexpected.erase(m);
      match(p, found);
      return request(slot);
    }
    posted.push_back(p);
    return request(slot);
  }

  void meet(std::uint32_t peer) {
    if (partners.empty() || partners.back() != peer) partners.push_back(peer);
  }
  // One-sided: there and back, and nobody else knows.
  Request move(const Rank::StartAwaiter& a) {
    if (a.peer == id || a.peer >= world->ranks.size()) {
      throw SimulationError(fmt::format("rank {}: no peer {}", id, a.peer));
    }
    const std::uint32_t slot = take();
    mock::Outcome& o = world->outcome;
    ++o.one_sided;
    ++(a.kind == Rank::StartAwaiter::Kind::put ? o.puts : o.gets);
    o.bytes += a.bytes;
    meet(a.peer);
    world->at(world->now + 2 * kLatency, [this, slot] { end(slot, {}); });
    return request(slot);
  }
  std::uint64_t add_to_cell(std::uint64_t cell, std::uint64_t value) {
    if (cell >= world->cells) throw SimulationError(fmt::format("rank {}: no cell {}", id, cell));
    cells.resize(world->cells);
    return std::exchange(cells[cell], cells[cell] + value);
  }
  Request add(const Rank::StartAwaiter& a) {
    if (a.peer == id || a.peer >= world->ranks.size() || a.tag >= world->cells) {
      throw SimulationError(fmt::format("rank {}: no cell {} of peer {}", id, a.tag, a.peer));
    }
    const std::uint32_t slot = take();
    ++world->outcome.one_sided;
    ++world->outcome.adds;
    meet(a.peer);
    world->at(world->now + kLatency,
              [this, slot, to = &world->ranks[a.peer], cell = a.tag, value = a.value] {
                const std::uint64_t before = to->add_to_cell(cell, value);
                world->at(world->now + kLatency, [this, slot, before] {
                  end(slot, {kAnySource, before, 0});
                });
              });
    return request(slot);
  }

  World* world;
  std::uint32_t id;
  Random random;
  std::vector<Slot> slots;
  std::size_t used = 0;
  std::list<Posted> posted;
  std::list<Message> unexpected;
  std::vector<std::uint64_t> cells;
  std::vector<std::uint32_t> partners;
};

std::uint32_t Rank::id() const noexcept {
  return state_->id;
}
std::uint32_t Rank::size() const noexcept {
  return state_->world->options.ranks;
}
Picoseconds Rank::now() const noexcept {
  return state_->world->now;
}
Random& Rank::random() noexcept {
  return state_->random;
}
void Rank::end_messages_with(int) noexcept {}  // its messages have no content
std::uint64_t Rank::add_in_node(std::uint32_t to, std::uint32_t cell, std::uint64_t value) {
  const std::uint32_t per_node = state_->world->options.ranks_per_node;
  if (to >= size() || to / per_node != id() / per_node) {
    throw SimulationError(fmt::format("rank {}: rank {} is on another node", id(), to));
  }
  ++state_->world->outcome.adds_in_node;
  return state_->world->ranks[to].add_to_cell(cell, value);
}
void Rank::keep_cells(std::uint32_t count) {
  state_->world->cells = std::max(state_->world->cells, count);
}
bool Rank::StartAwaiter::await_ready() {
  switch (kind) {
    case Kind::put:
    case Kind::get:
      request = state->move(*this);
      break;
    case Kind::add:
      request = state->add(*this);
      break;
    case Kind::send:
    case Kind::receive:
      request = state->start(kind == Kind::send, peer, bytes, tag);
      break;
  }
  return true;
}
void Rank::StartAwaiter::await_suspend(std::coroutine_handle<> /*handle*/) {}
Request Rank::StartAwaiter::await_resume() {
  return request;
}
bool Rank::WaitAwaiter::await_ready() {
  return state->slot(request).done;
}
void Rank::WaitAwaiter::await_suspend(std::coroutine_handle<> handle) {
  state->slot(request).waiter = handle;
}
Received Rank::WaitAwaiter::await_resume() {
  RankState::Slot& slot = state->slot(request);
  slot.used = false;
  --state->used;
  return slot.result;
}
bool Rank::test(Request request) {
  return request.valid() && state_->slot(request).done;
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
  struct Barrier {
    RankState::World* world;
    bool await_ready() {
      if (world->at_barrier.size() + 1 < world->options.ranks) return false;
      ++world->outcome.barriers;
      for (const auto handle : world->at_barrier) {
        world->at(world->now, [handle] { handle.resume(); });
      }
      world->at_barrier.clear();
      return true;
    }
    void await_suspend(std::coroutine_handle<> handle) { world->at_barrier.push_back(handle); }
    void await_resume() {}
  };
  co_await Barrier{state_->world};
}
void Rank::ComputeAwaiter::await_suspend(std::coroutine_handle<> handle) {
  state->world->at(state->world->now + time, [handle] { handle.resume(); });
}

namespace mock {

Outcome play(const Options& options, const Program& program) {
  RankState::World world;
  world.options = options;
  for (std::uint32_t i = 0; i < options.ranks; ++i) world.ranks.emplace_back(world, i);
  std::vector<Task> tasks;
  for (RankState& state : world.ranks) tasks.push_back(program(Rank(state)));
  for (Task& task : tasks) task.start();
  while (!world.events.empty()) {
    const Event event = world.events.top();
    world.events.pop();
    world.now = event.time;
    event.action();
  }
  world.outcome.time = world.now;
  const auto fail = [&](std::string text) {
    if (world.outcome.failure.empty()) world.outcome.failure = std::move(text);
  };
  for (std::uint32_t i = 0; i < options.ranks; ++i) {
    try {
      tasks[i].rethrow();
    } catch (const std::exception& e) {
      fail(e.what());
    }
    RankState& state = world.ranks[i];
    world.outcome.partners.push_back(std::move(state.partners));
    if (!tasks[i].done()) fail(fmt::format("rank {} waits for ever", i));
    if (state.used != 0) fail(fmt::format("rank {} leaves {} requests", i, state.used));
    if (!state.unexpected.empty()) {
      fail(fmt::format("rank {} leaves {} messages", i, state.unexpected.size()));
    }
  }
  return world.outcome;
}

}  // namespace mock

}  // namespace turnout::sim
