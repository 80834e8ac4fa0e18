// SPDX-License-Identifier: BSD-3-Clause
// Ep: the record of a reliable datagram endpoint, with what its calls need to record an operation.
//
// Providers choose the tables of calls when an endpoint is enabled; ours (calls.h) take their place
// then. A scalable endpoint has no messages of its own: those of its contexts are recorded.
//
// Owned as every Object. The address vector and the completion queues are borrowed: libfabric has
// them outlive the endpoint. One thread sets it up; calls come from any. Sizes are bytes. Errors:
// the status of the provider's own call. Source: fi_endpoint(3).
#pragma once

#include <rdma/fi_atomic.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <cstdint>
#include <utility>

#include "record/libfabric/av.h"
#include "record/libfabric/cq.h"
#include "record/libfabric/object.h"
#include "record/libfabric/table.h"
#include "record/recorder.h"

namespace turnout::record::libfabric {

class Ep final : public Object {
 public:
  // Attributes may be null. `directed`: receives name their source (FI_DIRECTED_RECV). `whole`: of
  // a context, the scalable endpoint that it is a part of.
  Ep(fid_ep* endpoint, const fi_tx_attr* transmit, const fi_rx_attr* receive, bool directed,
     bool scalable, Ep* whole = nullptr);

  // Whom a call is for, and how it refers to its operation.
  struct Call {
    fi_addr_t peer;
    std::uint64_t flags;
    void* context;
  };
  // Of a call without flags of its own.
  [[nodiscard]] Call sends(fi_addr_t peer, void* context) const noexcept {
    return {peer, transmit_flags_, context};
  }
  [[nodiscard]] Call receives(fi_addr_t peer, void* context) const noexcept {
    return {peer, receive_flags_, context};
  }
  // Of a call without a context.
  [[nodiscard]] static Call injects(fi_addr_t peer) noexcept { return {peer, kInjected, nullptr}; }

  // Each starts an operation by `post`, the provider's own call, and records it.
  template <class Post>
  ssize_t send(bool tagged, std::uint64_t bytes, std::uint64_t tag, const Call& call, Post&& post) {
    Operation operation{.kind = Operation::Kind::send, .tagged = tagged};
    operation.bytes = bytes;
    operation.tag = tag;
    return start(operation, transmit_queue(call.flags), call, std::forward<Post>(post));
  }
  template <class Post>
  ssize_t receive(bool tagged, std::uint64_t bytes, std::uint64_t tag, bool any_tag, Call call,
                  Post&& post) {
    Operation operation{.kind = Operation::Kind::receive, .any_tag = any_tag, .tagged = tagged};
    operation.bytes = bytes;
    operation.tag = tag;
    describe_receive(&operation, &call);
    return start(operation, receive_queue(call.flags), call, std::forward<Post>(post));
  }
  template <class Post>
  ssize_t access(bool put, std::uint64_t bytes, const Call& call, Post&& post) {
    Operation operation{.kind = put ? Operation::Kind::put : Operation::Kind::get};
    operation.bytes = bytes;
    return start(operation, transmit_queue(call.flags), call, std::forward<Post>(post));
  }

  // The provider's own calls.
  [[nodiscard]] const fi_ops_msg& msg() const noexcept { return *msg_.real(); }
  [[nodiscard]] const fi_ops_tagged& tagged() const noexcept { return *tagged_.real(); }
  [[nodiscard]] const fi_ops_rma& rma() const noexcept { return *rma_.real(); }
  [[nodiscard]] const fi_ops_atomic& atomic() const noexcept { return *atomic_.real(); }

 private:
  // No flag of libfabric.
  static constexpr std::uint64_t kInjected = std::uint64_t{1} << 63;

  static Ep& of(const ::fid* endpoint) noexcept { return static_cast<Ep&>(Object::of(*endpoint)); }
  static int bind(::fid* endpoint, ::fid* other, std::uint64_t flags);
  static int control(::fid* endpoint, int command, void* argument);
  static int tx_ctx(fid_ep* ep, int index, fi_tx_attr* attr, fid_ep** made, void* context);
  static int rx_ctx(fid_ep* ep, int index, fi_rx_attr* attr, fid_ep** made, void* context);

  template <class Use>
  void each_table(Use&& use) noexcept;
  void take() noexcept override;
  void restore() noexcept override;
  void enabled();

  // The queue that an operation completes in; null: it has no entry there.
  [[nodiscard]] Cq* transmit_queue(std::uint64_t flags) const noexcept;
  [[nodiscard]] Cq* receive_queue(std::uint64_t flags) const noexcept;
  [[nodiscard]] bool has_receive_entry(std::uint64_t flags) const noexcept;
  void describe_receive(Operation* operation, Call* call) const noexcept;

  template <class Post>
  ssize_t start(Operation operation, Cq* queue, const Call& how, Post&& post) {
    const Recorder::Call call(Recorder::get());
    if (call.recorder() == nullptr) return post();
    posting(*call.recorder(), &operation, queue, how);
    const ssize_t status = post();
    posted(*call.recorder(), &operation, queue, how, status);
    return status;
  }
  void posting(Recorder& recorder, Operation* operation, Cq* queue, const Call& how);
  static void posted(Recorder& recorder, Operation* operation, Cq* queue, const Call& how,
                     ssize_t status);

  fid_ep* const fid_;
  const std::uint64_t transmit_flags_, receive_flags_;
  bool transmit_selective_ = false, receive_selective_ = false;
  const bool directed_;
  bool taken_ = false;  // the tables of calls
  const bool scalable_;
  Ep* const whole_;
  Av* av_ = nullptr;
  Cq *transmits_ = nullptr, *receives_ = nullptr;
  Table<fi_ops_msg> msg_;
  Table<fi_ops_tagged> tagged_;
  Table<fi_ops_rma> rma_;
  Table<fi_ops_atomic> atomic_;
  Table<fi_ops_ep> scalable_calls_;
};

}  // namespace turnout::record::libfabric
