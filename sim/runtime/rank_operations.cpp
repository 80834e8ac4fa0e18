// SPDX-License-Identifier: BSD-3-Clause
#include "sim/runtime/rank_operations.h"

#include <fmt/format.h>

#include <array>

namespace turnout::sim {
namespace {

template <class... Values>
[[noreturn]] void fail(fmt::format_string<Values...> format, Values&&... values) {
  throw SimulationError(fmt::format(format, std::forward<Values>(values)...));
}

}  // namespace

RankOperations::RankOperations(Job& job, std::uint32_t rank)
    : job_(job),
      rank_(rank),
      requests_([this](const std::byte* memory, std::size_t bytes) {
        endpoint_->forget_memory(memory, bytes);
      }),
      content_(rank, job.last_byte) {}

PeerId RankOperations::peer(std::uint32_t rank) {
  const auto found = peers_.find(rank);
  if (found != peers_.end()) return found->second;
  auto made = endpoint_->peer(job_.addresses[rank]);
  if (!made) fail("{}", made.status().text());
  return peers_.emplace(rank, made.value()).first->second;
}

bool RankOperations::try_start(Rank::StartAwaiter& operation) {
  if (!job_.options.check_content && operation.bytes > UncheckedMemory::kBytes) {
    fail("message of {} bytes: at most {} without a content check", operation.bytes,
         UncheckedMemory::kBytes);
  }
  const Request request = requests_.open(operation);
  const Status status = start(operation, requests_.entry(request));
  if (status.ok()) {
    operation.request = request;
    if (job_.options.keep_partners && operation.kind != OperationKind::receive &&
        (partners_.empty() || partners_.back() != operation.peer)) {
      partners_.push_back(operation.peer);
    }
    return true;
  }
  requests_.abandon(request);
  if (status.code() != Code::again) throw OperationError(status.text());
  return false;
}

Status RankOperations::start(const Rank::StartAwaiter& operation, Entry& entry) {
  switch (operation.kind) {
    case OperationKind::send:
      return start_send(entry, static_cast<SendEnds>(operation.value));
    case OperationKind::receive:
      return start_receive(entry);
    case OperationKind::add:
      return start_add(operation.value, entry);
    case OperationKind::put:
    case OperationKind::get:
      break;
  }
  return start_one_sided(entry);
}

Status RankOperations::start_send(Entry& entry, SendEnds ends) {
  const Options& options = job_.options;
  if (entry.peer >= options.ranks) fail("send to rank {} of {}", entry.peer, options.ranks);
  if (options.check_content) {
    requests_.make_room(entry);
    content_.fill(entry.peer, entry.tag, &entry.content);
  }
  const iovec data{options.check_content ? entry.content.buffer.data()
                                         : job_.unchecked.of(UncheckedMemory::source),
                   entry.bytes};
  SendRequest request;
  request.peer = peer(entry.peer);
  request.data = {&data, 1};
  request.tagged = true;
  request.delivery_complete = ends == SendEnds::when_delivered;
  request.match_complete = ends == SendEnds::when_matched;
  request.tag = entry.tag;
  request.report = report_to(entry);
  const Picoseconds begun = job_.world.process_time();
  Status status = endpoint_->send(request);
  if (!status.ok()) return status;
  if (options.check_content) content_.sent(entry.peer, entry.tag);
  ++job_.messages;
  job_.bytes += entry.bytes;
  if (options.keep_latencies) job_.latencies.begin(rank_, entry.peer, entry.tag, begun);
  return status;
}

Status RankOperations::start_receive(Entry& entry) {
  const bool checked = job_.options.check_content;
  if (checked) {
    requests_.make_room(entry);
    content_.expect(entry.peer, entry.tag, &entry.content);
  }
  const iovec buffer{
      checked ? entry.content.buffer.data() : job_.unchecked.of(UncheckedMemory::sink),
      entry.bytes};
  RecvRequest request;
  request.peer = entry.peer == kAnySource ? kAnyPeer : peer(entry.peer);
  request.buffer = {&buffer, 1};
  request.tagged = true;
  request.tag = entry.tag == kAnyTag ? 0 : entry.tag;
  request.ignore = entry.tag == kAnyTag ? ~std::uint64_t{0} : 0;
  request.report = report_to(entry);
  Status status = endpoint_->recv(request);
  if (status.ok()) content_.posted(entry.peer, entry.tag, entry.content);
  return status;
}

Status RankOperations::start_one_sided(Entry& entry) {
  const Options& options = job_.options;
  if (entry.peer >= options.ranks || entry.bytes > UncheckedMemory::kBytes) {
    fail("{} bytes of the memory of rank {}: expected at most {} bytes of a rank below {}",
         entry.bytes, entry.peer, UncheckedMemory::kBytes, options.ranks);
  }
  const bool puts = entry.kind == OperationKind::put;
  OneSidedMemory& target = *job_.memories[entry.peer];
  iovec local{nullptr, entry.bytes};
  RmaRequest request;
  request.peer = peer(entry.peer);
  request.write = puts;
  request.local = {&local, 1};
  request.length = entry.bytes;
  request.report = report_to(entry);
  if (!options.check_content) {
    void* const window = job_.unchecked.of(UncheckedMemory::window);
    if (window == nullptr) fail("no memory for the targets of one-sided operations");
    local.iov_base = job_.unchecked.of(puts ? UncheckedMemory::source : UncheckedMemory::sink);
    request.key = target.window_key(window, entry.bytes);
    request.remote_address = reinterpret_cast<std::uint64_t>(window);
    return endpoint_->rma(request);
  }
  MessageContent& content = entry.content;
  content.number = reaches_;
  const std::uint64_t key = content_key(rank_, entry.peer, puts ? 1 : 2, content.number);
  const OneSidedMemory::Target there = target.open(entry.bytes, key, puts);
  requests_.make_room(entry);
  fill_content(content.buffer.data(), 0, entry.bytes, puts ? key : ~key);
  local.iov_base = content.buffer.data();
  request.key = there.key;
  request.remote_address = there.address;
  Status status = endpoint_->rma(request);
  if (status.ok()) {
    ++reaches_;
    entry.place = there.place;
  } else {
    target.close(there.place);
  }
  return status;
}

Status RankOperations::start_add(std::uint64_t value, Entry& entry) {
  if (entry.peer >= job_.options.ranks || entry.tag >= job_.cells.count) {
    fail("add to cell {} of rank {}: expected a cell below {} of a rank below {}", entry.tag,
         entry.peer, job_.cells.count, job_.options.ranks);
  }
  OneSidedMemory& target = *job_.memories[entry.peer];
  const iovec operand{&value, sizeof value}, result{&entry.fetched, sizeof entry.fetched};
  AtomicRequest request;
  request.peer = peer(entry.peer);
  request.form = AtomicForm::fetch;
  request.op = AtomicOp::sum;
  request.type = AtomicType::uint64;
  request.count = 1;
  request.operands = {&operand, 1};
  request.result = {&result, 1};
  request.key = target.cells_key();
  request.remote_address = reinterpret_cast<std::uint64_t>(target.cells() + entry.tag);
  request.report = report_to(entry);
  return endpoint_->atomic(request);
}

std::uint64_t RankOperations::add_in_node(std::uint32_t to, std::uint32_t cell,
                                          std::uint64_t value) {
  const Options& options = job_.options;
  if (to >= options.ranks || to / options.ranks_per_node != rank_ / options.ranks_per_node ||
      cell >= job_.cells.count) {
    fail("add to cell {} of rank {} in memory: expected a cell below {} of a rank on the same node",
         cell, to, job_.cells.count);
  }
  std::uint64_t& at = job_.memories[to]->cells()[cell];
  return std::exchange(at, at + value);
}

bool RankOperations::drain() {
  bool moved = false;
  while (queue_.has_error()) {
    const ErrorCompletion error = queue_.pop_error();
    Entry& entry = *static_cast<Entry*>(error.context);
    entry.done = true;
    entry.error = error.status.text();
    entry.place.reset();  // what it did there nobody knows, nor whether it is done
    moved = true;
  }
  while (queue_.size() > 0) {
    const Completion completion = queue_.front();
    queue_.pop();
    Entry& entry = *static_cast<Entry*>(completion.context);
    entry.done = true;
    moved = true;
    if (entry.kind == OperationKind::add) entry.received.tag = entry.fetched;
    if (entry.place) check_reached(entry);
    if (entry.kind == OperationKind::receive) end_receive(completion, entry);
  }
  return moved;
}

void RankOperations::end_receive(const Completion& completion, Entry& entry) {
  const std::uint32_t source = rank_of(endpoint_->endpoint_id(completion.source));
  entry.received = {source, completion.tag, completion.length};
  if (job_.options.keep_latencies) {
    job_.latencies.end(source, rank_, completion.tag, job_.world.process_time());
  }
  if (job_.options.check_content) content_.check(entry.content, entry.received);
}

// What a put has written is there, what a get has read is what was there, and nothing else of the
// target's was touched.
void RankOperations::check_reached(Entry& entry) {
  const bool puts = entry.kind == OperationKind::put;
  const ReachedMemory::Place place = *std::exchange(entry.place, std::nullopt);
  const MessageContent& content = entry.content;
  const auto tell = [&](std::uint64_t at, const char* where) {
    fail("wrong byte {} {}: {} {} rank {} ({} bytes)", at, where, puts ? "put to" : "get from",
         content.number, entry.peer, entry.bytes);
  };
  OneSidedMemory& target = *job_.memories[entry.peer];
  const std::uint64_t key = content_key(rank_, entry.peer, puts ? 1 : 2, content.number);
  if (const auto wrong = target.first_wrong(place, key)) tell(*wrong, "at the target");
  const std::size_t other = first_other(content.buffer.data(), 0, entry.bytes, key);
  if (other < entry.bytes) tell(other, "here");
  target.close(place);
}

const char* words_of(OperationKind kind) noexcept {
  constexpr std::array kWords = {"send to", "receive from", "put to", "get from", "add to"};
  return kWords[static_cast<std::size_t>(kind)];
}

Request RequestTable::open(const Rank::StartAwaiter& operation) {
  if (free_.empty()) {
    free_.push_back(Request(static_cast<std::uint32_t>(entries_.size())));
    entries_.push_back(std::make_unique<Entry>());
  }
  const Request request = free_.back();
  free_.pop_back();
  Entry& entry = this->entry(request);
  entry.kind = operation.kind;
  entry.used = true;
  entry.done = false;
  entry.peer = operation.peer;
  entry.bytes = operation.bytes;
  entry.tag = operation.tag;
  entry.received = {};
  entry.error.clear();
  entry.content.ordered = false;
  if (operation.kind != OperationKind::send) entry.content.filled = 0;
  return request;
}

void RequestTable::abandon(Request request) {
  entry(request).used = false;
  free_.push_back(request);
}

// A buffer is memory of its own, which only grows: by giving it back and getting another, as free
// and malloc would. Where the process really has it is not seen: kept registrations depend on what
// the program does only.
void RequestTable::make_room(Entry& entry) {
  std::vector<std::byte>& buffer = entry.content.buffer;
  if (entry.bytes > buffer.capacity()) {
    forget_(buffer.data(), buffer.capacity());
    buffer = {};
    buffer.reserve(entry.bytes);
  }
  if (buffer.size() != entry.bytes) entry.content.filled = 0;
  buffer.resize(entry.bytes);
}

Received RequestTable::take(Request request) {
  if (request.index() >= entries_.size() || !entry(request).used) {
    throw SimulationError("waiting for a request that has already completed");
  }
  Entry& entry = this->entry(request);
  entry.done = false;
  abandon(request);
  if (!entry.error.empty()) {
    throw OperationError(fmt::format("{} rank {}, {} bytes, tag {}: {}", words_of(entry.kind),
                                     entry.peer, entry.bytes, entry.tag, entry.error));
  }
  return entry.received;
}

std::string RequestTable::text(Request request) const {
  const Entry& entry = *entries_[request.index()];
  return fmt::format("{} rank {}, {} bytes, tag {}", words_of(entry.kind),
                     entry.peer == kAnySource ? "any" : std::to_string(entry.peer), entry.bytes,
                     entry.tag);
}

}  // namespace turnout::sim
