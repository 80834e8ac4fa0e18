// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/fork_guard.h"

#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <set>

#include "base/log.h"
#include "hca/live/engine.h"

namespace turnout::hca {
namespace {

struct Watched {
  std::mutex mutex;
  std::set<Context*> contexts;
  std::set<Qp*> qps;
};
Watched& watched() {
  static auto* one = new Watched;
  return *one;
}

void complain() {
  static bool said = false;
  if (said) return;
  said = true;
  TURNOUT_LOG(hca, error,
              "verbs call failed: the device was opened before fork(); open it again in the child, "
              "or call exec() there");
}

// In the child.
int no_poll(ibv_cq*, int, ibv_wc*) {
  complain();
  return -1;
}
int no_notify(ibv_cq*, int) {
  complain();
  return EPERM;
}
template <class Queue, class Request>
int no_post(Queue*, Request* wr, Request** bad) {
  complain();
  *bad = wr;
  return EPERM;
}
void no_start(ibv_qp_ex*) {}
int no_complete(ibv_qp_ex*) {
  complain();
  return EPERM;
}

void before() {
  LiveEngine::open_mutex().lock();
  Fabric::open_mutex().lock();
  watched().mutex.lock();
}
void in_parent() {
  watched().mutex.unlock();
  Fabric::open_mutex().unlock();
  LiveEngine::open_mutex().unlock();
}
void in_child() {
  Watched& all = watched();
  for (Context* context : all.contexts) {
    ibv_context_ops& ops = context->verbs.context.ops;
    ops.poll_cq = no_poll;
    ops.req_notify_cq = no_notify;
    ops.post_send = no_post;
    ops.post_recv = no_post;
    ops.post_srq_recv = no_post;
  }
  for (Qp* qp : all.qps) {
    qp->verbs.wr_start = no_start;
    qp->verbs.wr_abort = no_start;
    qp->verbs.wr_complete = no_complete;
  }
  // The child opens the device for itself: nothing of it is watched by the parent's contexts.
  all.contexts.clear();
  all.qps.clear();
  in_parent();
}

}  // namespace

void watch_forks() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(before, in_parent, in_child); });
}

void fork_guard_add(Context& context) {
  const std::lock_guard lock(watched().mutex);
  watched().contexts.insert(&context);
}
void fork_guard_remove(Context& context) {
  const std::lock_guard lock(watched().mutex);
  watched().contexts.erase(&context);
}
void fork_guard_add(Qp& qp) {
  const std::lock_guard lock(watched().mutex);
  watched().qps.insert(&qp);
}
void fork_guard_remove(Qp& qp) {
  const std::lock_guard lock(watched().mutex);
  watched().qps.erase(&qp);
}

int refuse_child(const Context& context) noexcept {
  if (context.pid == getpid()) return 0;
  complain();
  return EPERM;
}

}  // namespace turnout::hca
