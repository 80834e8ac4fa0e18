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
    while (!telling_.empty() && (has_room = tell(telling_.front()))) telling_.pop_front();
  } while (has_room && refill(queue));
  if (!has_room) give_back(queue.domain);
  const Guard guard(queue.domain.lock);
  for (Cntr* const counter : queue.domain.peer_counters) counter->tell_owner();
}

// False: there is nothing to tell.
bool PeerCq::refill(Cq& queue) {
  constexpr std::size_t kAtOnce = 64;
  {
    const Guard guard(queue.domain.lock);
    take(queue, kAtOnce);
    telling_.swap(ended_);
    releasing_.swap(done_);
  }
  release(queue.domain, releasing_);
  releasing_.clear();
  return !telling_.empty();
}

bool PeerCq::take(Cq& queue, std::size_t most) {
  for (auto& source : queue.sources) {
    CompletionQueue& from = source->queue;
    while (from.size() != 0 || from.has_error()) {
      if (ended_.size() >= most) return true;
      const bool failed = from.size() == 0;
      ErrorCompletion c;
      if (failed) {
        c = from.pop_error();
      } else {
        static_cast<Completion&>(c) = from.front();
        from.pop();
      }
      PeerReceives* const receives = source->endpoint->receives;
      const fi_addr_t name = source->name_of(c.source);
      if (receives == nullptr || (c.flags & kRecv) == 0) {
        add(c, failed, name);
      } else {
        end(*receives, receives->finished(c.context), c, failed, name);
      }
    }
  }
  return false;
}

void PeerCq::end(PeerReceives& receives, PeerRxEntry& receive, const ErrorCompletion& c,
                 bool failed, fi_addr_t source) {
  done_.push_back({&receives, &receive});
  receives.begin_call();
  if (!failed && !PeerReceives::reports(receive)) return;
  add(c, failed, source);
  ended_.back().entry.base.op_context = receive.context;
}

void PeerCq::add(const ErrorCompletion& c, bool failed, fi_addr_t source) {
  Ended& ended = ended_.emplace_back();
  ended.failed = failed;
  write_error_entry(ended.entry.base, c);
  ended.entry.src_addr = source;
}

void PeerCq::give_back(Domain& domain) {
  std::vector<Done> done;
  {
    const Guard guard(domain.lock);
    done.swap(done_);
  }
  release(domain, done);
}

void PeerCq::release(Domain& domain, const std::vector<Done>& done) {
  if (done.empty()) return;
  for (const Done& one : done) one.receives->free_entry(one.receive);
  const Guard guard(domain.lock);
  for (const Done& one : done) one.receives->end_call();
}

// False: the owner has no room now.
bool PeerCq::tell(const Ended& ended) {
  const fi_cq_err_entry& entry = ended.entry.base;
  const ssize_t answer = ended.failed ? owner_.owner_ops->writeerr(&owner_, &entry)
                                      : owner_.owner_ops->write(
                                            &owner_, entry.op_context, entry.flags, entry.len,
                                            entry.buf, entry.data, entry.tag, ended.entry.src_addr);
  return answer >= 0;
}

}  // namespace turnout::provider
