// SPDX-License-Identifier: BSD-3-Clause
// EndpointCore: the implementation of Endpoint. It owns the components and hands each call to the
// one that it is for. docs/architecture.md shows them.
//
// Driven by one thread at a time. Errors are those of Endpoint.
#pragma once

#include <algorithm>

#include "core/endpoint/endpoint_parts.h"

namespace turnout {

class EndpointCore final : public Endpoint {
  template <class Call>
  auto measured(Call&& call) {
    return parts_.call_time.run(parts_.context.clock, std::forward<Call>(call));
  }

 public:
  EndpointCore(const Settings& settings, Clock& clock, EndpointOptions options);
  ~EndpointCore() override;
  [[nodiscard]] Status start() { return parts_.startup.start(); }

  [[nodiscard]] bool close() override { return parts_.shutdown.close(); }
  void abandon() noexcept override { parts_.context.started = false; }
  [[nodiscard]] Nanoseconds next_deadline() const noexcept override;

  [[nodiscard]] const Address& address() const noexcept override { return parts_.context.address; }
  [[nodiscard]] Result<PeerId> peer(const Address& address) override {
    return parts_.peer_table.peer(address);
  }
  [[nodiscard]] Address peer_address(PeerId peer) const noexcept override {
    return parts_.peer_table.peer_address(peer);
  }
  [[nodiscard]] std::uint64_t endpoint_id(PeerId peer) const noexcept override {
    return parts_.peer_table.peers()[peer].address.id;
  }
  void expect_peers(std::size_t count, std::span<const Address> learned) override {
    parts_.peer_table.expect_peers(count);
    parts_.channels.selector.learn(learned);
  }
  [[nodiscard]] Status send(const SendRequest& request) override {
    return measured([&] { return parts_.operations.send_engine.send_now(request); });
  }
  [[nodiscard]] Status recv(const RecvRequest& request) override {
    return measured([&] { return parts_.operations.receive_engine.recv_now(request); });
  }
  [[nodiscard]] Status peek(const PeekRequest& request) override {
    return parts_.operations.unexpected.peek(request);
  }
  [[nodiscard]] Status recv_claimed(const RecvRequest& request) override {
    return parts_.operations.unexpected.recv_claimed(request);
  }
  [[nodiscard]] Status discard_claimed(const Report& report) override {
    return parts_.operations.unexpected.discard_claimed(report);
  }
  [[nodiscard]] std::optional<TakenMessage> take_message() override {
    return parts_.operations.unexpected.take_message();
  }
  [[nodiscard]] Status recv_taken(void* handle, const RecvRequest& request) override {
    return parts_.operations.unexpected.recv_taken(handle, request);
  }
  void discard_taken(void* handle) override { parts_.operations.unexpected.discard_taken(handle); }
  [[nodiscard]] Status rma(const RmaRequest& request) override {
    return measured([&] { return parts_.operations.one_sided.rma_now(request); });
  }
  [[nodiscard]] Status atomic(const AtomicRequest& request) override {
    return measured([&] { return parts_.operations.atomic_engine.atomic_now(request); });
  }
  bool cancel(void* context) override { return parts_.operations.receive_engine.cancel(context); }
  void set_remote_access(const RemoteAccess& access) override {
    parts_.context.remote_access = access;
  }
  std::vector<TakenMessage> watch_unexpected(UnexpectedWatcher* watcher) override {
    return parts_.operations.unexpected.watch(watcher);
  }
  [[nodiscard]] MemoryDomain& memory() noexcept override { return *parts_.context.domain; }
  void forget_memory(const void* address, std::size_t length) override {
    parts_.registration.forget_memory(address, length);
  }
  void prepare_progress() const noexcept override;
  bool progress() override {
    return measured([this] { return parts_.progress_loop.progress_now(); });
  }
  [[nodiscard]] std::size_t inject_limit() const noexcept override { return kInjectLimit; }
  [[nodiscard]] std::size_t eager_limit() const noexcept override {
    return parts_.context.format.own_eager_size - parts_.context.format.stream_overhead;
  }
  [[nodiscard]] std::size_t max_message() const noexcept override { return std::size_t{1} << 40; }
  [[nodiscard]] EndpointReport report() const override { return parts_.reporter.report(); }
  // For tests, which say to a peer what no endpoint would.
  [[nodiscard]] Components& components() noexcept { return parts_; }

 private:
  EndpointParts parts_;
};

}  // namespace turnout
