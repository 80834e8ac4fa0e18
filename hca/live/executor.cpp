// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/executor.h"

#include <endian.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <optional>

#include "hca/device/copy_in_order.h"
#include "hca/device/mlx5_format.h"
#include "hca/device/qp_state.h"
#include "hca/device/queue_pair.h"
#include "hca/device/rules.h"
#include "hca/live/direct_writes.h"
#include "hca/live/shared_copies.h"
#include "hca/live/streams.h"

namespace turnout::hca {
namespace {

// What lies in front of a UD message: a global route header (IBTA 8.3) when its address is global,
// else 40 bytes without meaning. Source and destination are the one port.
struct Grh {
  std::uint8_t bytes[kGrhBytes] = {};
  void fill(std::uint64_t guid, const SendWqe& wqe) noexcept {
    ibv_grh grh{};
    grh.version_tclass_flow = htobe32(6U << 28);
    grh.paylen = htobe16(static_cast<std::uint16_t>(wqe.length));
    grh.next_hdr = 0x1b;
    grh.hop_limit = 0xff;
    grh.sgid.global = {htobe64(0xfe80'0000'0000'0000ULL), htobe64(guid)};
    grh.dgid = grh.sgid;
    if (wqe.multicast) std::memcpy(grh.dgid.raw, wqe.group, sizeof grh.dgid.raw);
    std::memcpy(bytes, &grh, sizeof grh);
  }
};
static_assert(sizeof(ibv_grh) == kGrhBytes);

// From the taking of a receive to its completion nobody else takes one of the queue.
class InOrder {
 public:
  InOrder(Fabric& fabric, Mlx5ReceiveRecord& record) noexcept
      : record_(record), guard_(fabric, record.order) {
    // What the dead one had taken comes back first.
    if (record_.delivering != 0) (void)fabric.reap_dead();
    record_.delivering = 1;
  }
  ~InOrder() { record_.delivering = 0; }
  InOrder(const InOrder&) = delete;
  InOrder& operator=(const InOrder&) = delete;

 private:
  Mlx5ReceiveRecord& record_;
  SharedGuard guard_;
};

}  // namespace

inline RequestTarget Executor::find_target(Qp& qp, const SendWqe& wqe) noexcept {
  RequestTarget target;
  const bool to_one = sends_to_one(qp.kind);
  const std::uint32_t number = to_one ? qp.attr.dest_qp_num : wqe.dest_qpn;
  if (!(to_one ? qp.reachable : wqe.reachable) || number > 0xffffff) return target;
  QpRecord& record = fabric.qp(number & (kMaxQps - 1));
  Hazards::name(fabric, qp, number, wqe.rkey);
  const std::uint64_t identity = record.identity.load(std::memory_order_acquire);
  if (identity >> 8 != number || !can_receive(QpRecord::phase_of(identity))) return target;
  bool right = false;
  switch (qp.kind) {
    case QpKind::rc:
      right = record.kind == QpKind::rc && record.dest_qpn == qp.number &&
              in_sequence(qp, record.sequence);
      break;
    case QpKind::uc:
      right = record.kind == QpKind::uc && record.dest_qpn == qp.number;
      break;
    case QpKind::ud:
      right = record.kind == QpKind::ud;
      break;
    case QpKind::dci:
      right = record.kind == QpKind::dct;
      break;
    case QpKind::xrc_ini:
      right = record.kind == QpKind::xrc_tgt && record.dest_qpn == qp.number &&
              in_sequence(qp, record.sequence);
      break;
    default:
      break;
  }
  if (!right) return target;
  target.record = &record;
  target.number = number;
  target.pd = record.pd;
  target.srq = record.srq;
  target.cq = record.recv_cq;
  target.owner = record.owner.load(std::memory_order_relaxed);
  if (fabric.header().faults.load(std::memory_order_relaxed) != 0) [[unlikely]] {
    // Of an XRC target with several owners the port of none is meant.
    const std::uint32_t process = slot_of(target.owner);
    if (process < kMaxProcesses && fabric.process(process).port_down.load() != 0)
      target.record = nullptr;
  }
  return target;
}

bool Executor::find_srq(const SendWqe& wqe, RequestTarget& target) const noexcept {
  if (wqe.srqn > 0xff'ffff) return false;
  const std::uint64_t name = srq_name(target.record->xrcd, wqe.srqn);
  target.srq = wqe.srqn & (kMaxSrqs - 1);
  const SrqRecord& srq = fabric.srq(target.srq);
  if (srq.name.load(std::memory_order_acquire) != name) return false;
  target.pd = srq.rq.pd;
  target.cq = srq.cq;
  target.owner = srq.owner.load(std::memory_order_relaxed);
  target.srq_name = name;
  // What was read is of the SRQ that we mean only if it still has this name.
  std::atomic_thread_fence(std::memory_order_acquire);
  return srq.name.load(std::memory_order_relaxed) == name;
}

ibv_wc_status Executor::gather_regions(Qp& qp, SendWqe& wqe, unsigned rights,
                                       Segments& out) noexcept {
  const std::uint32_t pd = qp.record->pd;
  for (std::uint32_t i = 0; i < wqe.num_sge; ++i) {
    const ibv_sge& sge = wqe.sge[i];
    if (sge.length == 0) continue;
    const DirectRegion& latest = qp.latest_write.source;
    if (rights == 0 && sge.lkey == static_cast<std::uint32_t>(latest.registration) &&
        covers(latest.iova, latest.length, sge.addr, sge.length) &&
        memory.is_registered(latest.registration)) {
      // NOLINTNEXTLINE: an address of ours
      out.add(reinterpret_cast<std::uint8_t*>(latest.direct + (sge.addr - latest.iova)),
              sge.length);
      continue;
    }
    if (sge.lkey == kMlx5InlineKey) {
      // NOLINTNEXTLINE: of our own send queue
      out.add(reinterpret_cast<std::uint8_t*>(sge.addr), sge.length);
      continue;
    }
    Place place;
    const Access access = memory.find(sge.lkey, pd, sge.addr, sge.length, rights, place);
    // A local key of another process's region would be a guess: only our own count.
    if (access != Access::ok || place.direct == nullptr ||
        fabric.mr(sge.lkey >> 8).owner.load(std::memory_order_relaxed) != fabric.me()) {
      return IBV_WC_LOC_PROT_ERR;
    }
    out.add(place.direct, sge.length);
    if (place.registration == 0 || !memory.describe(place.registration, qp.latest_write.source)) {
      qp.latest_write.source = {};
    }
  }
  return out.length > kMaxMessage ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS;
}

Attempt Executor::take(Qp& qp, const RequestTarget& target, TakenReceive& receive) noexcept {
  switch (receives.take(qp, target, receive)) {
    case Taken::empty:
      return Step::receiver_not_ready;
    case Taken::gone:
      return Step::no_answer;
    case Taken::damaged:
      // Or its owner ends, and its memory with it: then nobody answers.
      if (judge_failure(target, Access::failed) == Access::unreachable) return Step::no_answer;
      return IBV_WC_REM_OP_ERR;
    default:
      return Step::done;
  }
}

ibv_wc_status Executor::remote_failure(const RequestTarget& target, Access access,
                                       ibv_event_type event) noexcept {
  ibv_wc_status status = IBV_WC_REM_ACCESS_ERR;
  if (access == Access::failed) {
    status = IBV_WC_REM_OP_ERR;
    event = IBV_EVENT_QP_FATAL;
  }
  if (event == IBV_EVENT_QP_REQ_ERR) status = IBV_WC_REM_INV_REQ_ERR;
  // A responder of RC or XRC fails with the request (IBTA 9.9.3); a DCT serves others and survives,
  // one of UC drops what it refuses.
  if (target.record->kind != QpKind::dct && target.record->kind != QpKind::uc)
    receives.fail_target(*target.record, target.number, event);
  return status;
}

Access Executor::judge_failure(const RequestTarget& target, Access access) const noexcept {
  if (access == Access::unreachable) return access;
  const bool gone = target.record->identity.load(std::memory_order_acquire) >> 8 != target.number ||
                    fabric.is_ending(target.owner);
  return gone ? Access::unreachable : access;
}

inline Attempt Executor::run_rdma(Qp& qp, SendWqe& wqe, const RequestTarget& target,
                                  Segments& local) noexcept {
  const bool reads = wqe.opcode == IBV_WR_RDMA_READ;
  const unsigned right = reads ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
  Place place;
  if ((target.record->access & right) == 0) {  // IBTA 9.9.3: not set up for it
    return remote_failure(target, Access::denied, IBV_EVENT_QP_REQ_ERR);
  }
  if (local.length > 0) {  // IBTA 9.7.4.1.1: no key check for zero bytes
    const Access found = judge(target, memory.find(wqe.rkey, target.pd, wqe.remote, local.length,
                                                   right, place, target.number));
    if (found == Access::unreachable) return Step::no_answer;
    if (found == Access::indirect) return run_rdma_indirect(qp, wqe, target, local);
    if (found != Access::ok) return remote_failure(target, found, IBV_EVENT_QP_ACCESS_ERR);
  }
  TakenReceive receive;
  const bool takes = has_imm(wqe.opcode);
  if (takes) {
    const Attempt taken = take(qp, target, receive);
    if (taken.step != Step::done || taken.status != IBV_WC_SUCCESS) return taken;
  }
  std::uint64_t address = wqe.remote;
  for (std::uint32_t i = 0; i < local.count; ++i) {
    const Segment& part = local.part[i];
    if (part.length == 0) continue;
    const bool dropped = reads && memory.are_zeros(part.data);
    const Access moved =
        dropped ? Access::ok
                : judge(target, place.direct == nullptr && part.length >= SharedCopies::kLeast
                                    ? shared_copies.copy({reads, wqe.rkey, target.number, address,
                                                          place, part.data, part.length})
                                : reads ? memory.read(part.data, place, part.length)
                                        : memory.write(place, part.data, part.length));
    if (moved != Access::ok) {
      return refuse_rdma(qp, wqe, target, takes ? &receive : nullptr, moved, IBV_EVENT_QP_FATAL);
    }
    if (place.direct != nullptr) place.direct += part.length;
    place.remote += part.length;
    address += part.length;
  }
  if (!reads && place.direct != nullptr) direct_writes.remember(qp, target, place, local.length);
  if (takes) deliver_imm(qp, wqe, target, receive, local.length);
  return Step::done;
}

void Executor::deliver_imm(Qp& qp, const SendWqe& wqe, const RequestTarget& target,
                           const TakenReceive& receive, std::uint64_t length) noexcept {
  Completion entry{};
  entry.wr_id = receive.wr_id;
  entry.qpn = target.number;
  entry.src_qp = qp.number;
  entry.byte_len = static_cast<std::uint32_t>(length);
  entry.imm = wqe.imm;
  entry.opcode = static_cast<std::uint8_t>(IBV_WC_RECV_RDMA_WITH_IMM);
  entry.flags = IBV_WC_WITH_IMM;
  deliver(qp, wqe, target, receive, entry);
}

Attempt Executor::refuse_rdma(Qp& qp, const SendWqe& wqe, const RequestTarget& target,
                              const TakenReceive* receive, Access moved,
                              ibv_event_type event) noexcept {
  if (receive != nullptr && moved != Access::unreachable) {
    deliver(qp, wqe, target, *receive,
            flushed_receive(receive->wr_id, target.number, IBV_WC_RECV_RDMA_WITH_IMM));
  }
  qp.record->taken.store(0, std::memory_order_release);
  if (moved == Access::unreachable) return Step::no_answer;
  return remote_failure(target, moved, event);
}

Attempt Executor::run_rdma_indirect(Qp& qp, SendWqe& wqe, const RequestTarget& target,
                                    const Segments& local) noexcept {
  const bool reads = wqe.opcode == IBV_WR_RDMA_READ;
  const unsigned right = reads ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
  IndirectKeys::Part at{wqe.rkey, wqe.remote, 0, right};
  TakenReceive receive;
  const bool takes = has_imm(wqe.opcode);
  if (takes) {
    const Attempt taken = take(qp, target, receive);
    if (taken.step != Step::done || taken.status != IBV_WC_SUCCESS) return taken;
  }
  for (std::uint32_t i = 0; i < local.count; ++i) {
    const Segment& part = local.part[i];
    if (part.length == 0) continue;
    at.length = part.length;
    const bool dropped = reads && memory.are_zeros(part.data);
    const auto use = dropped ? IndirectKeys::Use::check_read
                     : reads ? IndirectKeys::Use::read
                             : IndirectKeys::Use::write;
    const Access moved =
        judge(target, indirect_keys.move(qp, target.number, target.pd, at, use, part.data));
    if (moved != Access::ok) {
      return refuse_rdma(qp, wqe, target, takes ? &receive : nullptr, moved,
                         IBV_EVENT_QP_ACCESS_ERR);
    }
    at.address += part.length;
  }
  if (takes) deliver_imm(qp, wqe, target, receive, local.length);
  return Step::done;
}

Attempt Executor::run_atomic(Qp& qp, SendWqe& wqe, const RequestTarget& target,
                             Segments& local) noexcept {
  constexpr std::uint8_t kWhole = 8;
  AtomicOperation operation{wqe.opcode == IBV_WR_ATOMIC_CMP_AND_SWP, wqe.compare_add, wqe.swap,
                            wqe.masks};
  if (wqe.masks.bytes == 0) {
    operation.masks = {operation.swap ? ~std::uint64_t{0} : 0, ~std::uint64_t{0}, kWhole};
  }
  const std::uint32_t bytes = operation.masks.bytes;
  if (local.length != bytes || local.count != 1) return IBV_WC_LOC_LEN_ERR;
  if ((wqe.remote & (bytes - 1)) != 0 || (target.record->access & IBV_ACCESS_REMOTE_ATOMIC) == 0) {
    return remote_failure(target, Access::denied, IBV_EVENT_QP_REQ_ERR);
  }
  Place place;
  Access access = memory.find(wqe.rkey, target.pd, wqe.remote, bytes, IBV_ACCESS_REMOTE_ATOMIC,
                              place, target.number);
  if (access == Access::indirect) {
    access = indirect_keys.find_word(
        qp, target.number, target.pd,
        {wqe.rkey, wqe.remote, bytes, unsigned{IBV_ACCESS_REMOTE_ATOMIC}}, place);
  }
  std::uint64_t old = 0;
  if (access == Access::ok && place.direct != nullptr &&
      (reinterpret_cast<std::uintptr_t>(place.direct) & (bytes - 1)) != 0) {
    access = Access::failed;  // an iova aligned otherwise than its memory
  }
  if (access == Access::ok) {
    access = memory.atomic(place, operation, old);
  }
  access = judge(target, access);
  if (access == Access::unreachable) return Step::no_answer;
  if (access != Access::ok) return remote_failure(target, access, IBV_EVENT_QP_ACCESS_ERR);
  if (memory.are_zeros(local.part[0].data)) return Step::done;
  // mlx5 gives a word of four bytes in network order.
  if (bytes != kWhole) old = htobe32(static_cast<std::uint32_t>(old));
  std::memcpy(local.part[0].data, &old, bytes);
  return Step::done;
}

Access Executor::scatter(Qp& qp, std::uint32_t number, const TakenReceive& receive,
                         const Segments& data) noexcept {
  std::uint32_t part = 0;
  std::uint64_t used = 0;  // of data.part[part]
  std::uint64_t left = data.length;
  for (std::uint32_t i = 0; i < receive.num_sge && left > 0; ++i) {
    const ReceiveSge& sge = receive.sge[i];
    std::uint64_t room = std::min<std::uint64_t>(sge.length, left);
    if (room == 0) continue;
    Hazards::name(fabric, qp, number, sge.key);
    Place place;
    if (const Access found =
            memory.find(sge.key, receive.pd, sge.address, room, IBV_ACCESS_LOCAL_WRITE, place);
        found != Access::ok) {
      if (found != Access::indirect) return found;
      const Access moved = scatter_indirect(qp, number, receive.pd, sge, room, data, part, used);
      if (moved != Access::ok) return moved;
      place.null = true;  // what is left is to count
    }
    left -= room;
    while (room > 0) {
      const Segment& from = data.part[part];
      const std::uint64_t n = std::min(room, from.length - used);
      if (n > 0 && !place.null) {
        if (const Access moved = memory.write(place, from.data + used, n); moved != Access::ok) {
          return moved;
        }
      }
      if (place.direct != nullptr) place.direct += n;
      place.remote += n;
      room -= n;
      used += n;
      if (used == from.length) {
        ++part;
        used = 0;
      }
    }
  }
  return Access::ok;
}

Access Executor::scatter_indirect(Qp& qp, std::uint32_t number, std::uint32_t pd,
                                  const ReceiveSge& sge, std::uint64_t room, const Segments& data,
                                  std::uint32_t part, std::uint64_t used) noexcept {
  IndirectKeys::Part to{sge.key, sge.address, 0, unsigned{IBV_ACCESS_LOCAL_WRITE}};
  for (; room > 0; ++part, used = 0) {
    const Segment& from = data.part[part];
    to.length = std::min(room, from.length - used);
    if (to.length == 0) continue;
    const Access moved =
        indirect_keys.move(qp, number, pd, to, IndirectKeys::Use::write, from.data + used);
    if (moved != Access::ok) return moved;
    to.address += to.length;
    room -= to.length;
  }
  return Access::ok;
}

Attempt Executor::run_send(Qp& qp, SendWqe& wqe, const RequestTarget& target,
                           Segments& local) noexcept {
  const bool datagram = qp.kind == QpKind::ud;
  if (datagram && target.record->qkey != wqe.qkey) return Step::done;  // IBTA 10.2.5: dropped
  const bool invalidates = wqe.opcode == IBV_WR_SEND_WITH_INV;
  if (invalidates && !windows.may_invalidate(wqe.imm, target) &&
      !indirect_keys.may_invalidate(wqe.imm, target)) {
    return remote_failure(target, Access::denied, IBV_EVENT_QP_ACCESS_ERR);
  }
  std::optional<InOrder> in_order;
  if (datagram && target.srq == kNone && target.record->rq.mlx5 != 0) [[unlikely]] {
    in_order.emplace(fabric, fabric.mlx5_qp(target.number & (kMaxQps - 1)));
  }
  TakenReceive receive;
  const Attempt taken = take(qp, target, receive);
  if (taken.step != Step::done || taken.status != IBV_WC_SUCCESS) return taken;
  Completion entry{};
  entry.wr_id = receive.wr_id;
  entry.qpn = target.number;  // of XRC, too: mlx5 reports the target, whoever's SRQ it was
  entry.src_qp = qp.number;
  entry.imm = wqe.imm;
  entry.opcode = static_cast<std::uint8_t>(IBV_WC_RECV);
  entry.flags = has_imm(wqe.opcode) ? IBV_WC_WITH_IMM : 0;

  Grh grh;
  Segments framed;
  const Segments* data = &local;
  if (datagram) {
    if (wqe.global) {
      const auto* device = reinterpret_cast<const Device*>(qp.verbs.qp_base.context->device);
      grh.fill(device->guid, wqe);
      entry.flags = static_cast<std::uint8_t>(entry.flags | IBV_WC_GRH);
    }
    framed.add(grh.bytes, kGrhBytes);
    for (std::uint32_t i = 0; i < local.count; ++i) {
      framed.add(local.part[i].data, local.part[i].length);
    }
    data = &framed;
  }
  entry.byte_len = static_cast<std::uint32_t>(data->length);
  ibv_wc_status status = IBV_WC_SUCCESS;
  ibv_event_type event = IBV_EVENT_QP_FATAL;
  if (data->length > receive.room) {
    entry.status = IBV_WC_LOC_LEN_ERR;
    status = IBV_WC_REM_INV_REQ_ERR;
    event = IBV_EVENT_QP_REQ_ERR;
  } else if (const Access moved = judge(target, scatter(qp, target.number, receive, *data));
             moved != Access::ok) {
    if (moved == Access::unreachable) {
      qp.record->taken.store(0, std::memory_order_release);
      return Step::no_answer;
    }
    entry.status = IBV_WC_LOC_PROT_ERR;
    status = IBV_WC_REM_OP_ERR;
  } else if (invalidates) {
    // Only this connection may use a window, and its requests are in order: nobody uses it now.
    // Who uses an indirect key sees that it ends; its owner waits before it is changed.
    std::uint32_t bound = wqe.imm;
    fabric.mr(bound >> 8).key.compare_exchange_strong(bound, 0);
    entry.flags = static_cast<std::uint8_t>(entry.flags | IBV_WC_WITH_INV);
  }
  deliver(qp, wqe, target, receive, entry);
  if (entry.status != IBV_WC_SUCCESS && target.record->kind != QpKind::dct) {
    receives.fail_target(*target.record, target.number, event);
  }
  return status;
}

void Executor::deliver(Qp& qp, const SendWqe& wqe, const RequestTarget& target,
                       const TakenReceive& receive, const Completion& entry) noexcept {
  const bool solicited = (wqe.flags & IBV_SEND_SOLICITED) != 0;
  if (completions.push(receive.cq, receive.owner, entry, solicited, &qp)) return;
  qp.record->taken.store(0, std::memory_order_release);
  // Its CQ overflowed, or is gone.
  if (target.record->kind != QpKind::dct) {
    receives.fail_target(*target.record, target.number, IBV_EVENT_QP_FATAL);
  }
}

void Executor::send_to_group(Qp& qp, const SendWqe& wqe, const Segments& local) noexcept {
  multicast.for_each_member(wqe.group, [&](std::uint32_t number) {
    if (number == qp.number && !qp.hears_itself) return;
    // Each has its own receives, key and buffers: a datagram of its own that may be lost.
    SendWqe one = wqe;
    one.dest_qpn = number;
    one.reachable = true;
    Segments data = local;
    (void)run(qp, one, data);
  });
}

inline Attempt Executor::run(Qp& qp, SendWqe& wqe, Segments& local) noexcept {
  RequestTarget target = find_target(qp, wqe);
  Attempt attempt = Step::no_answer;
  if (target.record == nullptr) {
    // Nobody answers.
  } else if (qp.kind == QpKind::dci && target.record->dc_key != wqe.dc_key) {
    attempt = IBV_WC_REM_ACCESS_ERR;
  } else if (qp.kind == QpKind::xrc_ini && !find_srq(wqe, target)) {
    // IBTA A14: an XRC request that names no SRQ of the target's domain is an invalid request.
    attempt = remote_failure(target, Access::denied, IBV_EVENT_QP_REQ_ERR);
  } else if (is_send(wqe.opcode)) {
    attempt = run_send(qp, wqe, target, local);
  } else if (is_atomic(wqe.opcode)) {
    attempt = run_atomic(qp, wqe, target, local);
  } else {
    attempt = run_rdma(qp, wqe, target, local);
  }
  qp.hazard->store(0, std::memory_order_release);
  return attempt;
}

Attempt Executor::refuse(Qp& qp, const SendWqe& wqe, ibv_wc_status status) noexcept {
  const bool by_target = status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR ||
                         status == IBV_WC_REM_OP_ERR;
  if (by_target && !is_unacknowledged(qp.kind)) {
    if (const RequestTarget target = find_target(qp, wqe); target.record != nullptr) {
      (void)remote_failure(
          target, status == IBV_WC_REM_OP_ERR ? Access::failed : Access::denied,
          status == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR);
    }
    qp.hazard->store(0, std::memory_order_release);
  }
  return status;
}

Attempt Executor::execute(Qp& qp, SendWqe& wqe) noexcept {
  if (is_local(wqe.opcode)) {
    if (wqe.opcode == kNop) return Step::done;
    if (wqe.opcode == kMalformed) return IBV_WC_LOC_QP_OP_ERR;
    if (wqe.opcode == kChangeKey) {
      if (qp.kind == QpKind::ud) return IBV_WC_LOC_QP_OP_ERR;
      return indirect_keys.is_own(wqe.change.key) ? indirect_keys.change(qp, wqe)
                                                  : windows.bind(qp, wqe);
    }
    if (wqe.opcode == IBV_WR_BIND_MW) return windows.bind(qp, wqe);
    return indirect_keys.is_own(wqe.imm) ? indirect_keys.invalidate(qp, wqe.imm)
                                         : windows.invalidate(qp, wqe);
  }
  if (qp.streams.failed != 0 && stream_failed(qp, wqe)) return IBV_WC_WR_FLUSH_ERR;
  Segments local;
  const ibv_wc_status found =
      gather(qp, wqe, is_fetch(wqe.opcode) ? unsigned{IBV_ACCESS_LOCAL_WRITE} : 0U, local);
  if (found != IBV_WC_SUCCESS) [[unlikely]] {
    return found == IBV_WC_LOC_PROT_ERR && names_indirect(wqe) ? execute_indirect(qp, wqe) : found;
  }
  if (!wqe.is_inline) wqe.length = static_cast<std::uint32_t>(local.length);
  if (qp.kind == QpKind::ud && wqe.length > kMtu) return IBV_WC_LOC_LEN_ERR;
  if (is_send(wqe.opcode)) wqe.rkey = 0;
  if (qp.kind == QpKind::ud && wqe.multicast) {
    send_to_group(qp, wqe, local);
    count(qp, wqe, local.length);
    ++qp.record->counters.multicasts;
    return Step::done;
  }
  if (local.length > 0 && direct_writes.write(qp, wqe, local.length, [&local](std::uint8_t* to) {
        for (std::uint32_t i = 0; i < local.count; ++i) {
          copy_in_order(to, local.part[i].data, local.part[i].length);
          to += local.part[i].length;
        }
      })) {
    qp.record->counters.bytes += local.length;
    qp.record->counters.packets += packets_of(local.length);
    return Step::done;
  }
  Attempt attempt = run(qp, wqe, local);
  // Nothing comes back to the sender: what finds nobody, no receive or no right is lost.
  if (is_unacknowledged(qp.kind)) attempt = Step::done;
  if (attempt.step == Step::done && attempt.status == IBV_WC_SUCCESS) count(qp, wqe, local.length);
  return attempt;
}

bool Executor::names_indirect(const SendWqe& wqe) const noexcept {
  return !wqe.is_inline && std::any_of(wqe.sge, wqe.sge + wqe.num_sge, [this](const ibv_sge& sge) {
    return sge.length != 0 && sge.lkey != kMlx5InlineKey && indirect_keys.is_own(sge.lkey);
  });
}

bool Executor::move_pieces(Qp& qp, const SendWqe& wqe, IndirectKeys::Use use,
                           std::uint8_t* bytes) noexcept {
  const unsigned rights = IndirectKeys::local_rights(use);
  const std::uint32_t pd = qp.record->pd;
  bool moved = true;
  for (std::uint32_t i = 0; moved && i < wqe.num_sge; ++i) {
    const ibv_sge& sge = wqe.sge[i];
    if (sge.length == 0) continue;
    if (sge.lkey != kMlx5InlineKey && indirect_keys.is_own(sge.lkey)) {
      moved = indirect_keys.move(qp, 0, pd, {sge.lkey, sge.addr, sge.length, rights}, use, bytes) ==
              Access::ok;
    } else {
      Segments piece;
      SendWqe one;
      one.num_sge = 1;
      one.sge[0] = sge;
      moved = gather_regions(qp, one, rights, piece) == IBV_WC_SUCCESS;
      if (moved && use == IndirectKeys::Use::read) {
        std::memcpy(bytes, piece.part[0].data, sge.length);
      } else if (moved && use == IndirectKeys::Use::write &&
                 !memory.are_zeros(piece.part[0].data)) {
        copy_in_order(piece.part[0].data, bytes, sge.length);
      }
    }
    bytes += sge.length;
  }
  qp.hazard->store(0, std::memory_order_release);
  return moved;
}

Attempt Executor::execute_indirect(Qp& qp, SendWqe& wqe) noexcept {
  std::uint64_t length = 0;
  for (std::uint32_t i = 0; i < wqe.num_sge; ++i) length += wqe.sge[i].length;
  if (length > kMaxMessage) return IBV_WC_LOC_LEN_ERR;
  const std::unique_ptr<std::uint8_t[]> bytes(new (std::nothrow) std::uint8_t[length]);
  if (bytes == nullptr) return IBV_WC_LOC_QP_OP_ERR;
  const bool fetches = is_fetch(wqe.opcode);
  using Use = IndirectKeys::Use;
  if (!move_pieces(qp, wqe, fetches ? Use::check_write : Use::read, bytes.get())) {
    return IBV_WC_LOC_PROT_ERR;
  }
  SendWqe whole = wqe;
  whole.num_sge = 1;
  whole.sge[0] = {reinterpret_cast<std::uint64_t>(bytes.get()), static_cast<std::uint32_t>(length),
                  kMlx5InlineKey};
  const Attempt attempt = execute(qp, whole);
  wqe.length = whole.length;
  if (fetches && attempt.step == Step::done && attempt.status == IBV_WC_SUCCESS &&
      !move_pieces(qp, wqe, Use::write, bytes.get())) {
    return IBV_WC_LOC_PROT_ERR;
  }
  return attempt;
}

}  // namespace turnout::hca
