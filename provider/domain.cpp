// SPDX-License-Identifier: BSD-3-Clause
#include "provider/domain.h"

#include <rdma/fi_atomic.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "base/log.h"
#include "provider/av.h"
#include "provider/cntr.h"
#include "provider/cq.h"
#include "provider/endpoint.h"
#include "provider/eq.h"
#include "provider/errors.h"
#include "provider/info.h"
#include "provider/peer_receives.h"
#include "provider/poll_set.h"
#include "provider/profile.h"
#include "provider/shared_receives.h"

namespace turnout::provider {
namespace {

// Of the progress thread, where no setting says it: as long as a few messages take.
constexpr Nanoseconds kUsualSilence = 20'000;

int bind_domain(fid* f, fid* other, std::uint64_t flags) {
  if (other->fclass != FI_CLASS_EQ) return -FI_EINVAL;
  if ((flags & FI_REG_MR) != 0) return -FI_EOPNOTSUPP;  // registration is never asynchronous here
  Domain::of(f).events = &EventQueue::of(other);
  return 0;
}

template <class Object, class Attr, class Fid>
int open(fid_domain* f, Attr* attr, Fid** made, void* context) {
  return contain([&] { return Object::open(Domain::of(f), attr, made, context); });
}

int query_atomic(fid_domain* f, fi_datatype type, fi_op op, fi_atomic_attr* attr,
                 std::uint64_t flags) {
  return Domain::of(f).atomics ? describe_atomic(type, op, flags, attr) : -FI_EOPNOTSUPP;
}

int open_poll_set(fid_domain* f, fi_poll_attr* attr, fid_poll** set) {
  return contain([&] { return PollSet::open(Domain::of(f), attr, set); });
}

int open_receives(fid_domain* f, fi_rx_attr* attr, fid_ep** made, void* context) {
  const bool of_peer = attr != nullptr && (attr->op_flags & FI_PEER) != 0;
  return of_peer ? open<PeerReceives>(f, attr, made, context)
                 : open<SharedReceives>(f, attr, made, context);
}

int open_endpoint2(fid_domain* f, fi_info* info, fid_ep** ep, std::uint64_t flags, void* context) {
  if (flags != 0) return -FI_EOPNOTSUPP;  // FI_PEER: objects of other providers
  return open<Ep>(f, info, ep, context);
}

fi_ops domain_fid_ops =
    object_ops(close_unreferenced<Domain>, bind_domain, control_work, Profile::open);

fi_ops_domain domain_ops = {
    .size = sizeof(fi_ops_domain),
    .av_open = open<AddressVector>,
    .cq_open = open<Cq>,
    .endpoint = open<Ep>,
    .scalable_ep = kNotHere,
    .cntr_open = open<Cntr>,
    .poll_open = open_poll_set,
    .stx_ctx = kNotHere,
    .srx_ctx = open_receives,
    .query_atomic = query_atomic,
    .query_collective = kNotSupported,
    .endpoint2 = open_endpoint2,
};

}  // namespace

int Domain::open(Fabric& fabric, fi_info* info, fid_domain** domain, void* context) {
  const Result<Settings>& settings = process_settings();
  if (!settings.ok()) return -FI_ENODATA;  // logged when they were read
  if (info == nullptr || info->domain_attr == nullptr) return -FI_EINVAL;
  const fi_domain_attr& attr = *info->domain_attr;
  if (attr.name != nullptr && "turnout-" + settings.value().device != attr.name) {
    TURNOUT_LOG(provider, warn,
                "fi_domain failed: domain {}: not found; use turnout-{}, or change TURNOUT_DEVICE",
                attr.name, settings.value().device);
    return -FI_ENODATA;
  }
  auto made = std::make_unique<Domain>(fabric);
  made->fid = {FI_CLASS_DOMAIN, context, &domain_fid_ops};
  made->ops = &domain_ops;
  made->mr = &region_ops();
  made->api = fabric.api_version;
  made->atomics = info->caps == 0 || (info->caps & FI_ATOMIC) != 0;
  made->format = AddressFormat(info->addr_format);
  made->remote_events = (info->caps & FI_RMA_EVENT) != 0;
  const Nanoseconds silence = settings.value().progress_thread;
  made->automatic = attr.data_progress == FI_PROGRESS_AUTO;
  const bool thread = silence > 0 || made->automatic;
  made->lock = attr.threading == FI_THREAD_DOMAIN && !thread ? nullptr : &made->domain_lock;
  if (thread) {
    made->progress_thread =
        std::make_unique<ProgressThread>(*made, silence > 0 ? silence : kUsualSilence);
  }
  *domain = made.release();
  return 0;
}

template <class Watched>
int Domain::watch(std::vector<Watched*>& watched, Watched& object, fi_wait_obj wait,
                  fid_wait* set) {
  if (const int error = object.wait.open(fabric, wait, set, &object.fid); error != 0) return error;
  if (!object.wait) return 0;
  // Made without the domain's lock, which comes after those of fork().
  const std::lock_guard one(thread_mutex_);
  std::unique_ptr<ProgressThread> made;
  if (progress_thread == nullptr) made = std::make_unique<ProgressThread>(*this, kUsualSilence);
  // Without one the program serializes its calls: nobody is within the domain.
  if (lock == nullptr) lock = &domain_lock;
  const Guard guard(lock);
  if (made != nullptr) progress_thread = std::move(made);
  watched.push_back(&object);
  ++watched_;
  const bool enabled =
      std::any_of(endpoints.begin(), endpoints.end(), [](const Ep* ep) { return ep->enabled; });
  const int error = enabled ? start_thread() : 0;
  if (error != 0) watched_ -= std::erase(watched, &object);
  return error;
}

int Domain::watch(Cq& queue, fi_wait_obj wait, fid_wait* set) {
  return watch(watched_queues_, queue, wait, set);
}
int Domain::watch(Cntr& counter, fi_wait_obj wait, fid_wait* set) {
  return watch(watched_counters_, counter, wait, set);
}

int Domain::start_thread() {
  if (progress_thread == nullptr || progress_thread->start() || !needs_thread()) return 0;
  TURNOUT_LOG(
      provider, error,
      "starting the progress thread failed: FI_PROGRESS_AUTO and wait objects need it; raise "
      "the limit on threads");
  return -FI_ENOMEM;
}

void Domain::stop_watching(Cq& queue) noexcept {
  if (!queue.wait) return;
  const Guard guard(lock);
  watched_ -= std::erase(watched_queues_, &queue);
}
void Domain::stop_watching(Cntr& counter) noexcept {
  if (!counter.wait) return;
  const Guard guard(lock);
  watched_ -= std::erase(watched_counters_, &counter);
}

void Domain::signal_waiters() noexcept {
  for (Cq* queue : watched_queues_) {
    if (queue->has_news() || queue->signals.load() != 0) queue->wait->signal();
  }
  for (Cntr* counter : watched_counters_) {
    if (counter->has_news()) counter->wait->signal();
  }
}

Result<std::shared_ptr<MemoryDomain>> Domain::memory() {
  assert(process_settings().ok());  // or there is no domain
  if (memory_ == nullptr) {
    auto opened = MemoryDomain::open(process_settings().value());
    if (!opened.ok()) {
      TURNOUT_LOG(provider, error,
                  "opening the device failed: domain turnout-{}: {}; run `turnout doctor`",
                  process_settings().value().device, opened.status().text());
      return opened;
    }
    memory_ = std::move(opened).value();
  }
  return memory_;
}

}  // namespace turnout::provider
