// SPDX-License-Identifier: BSD-3-Clause
#include "record/libfabric/endpoint.h"

#include <rdma/fi_cm.h>

#include <array>
#include <span>

#include "record/libfabric/address_name.h"
#include "record/libfabric/calls.h"

namespace turnout::record::libfabric {

Ep::Ep(fid_ep* endpoint, const fi_tx_attr* transmit, const fi_rx_attr* receive, bool directed,
       bool scalable, Ep* whole)
    : Object(endpoint->fid),
      fid_(endpoint),
      transmit_flags_(transmit != nullptr ? transmit->op_flags : 0),
      receive_flags_(receive != nullptr ? receive->op_flags : 0),
      directed_(directed),
      scalable_(scalable),
      whole_(whole) {
  general_.replace(&fi_ops::bind, &Ep::bind);
  general_.replace(&fi_ops::control, &Ep::control);
  if (scalable) {
    scalable_calls_.copy(endpoint->ops, this);
    scalable_calls_.replace(&fi_ops_ep::tx_ctx, &Ep::tx_ctx);
    scalable_calls_.replace(&fi_ops_ep::rx_ctx, &Ep::rx_ctx);
  }
  take();
}

int Ep::tx_ctx(fid_ep* ep, int index, fi_tx_attr* attr, fid_ep** made, void* context) {
  Ep& self = owner_of<Ep>(ep->ops);
  const Recorder::Call call(Recorder::get());
  const int status = self.scalable_calls_.real()->tx_ctx(ep, index, attr, made, context);
  if (status == 0 && call.recorder() != nullptr)
    new Ep(*made, attr, nullptr, self.directed_, false, &self);
  return status;
}

int Ep::rx_ctx(fid_ep* ep, int index, fi_rx_attr* attr, fid_ep** made, void* context) {
  Ep& self = owner_of<Ep>(ep->ops);
  const Recorder::Call call(Recorder::get());
  const int status = self.scalable_calls_.real()->rx_ctx(ep, index, attr, made, context);
  if (status == 0 && call.recorder() != nullptr)
    new Ep(*made, nullptr, attr, self.directed_, false, &self);
  return status;
}

int Ep::bind(::fid* endpoint, ::fid* other, std::uint64_t flags) {
  Ep& self = of(endpoint);
  const int status = self.general_.real()->bind(endpoint, other, flags);
  if (status != 0 || !observes(*other)) return status;
  if (other->fclass == FI_CLASS_AV) {
    self.av_ = static_cast<Av*>(&Object::of(*other));
  } else if (other->fclass == FI_CLASS_CQ) {
    Cq* const queue = static_cast<Cq*>(&Object::of(*other));
    const bool selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
    if ((flags & FI_TRANSMIT) != 0) {
      self.transmits_ = queue;
      self.transmit_selective_ = selective;
    }
    if ((flags & FI_RECV) != 0) {
      self.receives_ = queue;
      self.receive_selective_ = selective;
    }
  }
  return status;
}

int Ep::control(::fid* endpoint, int command, void* argument) {
  Ep& self = of(endpoint);
  const Recorder::Call call(Recorder::get());
  const int status = self.general_.real()->control(endpoint, command, argument);
  if (status == 0 && command == FI_ENABLE) self.enabled();
  return status;
}

void Ep::enabled() {
  Recorder* const recorder = Recorder::get();
  if (recorder == nullptr) return;
  std::array<std::byte, kLongestAddress> name;
  std::size_t length = name.size();
  if (whole_ == nullptr && fi_getname(&fid_->fid, name.data(), &length) == 0 &&
      length <= name.size()) {
    const auto lock = recorder->guard();
    recorder->own_name(name_of_address(std::span(name).first(length)));
  }
  if (scalable_ || taken_) return;
  msg_.copy(fid_->msg, this);
  tagged_.copy(fid_->tagged, this);
  rma_.copy(fid_->rma, this);
  atomic_.copy(fid_->atomic, this);
  replace_calls(&msg_);
  replace_calls(&tagged_);
  replace_calls(&rma_);
  replace_calls(&atomic_);
  taken_ = true;
  take();
}

// Each table that was copied, with the field of the object that holds it.
template <class Use>
void Ep::each_table(Use&& use) noexcept {
  use(general_, &fid_->fid.ops);
  if (scalable_) use(scalable_calls_, &fid_->ops);
  if (!taken_) return;
  use(msg_, &fid_->msg);
  use(tagged_, &fid_->tagged);
  use(rma_, &fid_->rma);
  use(atomic_, &fid_->atomic);
}

void Ep::take() noexcept {
  each_table([](auto& table, auto** field) { table.take(field); });
}

void Ep::restore() noexcept {
  each_table([](auto& table, auto** field) { table.restore(field); });
}

Cq* Ep::transmit_queue(std::uint64_t flags) const noexcept {
  const bool has_entry =
      (flags & kInjected) == 0 && (!transmit_selective_ || (flags & FI_COMPLETION) != 0);
  return has_entry ? transmits_ : nullptr;
}

bool Ep::has_receive_entry(std::uint64_t flags) const noexcept {
  return !receive_selective_ || (flags & FI_COMPLETION) != 0;
}

Cq* Ep::receive_queue(std::uint64_t flags) const noexcept {
  return has_receive_entry(flags) ? receives_ : nullptr;
}

void Ep::describe_receive(Operation* operation, Call* call) const noexcept {
  using enum Operation::Kind;
  if ((call->flags & FI_MULTI_RECV) != 0) operation->kind = receive_many;
  // A look, or a message that goes unread: its receive is the one that takes it.
  if ((call->flags & (FI_PEEK | FI_DISCARD)) != 0) operation->kind = other;
  const bool claims = (call->flags & FI_CLAIM) != 0;  // what it asks for was said before
  if (!directed_ || claims) call->peer = FI_ADDR_UNSPEC;
  if (claims) operation->any_tag = operation->tagged;
  if (!has_receive_entry(call->flags)) operation->kind = other;  // nobody says what it got
}

void Ep::posting(Recorder& recorder, Operation* operation, Cq* queue, const Call& how) {
  Av* const av = whole_ != nullptr ? whole_->av_ : av_;
  if (av != nullptr) operation->peer = av->peer(recorder, how.peer);
  const auto lock = recorder.guard();
  recorder.number(operation);
  // Before it starts: another thread may read its completion before this one comes back.
  if (queue != nullptr) queue->pending().add(how.context, {*operation, av});
}

void Ep::posted(Recorder& recorder, Operation* operation, Cq* queue, const Call& how,
                ssize_t status) {
  const auto lock = recorder.guard();
  if (queue == nullptr) {
    if (status >= 0) recorder.ended(operation);
    return;
  }
  PendingOperation* const found = queue->pending().find(how.context, operation->number);
  if (found == nullptr) return;  // it has ended
  if (status < 0) {
    queue->pending().erase(how.context, found);
  } else {
    recorder.started(&found->operation);
  }
}

}  // namespace turnout::record::libfabric
