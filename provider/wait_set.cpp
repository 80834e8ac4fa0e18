// SPDX-License-Identifier: BSD-3-Clause
#include "provider/wait_set.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "provider/cntr.h"
#include "provider/cq.h"
#include "provider/domain.h"
#include "provider/eq.h"
#include "provider/errors.h"
#include "provider/fabric.h"

namespace turnout::provider {
namespace {

// Calls judge(object, has_something) with the lock that guards the object, after some progress.
template <class Judge>
int look_at_member(::fid* object, Judge&& judge) {
  switch (object->fclass) {
    case FI_CLASS_CQ: {
      Cq& queue = Cq::of(object);
      const Guard guard(queue.domain.lock);
      if (queue.signals.load() == 0) queue.progress();
      return judge(queue, queue.signals.load() != 0 || queue.has_news());
    }
    case FI_CLASS_CNTR: {
      Cntr& counter = Cntr::of(object);
      const Guard guard(counter.domain.lock);
      counter.progress();
      return judge(counter, counter.has_news());
    }
    case FI_CLASS_EQ: {
      EventQueue& events = EventQueue::of(object);
      const std::lock_guard hold(events.mutex);
      return judge(events, events.has_news());
    }
    default:
      return -FI_ENOSYS;
  }
}

// A signal of fi_cq_signal wakes one wait.
template <class T>
void take_signal(T& object) noexcept {
  if constexpr (requires { object.signals; }) object.signals.store(0);
}

// -FI_EAGAIN: one of its members has something.
int look_at_members(WaitSet& set) {
  const std::lock_guard hold(set.mutex);
  for (::fid* const member : set.members) {
    const int answer = look_at_member(member, [](auto& object, bool something) {
      if (something) take_signal(object);
      return something ? -FI_EAGAIN : 0;
    });
    if (answer != 0) return answer;
  }
  return 0;
}

int wait_in_set(fid_wait* f, int timeout) {
  using Clock = std::chrono::steady_clock;
  WaitSet& set = WaitSet::of(f);
  return contain([&] {
    const Clock::time_point end = Clock::now() + std::chrono::milliseconds(std::max(timeout, 0));
    for (;;) {
      const bool late = timeout >= 0 && Clock::now() >= end;
      if (look_at_members(set) == -FI_EAGAIN) return 0;
      if (late) return -FI_ETIMEDOUT;
      sched_yield();
    }
  });
}

int close_wait_set(fid* f) {
  WaitSet& set = WaitSet::of(f);
  {
    const std::lock_guard hold(set.mutex);
    if (!set.members.empty()) return -FI_EBUSY;
  }
  delete &set;
  return 0;
}

int control_wait_set(fid* f, int command, void* argument) {
  return WaitObject::control(WaitSet::of(f).object.get(), command, argument);
}

fi_ops wait_set_fid_ops = object_ops(close_wait_set, kNotHere, control_wait_set);

fi_ops_wait wait_set_ops = {
    .size = sizeof(fi_ops_wait),
    .wait = wait_in_set,
};

}  // namespace

int may_wait_for(::fid* object) {
  if (object->fclass == FI_CLASS_WAIT) {
    WaitSet& set = WaitSet::of(object);
    if (set.object == nullptr) return -FI_EINVAL;
    set.object->clear();  // first: what comes while it looks is signalled again
    return look_at_members(set);
  }
  return look_at_member(object, [](auto& of, bool something) {
    if (!of.wait) return -FI_EINVAL;
    if (something) take_signal(of);
    if (something) return -FI_EAGAIN;
    if (!of.wait.in_set()) of.wait->clear();  // that of a set says that another one has something
    return 0;
  });
}

WaitSet::WaitSet(Fabric& owner) : fabric(owner) {
  fabric.references.fetch_add(1);
}
WaitSet::~WaitSet() {
  fabric.references.fetch_sub(1);
}

int WaitSet::open(Fabric& fabric, fi_wait_attr* attr, fid_wait** set) {
  if (attr == nullptr || attr->wait_obj == FI_WAIT_NONE || attr->wait_obj == FI_WAIT_SET)
    return -FI_EINVAL;
  if (attr->flags != 0) return -FI_EBADFLAGS;
  auto made = std::make_unique<WaitSet>(fabric);
  if (const int error = WaitObject::make(attr->wait_obj, made->object); error != 0) return error;
  made->fid = {FI_CLASS_WAIT, nullptr, &wait_set_fid_ops};
  made->ops = &wait_set_ops;
  *set = made.release();
  return 0;
}

int WaitHandle::open(const Fabric& fabric, fi_wait_obj kind, fid_wait* set, ::fid* member) {
  if (kind != FI_WAIT_SET) return WaitObject::make(kind, object_);
  if (set == nullptr || set->fid.fclass != FI_CLASS_WAIT) return -FI_EINVAL;
  WaitSet& joined = WaitSet::of(set);
  if (&joined.fabric != &fabric) return -FI_EINVAL;
  const std::lock_guard hold(joined.mutex);
  joined.members.push_back(member);
  object_ = joined.object;
  member_ = member;
  set_ = &joined;
  return 0;
}

void WaitHandle::leave() noexcept {
  if (set_ == nullptr) return;
  const std::lock_guard hold(set_->mutex);
  std::erase(set_->members, member_);
  set_ = nullptr;
}

}  // namespace turnout::provider
