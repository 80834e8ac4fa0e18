// SPDX-License-Identifier: BSD-3-Clause
// IBTA 10.8 to 10.10 and 11.6: limits of queues, their order, what becomes of what is in them.
#include <fmt/format.h>

#include "tests/verbs/cases.h"

namespace turnout::conform {
namespace {

std::string capacity(ibv_qp_cap& cap, Bed& bed) {
  ibv_qp_init_attr attr{};
  attr.qp_type = IBV_QPT_RC;
  attr.send_cq = attr.recv_cq = bed.cq();
  attr.cap = cap;
  ibv_qp* const qp = ibv_create_qp(bed.pd, &attr);
  if (qp == nullptr) return name_of(errno);
  cap = attr.cap;
  ibv_destroy_qp(qp);
  return "ok";
}

std::string beyond_attributes(Bed& bed, const std::function<void(ibv_qp_cap&, const Bed&)>& spoil) {
  ibv_qp_cap cap{1, 1, 1, 1, 0};
  spoil(cap, bed);
  return capacity(cap, bed);
}

// What was asked for is there at least.
std::string at_least(Bed& bed) {
  const ibv_qp_cap asked{10, 11, 2, 3, 48};
  ibv_qp_cap got = asked;
  const std::string said = capacity(got, bed);
  const bool enough =
      got.max_send_wr >= asked.max_send_wr && got.max_recv_wr >= asked.max_recv_wr &&
      got.max_send_sge >= asked.max_send_sge && got.max_recv_sge >= asked.max_recv_sge &&
      got.max_inline_data >= asked.max_inline_data;
  return fmt::format("{}, {}", said, enough ? "as much or more" : "less");
}

std::string inline_of(Bed& bed, std::uint32_t bytes) {
  ibv_qp_cap cap{1, 1, 1, 1, bytes};
  return capacity(cap, bed);
}

std::string inline_too_long(Bed& bed) {
  QpAsk ask;
  ask.inline_data = 32;
  const Pair pair(bed, ask);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  must(name_of(ibv_query_qp(pair.a, &attr, IBV_QP_CAP, &init)), "ibv_query_qp");
  Request write = write_of(pair, attr.cap.max_inline_data + 1);
  write.flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
  return post(pair.a, write);
}

// Posts until it is refused; no more are taken than the queue pair says.
std::string full_send_queue(Bed& bed) {
  const Pair pair(bed);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  must(name_of(ibv_query_qp(pair.a, &attr, IBV_QP_CAP, &init)), "ibv_query_qp");
  // They wait for receives that are not there.
  for (std::uint32_t i = 0; i < attr.cap.max_send_wr; ++i) {
    const std::string said = post(pair.a, {.pieces = {pair.local.sge(0, 8)}});
    if (said != "ok") return fmt::format("{} before it is full", said);
  }
  return post(pair.a, {.pieces = {pair.local.sge(0, 8)}});
}

std::string full_receive_queue(Bed& bed) {
  const Pair pair(bed);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  must(name_of(ibv_query_qp(pair.a, &attr, IBV_QP_CAP, &init)), "ibv_query_qp");
  for (std::uint32_t i = 0; i < attr.cap.max_recv_wr; ++i) {
    const std::string said = receive(pair.a, {pair.local.sge(0, 8)});
    if (said != "ok") return fmt::format("{} before it is full", said);
  }
  return receive(pair.a, {pair.local.sge(0, 8)});
}

std::string full_shared_queue(Bed& bed) {
  ibv_srq* const srq = bed.srq(8);
  const Memory memory = bed.memory();
  ibv_srq_attr attr{};
  must(name_of(ibv_query_srq(srq, &attr)), "ibv_query_srq");
  for (std::uint32_t i = 0; i < attr.max_wr; ++i) {
    const std::string said = receive(srq, {memory.sge(0, 8)});
    if (said != "ok") return fmt::format("{} before it is full", said);
  }
  return receive(srq, {memory.sge(0, 8)});
}

std::string too_many_pieces(Bed& bed) {
  const Pair pair(bed);
  const std::vector<ibv_sge> many(30, pair.local.sge(0, 1));
  return fmt::format("send {}, receive {}", post(pair.a, {.pieces = many}), receive(pair.a, many));
}

std::string completions_of(Bed& bed, int entries) {
  ibv_cq* const cq = ibv_create_cq(bed.context, entries, nullptr, nullptr, 0);
  if (cq == nullptr) return name_of(errno);
  const bool enough = cq->cqe >= entries;
  ibv_destroy_cq(cq);
  return enough ? "ok" : "less";
}

std::string vector_too_high(Bed& bed) {
  ibv_cq* const cq =
      ibv_create_cq(bed.context, 16, nullptr, nullptr, bed.context->num_comp_vectors);
  if (cq == nullptr) return name_of(errno);
  ibv_destroy_cq(cq);
  return "ok";
}

// More completions than the queue has entries.
std::string overflow(Bed& bed) {
  QpAsk ask;
  ask.cq = bed.cq(4);
  ask.send_wr = 64;
  const Pair pair(bed, ask);
  const int entries = ask.cq->cqe;
  int posted = 0;
  for (int i = 0; i < entries + 8 && i < 60; ++i) {
    if (post(pair.a, write_of(pair)) == "ok") ++posted;
  }
  const std::string heard = event(bed, 1000);
  int polled = 0;
  ibv_wc wc{};
  int said = 0;
  while ((said = ibv_poll_cq(ask.cq, 1, &wc)) > 0) ++polled;
  return fmt::format("{}; {}, polling {}", heard, polled == posted ? "all present" : "some lost",
                     said < 0 ? "fails" : "continues");
}

// Grown and made smaller, with entries in it.
std::string resized(Bed& bed) {
  QpAsk ask;
  ask.cq = bed.cq(16);
  const Pair pair(bed, ask);
  for (std::uint64_t i = 1; i <= 3; ++i) {
    Request write = write_of(pair);
    write.id = i;
    must(post(pair.a, write), "post");
  }
  const std::string first = done(ask.cq);
  std::string text;
  const std::string larger = name_of(ibv_resize_cq(ask.cq, 100));
  const bool has = ask.cq->cqe >= 100;
  const std::string smaller = name_of(ibv_resize_cq(ask.cq, 1));
  while (const auto wc = poll(ask.cq, kNothing)) text += fmt::format(" {}", wc->wr_id);
  return fmt::format("{}, 100: {}{}, 1: {}, left{}", first, larger, has ? "" : " and less", smaller,
                     text);
}

// In ERR everything completes, in its order, and so does what is posted afterwards.
std::string flushed(Bed& bed) {
  const Pair pair(bed);
  for (std::uint64_t i = 1; i <= 3; ++i) {
    must(post(pair.a, {.pieces = {pair.local.sge(0, 8)}, .id = i}), "post");
    must(receive(pair.a, {pair.local.sge(0, 8)}, 10 + i), "receive");
  }
  must(move(pair.a, IBV_QPS_ERR), "to ERR");
  const std::string sent = post(pair.a, {.pieces = {pair.local.sge(0, 8)}, .id = 4});
  const std::string received = receive(pair.a, {pair.local.sge(0, 8)}, 14);
  std::string sends, receives, others;
  while (const auto wc = poll(pair.a->send_cq, kNothing)) {
    if (wc->status != IBV_WC_WR_FLUSH_ERR) others += " " + words(*wc);
    (wc->wr_id < 10 ? sends : receives) += fmt::format(" {}", wc->wr_id);
  }
  return fmt::format("post {}, receive {}; sends{}, receives{}{}", sent, received, sends, receives,
                     others);
}

std::string unsignalled_flushed(Bed& bed) {
  const Pair pair(bed);
  for (std::uint64_t i = 1; i <= 2; ++i) {
    must(post(pair.a, {.pieces = {pair.local.sge(0, 8)}, .id = i, .flags = 0}), "post");
  }
  must(move(pair.a, IBV_QPS_ERR), "to ERR");
  std::string text;
  while (const auto wc = poll(pair.a->send_cq, kNothing)) {
    text += fmt::format("{} {}; ", wc->wr_id, words(*wc));
  }
  return text.empty() ? "nothing" : text;
}

// RESET forgets requests and receives; completions that lie in the queue already may go, too.
std::string reset(Bed& bed) {
  const Pair pair(bed);
  must(receive(pair.b, {pair.remote.sge(0, 8)}), "receive");
  must(post(pair.a, {.pieces = {pair.local.sge(0, 8)}, .id = 1}), "post");
  if (done(pair.b->recv_cq) != "SUCCESS RECV 8 B") throw Cannot("the first message");
  must(post(pair.a, {.pieces = {pair.local.sge(0, 8)}, .id = 2}), "post");  // waits
  must(receive(pair.a, {pair.local.sge(0, 8)}, 3), "receive");
  must(move(pair.a, IBV_QPS_RESET), "to RESET");
  must(move(pair.b, IBV_QPS_RESET), "to RESET");
  std::string text;
  while (const auto wc = poll(pair.a->send_cq, kNothing)) text += fmt::format(" {}", wc->wr_id);
  connect(pair.a, bed, bed.where(pair.b));
  connect(pair.b, bed, bed.where(pair.a));
  must(receive(pair.a, {pair.local.sge(0, 8)}, 4), "receive");
  must(post(pair.b, {.pieces = {pair.remote.sge(0, 8)}}), "post");
  const auto wc = poll(pair.a->recv_cq);
  return fmt::format("completions left:{}; then receive {}", text.empty() ? " none" : text,
                     wc ? wc->wr_id : 0);
}

// A receive posted before the connection serves it; one posted in RESET is refused elsewhere.
std::string receive_in_init(Bed& bed) {
  ibv_qp* const a = bed.qp();
  ibv_qp* const b = bed.qp();
  const Memory memory = bed.memory();
  must(to_init(b), "to INIT");
  must(receive(b, {memory.sge(0, 8)}, 7), "receive");
  must(to_rtr(b, bed, bed.where(a)), "to RTR");
  connect(a, bed, bed.where(b));
  must(post(a, {.pieces = {memory.sge(64, 8)}}), "post");
  const auto wc = poll(b->recv_cq);
  return wc ? fmt::format("{} {}", wc->wr_id, words(*wc)) : "nothing";
}

// Two queue pairs take receives of one queue, in its order.
std::string shared(Bed& bed) {
  QpAsk ask;
  ask.srq = bed.srq(16);
  ask.cq = bed.cq();
  const Pair one(bed, ask), other(bed, ask);
  const Memory memory = bed.memory();
  for (std::uint64_t i = 0; i < 4; ++i)
    must(receive(ask.srq, {memory.sge(i * 8, 8)}, i), "receive");
  std::string text;
  for (const Pair* const pair : {&one, &other, &one, &other}) {
    must(post(pair->a, {.pieces = {pair->local.sge(0, 8)}, .id = 9, .flags = 0}), "post");
    const auto wc = poll(ask.cq);
    text += fmt::format(" {}", wc && wc->status == IBV_WC_SUCCESS ? wc->wr_id : 99);
  }
  return "receives" + text;
}

std::string limit(Bed& bed) {
  QpAsk ask;
  ask.srq = bed.srq(16);
  const Pair pair(bed, ask);
  for (int i = 0; i < 4; ++i) must(receive(ask.srq, {pair.remote.sge(0, 8)}), "receive");
  ibv_srq_attr attr{};
  attr.srq_limit = 3;
  must(name_of(ibv_modify_srq(ask.srq, &attr, IBV_SRQ_LIMIT)), "ibv_modify_srq");
  std::string text;
  for (int i = 0; i < 3; ++i) {
    must(post(pair.a, {.pieces = {pair.local.sge(0, 8)}}), "post");
    (void)done(pair.b->recv_cq);
    text += fmt::format("{}, ", event(bed));
  }
  must(name_of(ibv_query_srq(ask.srq, &attr)), "ibv_query_srq");
  return fmt::format("{}limit {}", text, attr.srq_limit);
}

std::string limit_below(Bed& bed) {
  ibv_srq* const srq = bed.srq(16);
  ibv_srq_attr attr{};
  attr.srq_limit = 3;
  const std::string said = name_of(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
  return fmt::format("{}, {}", said, event(bed));
}

std::string limit_too_high(Bed& bed) {
  ibv_srq* const srq = bed.srq(16);
  ibv_srq_attr attr{};
  must(name_of(ibv_query_srq(srq, &attr)), "ibv_query_srq");
  attr.srq_limit = attr.max_wr + 1;
  return name_of(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
}

std::string receive_beside_shared(Bed& bed) {
  QpAsk ask;
  ask.srq = bed.srq(16);
  const Pair pair(bed, ask);
  return receive(pair.b, {pair.remote.sge(0, 8)});
}

std::string resized_shared(Bed& bed) {
  ibv_srq* const srq = bed.srq(8);
  ibv_srq_attr attr{};
  attr.max_wr = 64;
  return name_of(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR));
}

}  // namespace

std::vector<Case> queue_cases() {
  std::vector<Case> all = {{"limit: queue pair as requested", at_least}};
  const auto beyond = [&](const char* name, void (*spoil)(ibv_qp_cap&, const Bed&)) {
    all.push_back({fmt::format("limit: a queue pair with {}", name),
                   [=](Bed& bed) { return beyond_attributes(bed, spoil); }});
  };
  beyond("max_qp_wr requests and receives", [](ibv_qp_cap& cap, const Bed& bed) {
    cap.max_send_wr = cap.max_recv_wr = static_cast<std::uint32_t>(bed.attributes.max_qp_wr);
  });
  beyond("max_qp_wr + 1 requests", [](ibv_qp_cap& cap, const Bed& bed) {
    cap.max_send_wr = static_cast<std::uint32_t>(bed.attributes.max_qp_wr) + 1;
  });
  beyond("max_qp_wr + 1 receives", [](ibv_qp_cap& cap, const Bed& bed) {
    cap.max_recv_wr = static_cast<std::uint32_t>(bed.attributes.max_qp_wr) + 1;
  });
  beyond("max_sge + 1 SGEs", [](ibv_qp_cap& cap, const Bed& bed) {
    cap.max_send_sge = static_cast<std::uint32_t>(bed.attributes.max_sge) + 1;
  });
  const std::vector<Case> rest = {
      {"limit: 512 bytes inline", [](Bed& bed) { return inline_of(bed, 512); }},
      {"limit: 4096 bytes inline", [](Bed& bed) { return inline_of(bed, 4096); }},
      {"limit: inline, one byte too long", inline_too_long},
      {"limit: one request beyond a full queue", full_send_queue},
      {"limit: one receive beyond a full queue", full_receive_queue},
      {"limit: one receive beyond a full shared queue", full_shared_queue},
      {"limit: 30 SGEs", too_many_pieces},
      {"limit: completion queue of 0 entries", [](Bed& bed) { return completions_of(bed, 0); }},
      {"limit: completion queue of max_cqe entries",
       [](Bed& bed) { return completions_of(bed, bed.attributes.max_cqe); }},
      {"limit: completion queue of max_cqe + 1 entries",
       [](Bed& bed) { return completions_of(bed, bed.attributes.max_cqe + 1); }},
      {"limit: invalid completion vector", vector_too_high},
      {"completions: overflow", overflow},
      {"completions: resize", resized},
      {"flush: sends and receives", flushed},
      {"flush: unsignalled", unsignalled_flushed},
      {"reset: requests, receives, completions", reset},
      {"receive: posted in INIT", receive_in_init},
      {"SRQ: two queue pairs", shared},
      {"SRQ: limit 3 with 4 receives", limit},
      {"SRQ: limit 3 with no receives", limit_below},
      {"SRQ: limit above max_wr", limit_too_high},
      {"SRQ: receive posted to the queue pair", receive_beside_shared},
      {"SRQ: resize", resized_shared},
  };
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

}  // namespace turnout::conform
