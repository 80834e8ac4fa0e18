// SPDX-License-Identifier: BSD-3-Clause
// A double of the messaging core: endpoints of one process that hand messages to each other.
//
// It implements turnout::Endpoint with the semantics that core/endpoint.h promises (matching in
// order, unexpected messages, multi-receive buffers, peek and claim, cancel, one-sided access by
// memcpy) and none of its transport. Messages move when the receiver makes progress; completions of
// one-sided operations come with the initiator's progress. Single-threaded, or under the caller's
// lock.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/endpoint.h"

namespace turnout::testing {

// What the next calls shall answer instead of working; reset() after each test.
struct Faults {
  Status open;          // of MemoryDomain::open, until reset
  Status create;        // of Endpoint::create, until reset
  Status peer;          // of the next peer()
  Status send;          // of the next send()
  Status registration;  // of the next register_memory()
  Status taken;         // of the next recv_taken()
  void reset() { *this = Faults{}; }
};
[[nodiscard]] Faults& faults();

class LoopbackMemory final : public MemoryDomain {
 public:
  [[nodiscard]] Result<MemoryKey> register_memory(void* address, std::size_t length,
                                                  unsigned access) override;
  void deregister_memory(const MemoryKey& key) override;
  void count_accesses(const MemoryKey& key, Counter* writes, Counter* reads) override {
    regions_[key.handle].writes = writes;
    regions_[key.handle].reads = reads;
  }
  void count_access(std::uint64_t key, bool write) {
    Counter* const counter = write ? regions_[key].writes : regions_[key].reads;
    if (counter != nullptr) ++counter->value;
  }
  // These bytes, if a region with this key has them all and allows one of `access`; null: not so.
  [[nodiscard]] char* find(std::uint64_t key, std::uint64_t address, std::size_t length,
                           unsigned access) const;
  [[nodiscard]] std::size_t regions() const noexcept { return regions_.size(); }

 private:
  struct Region {
    char* address;
    std::size_t length;
    unsigned access;
    Counter *writes = nullptr, *reads = nullptr;
  };
  std::map<std::uint64_t, Region> regions_;
};

class LoopbackEndpoint final : public Endpoint {
 public:
  explicit LoopbackEndpoint(EndpointOptions options);
  ~LoopbackEndpoint() override;

  // All that are alive, oldest first.
  [[nodiscard]] static std::vector<LoopbackEndpoint*>& alive();

  [[nodiscard]] const Address& address() const noexcept override { return address_; }
  [[nodiscard]] Result<PeerId> peer(const Address& address) override;
  [[nodiscard]] Address peer_address(PeerId peer) const noexcept override { return peers_[peer]; }
  [[nodiscard]] std::uint64_t endpoint_id(PeerId peer) const noexcept override {
    return peers_[peer].id;
  }
  void expect_peers(std::size_t count, std::span<const Address> /*learned*/) override {
    expected_peers = count;
  }
  [[nodiscard]] Status send(const SendRequest& request) override;
  [[nodiscard]] Status recv(const RecvRequest& request) override;
  [[nodiscard]] Status peek(const PeekRequest& request) override;
  [[nodiscard]] Status recv_claimed(const RecvRequest& request) override;
  [[nodiscard]] Status discard_claimed(const Report& report) override;
  [[nodiscard]] std::optional<TakenMessage> take_message() override;
  [[nodiscard]] Status recv_taken(void* handle, const RecvRequest& request) override;
  void discard_taken(void* handle) override;
  [[nodiscard]] Status rma(const RmaRequest& request) override;
  [[nodiscard]] Status atomic(const AtomicRequest& request) override;
  bool cancel(void* context) override;
  void set_remote_access(const RemoteAccess& access) override { remote_access_ = access; }
  [[nodiscard]] MemoryDomain& memory() noexcept override { return *memory_; }
  bool close() override { return true; }
  void abandon() noexcept override {}
  Nanoseconds next_deadline() const noexcept override { return 0; }
  bool progress() override;
  [[nodiscard]] EndpointReport report() const override { return reported; }
  std::vector<TakenMessage> watch_unexpected(UnexpectedWatcher* watcher) override;
  [[nodiscard]] bool is_watched() const noexcept { return watcher_ != nullptr; }
  [[nodiscard]] std::size_t inject_limit() const noexcept override { return kInjectLimit; }
  [[nodiscard]] std::size_t eager_limit() const noexcept override { return 4096; }
  [[nodiscard]] std::size_t max_message() const noexcept override { return SIZE_MAX / 2; }

  // The peer is gone: what waits for it (or is sent to it from now on) ends with peer_lost.
  void lose(PeerId peer);

  [[nodiscard]] std::size_t regions() const noexcept { return memory_->regions(); }
  [[nodiscard]] std::size_t context_size() const noexcept { return context_size_; }
  [[nodiscard]] std::size_t known_peers() const noexcept { return peers_.size(); }
  EndpointReport reported;
  std::size_t progress_calls = 0;
  std::size_t expected_peers = 0;
  bool last_delivery_complete = false;  // of the last send() or rma()
  bool last_match_complete = false;     // of the last send()

 private:
  struct Message {
    LoopbackEndpoint* from = nullptr;
    PeerId source = kAnyPeer;
    bool tagged = false, has_data = false, acknowledge = false;
    std::uint64_t tag = 0, data = 0;
    std::vector<char> bytes;
    Report report;  // of the sender, for acknowledge
    std::uint32_t flags = 0;
  };
  struct Posted {
    RecvRequest request;
    std::vector<iovec> buffer;
    std::size_t used = 0;  // multi
  };
  struct Finished {
    Report report;
    Completion completion;
    Status status;
  };

  void finish(const Report& report, Completion completion);
  void fail(const Report& report, Completion completion, Status status, std::size_t overflow = 0);
  // True when the posted receive is used up.
  bool deliver(Posted& posted, Message& message);
  [[nodiscard]] bool matches(const RecvRequest& request, const Message& message) const noexcept;
  void arrive(Message message);

  std::shared_ptr<LoopbackMemory> memory_;
  std::size_t context_size_;
  Address address_;
  std::vector<Address> peers_;
  std::vector<bool> lost_;
  std::deque<Message> inbox_;
  std::list<Posted> posted_;
  std::list<Message> unexpected_;
  UnexpectedWatcher* watcher_ = nullptr;
  static TakenMessage description_of(const Message& message);
  void tell(const Message& message, bool arrived) const {
    if (watcher_ != nullptr) watcher_->on_unexpected(description_of(message), arrived);
  }
  std::map<void*, Message> claimed_;
  std::list<Message> taken_;  // the handle is the address
  std::deque<Finished> finished_;
  // A peer has read or written our memory; `reported`: it gave data with it.
  void count_access(bool write, std::uint64_t key, bool reported) {
    if (!remote_access_.events) return;
    Counter* const counter = write ? remote_access_.writes.counter : remote_access_.reads;
    if (!reported && counter != nullptr) ++counter->value;
    memory_->count_access(key, write);
  }

  RemoteAccess remote_access_;
};

}  // namespace turnout::testing
