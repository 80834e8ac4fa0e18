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
  switch (event->event_type) {
    case IBV_EVENT_CQ_ERR: {
      ibv_cq& cq = *event->element.cq;
      acknowledge(cq.mutex, cq.cond, cq.async_events_completed, 1);
      break;
    }
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: {
      ibv_srq& srq = *event->element.srq;
      acknowledge(srq.mutex, srq.cond, srq.events_completed, 1);
      break;
    }
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_QP_LAST_WQE_REACHED: {
      ibv_qp& qp = *event->element.qp;
      acknowledge(qp.mutex, qp.cond, qp.events_completed, 1);
      break;
    }
    default:
      break;  // of the device or port: nothing waits for it
  }
}
