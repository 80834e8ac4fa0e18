// SPDX-License-Identifier: BSD-3-Clause
// Protection domains, channels, completion queues, address handles.
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/log.h"
#include "hca/device/address_handle.h"
#include "hca/device/failed.h"
#include "hca/live/engine.h"
#include "hca/live/fork_guard.h"

namespace turnout::hca {
namespace {

void init_sync(pthread_mutex_t& mutex, pthread_cond_t& cond) {
  pthread_mutex_init(&mutex, nullptr);
  pthread_cond_init(&cond, nullptr);
}

}  // namespace

Pd* LiveEngine::alloc_pd(Context& context) {
  if (const int error = refuse_child(context); error != 0) return failed<Pd>(error);
  auto pd = std::make_unique<Pd>();
  pd->verbs.context = &context.verbs.context;
  pd->number = static_cast<std::uint32_t>(fabric_->header().next_pd.fetch_add(1));
  pd->verbs.handle = pd->number;
  ++context.users;
  return pd.release();
}

// Domains have no record: a handle that was given out may be of one that is gone, and then its
// regions and queue pairs are, too.
Pd* LiveEngine::import_pd(Context& context, std::uint32_t handle) {
  if (const int error = refuse_child(context); error != 0) return failed<Pd>(error);
  if (handle >= fabric_->header().next_pd.load()) return failed<Pd>(EINVAL);
  auto pd = std::make_unique<Pd>();
  pd->verbs.context = &context.verbs.context;
  pd->number = pd->verbs.handle = handle;
  ++context.users;
  return pd.release();
}

int LiveEngine::dealloc_pd(Pd& pd) {
  if (pd.users.load() != 0) return EBUSY;
  --context_of(pd.verbs.context).users;
  delete &pd;
  return 0;
}

Channel* LiveEngine::create_channel(Context& context) {
  if (const int error = refuse_child(context); error != 0) return failed<Channel>(error);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return failed<Channel>(errno);
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  struct stat st {};
  fstat(ends[1], &st);
  auto channel = std::make_unique<Channel>();
  channel->verbs.context = &context.verbs.context;
  channel->verbs.fd = ends[0];
  channel->verbs.refcnt = 0;
  channel->write = ends[1];
  channel->pipe = PipeRef{st.st_ino, ends[1], 0};
  ++context.users;
  return channel.release();
}

int LiveEngine::destroy_channel(Channel& channel) {
  if (channel.users.load() != 0) return EBUSY;
  ::close(channel.verbs.fd);
  ::close(channel.write);
  --context_of(channel.verbs.context).users;
  delete &channel;
  return 0;
}

Cq* LiveEngine::create_cq(Context& context, const ibv_cq_init_attr_ex& attr) {
  if (const int error = refuse_child(context); error != 0) return failed<Cq>(error);
  if (attr.cqe == 0 || attr.cqe > kMaxCqe || attr.comp_vector >= kCompletionVectors) {
    return failed<Cq>(EINVAL);
  }
  const std::uint32_t slots = std::bit_ceil(attr.cqe);
  const std::uint64_t ring = fabric_->allocate(slots * sizeof(Cqe));
  if (ring == 0) return failed<Cq>(ENOMEM);
  auto cq = std::make_unique<Cq>();
  auto* channel = reinterpret_cast<Channel*>(attr.channel);
  std::uint32_t index = kMaxCqs;
  {
    const TableGuard guard(*fabric_);
    Header& h = fabric_->header();
    for (std::uint32_t n = 0; n < kMaxCqs; ++n) {
      const std::uint32_t at = (slot_of(fabric_->me()) * 16 + n) % kMaxCqs;
      if (fabric_->cq(at).owner.load(std::memory_order_acquire) == 0) {
        index = at;
        break;
      }
    }
    if (index < kMaxCqs) {
      if (h.cq_high.load() < index + 1) h.cq_high.store(index + 1);
      CqRecord& r = fabric_->cq(index);
      const SharedGuard lock(*fabric_, r.lock);
      r.owner.store(fabric_->me(), std::memory_order_release);
      ++r.generation;
      r.slots = slots;
      r.ring = ring;
      r.tail = r.head_seen = 0;
      r.head.store(0, std::memory_order_relaxed);
      r.pusher.store(0, std::memory_order_relaxed);
      r.has_channel = channel != nullptr;
      r.timestamps = (attr.wc_flags & (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                                       IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)) != 0;
      r.cookie = reinterpret_cast<std::uint64_t>(cq.get());
      r.armed.store(Armed::no, std::memory_order_relaxed);
      r.overflowed.store(0, std::memory_order_relaxed);
      r.channel = channel != nullptr ? channel->pipe : PipeRef{};
      r.async = context.async;
      r.phase.store(ObjectPhase::live, std::memory_order_release);
    }
  }
  if (index == kMaxCqs) {
    fabric_->release(ring, slots * sizeof(Cqe));
    return failed<Cq>(ENOMEM);
  }
  cq->index = index;
  cq->record = &fabric_->cq(index);
  cq->own_ring = {ring, slots * sizeof(Cqe)};
  cq->ring = static_cast<Cqe*>(fabric_->heap(ring, slots * sizeof(Cqe)));
  cq->mask = slots - 1;
  set_next(*cq);
  cq->single_threaded = (attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 &&
                        (attr.flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0;
  ibv_cq_ex& v = cq->verbs;
  v.context = &context.verbs.context;
  v.channel = attr.channel;
  v.cq_context = attr.cq_context;
  v.handle = index;
  v.cqe = static_cast<int>(slots);
  init_sync(v.mutex, v.cond);
  if (channel != nullptr) {
    const std::uint32_t queues = ++channel->users;
    ++channel->verbs.refcnt;
    // One record for each armed CQ may wait. Enlarged only when needed: the system limits the sum
    // of a user's pipes.
    const auto bytes = static_cast<int>(queues * sizeof(EventRecord));
    if (fcntl(channel->write, F_GETPIPE_SZ) < bytes) {
      fcntl(channel->write, F_SETPIPE_SZ, 2 * bytes);
    }
  }
  ++context.users;
  const std::lock_guard lock(objects_mutex_);
  cqs_[index] = cq.get();
  return cq.release();
}

int LiveEngine::resize_cq(Cq& cq, int entries) {
  if (const int error = refuse_child(context_of(cq.verbs.context)); error != 0) return error;
  if (entries <= 0 || static_cast<std::uint32_t>(entries) > kMaxCqe) return EINVAL;
  const std::uint64_t slots = std::bit_ceil(static_cast<std::uint32_t>(entries));
  const std::uint64_t ring = fabric_->allocate(slots * sizeof(Cqe));
  if (ring == 0) return ENOMEM;
  auto* fresh = static_cast<Cqe*>(fabric_->heap(ring, slots * sizeof(Cqe)));
  OwnRing old{};
  {
    const std::lock_guard poll(cq.poll_lock);
    CqRecord& r = *cq.record;
    const SharedGuard guard(*fabric_, r.lock);
    fabric_->repair(r);
    std::uint64_t tail = r.tail;
    while (cq.ring[tail & cq.mask].sequence.load(std::memory_order_relaxed) == tail + 1) ++tail;
    r.tail = tail;
    if (tail - cq.head > slots) {
      old = {ring, slots * sizeof(Cqe)};  // does not fit: give the new one back
    } else {
      for (std::uint64_t p = cq.head; p < tail; ++p) {
        std::memcpy(static_cast<void*>(&fresh[p & (slots - 1)]), &cq.ring[p & cq.mask],
                    sizeof(Cqe));
      }
      old = cq.own_ring;
      cq.own_ring = {ring, slots * sizeof(Cqe)};
      r.ring = ring;
      r.slots = static_cast<std::uint32_t>(slots);
      cq.ring = fresh;
      cq.mask = slots - 1;
      set_next(cq);
      cq.verbs.cqe = static_cast<int>(slots);
    }
  }
  fabric_->release(old.offset, old.bytes);
  return old.offset == ring ? EINVAL : 0;
}

int LiveEngine::destroy_cq(Cq& cq) {
  if (const int error = refuse_child(context_of(cq.verbs.context)); error != 0) return error;
  if (cq.users.load() != 0) return EBUSY;
  std::uint32_t comp_read = 0, async_read = 0;
  {
    const std::lock_guard lock(objects_mutex_);
    cqs_.erase(cq.index);  // from here on its events are not handed out any more
    comp_read = cq.comp_events_read;
    async_read = cq.async_events_read;
  }
  pthread_mutex_lock(&cq.verbs.mutex);
  while (cq.verbs.comp_events_completed != comp_read ||
         cq.verbs.async_events_completed != async_read) {
    pthread_cond_wait(&cq.verbs.cond, &cq.verbs.mutex);
  }
  pthread_mutex_unlock(&cq.verbs.mutex);
  CqRecord& r = *cq.record;
  {
    const SharedGuard guard(*fabric_, r.lock);
    r.phase.store(ObjectPhase::free, std::memory_order_release);
    r.slots = 0;
  }
  fabric_->release(cq.own_ring.offset, cq.own_ring.bytes);
  r.owner.store(0, std::memory_order_release);
  if (auto* channel = reinterpret_cast<Channel*>(cq.verbs.channel)) {
    --channel->verbs.refcnt;
    --channel->users;
  }
  --context_of(cq.verbs.context).users;
  delete &cq;
  return 0;
}

bool LiveEngine::names_this_port(const ibv_ah_attr& attr, const Context& context) const noexcept {
  if (attr.dlid != 0 && attr.dlid != kLid) return false;
  if (attr.is_global == 0) return attr.dlid == kLid;
  const auto* device = reinterpret_cast<const Device*>(context.verbs.context.device);
  const std::uint64_t prefix = htobe64(0xfe80'0000'0000'0000ULL), guid = htobe64(device->guid);
  return attr.grh.dgid.global.subnet_prefix == prefix && attr.grh.dgid.global.interface_id == guid;
}

Ah* LiveEngine::create_ah(Pd& pd, const ibv_ah_attr& attr) {
  Context& context = context_of(pd.verbs.context);
  if (const int error = refuse_child(context); error != 0) return failed<Ah>(error);
  return make_address_handle(pd, attr, names_this_port(attr, context));
}

int LiveEngine::destroy_ah(Ah& ah) {
  destroy_address_handle(ah);
  return 0;
}

}  // namespace turnout::hca
