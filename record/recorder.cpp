// SPDX-License-Identifier: BSD-3-Clause
#include "record/recorder.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <utility>

namespace turnout::record {
namespace {

std::atomic<bool> in_child{false};
thread_local int depth = 0;  // of calls

Nanoseconds clock_time(clockid_t clock) noexcept {
  timespec now{};
  ::clock_gettime(clock, &now);
  return Nanoseconds{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

std::uint64_t this_thread() noexcept {
  return static_cast<std::uint64_t>(::pthread_self());
}

}  // namespace

Recorder* Recorder::get() noexcept {
  static Recorder* const one = []() -> Recorder* {
    const char* const setting = std::getenv(kVariable);
    if (setting == nullptr || *setting == '\0') return nullptr;
    (void)::pthread_atfork(nullptr, nullptr, [] { in_child = true; });
    return new Recorder(setting);  // NOLINT: without memory the process may end
  }();
  return in_child.load(std::memory_order_relaxed) ? nullptr : one;
}

Recorder::Recorder(std::string setting)
    : setting_(std::move(setting)), born_(clock_time(CLOCK_MONOTONIC)) {}

// FNV-1a, 64 bits (draft-eastlake-fnv), then mixed: addresses differ in few bits.
std::uint64_t Recorder::name_of(std::span<const std::byte> address) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte byte : address) {
    hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3;
  }
  hash ^= hash >> 31;
  return hash == 0 ? 1 : hash;
}

void Recorder::own_name(std::uint64_t name) {
  if (std::ranges::find(own_names_, name) != own_names_.end()) return;
  own_names_.push_back(name);
  if (file_) file_->also(name);
}

PeerId Recorder::peer(std::uint64_t name) {
  const auto [found, is_new] = peers_.emplace(name, static_cast<PeerId>(peer_names_.size()));
  if (is_new) peer_names_.push_back(name);
  return found->second;
}

RecordingFile& Recorder::file() {
  if (!file_) {
    Address self;
    self.id = own_names_.empty() ? 1 : own_names_.front();
    self.pid = static_cast<std::uint32_t>(::getpid());
    file_.emplace(setting_, self);
    for (std::size_t i = 1; i < own_names_.size(); ++i) file_->also(own_names_[i]);
  }
  return *file_;
}

Nanoseconds Recorder::age() noexcept {
  return clock_time(CLOCK_MONOTONIC) - born_;
}

void Recorder::write_computed() {
  if (const Nanoseconds time = computed_.take(); time > 0) file().compute(age(), time);
}

void Recorder::introduce(PeerId peer) {
  if (peer < peer_names_.size()) file().on_wireup_request(peer, peer_names_[peer]);
}

void Recorder::number(Operation* operation) noexcept {
  constexpr std::uint32_t kMost = 0xfffffffe;  // of a trace
  last_ = last_ == kMost ? 0 : last_ + 1;
  operation->number = last_;
}

void Recorder::started(Operation* operation) {
  using enum Operation::Kind;
  if (closed_ || std::exchange(operation->written, true)) return;
  // Nobody knows to whom.
  if (operation->peer == kAnyPeer && operation->kind != receive && operation->kind != receive_many)
    operation->kind = other;
  if (operation->kind == receive_many || operation->kind == other) return;
  write_computed();
  introduce(operation->peer);
  const std::uint32_t number = operation->number;
  switch (operation->kind) {
    case send:
      file().send(age(), number, operation->peer, operation->bytes, operation->tag,
                  operation->tagged);
      break;
    case receive:
      file().receive(age(), number, operation->peer, operation->bytes, operation->tag,
                     operation->any_tag, operation->tagged);
      break;
    default:
      file().access(age(), number, operation->kind == put, operation->peer, operation->bytes);
  }
}

void Recorder::ended(Operation* operation) {
  started(operation);
  if (closed_ || operation->kind == Operation::Kind::other) return;
  write_computed();
  file().ended(age(), operation->number);
}

void Recorder::dropped(Operation* operation) {
  started(operation);
  if (closed_ || operation->kind == Operation::Kind::other ||
      operation->kind == Operation::Kind::receive_many)
    return;
  file().dropped(age(), operation->number);
}

void Recorder::matched(Operation* operation, PeerId from, std::uint64_t bytes, std::uint64_t tag) {
  if (!operation->tagged) tag = 0;
  if (operation->kind == Operation::Kind::receive_many) {
    Operation one{.kind = Operation::Kind::receive, .tagged = operation->tagged};
    one.bytes = bytes;
    one.tag = tag;
    number(&one);
    return matched(&one, from, bytes, tag);
  }
  started(operation);
  if (closed_) return;
  write_computed();
  if (operation->peer != kAnyPeer) from = operation->peer;
  introduce(from);
  file().matched(age(), operation->number, from, bytes, operation->any_tag ? tag : operation->tag);
}

void Recorder::close() noexcept {
  const auto lock = guard();
  closed_ = true;
  if (file_) file_->close();
}

Recorder::Call::Call(Recorder* recorder, ComputedTime::Call call) noexcept
    : recorder_(depth == 0 ? recorder : nullptr) {
  ++depth;
  if (recorder_ == nullptr) return;
  const auto lock = recorder_->guard();
  recorder_->computed_.begin(clock_time(CLOCK_THREAD_CPUTIME_ID), clock_time(CLOCK_MONOTONIC),
                             this_thread(), call);
}

Recorder::Program::Program() noexcept : depth_(std::exchange(depth, 0)) {}
Recorder::Program::~Program() {
  depth = depth_;
}

Recorder::Call::~Call() {
  --depth;
  if (recorder_ == nullptr) return;
  const Nanoseconds now = clock_time(CLOCK_THREAD_CPUTIME_ID);
  const auto lock = recorder_->guard();
  recorder_->computed_.end(now, clock_time(CLOCK_MONOTONIC), this_thread());
}

namespace {
[[gnu::destructor]] void end_of_process() {
  if (Recorder* const recorder = Recorder::get(); recorder != nullptr) recorder->close();
}
}  // namespace

}  // namespace turnout::record
