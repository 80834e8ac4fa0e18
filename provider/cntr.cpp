// SPDX-License-Identifier: BSD-3-Clause
#include "provider/cntr.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "provider/data_path.h"
#include "provider/endpoint.h"
#include "provider/errors.h"
#include "provider/ops.h"

namespace turnout::provider {
namespace {

std::uint64_t read_value(fid_cntr* f) {
  Cntr& cntr = Cntr::of(f);
  bool others_first = false;
  // This call has no way to answer an error; the value is still right.
  static_cast<void>(contain([&] {
    const Guard guard(cntr.domain.lock);
    others_first = cntr.domain.read([&] {
      cntr.progress();
      cntr.tell_owner();
      const std::uint64_t before = std::exchange(cntr.read, cntr.counter.value.load());
      return cntr.read != before;
    });
    return 0;
  }));
  if (others_first) sched_yield();
  return cntr.counter.value.load(std::memory_order_acquire);
}

std::uint64_t read_errors(fid_cntr* f) {
  Cntr& cntr = Cntr::of(f);
  const std::uint64_t errors = cntr.counter.errors.load(std::memory_order_acquire);
  cntr.errors_read.store(errors);
  return errors;
}

// What waits for the counter starts in the call of the program that changes it.
int start_what_waits(Cntr& cntr) {
  if (!cntr.domain.work.waiting()) return 0;
  return contain([&] {
    const Guard guard(cntr.domain.lock);
    static_cast<void>(cntr.domain.work.start_due());
    return 0;
  });
}

template <auto kPart>
int add(fid_cntr* f, std::uint64_t value) {
  (Cntr::of(f).counter.*kPart).fetch_add(value);
  static_cast<void>(Cntr::of(f).tells_poll());  // the program knows
  return start_what_waits(Cntr::of(f));
}

// A value that was reached before counts, even if the new one is lower.
template <auto kPart>
int set(fid_cntr* f, std::uint64_t value) {
  if (const int error = start_what_waits(Cntr::of(f)); error != 0) return error;
  (Cntr::of(f).counter.*kPart).store(value);
  static_cast<void>(Cntr::of(f).tells_poll());  // the program knows
  return start_what_waits(Cntr::of(f));
}

// fi_cntr(3): until the value reaches the threshold, an error is counted, or the time is over.
int wait_value(fid_cntr* f, std::uint64_t threshold, int timeout) {
  using Clock = std::chrono::steady_clock;
  Cntr& cntr = Cntr::of(f);
  const Clock::time_point end = Clock::now() + std::chrono::milliseconds(std::max(timeout, 0));
  const std::uint64_t errors = cntr.counter.errors.load();
  for (;;) {
    const bool late = timeout >= 0 && Clock::now() >= end;
    if (read_value(f) >= threshold) return 0;
    if (cntr.counter.errors.load() != errors) return -FI_EAVAIL;
    if (late) return -FI_ETIMEDOUT;
    sched_yield();
  }
}

int control_counter(fid* f, int command, void* argument) {
  return WaitObject::control(Cntr::of(f).wait.get(), command, argument);
}

fi_ops cntr_fid_ops = object_ops(Cntr::close, kNotHere, control_counter);

fi_ops_cntr cntr_ops = {
    .size = sizeof(fi_ops_cntr),
    .read = read_value,
    .readerr = read_errors,
    .add = add<&Counter::value>,
    .set = set<&Counter::value>,
    .wait = wait_value,
    .adderr = add<&Counter::errors>,
    .seterr = set<&Counter::errors>,
};

}  // namespace

int Cntr::open(Domain& domain, fi_cntr_attr* attr, fid_cntr** cntr, void* context) {
  if (attr == nullptr || attr->events != FI_CNTR_EVENTS_COMP) return -FI_EINVAL;
  if ((attr->flags & ~FI_PEER) != 0) return -FI_EBADFLAGS;
  const auto* const peer =
      (attr->flags & FI_PEER) != 0 ? static_cast<const PeerCntrContext*>(context) : nullptr;
  if ((attr->flags & FI_PEER) != 0 &&
      (peer == nullptr || peer->size < sizeof *peer || peer->cntr == nullptr ||
       peer->cntr->owner_ops == nullptr || peer->cntr->owner_ops->size < sizeof(CntrOwnerOps))) {
    return -FI_EINVAL;
  }
  auto made = std::make_unique<Cntr>(domain);
  if (peer != nullptr) {
    made->owner = peer->cntr;
    const Guard guard(domain.lock);
    domain.peer_counters.push_back(made.get());
  }
  made->fid = {FI_CLASS_CNTR, context, &cntr_fid_ops};
  made->ops = &cntr_ops;
  if (const int error = domain.watch(*made, attr->wait_obj, attr->wait_set); error != 0)
    return error;
  *cntr = made.release();
  return 0;
}

Cntr::~Cntr() {
  assert(!in_use());
  wait.leave();
  domain.stop_watching(*this);
  if (owner == nullptr) return;
  const Guard guard(domain.lock);
  std::erase(domain.peer_counters, this);
}

void Cntr::progress() {
  domain.count_call();
  if (domain.work.waiting()) {
    domain.work.progress();
    return;
  }
  if (regions != 0) {  // which peers reach at all endpoints
    for (Ep* const ep : domain.endpoints) ep->path.progress();
    return;
  }
  for (DataPath* endpoint : endpoints) endpoint->progress();
}

}  // namespace turnout::provider
