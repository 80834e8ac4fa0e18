// SPDX-License-Identifier: BSD-3-Clause
// IBTA 9.8.3, 10.2.5: datagrams.
#include <fmt/format.h>

#include <algorithm>

#include "tests/verbs/cases.h"

namespace turnout::conform {
namespace {

constexpr std::size_t kGrh = 40;

struct Datagrams {
  explicit Datagrams(Bed& on) : bed(on) {
    QpAsk ask;
    ask.type = IBV_QPT_UD;
    ask.inline_data = 32;
    a = bed.qp(ask);
    b = bed.qp(ask);
    connect(a, bed, {});
    connect(b, bed, {});
    local = bed.memory(1 << 16);
    remote = bed.memory(1 << 16);
    to_b = bed.ah(bed.where(b));
  }
  [[nodiscard]] Request send(std::size_t length) const {
    return {.pieces = {local.sge(0, length)}, .ah = to_b, .number = b->qp_num};
  }
  [[nodiscard]] std::string outcome(const Request& request) const {
    const std::string posted = post(a, request);
    if (posted != "ok") return posted;
    const std::string sent = done(a->send_cq);
    return fmt::format("{}, {}; a {}, b {}", sent, done(b->recv_cq, kNothing), state_of(a),
                       state_of(b));
  }
  Bed& bed;
  ibv_qp *a, *b;
  Memory local, remote;
  ibv_ah* to_b;
};

std::string sent(Bed& bed, std::size_t length, std::size_t room,
                 const std::function<void(Request&)>& change = {}) {
  const Datagrams pair(bed);
  must(receive(pair.b, {pair.remote.sge(0, room)}), "receive");
  Request request = pair.send(length);
  if (change) change(request);
  return pair.outcome(request);
}

// The bytes begin behind 40 that are the header's, there or not.
std::string header(Bed& bed) {
  const Datagrams pair(bed);
  std::fill_n(pair.remote.data, 64, std::uint8_t{0xee});
  std::fill_n(pair.local.data, 8, std::uint8_t{0x11});
  must(receive(pair.b, {pair.remote.sge(0, 64)}), "receive");
  must(post(pair.a, pair.send(8)), "post");
  const auto wc = poll(pair.b->recv_cq);
  if (!wc || wc->status != IBV_WC_SUCCESS) return "nothing";
  const bool behind = std::all_of(pair.remote.data + kGrh, pair.remote.data + kGrh + 8,
                                  [](std::uint8_t one) { return one == 0x11; });
  return fmt::format("{}, {}, from {}, {}", (wc->wc_flags & IBV_WC_GRH) != 0 ? "GRH" : "no GRH",
                     behind ? "message at offset 40" : "message elsewhere",
                     wc->src_qp == pair.a->qp_num ? "the sender" : "another",
                     pair.remote.data[48] == 0xee ? "nothing after it" : "more after it");
}

std::string with_header(Bed& bed) {
  const Datagrams pair(bed);
  ibv_ah_attr path = bed.path(bed.where(pair.b));
  path.is_global = 1;
  path.grh.dgid = bed.gid;
  path.grh.sgid_index = static_cast<std::uint8_t>(bed.gid_index);
  ibv_ah* const ah = ibv_create_ah(bed.pd, &path);
  if (ah == nullptr) return name_of(errno);
  must(receive(pair.b, {pair.remote.sge(0, 64)}), "receive");
  Request request = pair.send(8);
  request.ah = ah;
  must(post(pair.a, request), "post");
  const auto wc = poll(pair.b->recv_cq);
  ibv_destroy_ah(ah);
  if (!wc) return "nothing";
  return fmt::format("{}, {}", words(*wc), (wc->wc_flags & IBV_WC_GRH) != 0 ? "GRH" : "no GRH");
}

std::string no_receive(Bed& bed) {
  const Datagrams pair(bed);
  return pair.outcome(pair.send(8));
}

// Dropped for want of a receive; the next one comes.
std::string next_after_drop(Bed& bed) {
  const Datagrams pair(bed);
  const std::string first = pair.outcome(pair.send(8));
  must(receive(pair.b, {pair.remote.sge(0, 64)}), "receive");
  return fmt::format("{}; {}", first, pair.outcome(pair.send(8)));
}

std::string forbidden(Bed& bed, ibv_wr_opcode opcode) {
  const Datagrams pair(bed);
  Request request = pair.send(8);
  request.opcode = opcode;
  return pair.outcome(request);
}

// IBTA 10.2.5: with the highest bit set that of the queue pair is sent instead.
std::string privileged(Bed& bed) {
  return sent(bed, 8, 64, [](Request& request) { request.qkey = 0x8000'0001; });
}

std::string no_address(Bed& bed) {
  const Datagrams pair(bed);
  must(receive(pair.b, {pair.remote.sge(0, 64)}), "receive");
  ibv_ah_attr path = bed.path(bed.where(pair.b));
  path.port_num = 2;
  ibv_ah* const ah = ibv_create_ah(bed.pd, &path);
  if (ah == nullptr) return name_of(errno);
  ibv_destroy_ah(ah);
  return "ok";
}

std::string to_itself(Bed& bed) {
  const Datagrams pair(bed);
  must(receive(pair.a, {pair.remote.sge(0, 64)}), "receive");
  Request request = pair.send(8);
  request.number = pair.a->qp_num;
  request.flags = 0;
  must(post(pair.a, request), "post");
  return done(pair.a->recv_cq);
}

}  // namespace

std::vector<Case> datagram_cases() {
  return {
      {"datagram: send", [](Bed& bed) { return sent(bed, 8, 64); }},
      {"datagram: send with immediate",
       [](Bed& bed) {
         return sent(bed, 8, 64, [](Request& request) {
           request.opcode = IBV_WR_SEND_WITH_IMM;
           request.imm = 77;
         });
       }},
      {"datagram: inline",
       [](Bed& bed) {
         return sent(bed, 8, 64,
                     [](Request& request) { request.flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE; });
       }},
      {"datagram: 0 bytes",
       [](Bed& bed) { return sent(bed, 0, 40, [](Request& r) { r.pieces.clear(); }); }},
      {"datagram: payload placement", header},
      {"datagram: global address", with_header},
      {"datagram: to self", to_itself},
      {"datagram: MTU bytes",
       [](Bed& bed) {
         const std::size_t mtu = std::size_t{128} << bed.port.active_mtu;
         return sent(bed, mtu, mtu + kGrh).find("SUCCESS RECV") != std::string::npos
                    ? "arrives"
                    : "does not arrive";
       }},
      {"datagram: MTU + 1 bytes",
       [](Bed& bed) {
         const std::size_t mtu = std::size_t{128} << bed.port.active_mtu;
         return sent(bed, mtu + 1, mtu + kGrh + 1);
       }},
      {"datagram: longer than the receive", [](Bed& bed) { return sent(bed, 8, 47); }},
      {"datagram: no receive", no_receive},
      {"datagram: the next one", next_after_drop},
      {"datagram: wrong qkey",
       [](Bed& bed) { return sent(bed, 8, 64, [](Request& r) { r.qkey = kQkey + 1; }); }},
      {"datagram: privileged qkey", privileged},
      {"datagram: to an unused QP number",
       [](Bed& bed) { return sent(bed, 8, 64, [](Request& r) { r.number = 0xabcdef; }); }},
      {"datagram: address handle for another port", no_address},
      {"datagram: write", [](Bed& bed) { return forbidden(bed, IBV_WR_RDMA_WRITE); }},
      {"datagram: read", [](Bed& bed) { return forbidden(bed, IBV_WR_RDMA_READ); }},
      {"datagram: add", [](Bed& bed) { return forbidden(bed, IBV_WR_ATOMIC_FETCH_AND_ADD); }},
  };
}

}  // namespace turnout::conform
