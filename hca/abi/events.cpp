// SPDX-License-Identifier: BSD-3-Clause
// Completion channels, completion events and asynchronous events, with their acknowledgements.
#include <pthread.h>

#include "hca/abi/verbs.h"

using namespace turnout::hca;

namespace {

// Counts acknowledgements and wakes who waits to destroy the object.
void acknowledge(pthread_mutex_t& mutex, pthread_cond_t& cond, std::uint32_t& count, unsigned n) {
  pthread_mutex_lock(&mutex);
  count += n;
  pthread_cond_broadcast(&cond);
  pthread_mutex_unlock(&mutex);
}

}  // namespace

TURNOUT_EXPORT ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  return verbs_of(objects_of(context).create_channel(context_of(context)));
}

TURNOUT_EXPORT int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  return objects_of(channel).destroy_channel(*reinterpret_cast<Channel*>(channel));
}

TURNOUT_EXPORT int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  auto& from = *reinterpret_cast<Channel*>(channel);
  return result_of(data_path_of(channel).get_cq_event(from, cq, cq_context));
}

TURNOUT_EXPORT void ibv_ack_cq_events(ibv_cq* cq, unsigned int nevents) {
  acknowledge(cq->mutex, cq->cond, cq->comp_events_completed, nevents);
}

TURNOUT_EXPORT int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  return result_of(objects_of(context).get_async_event(context_of(context), *event));
}

TURNOUT_EXPORT void ibv_ack_async_event(ibv_async_event* event) {
  const auto of = [](auto& object, std::uint32_t& count) {
    acknowledge(object.mutex, object.cond, count, 1);
  };
  switch (object_of(event->event_type)) {
    case EventObject::cq:
      return of(*event->element.cq, event->element.cq->async_events_completed);
    case EventObject::srq:
      return of(*event->element.srq, event->element.srq->events_completed);
    case EventObject::qp:
      return of(*event->element.qp, event->element.qp->events_completed);
    case EventObject::none:
      return;  // nothing waits for it
  }
}
