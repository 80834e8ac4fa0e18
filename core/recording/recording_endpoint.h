// SPDX-License-Identifier: BSD-3-Clause
// RecordingEndpoint: an endpoint that records the operations of the layer above, for TURNOUT_TRACE.
// It wraps the real endpoint; without the setting it is absent and costs nothing.
//
// It gives operations its own completion queue to observe their completions, then forwards these.
// Same owner, threads and errors as the wrapped endpoint.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>

#include "core/endpoint.h"
#include "core/recording/recording_file.h"

namespace turnout {

class RecordingEndpoint final : public Endpoint {
 public:
  // In virtual time the clock tells how long the program computes. Otherwise it is the processor
  // time of the calling thread.
  RecordingEndpoint(std::unique_ptr<Endpoint> endpoint, const std::string& setting, Clock& clock,
                    bool in_virtual_time);
  ~RecordingEndpoint() override;

  [[nodiscard]] const Address& address() const noexcept override { return endpoint_->address(); }
  [[nodiscard]] Result<PeerId> peer(const Address& address) override {
    return endpoint_->peer(address);
  }
  [[nodiscard]] Address peer_address(PeerId peer) const noexcept override {
    return endpoint_->peer_address(peer);
  }
  void expect_peers(std::size_t count) override { endpoint_->expect_peers(count); }
  [[nodiscard]] Status send(const SendRequest& request) override;
  [[nodiscard]] Status recv(const RecvRequest& request) override;
  [[nodiscard]] Status peek(const PeekRequest& request) override;
  [[nodiscard]] Status recv_claimed(const RecvRequest& request) override;
  [[nodiscard]] Status discard_claimed(const Report& report) override;
  [[nodiscard]] Status rma(const RmaRequest& request) override;
  [[nodiscard]] Status atomic(const AtomicRequest& request) override;
  bool cancel(void* context) override;
  void set_remote_write_report(const Report& report) override {
    endpoint_->set_remote_write_report(report);
  }
  [[nodiscard]] MemoryDomain& memory() noexcept override { return endpoint_->memory(); }
  void forget_memory(const void* address, std::size_t length) override {
    endpoint_->forget_memory(address, length);
  }
  bool close() override { return endpoint_->close(); }
  void abandon() noexcept override { endpoint_->abandon(); }
  [[nodiscard]] Nanoseconds next_deadline() const noexcept override {
    return endpoint_->next_deadline();
  }
  bool progress() override;
  [[nodiscard]] EndpointReport report() const override { return endpoint_->report(); }
  [[nodiscard]] std::size_t inject_limit() const noexcept override {
    return endpoint_->inject_limit();
  }
  [[nodiscard]] std::size_t eager_limit() const noexcept override {
    return endpoint_->eager_limit();
  }
  [[nodiscard]] std::size_t max_message() const noexcept override {
    return endpoint_->max_message();
  }

 private:
  struct Operation {
    Report report;  // of the layer above
    std::uint32_t request = 0;
    bool receives = false;
    bool multi = false;
    bool tagged = false;
    std::list<Operation>::iterator self;
  };
  class Visit;  // a call from the layer above: what lies between two is the program's

  [[nodiscard]] Nanoseconds time() const noexcept;  // of what the program computes
  [[nodiscard]] Nanoseconds age() noexcept { return clock_.now() - born_; }
  void write_computed();
  static Operation& begin(std::list<Operation>* operations, const Report& report);
  template <class Request>
  [[nodiscard]] Status start(const Request& request, Status (Endpoint::*call)(const Request&),
                             const std::function<void(Nanoseconds, std::uint32_t)>& write);
  [[nodiscard]] Report own_report(Operation& operation) noexcept;
  template <class Of>
  void drain(CompletionQueue& queue, std::list<Operation>& operations, Of&& of);
  void hand_on();
  void hand_on(Operation& operation, Completion& completion);
  void hand_on_error(Operation& operation, ErrorCompletion& completion);
  void write_match(const Operation& operation, const Completion& completion, std::uint64_t bytes);
  [[nodiscard]] std::uint32_t next_request() noexcept;

  std::unique_ptr<Endpoint> endpoint_;
  RecordingFile file_;
  Clock& clock_;
  Nanoseconds born_;
  bool virtual_;
  CompletionQueue ended_;
  CompletionQueue* announcement_errors_ = nullptr;  // of what a write with data tells its target
  CompletionQueue claimed_ended_;    // contexts are the layer above's: they name what it claimed
  std::list<Operation> operations_;  // newest last
  std::list<Operation> claimed_;     // receives of claimed messages
  std::uint32_t last_request_ = 0;
  Nanoseconds left_ = -1;     // when the last call ended, -1: there was none
  std::uint64_t thread_ = 0;  // that made it
  Nanoseconds computed_ = 0;  // since the last event
};

}  // namespace turnout
