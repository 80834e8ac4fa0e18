// SPDX-License-Identifier: BSD-3-Clause
#include "tests/provider/loopback_endpoint.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "core/protocol/atomic_kernels.h"

namespace turnout {

// These take the place of the core's.
Result<std::unique_ptr<Endpoint>> Endpoint::create(const Settings&, Clock&,
                                                   EndpointOptions options) {
  if (!testing::faults().create.ok()) return testing::faults().create;
  return std::unique_ptr<Endpoint>(std::make_unique<testing::LoopbackEndpoint>(std::move(options)));
}

Result<std::shared_ptr<MemoryDomain>> MemoryDomain::open(const Settings&) {
  if (!testing::faults().open.ok()) return testing::faults().open;
  return std::shared_ptr<MemoryDomain>(std::make_shared<testing::LoopbackMemory>());
}

namespace testing {
namespace {

std::uint64_t next_id = 1;
std::uint64_t next_key = 0x1000;

Status take(Status& fault) {
  return std::exchange(fault, Status{});
}

std::size_t total(std::span<const iovec> parts) {
  std::size_t n = 0;
  for (const iovec& part : parts) n += part.iov_len;
  return n;
}

std::vector<char> gather(std::span<const iovec> parts) {
  std::vector<char> bytes(total(parts));
  std::size_t at = 0;
  for (const iovec& part : parts) {
    if (part.iov_len != 0) std::memcpy(bytes.data() + at, part.iov_base, part.iov_len);
    at += part.iov_len;
  }
  return bytes;
}

// Bytes copied.
std::size_t scatter(const char* bytes, std::size_t length, std::span<const iovec> parts) {
  std::size_t at = 0;
  for (const iovec& part : parts) {
    const std::size_t n = std::min(part.iov_len, length - at);
    if (n != 0) std::memcpy(part.iov_base, bytes + at, n);
    at += n;
  }
  return at;
}

LoopbackEndpoint* find(const Address& address) {
  for (LoopbackEndpoint* endpoint : LoopbackEndpoint::alive()) {
    if (endpoint->address() == address) return endpoint;
  }
  return nullptr;
}

}  // namespace

Faults& faults() {
  static Faults instance;
  return instance;
}

std::vector<LoopbackEndpoint*>& LoopbackEndpoint::alive() {
  static std::vector<LoopbackEndpoint*> list;
  return list;
}

LoopbackEndpoint::LoopbackEndpoint(EndpointOptions options)
    : memory_(options.memory == nullptr
                  ? std::make_shared<LoopbackMemory>()
                  : std::static_pointer_cast<LoopbackMemory>(std::move(options.memory))),
      context_size_(options.context_size) {
  address_.id = next_id++;
  address_.counts = 4 | 2 << 4 | 2 << 6;
  address_.set_sizes(4096, 4, false);
  address_.pid = static_cast<std::uint32_t>(getpid());
  address_.seal();
  alive().push_back(this);
}

LoopbackEndpoint::~LoopbackEndpoint() {
  std::erase(alive(), this);
  for (const Finished& end : finished_)
    fail(end.report, end.completion, {Code::canceled, "the endpoint was closed"});
}

Result<PeerId> LoopbackEndpoint::peer(const Address& address) {
  if (Status fault = take(faults().peer); !fault.ok()) return fault;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i] == address) return static_cast<PeerId>(i);
  }
  peers_.push_back(address);
  lost_.push_back(false);
  return static_cast<PeerId>(peers_.size() - 1);
}

void LoopbackEndpoint::finish(const Report& report, Completion completion) {
  completion.context = report.context;
  if (report.queue != nullptr) report.queue->push(completion);
  if (report.counter != nullptr) report.counter->value.fetch_add(1);
}

void LoopbackEndpoint::fail(const Report& report, Completion completion, Status status,
                            std::size_t overflow) {
  completion.context = report.context;
  if (report.counter != nullptr) report.counter->errors.fetch_add(1);
  if (report.errors == nullptr) return;
  ErrorCompletion error;
  static_cast<Completion&>(error) = completion;
  error.overflow = overflow;
  error.status = std::move(status);
  report.errors->push_error(std::move(error));
}

Status LoopbackEndpoint::send(const SendRequest& request) {
  if (Status fault = take(faults().send); !fault.ok()) return fault;
  if (request.peer >= peers_.size()) return {Code::invalid, "send: no such peer"};
  if (request.inject && total(request.data) > kInjectLimit) {
    return {Code::invalid, "send: too long to inject"};
  }
  last_delivery_complete = request.delivery_complete;
  last_match_complete = request.match_complete;
  Message message;
  message.from = this;
  message.tagged = request.tagged;
  message.has_data = request.has_remote_data;
  message.acknowledge = request.delivery_complete;
  message.tag = request.tag;
  message.data = request.remote_data;
  message.bytes = gather(request.data);
  message.report = request.report;
  message.flags = kSend | (request.tagged ? kTagged : kMessage);
  Completion sent;
  sent.flags = message.flags;
  LoopbackEndpoint* target = lost_[request.peer] ? nullptr : find(peers_[request.peer]);
  if (target == nullptr) {
    fail(request.report, sent, {Code::peer_lost, "send: the peer's process is gone"});
    return {};
  }
  Result<PeerId> source = target->peer(address_);
  if (!source.ok()) return source.status();
  message.source = source.value();
  target->inbox_.push_back(std::move(message));
  if (!request.delivery_complete) finish(request.report, sent);
  return {};
}

bool LoopbackEndpoint::matches(const RecvRequest& request, const Message& m) const noexcept {
  return request.tagged == m.tagged && (request.peer == kAnyPeer || request.peer == m.source) &&
         (!m.tagged || ((request.tag ^ m.tag) & ~request.ignore) == 0);
}

bool LoopbackEndpoint::deliver(Posted& posted, Message& message) {
  Completion c;
  c.flags = kRecv | (message.tagged ? kTagged : kMessage) | (message.has_data ? kRemoteData : 0u);
  c.tag = message.tag;
  c.data = message.data;
  c.source = message.source;
  bool used_up = true;
  std::size_t overflow = 0;
  if (posted.request.multi) {
    iovec& buffer = posted.buffer.front();
    const std::size_t room = buffer.iov_len - posted.used;
    c.buffer = static_cast<char*>(buffer.iov_base) + posted.used;
    c.length = std::min(room, message.bytes.size());
    if (c.length != 0) std::memcpy(c.buffer, message.bytes.data(), c.length);
    overflow = message.bytes.size() - c.length;
    posted.used += c.length;
    used_up = buffer.iov_len - posted.used < posted.request.min_free;
    if (used_up) c.flags |= kMultiRecvDone;
  } else {
    c.buffer = posted.buffer.empty() ? nullptr : posted.buffer.front().iov_base;
    c.length = scatter(message.bytes.data(), message.bytes.size(), posted.buffer);
    overflow = message.bytes.size() - c.length;
  }
  if (overflow != 0) {
    fail(posted.request.report, c,
         {Code::truncated, "the message is longer than the buffer posted for it"}, overflow);
  } else {
    finish(posted.request.report, c);
  }
  if (message.acknowledge) {
    Completion sent;
    sent.flags = message.flags;
    message.from->finish(message.report, sent);
  }
  return used_up;
}

void LoopbackEndpoint::arrive(Message message) {
  for (auto posted = posted_.begin(); posted != posted_.end(); ++posted) {
    if (!matches(posted->request, message)) continue;
    if (deliver(*posted, message)) posted_.erase(posted);
    return;
  }
  unexpected_.push_back(std::move(message));
  tell(unexpected_.back(), true);
}

TakenMessage LoopbackEndpoint::description_of(const Message& message) {
  return {nullptr,     message.source, message.tagged,      message.has_data,
          message.tag, message.data,   message.bytes.size()};
}

std::vector<TakenMessage> LoopbackEndpoint::watch_unexpected(UnexpectedWatcher* watcher) {
  watcher_ = watcher;
  std::vector<TakenMessage> all;
  for (const bool tagged : {true, false}) {
    for (const Message& message : unexpected_) {
      if (message.tagged == tagged) all.push_back(description_of(message));
    }
  }
  return all;
}

Status LoopbackEndpoint::recv(const RecvRequest& request) {
  Posted posted{request, {request.buffer.begin(), request.buffer.end()}, 0};
  for (auto message = unexpected_.begin(); message != unexpected_.end();) {
    if (!matches(request, *message)) {
      ++message;
      continue;
    }
    Message taken = std::move(*message);
    message = unexpected_.erase(message);
    tell(taken, false);
    const bool used_up = deliver(posted, taken);
    if (used_up) return {};
  }
  posted_.push_back(std::move(posted));
  return {};
}

Status LoopbackEndpoint::peek(const PeekRequest& request) {
  progress();
  RecvRequest like;
  like.peer = request.peer;
  like.tagged = request.tagged;
  like.tag = request.tag;
  like.ignore = request.ignore;
  const auto found = std::find_if(unexpected_.begin(), unexpected_.end(),
                                  [&](const Message& m) { return matches(like, m); });
  Completion c;
  c.flags = kRecv | (request.tagged ? kTagged : kMessage);
  if (found == unexpected_.end()) {
    c.tag = request.tag;
    fail(request.report, c, {Code::no_message, "no message waits for this peek"});
    return {};
  }
  if (found->has_data) c.flags |= kRemoteData;
  if (request.claim) c.flags |= kClaimed;
  c.length = found->bytes.size();
  c.tag = found->tag;
  c.data = found->data;
  c.source = found->source;
  finish(request.report, c);
  if (request.claim) claimed_.emplace(request.report.context, std::move(*found));
  if (request.claim || request.discard) unexpected_.erase(found);
  return {};
}

Status LoopbackEndpoint::recv_claimed(const RecvRequest& request) {
  const auto found = claimed_.find(request.report.context);
  if (found == claimed_.end()) return {Code::invalid, "no message is claimed with this context"};
  Posted posted{request, {request.buffer.begin(), request.buffer.end()}, 0};
  deliver(posted, found->second);
  claimed_.erase(found);
  return {};
}

Status LoopbackEndpoint::discard_claimed(const Report& report) {
  const auto found = claimed_.find(report.context);
  if (found == claimed_.end()) return {Code::invalid, "no message is claimed with this context"};
  Completion c;
  c.flags = kRecv | (found->second.tagged ? kTagged : kMessage);
  c.tag = found->second.tag;
  c.source = found->second.source;
  finish(report, c);
  claimed_.erase(found);
  return {};
}

std::optional<TakenMessage> LoopbackEndpoint::take_message() {
  auto found = std::ranges::find(unexpected_, true, &Message::tagged);
  if (found == unexpected_.end()) found = unexpected_.begin();
  if (found == unexpected_.end()) return std::nullopt;
  taken_.splice(taken_.end(), unexpected_, found);
  Message& message = taken_.back();
  return TakenMessage{&message,    message.source, message.tagged,      message.has_data,
                      message.tag, message.data,   message.bytes.size()};
}

Status LoopbackEndpoint::recv_taken(void* handle, const RecvRequest& request) {
  if (!faults().taken.ok()) return std::exchange(faults().taken, Status{});
  const auto found =
      std::ranges::find_if(taken_, [&](const Message& message) { return &message == handle; });
  Posted posted{request, {request.buffer.begin(), request.buffer.end()}, 0};
  deliver(posted, *found);
  taken_.erase(found);
  return {};
}

void LoopbackEndpoint::discard_taken(void* handle) {
  std::erase_if(taken_, [&](const Message& message) { return &message == handle; });
}

Status LoopbackEndpoint::rma(const RmaRequest& request) {
  last_delivery_complete = request.delivery_complete;
  Finished end{request.report, {}, {}};
  end.completion.flags = request.write ? kRmaWrite : kRmaRead;
  LoopbackEndpoint* target = lost_[request.peer] ? nullptr : find(peers_[request.peer]);
  if (target == nullptr) {
    end.status = {Code::peer_lost, "rma: the peer's process is gone"};
    finished_.push_back(std::move(end));
    return {};
  }
  const unsigned needed = request.write ? kAccessRemoteWrite : kAccessRemoteRead;
  char* const remote =
      target->memory_->find(request.key, request.remote_address, request.length, needed);
  if (remote == nullptr) {
    end.status = {Code::permission, "rma: the peer refused access to its memory"};
    finished_.push_back(std::move(end));
    return {};
  }
  if (request.write) {
    const std::vector<char> bytes = gather(request.local);
    if (!bytes.empty()) std::memcpy(remote, bytes.data(), bytes.size());
    if (request.has_remote_data) {
      Completion c;
      c.flags = kRemoteWrite | kRemoteData;
      c.data = request.remote_data;
      c.length = bytes.size();
      c.source = target->peer(address_).value();
      target->finish(target->remote_access_.writes, c);
    }
    if (request.has_event) target->count_access(true, request.key, request.has_remote_data);
  } else {
    scatter(remote, request.length, request.local);
    if (request.has_event) target->count_access(false, request.key, false);
  }
  finished_.push_back(std::move(end));
  return {};
}

Status LoopbackEndpoint::atomic(const AtomicRequest& request) {
  const std::size_t bytes = request.count * size_of(request.type);
  Finished end{request.report, {}, {}};
  end.completion.flags = kAtomic | (request.form == AtomicForm::update ? kRmaWrite : kRmaRead);
  LoopbackEndpoint* target = lost_[request.peer] ? nullptr : find(peers_[request.peer]);
  unsigned access = request.form == AtomicForm::update ? 0u : unsigned{kAccessRemoteRead};
  if (request.op != AtomicOp::read) access |= kAccessRemoteWrite;
  char* const memory =
      target != nullptr ? target->memory_->find(request.key, request.remote_address, bytes, access)
                        : nullptr;
  if (target == nullptr) {
    end.status = {Code::peer_lost, "atomic: the peer's process is gone"};
  } else if (memory == nullptr) {
    end.status = {Code::permission, "atomic: the peer refused access to its memory"};
  } else {
    const std::vector<char> operands = gather(request.operands), compare = gather(request.compare);
    std::vector<char> fetched(bytes);
    execute(request.op, request.type, reinterpret_cast<std::byte*>(memory), request.count,
            {reinterpret_cast<const std::byte*>(operands.data()),
             reinterpret_cast<const std::byte*>(compare.data())},
            reinterpret_cast<std::byte*>(fetched.data()));
    if (request.form != AtomicForm::update) scatter(fetched.data(), bytes, request.result);
    if (request.has_remote_data) {
      Completion c;
      c.flags = kAtomic | kRemoteWrite | kRemoteData;
      c.data = request.remote_data;
      c.length = bytes;
      c.source = target->peer(address_).value();
      target->finish(target->remote_access_.writes, c);
    }
    target->count_access(request.form == AtomicForm::update, request.key, request.has_remote_data);
  }
  finished_.push_back(std::move(end));
  return {};
}

bool LoopbackEndpoint::cancel(void* context) {
  for (auto posted = posted_.end(); posted != posted_.begin();) {
    --posted;
    if (posted->request.report.context != context) continue;
    Completion c;
    c.flags = kRecv | (posted->request.tagged ? kTagged : kMessage);
    c.tag = posted->request.tag;
    fail(posted->request.report, c, {Code::canceled, "the receive was cancelled"});
    posted_.erase(posted);
    return true;
  }
  return false;
}

Result<MemoryKey> LoopbackMemory::register_memory(void* address, std::size_t length,
                                                  unsigned access) {
  if (Status fault = take(faults().registration); !fault.ok()) return fault;
  const MemoryKey key{next_key, next_key};
  regions_[next_key++] = {static_cast<char*>(address), length, access, nullptr, nullptr};
  return key;
}

void LoopbackMemory::deregister_memory(const MemoryKey& key) {
  regions_.erase(key.handle);
}

char* LoopbackMemory::find(std::uint64_t key, std::uint64_t address, std::size_t length,
                           unsigned access) const {
  const auto region = regions_.find(key);
  auto* const memory = reinterpret_cast<char*>(address);
  if (region == regions_.end() || (region->second.access & access) != access ||
      memory < region->second.address ||
      memory + length > region->second.address + region->second.length) {
    return nullptr;
  }
  return memory;
}

bool LoopbackEndpoint::progress() {
  ++progress_calls;
  const bool moved = !inbox_.empty() || !finished_.empty();
  while (!inbox_.empty()) {
    Message message = std::move(inbox_.front());
    inbox_.pop_front();
    arrive(std::move(message));
  }
  while (!finished_.empty()) {
    Finished end = std::move(finished_.front());
    finished_.pop_front();
    if (end.status.ok()) {
      finish(end.report, end.completion);
    } else {
      fail(end.report, end.completion, std::move(end.status));
    }
  }
  return moved;
}

void LoopbackEndpoint::lose(PeerId peer) {
  lost_[peer] = true;
  for (auto posted = posted_.begin(); posted != posted_.end();) {
    if (posted->request.peer != peer) {
      ++posted;
      continue;
    }
    Completion c;
    c.flags = kRecv | (posted->request.tagged ? kTagged : kMessage);
    c.source = peer;
    fail(posted->request.report, c, {Code::peer_lost, "recv: the peer's process is gone"});
    posted = posted_.erase(posted);
  }
}

}  // namespace testing
}  // namespace turnout
