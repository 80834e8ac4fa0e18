// SPDX-License-Identifier: BSD-3-Clause
#include "tests/programs/traffic_rank.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <ctime>

namespace turnout::programs {
namespace {

constexpr std::size_t kGuard = 16;  // bytes behind every receive buffer that must stay
constexpr std::byte kGuardByte{0xA5};
constexpr std::uint64_t kLivingMessages = 64;  // that must still arrive after a rank was lost

bool wildcard_source(Kind kind) noexcept {
  return kind == Kind::any_source || kind == Kind::any_any;
}

}  // namespace

std::int64_t now_ns() noexcept {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// The first member is libfabric's, so that a completion's context leads to the operation.
struct TrafficRank::Operation {
  fi_context2 context{};
  bool is_send = false;
  bool busy = false;
  Message message{};  // of a send, or of a receive whose message is known
  std::unique_ptr<std::byte[]> buffer;
};
struct TrafficRank::Send : Operation {};
struct TrafficRank::Receive : Operation {
  bool bound = false;  // `message` is what must come
  Kind kind = Kind::exact;
  std::uint32_t key = 0, tag_index = 0;
  std::size_t capacity = 0;
  bool complete = false, in_error = false;
  fi_cq_tagged_entry entry{};
  std::uint32_t source = 0;  // when complete
};

// What this rank knows of one source.
struct TrafficRank::Source {
  std::optional<PairStream> stream;
  std::uint64_t count = 0;  // messages it sends to us
  std::uint64_t generated = 0;
  std::deque<Message> to_designate;  // generated, not yet in a block
  std::vector<Message> block;        // shuffled; receives are posted from the back
  std::uint64_t blocks_opened = 0;   // messages of all blocks so far
  std::array<std::deque<Message>, kKeys> expected;
};

struct TrafficRank::Target {
  std::optional<PairStream> stream;
  std::uint64_t left = 0;
  std::uint64_t sent = 0;
  std::optional<Message> next;  // generated, not yet accepted
};

TrafficRank::TrafficRank(const TrafficOptions& options, std::uint32_t rank, SharedArea& shared)
    : options_(options),
      rank_(rank),
      shared_(shared),
      contents_(options.seed),
      random_(options.seed * 1000 + rank),
      sources_(options.ranks),
      targets_(options.ranks),
      unbound_(kKeys),
      node_(options.node) {
  const std::uint64_t total = options.endless ? ~std::uint64_t{0} >> 16 : options.messages;
  const auto counts = pair_counts(options.seed, options.ranks, total);
  for (std::uint32_t p = 0; p < options.ranks; ++p) {
    sources_[p].stream.emplace(options.seed, p, rank, options.max_size);
    sources_[p].count = counts[p * options.ranks + rank];
    targets_[p].stream.emplace(options.seed, rank, p, options.max_size);
    targets_[p].left = counts[rank * options.ranks + p];
    to_receive_ += sources_[p].count;
    to_send_ += targets_[p].left;
  }
  for (std::size_t i = 0; i < kReceiveWindow; ++i) {
    auto receive = std::make_unique<Receive>();
    receive->buffer = std::make_unique_for_overwrite<std::byte[]>(options.max_size + kGuard);
    free_receives_.push_back(receive.get());
    receives_.push_back(std::move(receive));
  }
  mine().address = node_.address();
  shared_.addressed.fetch_add(1);
  std::vector<AddressBytes> addresses;
  while (shared_.addressed.load() < options.ranks) {
    if (shared_.stop.load()) throw TrafficError("another rank failed at start-up");
    usleep(1000);
  }
  for (std::uint32_t p = 0; p < options.ranks; ++p) addresses.push_back(shared.rank[p].address);
  peers_ = node_.insert(addresses);
}

TrafficRank::~TrafficRank() = default;

std::string TrafficRank::name(const Message& m) const {
  return fmt::format("message {} of {}->{} ({} bytes, tag {:#x})", m.sequence, m.source, m.target,
                     m.size, m.tag());
}

bool TrafficRank::peer_is_dead(std::uint32_t peer) const noexcept {
  return shared_.victim.load(std::memory_order_relaxed) == static_cast<std::int32_t>(peer);
}

void TrafficRank::change_set() {
  set_first_ = static_cast<std::uint32_t>(random_.below(options_.ranks));
  set_left_ = kSetMessages;
}

// Sends the next message of a random target whose window is open. False: nothing could be sent.
bool TrafficRank::try_send() {
  if (to_send_ == 0) return false;
  if (free_sends_.empty()) {
    sends_.push_back(std::make_unique<Send>());
    sends_.back()->is_send = true;
    free_sends_.push_back(sends_.back().get());
  }
  if (options_.partners != 0 && set_left_ == 0) change_set();
  const std::uint32_t among = options_.partners != 0 ? options_.partners : options_.ranks;
  const auto start = static_cast<std::uint32_t>(random_.below(among));
  for (std::uint32_t i = 0; i < among; ++i) {
    const std::uint32_t t = (set_first_ + (start + i) % among) % options_.ranks;
    Target& target = targets_[t];
    if (target.left == 0 || (lost_ && peer_is_dead(t))) continue;
    const auto designated = shared_.rank[t].designated[rank_].load(std::memory_order_acquire);
    if (target.sent >= designated + kAhead) continue;
    if (!target.next) target.next = target.stream->next();
    const Message m = *target.next;
    Send& send = *free_sends_.back();
    send.buffer = std::make_unique_for_overwrite<std::byte[]>(std::max<std::size_t>(m.size, 1));
    contents_.fill(m, {send.buffer.get(), m.size});
    const bool inject = m.size <= node_.inject_size() && m.sequence % 3 == 0;
    const std::uint64_t data = m.sequence & 0xffffffffu;
    ssize_t rc = 0;
    if (inject && m.with_data) {
      rc = fi_tinjectdata(node_.ep(), send.buffer.get(), m.size, data, peers_[t], m.tag());
    } else if (inject) {
      rc = fi_tinject(node_.ep(), send.buffer.get(), m.size, peers_[t], m.tag());
    } else if (m.with_data) {
      rc = fi_tsenddata(node_.ep(), send.buffer.get(), m.size, nullptr, data, peers_[t], m.tag(),
                        &send.context);
    } else {
      rc = fi_tsend(node_.ep(), send.buffer.get(), m.size, nullptr, peers_[t], m.tag(),
                    &send.context);
    }
    if (rc == -FI_EAGAIN) {
      mine().tries_again.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
    if (rc != 0) {
      peer_failed(t, fmt::format("sending {}: {}", name(m), fi_strerror(static_cast<int>(-rc))));
      return true;
    }
    target.next.reset();
    if (set_left_ > 0) --set_left_;
    ++target.sent;
    --target.left;
    --to_send_;
    mine().sent.fetch_add(1, std::memory_order_relaxed);
    if (inject) {
      std::memset(send.buffer.get(), 0xEE, m.size);  // an injected buffer is ours again at once
    } else {
      free_sends_.pop_back();
      send.message = m;
      send.busy = true;
    }
    return true;
  }
  if (options_.partners != 0) change_set();  // nobody of this one takes anything now
  return false;
}

// The next message of (source, key), in the order in which it was sent.
Message TrafficRank::take_expected(std::uint32_t s, std::uint32_t key) {
  Source& source = sources_[s];
  while (source.expected[key].empty()) {
    if (source.generated == source.count) {
      throw TrafficError(fmt::format("more messages of key {} from {} than it sends", key, s));
    }
    const Message m = source.stream->next();
    ++source.generated;
    source.expected[m.key()].push_back(m);
    source.to_designate.push_back(m);
  }
  const Message m = source.expected[key].front();
  source.expected[key].pop_front();
  return m;
}

// Posts a receive for the next message, in shuffled order, of a random source.
bool TrafficRank::try_post() {
  Receive* receive = refused_;
  if (receive == nullptr) {
    if (free_receives_.empty()) return false;
    const auto start = static_cast<std::uint32_t>(random_.below(options_.ranks));
    std::uint32_t s = options_.ranks;
    for (std::uint32_t i = 0; i < options_.ranks && s == options_.ranks; ++i) {
      const std::uint32_t p = (start + i) % options_.ranks;
      if (lost_ && peer_is_dead(p)) continue;
      if (!sources_[p].block.empty() || sources_[p].blocks_opened < sources_[p].count) s = p;
    }
    if (s == options_.ranks) return false;
    Source& source = sources_[s];
    if (source.block.empty()) {
      const std::uint64_t n = std::min(kBlock, source.count - source.blocks_opened);
      while (source.to_designate.size() < n) {
        const Message m = source.stream->next();
        ++source.generated;
        source.expected[m.key()].push_back(m);
        source.to_designate.push_back(m);
      }
      for (std::uint64_t i = 0; i < n; ++i) {
        source.block.push_back(source.to_designate.front());
        source.to_designate.pop_front();
      }
      source.blocks_opened += n;
      for (std::size_t i = source.block.size(); i > 1; --i) {
        std::swap(source.block[i - 1], source.block[random_.below(i)]);
      }
    }
    const Message designated = source.block.back();
    source.block.pop_back();
    receive = free_receives_.back();
    free_receives_.pop_back();
    receive->kind = designated.kind;
    receive->key = designated.key();
    receive->tag_index = designated.tag_index;
    receive->bound = !wildcard_source(designated.kind);
    receive->complete = receive->in_error = false;
    receive->source = s;
    receive->capacity = options_.max_size;
    if (receive->bound) {
      receive->message = take_expected(s, receive->key);
      // exact fit, so that a byte too many is noticed by the guard behind it
      receive->capacity = receive->message.size;
    } else {
      unbound_[receive->key].push_back(receive);
    }
    std::fill_n(receive->buffer.get() + receive->capacity, kGuard, kGuardByte);
  }
  const bool any_tag = receive->kind == Kind::any_any || receive->kind == Kind::any_tag;
  const std::uint64_t tag = static_cast<std::uint64_t>(receive->kind) * kTags + receive->tag_index;
  const fi_addr_t from = receive->bound ? peers_[receive->source] : FI_ADDR_UNSPEC;
  receive->busy = true;
  const ssize_t rc = fi_trecv(node_.ep(), receive->buffer.get(), receive->capacity, nullptr, from,
                              tag, any_tag ? kTagBits : 0, &receive->context);
  if (rc == -FI_EAGAIN) {
    mine().tries_again.fetch_add(1, std::memory_order_relaxed);
    refused_ = receive;
    return false;
  }
  refused_ = nullptr;
  if (rc != 0) {
    receive->busy = false;
    if (!receive->bound) throw FiError("fi_trecv from any source", static_cast<int>(rc));
    free_receives_.push_back(receive);
    peer_failed(receive->source,
                fmt::format("posting a receive: {}", fi_strerror(static_cast<int>(-rc))));
    return true;
  }
  Source& source = sources_[receive->source];
  if (source.block.empty()) {
    mine().designated[receive->source].store(source.blocks_opened, std::memory_order_release);
  }
  mine().posted.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void TrafficRank::verify(const Receive& receive, const Message& m) const {
  // An endless run ends with sends under way: what a rank that closes had not sent leaves gaps.
  if (options_.endless && all_done()) return;
  const std::span<const std::byte> got(receive.buffer.get(), receive.entry.len);
  const auto fail = [&](const std::string& what) {
    std::string header;
    if (got.size() >= Contents::kHeader) {
      Contents::Header h;
      std::memcpy(&h, got.data(), sizeof h);
      header = fmt::format("; the header received says message {} of {}->{}, {} bytes", h.sequence,
                           h.source, h.target, h.size);
    }
    const std::int32_t victim = shared_.victim.load();
    const std::string when =
        victim < 0 ? std::string()
                   : fmt::format("; {:.3f} s after rank {} was killed, {}, {} ranks had finished",
                                 static_cast<double>(now_ns() - shared_.killed_at.load()) / 1e9,
                                 victim, lost_ ? "which was known here" : "not yet known here",
                                 shared_.done.load());
    throw TrafficError(fmt::format("{}: {}{}{}", name(m), what, header, when));
  };
  if (receive.source != m.source) fail(fmt::format("came from {}", receive.source));
  if (receive.entry.len != m.size) fail(fmt::format("{} bytes received", receive.entry.len));
  if (receive.entry.tag != m.tag()) fail(fmt::format("tag {:#x} received", receive.entry.tag));
  const bool data = (receive.entry.flags & FI_REMOTE_CQ_DATA) != 0;
  if (data != m.with_data) fail(data ? "has data that was not sent" : "its data is missing");
  if (data && receive.entry.data != (m.sequence & 0xffffffffu)) {
    fail(fmt::format("data {:#x} received", receive.entry.data));
  }
  const std::size_t at = contents_.compare(m, got);
  if (at != got.size()) fail(fmt::format("byte {} differs", at));
  const std::span<const std::byte> guard(receive.buffer.get() + receive.capacity, kGuard);
  for (const std::byte b : guard) {
    if (b != kGuardByte) fail("bytes behind the receive buffer were overwritten");
  }
}

// Wildcard-source receives match in the order of their posting: per source the messages found along
// that order must be the source's next ones.
void TrafficRank::drain_key(std::uint32_t key) {
  auto& queue = unbound_[key];
  while (!queue.empty() && queue.front()->complete) {
    Receive& receive = *queue.front();
    queue.pop_front();
    // what a failed receive had matched is not known: no order can be asked of the dead any more
    const bool unknown = receive.in_error || (gap_ && peer_is_dead(receive.source));
    if (!unknown) verify(receive, take_expected(receive.source, key));
    free_receives_.push_back(&receive);
  }
}

void TrafficRank::sent(Send& send) {
  if (!send.busy) throw TrafficError(fmt::format("{} completed twice", name(send.message)));
  send.busy = false;
  // must not reach the receiver any more
  std::memset(send.buffer.get(), 0xDD, std::min<std::size_t>(send.message.size, 64));
  free_sends_.push_back(&send);
}

void TrafficRank::received(Receive& receive, const fi_cq_tagged_entry& entry, fi_addr_t from) {
  if (!receive.busy) throw TrafficError("a receive completed twice");
  receive.busy = false;
  receive.complete = true;
  receive.entry = entry;
  from >>= node_.bits_beside_source();
  const auto at = std::find(peers_.begin(), peers_.end(), from);
  if (at == peers_.end()) throw TrafficError(fmt::format("unknown source {:#x}", from));
  receive.source = static_cast<std::uint32_t>(at - peers_.begin());
  --to_receive_;
  mine().received.fetch_add(1, std::memory_order_relaxed);
  if (lost_ && !peer_is_dead(receive.source)) ++after_loss_;
  if (receive.bound) {
    verify(receive, receive.message);
    free_receives_.push_back(&receive);
  } else {
    drain_key(receive.key);
  }
}

// An operation with `peer` failed: what the test waits for if it is the dead one, else a failure.
void TrafficRank::peer_failed(std::uint32_t peer, const std::string& what) {
  if (all_done()) return;  // the others may have left already
  const std::int32_t victim = shared_.victim.load();
  if (victim < 0 || peer != static_cast<std::uint32_t>(victim)) {
    throw TrafficError(
        fmt::format("with rank {}{}: {}", peer, victim < 0 ? "" : ", which lives", what));
  }
  if (lost_) return;
  lost_ = true;
  std::snprintf(mine().text.data(), mine().text.size(), "%s", what.c_str());
  mine().peer_error_at.store(now_ns());
}

void TrafficRank::failed(const fi_cq_err_entry& entry) {
  const std::string what = node_.describe(entry);
  if (entry.op_context == nullptr) {
    // An injected send has none; only one to the dead rank may fail.
    if (shared_.victim.load() < 0) throw TrafficError("an injected send failed: " + what);
    peer_failed(static_cast<std::uint32_t>(shared_.victim.load()), "injected send: " + what);
    return;
  }
  // the context is the first member of every operation
  auto& operation = *static_cast<Operation*>(entry.op_context);
  if (!operation.busy) throw TrafficError("an operation that had ended failed: " + what);
  if (all_done()) return;
  operation.busy = false;
  if (operation.is_send) {
    peer_failed(operation.message.target, name(operation.message) + ": " + what);
    free_sends_.push_back(static_cast<Send*>(&operation));
    return;
  }
  auto& receive = static_cast<Receive&>(operation);
  receive.complete = receive.in_error = true;
  if (receive.bound) {
    peer_failed(receive.source, "receive of " + name(receive.message) + ": " + what);
    free_receives_.push_back(&receive);
    return;
  }
  // A wildcard receive that had matched a message of the dead rank; nobody else may cause this.
  if (shared_.victim.load() < 0) throw TrafficError("a wildcard receive failed: " + what);
  gap_ = true;
  drain_key(receive.key);
}

bool TrafficRank::poll() {
  std::array<fi_cq_tagged_entry, 16> entries{};
  std::array<fi_addr_t, 16> from{};
  const ssize_t n = fi_cq_readfrom(node_.cq(), entries.data(), entries.size(), from.data());
  if (n == -FI_EAGAIN) return false;
  if (n == -FI_EAVAIL) {
    fi_cq_err_entry error{};
    const ssize_t got = fi_cq_readerr(node_.cq(), &error, 0);
    if (got == -FI_EAGAIN) return false;
    if (got != 1) throw FiError("fi_cq_readerr", static_cast<int>(got));
    failed(error);
    return true;
  }
  if (n < 0) throw FiError("fi_cq_readfrom", static_cast<int>(n));
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
    if (entries[i].op_context == nullptr) {
      throw TrafficError(
          fmt::format("a completion without context, flags {:#x}", entries[i].flags));
    }
    auto& operation = *static_cast<Operation*>(entries[i].op_context);
    if (operation.is_send) {
      sent(static_cast<Send&>(operation));
    } else {
      received(static_cast<Receive&>(operation), entries[i], from[i]);
    }
  }
  return true;
}

// More processes than cores: whoever finds nothing lets another run.
void TrafficRank::wait_a_little() {
  if (++idle_ < 32) return;
  if (idle_ < 256) {
    sched_yield();
  } else {
    usleep(50);
  }
}

bool TrafficRank::finished() const {
  return to_send_ == 0 && to_receive_ == 0 && free_sends_.size() == sends_.size();
}

bool TrafficRank::all_done() const noexcept {
  return shared_.done.load() >= (options_.endless ? options_.ranks - 1 : options_.ranks);
}

// After a loss: all directed operations to the dead rank have ended (if strict), the living still
// talk.
bool TrafficRank::wake_is_over() {
  if (!lost_) return false;
  const auto to_the_dead = [&](const Operation& o, std::uint32_t peer) {
    return o.busy && peer_is_dead(peer);
  };
  if (options_.strict && !mine().released.load()) {
    for (const auto& s : sends_) {
      if (to_the_dead(*s, s->message.target)) return false;
    }
    for (const auto& r : receives_) {
      if (r->bound && r.get() != refused_ && to_the_dead(*r, r->source)) return false;
    }
  }
  mine().released.store(true);
  return options_.ranks < 3 || after_loss_ >= kLivingMessages;
}

void TrafficRank::run() {
  bool counted = false;
  while (!shared_.stop.load(std::memory_order_relaxed)) {
    bool moved = poll();
    // receives are posted in bursts, so that some messages find one waiting and some do not
    if (random_.below(4) == 0) {
      for (int i = 0; i < 8 && try_post(); ++i) moved = true;
    }
    for (int i = 0; i < 4 && try_send(); ++i) moved = true;
    if (!counted && (options_.endless ? wake_is_over() : finished())) {
      counted = true;
      shared_.done.fetch_add(1);
    }
    if (counted && all_done()) break;
    if (moved) {
      idle_ = 0;
    } else {
      wait_a_little();
    }
  }
}

}  // namespace turnout::programs
