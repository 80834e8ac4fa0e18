// SPDX-License-Identifier: BSD-3-Clause
#include "provider/peer_cq.h"

#include <sched.h>

#include "provider/cntr.h"
#include "provider/cq.h"
#include "provider/errors.h"
#include "provider/ops.h"
#include "provider/peer_receives.h"

namespace turnout::provider {

fi_ops_cq PeerCq::ops = {
    .size = sizeof(fi_ops_cq),
    .read = [](fid_cq* f, void*, std::size_t) -> ssize_t {
      return contain([&]() -> ssize_t {
        Cq& queue = Cq::of(f);
        queue.peer->drive(queue);
        return -FI_EAGAIN;
      });
    },
    .readfrom = kNotHere,
    .readerr = kNotHere,
    .sread = kNotHere,
    .sreadfrom = kNotHere,
    .signal = kNotHere,
    .strerror =
        [](fid_cq*, int number, const void*, char* buffer, std::size_t length) {
          return put_text(provider_error_text(number), buffer, length);
        },
};

int PeerCq::check(const fi_cq_attr& attr, const void* context) noexcept {
  const auto* const given = static_cast<const fi_peer_cq_context*>(context);
  if (given == nullptr || given->size < sizeof *given || given->cq == nullptr ||
      given->cq->owner_ops == nullptr || given->cq->owner_ops->size < sizeof(fi_ops_cq_owner)) {
    return -FI_EINVAL;
  }
  // Who waits waits for the owner's queue.
  return attr.wait_obj == FI_WAIT_NONE || attr.wait_obj == FI_WAIT_UNSPEC ? 0 : -FI_ENOSYS;
}

void PeerCq::drive(Cq& queue) {
  if (busy_.exchange(true)) return;  // another thread does, or the owner within a call of ours
  struct Idle {
    std::atomic<bool>& busy;
    ~Idle() { busy = false; }
  } const idle{busy_};
  bool others_first = false;
  {
    const Guard guard(queue.domain.lock);
    queue.domain.count_call();
    others_first = queue.domain.read([&] {
      bool moved = false;
      for (auto& source : queue.sources) {
        if (source->endpoint != nullptr) moved |= source->endpoint->progress();
      }
      return moved || queue.has_news();
    });
  }
  if (others_first) sched_yield();
  PeerReceives::hand_over(queue);
  bool has_room = true;
  do {
    while (!ended_.empty() && (has_room = tell(ended_.front()))) ended_.pop_front();
  } while (has_room && take(queue));
  const Guard guard(queue.domain.lock);
  for (Cntr* const counter : queue.domain.peer_counters) counter->tell_owner();
}

void PeerCq::forget(const PeerReceives& receives) noexcept {
  for (Ended& ended : ended_) {
    if (ended.receives == &receives) ended.receive = nullptr;
  }
}

// Some of what the core has reported; false: there is nothing.
bool PeerCq::take(Cq& queue) {
  constexpr std::size_t kAtOnce = 64;
  const Guard guard(queue.domain.lock);
  for (auto& source : queue.sources) {
    CompletionQueue& from = source->queue;
    while (ended_.size() < kAtOnce && (from.size() != 0 || from.has_error())) {
      Ended& ended = ended_.emplace_back();
      ended.failed = from.size() == 0;
      ErrorCompletion c;
      if (ended.failed) {
        c = from.pop_error();
      } else {
        static_cast<Completion&>(c) = from.front();
        from.pop();
      }
      DataPath* const endpoint = source->endpoint;
      write_error_entry(ended.entry.base, c);
      ended.entry.src_addr = source->name_of(c.source);
      if (endpoint != nullptr && endpoint->receives != nullptr && (c.flags & kRecv) != 0) {
        ended.receives = endpoint->receives;
        ended.receive = static_cast<PeerRxEntry*>(c.context);
        ended.entry.base.op_context = ended.receive->context;
      }
    }
  }
  return !ended_.empty();
}

// False: the owner has no room now.
bool PeerCq::tell(const Ended& ended) {
  const fi_cq_err_entry& entry = ended.entry.base;
  ssize_t answer = 0;
  if (ended.failed) {
    answer = owner_.owner_ops->writeerr(&owner_, &entry);
  } else if (ended.receive == nullptr || PeerReceives::reports(*ended.receive)) {
    answer = owner_.owner_ops->write(&owner_, entry.op_context, entry.flags, entry.len, entry.buf,
                                     entry.data, entry.tag, ended.entry.src_addr);
  }
  if (answer < 0) return false;
  if (ended.receive != nullptr) ended.receives->free_entry(ended.receive);
  return true;
}

}  // namespace turnout::provider
