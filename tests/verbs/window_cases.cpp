// SPDX-License-Identifier: BSD-3-Clause
// IBTA 10.6.7: memory windows.
#include <fmt/format.h>

#include "tests/verbs/cases.h"

namespace turnout::conform {
namespace {

constexpr int kBind = kAllAccess | IBV_ACCESS_MW_BIND;

// A window of b's memory, bound by b for a to write through.
struct Windowed {
  Windowed(Bed& bed, ibv_mw_type type, int access = kBind) : pair(bed) {
    region = bed.memory(4096, access);
    window = bed.window(type);
  }
  std::string bind(std::uint64_t address, std::uint64_t length,
                   int access = IBV_ACCESS_REMOTE_WRITE) {
    ibv_mw_bind_info info{};
    info.mr = region.mr;
    info.addr = address;
    info.length = length;
    info.mw_access_flags = static_cast<unsigned>(access);
    std::string posted;
    if (window->type == IBV_MW_TYPE_1) {
      ibv_mw_bind bind{};
      bind.wr_id = 1;
      bind.send_flags = IBV_SEND_SIGNALED;
      bind.bind_info = info;
      posted = name_of(ibv_bind_mw(pair.b, window, &bind));
      key = window->rkey;
    } else {
      key = ibv_inc_rkey(window->rkey);
      ibv_send_wr wr{};
      wr.wr_id = 1;
      wr.opcode = IBV_WR_BIND_MW;
      wr.send_flags = IBV_SEND_SIGNALED;
      wr.bind_mw.mw = window;
      wr.bind_mw.rkey = key;
      wr.bind_mw.bind_info = info;
      ibv_send_wr* bad = nullptr;
      posted = name_of(ibv_post_send(pair.b, &wr, &bad));
    }
    if (posted != "ok") return "refused: " + posted;
    std::string said = done(pair.b->send_cq);
    if (said == "SUCCESS BIND_MW" && window->type == IBV_MW_TYPE_2) window->rkey = key;
    return said;
  }
  void must_bind() {
    const std::string said = bind(region.at(64), 64);
    if (said != "SUCCESS BIND_MW") throw Cannot("bind: " + said);
  }
  [[nodiscard]] std::string write(ibv_qp* from, std::uint64_t address,
                                  ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE) const {
    must(post(from,
              {.opcode = opcode, .pieces = {pair.local.sge(0, 8)}, .remote = address, .rkey = key}),
         "post");
    return done(from->send_cq);
  }
  Pair pair;
  Memory region;
  ibv_mw* window;
  std::uint32_t key = 0;
};

std::string through(Bed& bed, ibv_mw_type type) {
  Windowed one(bed, type);
  const std::string bound = one.bind(one.region.at(64), 64);
  return bound != "SUCCESS BIND_MW"
             ? bound
             : fmt::format("{}, {}", bound, one.write(one.pair.a, one.region.at(64)));
}

std::string outside(Bed& bed, ibv_mw_type type) {
  Windowed one(bed, type);
  one.must_bind();
  return one.write(one.pair.a, one.region.at(121));
}

std::string right_not_given(Bed& bed, ibv_mw_type type) {
  Windowed one(bed, type);
  one.must_bind();
  return one.write(one.pair.a, one.region.at(64), IBV_WR_RDMA_READ);
}

// Type 2B belongs to the queue pair that bound it, type 1 to the domain.
std::string another_queue_pair(Bed& bed, ibv_mw_type type) {
  Windowed one(bed, type);
  one.must_bind();
  const Pair other(bed);
  return one.write(other.a, one.region.at(64));
}

std::string beyond_region(Bed& bed, ibv_mw_type type) {
  Windowed one(bed, type);
  return one.bind(one.region.at(4090), 64);
}

std::string region_does_not_allow(Bed& bed, ibv_mw_type type) {
  Windowed one(bed, type, kAllAccess);
  return one.bind(one.region.at(64), 64);
}

// Of a region that may not be written, a window to write.
std::string no_local_write(Bed& bed, ibv_mw_type type) {
  Windowed one(bed, type, IBV_ACCESS_MW_BIND | IBV_ACCESS_REMOTE_READ);
  return one.bind(one.region.at(64), 64);
}

std::string bound_again(Bed& bed, ibv_mw_type type) {
  Windowed one(bed, type);
  one.must_bind();
  return one.bind(one.region.at(0), 64);
}

std::string unbound(Bed& bed) {
  Windowed one(bed, IBV_MW_TYPE_1);
  one.must_bind();
  const std::uint32_t before = one.key;
  const std::string said = one.bind(one.region.at(64), 0);
  one.key = before;
  return fmt::format("{}, {}", said, one.write(one.pair.a, one.region.at(64)));
}

std::string invalidated(Bed& bed) {
  Windowed one(bed, IBV_MW_TYPE_2);
  one.must_bind();
  must(post(one.pair.b, {.opcode = IBV_WR_LOCAL_INV, .pieces = {}, .imm = one.key}), "post");
  const std::string said = done(one.pair.b->send_cq);
  return fmt::format("{}, {}", said, one.write(one.pair.a, one.region.at(64)));
}

std::string invalidated_from_afar(Bed& bed) {
  Windowed one(bed, IBV_MW_TYPE_2);
  one.must_bind();
  must(receive(one.pair.b, {one.pair.remote.sge(0, 8)}), "receive");
  const std::string posted =
      post(one.pair.a,
           {.opcode = IBV_WR_SEND_WITH_INV, .pieces = {one.pair.local.sge(0, 8)}, .imm = one.key});
  if (posted != "ok") return posted;
  const std::string sent = done(one.pair.a->send_cq);
  const std::string received = done(one.pair.b->recv_cq);
  return fmt::format("{}, {}, {}", sent, received, one.write(one.pair.a, one.region.at(64)));
}

std::string deregister_below(Bed& bed, ibv_mw_type type) {
  Windowed one(bed, type);
  one.must_bind();
  const int error = ibv_dereg_mr(one.region.mr);
  if (error == 0) bed.forget(one.region.mr);
  return name_of(error);
}

}  // namespace

std::vector<Case> window_cases() {
  struct Type {
    ibv_mw_type type;
    const char* name;
  };
  std::vector<Case> all;
  for (const Type& one : {Type{IBV_MW_TYPE_1, "1"}, Type{IBV_MW_TYPE_2, "2"}}) {
    const auto add = [&](const char* what, std::string (*ask)(Bed&, ibv_mw_type)) {
      all.push_back({fmt::format("window {}: {}", one.name, what),
                     [=](Bed& bed) { return ask(bed, one.type); }});
    };
    add("bind and write", through);
    add("write out of bounds", outside);
    add("read through a write-only window", right_not_given);
    add("write by another queue pair", another_queue_pair);
    add("bind beyond the region", beyond_region);
    add("bind without the right to bind", region_does_not_allow);
    add("bind for write without local write", no_local_write);
    add("bind again", bound_again);
    add("region deregistered while bound", deregister_below);
  }
  all.push_back({"window 1: unbind", unbound});
  all.push_back({"window 2: invalidate", invalidated});
  all.push_back({"window 2: invalidate by a send", invalidated_from_afar});
  return all;
}

}  // namespace turnout::conform
