// SPDX-License-Identifier: BSD-3-Clause
// IBTA 11.6.3, ibv_get_async_event(3), ibv_ack_cq_events(3): events, and who waits for them.
#include <fmt/format.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/verbs/cases.h"

namespace turnout::conform {
namespace {

bool comes(const ibv_comp_channel* channel, int milliseconds) {
  pollfd fd{channel->fd, POLLIN, 0};
  return ::poll(&fd, 1, milliseconds) > 0;
}

void take(ibv_comp_channel* channel) {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  if (ibv_get_cq_event(channel, &cq, &context) != 0) throw Cannot("ibv_get_cq_event");
  ibv_ack_cq_events(cq, 1);
}

// Two messages into a queue that was armed once.
std::string one_for_each_arming(Bed& bed) {
  ibv_comp_channel* const channel = bed.channel();
  QpAsk ask;
  ask.cq = bed.cq(16, channel);
  const Pair pair(bed, ask);
  must(name_of(ibv_req_notify_cq(ask.cq, 0)), "ibv_req_notify_cq");
  const Request write = write_of(pair);
  must(post(pair.a, write), "post");
  const bool first = comes(channel, 5000);
  if (first) take(channel);
  must(post(pair.a, write), "post");
  const bool second = comes(channel, kNothing);
  return fmt::format("{}, {}", first ? "an event" : "none", second ? "an event" : "none");
}

// Entries that are there when the queue is armed do not count (IBTA 11.4.2.2).
std::string armed_late(Bed& bed) {
  ibv_comp_channel* const channel = bed.channel();
  QpAsk ask;
  ask.cq = bed.cq(16, channel);
  const Pair pair(bed, ask);
  must(post(pair.a, write_of(pair)), "post");
  std::this_thread::sleep_for(std::chrono::milliseconds(kNothing));
  must(name_of(ibv_req_notify_cq(ask.cq, 0)), "ibv_req_notify_cq");
  return comes(channel, kNothing) ? "an event" : "none";
}

// Armed for solicited completions alone.
std::string solicited(Bed& bed, unsigned flags) {
  ibv_comp_channel* const channel = bed.channel();
  QpAsk ask;
  ask.cq = bed.cq(16, channel);
  const Pair pair(bed, ask);
  must(receive(pair.b, {pair.remote.sge(0, 8)}), "receive");
  must(name_of(ibv_req_notify_cq(ask.cq, 1)), "ibv_req_notify_cq");
  must(post(pair.a, {.pieces = {pair.local.sge(0, 8)}, .flags = flags}), "post");
  return comes(channel, kNothing) ? "an event" : "none";
}

// An error wakes who waits for solicited ones.
std::string error_is_solicited(Bed& bed) {
  ibv_comp_channel* const channel = bed.channel();
  QpAsk ask;
  ask.cq = bed.cq(16, channel);
  const Pair pair(bed, ask);
  must(name_of(ibv_req_notify_cq(ask.cq, 1)), "ibv_req_notify_cq");
  Request wrong = write_of(pair);
  wrong.rkey ^= 0x100u;
  must(post(pair.a, wrong), "post");
  return comes(channel, 1000) ? "an event" : "none";
}

// Whoever destroys an object waits until its events are acknowledged.
std::string waits(const std::function<int()>& destroy, const std::function<void()>& acknowledge) {
  std::atomic<bool> over{false};
  std::atomic<int> error{0};
  std::thread destroyer([&] {
    error = destroy();
    over = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(kNothing));
  const bool waited = !over;
  acknowledge();
  destroyer.join();
  return fmt::format("{}, {}", waited ? "waits" : "does not wait", name_of(error));
}

std::string unacknowledged_completion(Bed& bed) {
  ibv_comp_channel* const channel = bed.channel();
  ibv_cq* const cq = bed.cq(16, channel);
  QpAsk ask;
  ask.cq = cq;
  const Pair pair(bed, ask);
  must(name_of(ibv_req_notify_cq(cq, 0)), "ibv_req_notify_cq");
  must(post(pair.a, write_of(pair)), "post");
  if (!comes(channel, 5000)) return "no event";
  ibv_cq* of = nullptr;
  void* context = nullptr;
  must(name_of(ibv_get_cq_event(channel, &of, &context)), "ibv_get_cq_event");
  for (ibv_qp* const qp : {pair.a, pair.b}) {
    bed.forget(qp);
    must(name_of(ibv_destroy_qp(qp)), "ibv_destroy_qp");
  }
  bed.forget(cq);
  return waits([&] { return ibv_destroy_cq(cq); }, [&] { ibv_ack_cq_events(cq, 1); });
}

std::string unacknowledged_limit(Bed& bed) {
  ibv_srq* const srq = bed.srq(16);
  QpAsk ask;
  ask.srq = srq;
  const Pair pair(bed, ask);
  for (int i = 0; i < 2; ++i) must(receive(srq, {pair.remote.sge(0, 8)}), "receive");
  ibv_srq_attr attr{};
  attr.srq_limit = 2;
  must(name_of(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT)), "ibv_modify_srq");
  must(post(pair.a, {.pieces = {pair.local.sge(0, 8)}}), "post");
  pollfd fd{bed.context->async_fd, POLLIN, 0};
  if (::poll(&fd, 1, 5000) <= 0) return "no event";
  ibv_async_event event{};
  must(name_of(ibv_get_async_event(bed.context, &event)), "ibv_get_async_event");
  for (ibv_qp* const qp : {pair.a, pair.b}) {
    bed.forget(qp);
    must(name_of(ibv_destroy_qp(qp)), "ibv_destroy_qp");
  }
  bed.forget(srq);
  return waits([&] { return ibv_destroy_srq(srq); }, [&] { ibv_ack_async_event(&event); });
}

// A queue pair of a shared queue in ERR: no more of its receives will be taken.
std::string last_receive(Bed& bed) {
  QpAsk ask;
  ask.srq = bed.srq(16);
  const Pair pair(bed, ask);
  must(move(pair.b, IBV_QPS_ERR), "to ERR");
  return event(bed);
}

std::string in_use(Bed& bed, const std::function<int(const Pair&, ibv_srq*)>& destroy) {
  QpAsk ask;
  ask.srq = bed.srq(16);
  const Pair pair(bed, ask);
  return name_of(destroy(pair, ask.srq));
}

std::string channel_in_use(Bed& bed) {
  ibv_comp_channel* const channel = bed.channel();
  (void)bed.cq(16, channel);
  return name_of(ibv_destroy_comp_channel(channel));
}

std::string domain_in_use(Bed& bed) {
  ibv_pd* const pd = bed.domain();
  (void)bed.memory(64, kAllAccess, pd);
  return name_of(ibv_dealloc_pd(pd));
}

}  // namespace

std::vector<Case> event_cases() {
  return {
      {"completion event: one per arming", one_for_each_arming},
      {"completion event: armed after the completion", armed_late},
      {"completion event: solicited only, solicited message",
       [](Bed& bed) { return solicited(bed, IBV_SEND_SOLICITED); }},
      {"completion event: solicited only, unsolicited message",
       [](Bed& bed) { return solicited(bed, 0); }},
      {"completion event: solicited only, error", error_is_solicited},
      {"event: CQ destroyed with an unacknowledged event", unacknowledged_completion},
      {"event: SRQ destroyed with an unacknowledged event", unacknowledged_limit},
      {"event: last WQE of an SRQ", last_receive},
      {"in use: completion queue, destroyed",
       [](Bed& bed) {
         return in_use(bed,
                       [](const Pair& pair, ibv_srq*) { return ibv_destroy_cq(pair.a->send_cq); });
       }},
      {"in use: shared receive queue, destroyed",
       [](Bed& bed) {
         return in_use(bed, [](const Pair&, ibv_srq* srq) { return ibv_destroy_srq(srq); });
       }},
      {"in use: completion channel, destroyed", channel_in_use},
      {"in use: protection domain, deallocated", domain_in_use},
  };
}

}  // namespace turnout::conform
