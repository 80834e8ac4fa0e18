// SPDX-License-Identifier: BSD-3-Clause
// Reaping: what a dead process owned is destroyed by a living one, completely and more than once if
// need be: every step may be cut short by the death of the reaper and is done again by the next.
#include <algorithm>

#include "base/log.h"
#include "hca/live/fabric.h"
#include "hca/live/xrc_handles.h"

namespace turnout::hca {

namespace {

void put_back(const Fabric& fabric, QpRecord& qp) noexcept {
  // The dead process took a receive and never completed it: its owner would wait for ever.
  const volatile QpRecord& said = qp;  // each word is read once: what is checked is what is used
  const std::uint32_t to = said.taken_cq;
  if (to < kMaxCqs) {
    CqRecord& target_cq = fabric.cq(to);
    const SharedGuard guard(fabric, target_cq.lock);
    repair(fabric, target_cq);
  }
  const std::uint32_t kind = qp.taken.load(std::memory_order_acquire);
  if (kind == 0) return;
  const std::uint32_t from = qp.taken_index, sges = said.taken_sges;
  ReceiveQueue* queue = nullptr;
  if (kind == 1 && from < kMaxQps && fabric.qp(from).owner == qp.taken_owner) {
    queue = &fabric.qp(from).rq;
  } else if (kind == 2 && from < kMaxSrqs && fabric.srq(from).owner == qp.taken_owner) {
    queue = &fabric.srq(from).rq;
  }
  if (queue != nullptr) {
    const SharedGuard guard(fabric, queue->lock);
    repair(fabric, *queue);
    repair(*queue, kind == 1 ? fabric.mlx5_qp(from) : fabric.mlx5_srq(from));
    if (qp.taken.load(std::memory_order_acquire) == 0) return;
    if (kind == 1 && queue->mlx5 != 0 && said.taken_position + 1 == queue->head) {
      // Its program goes by their order: the entry is still there.
      --queue->head;
      qp.taken.store(0, std::memory_order_release);
      return;
    }
    const ReceiveRing all = fabric.ring(*queue);
    if (all.start != nullptr && sges <= all.max_sge && queue->tail - queue->head <= all.mask) {
      ReceiveWqe* wqe = all.entry(queue->tail);
      wqe->wr_id = qp.taken_wr_id;
      wqe->num_sge = sges;
      std::copy_n(qp.taken_sge, sges, reinterpret_cast<ReceiveSge*>(wqe + 1));
      ++queue->tail;
    }
  }
  qp.taken.store(0, std::memory_order_release);
}

}  // namespace

void Fabric::reap_locked(std::uint32_t slot, Token token) noexcept {
  Header& h = header();
  // Ends each record of a table that was its, then gives it back.
  const auto reap_table = [token](auto& first, const std::atomic<std::uint32_t>& high,
                                  std::uint32_t limit, const auto& end) {
    const std::uint32_t count = std::min(high.load(std::memory_order_acquire), limit);
    for (std::uint32_t i = 0; i < count; ++i) {
      auto& record = (&first)[i];
      if (record.owner.load(std::memory_order_acquire) != token) continue;
      end(record, i);
      record.owner.store(0, std::memory_order_release);
    }
  };
  // Queue pairs first: without one nobody looks up the rest.
  reap_table(qp(0), h.qp_high, kMaxQps, [this](QpRecord& q, std::uint32_t i) {
    {
      const SharedGuard guard(*this, q.rq.lock);
      q.identity.store(static_cast<std::uint64_t>(QpPhase::free), std::memory_order_release);
      q.rq.slots = 0;
    }
    put_back(*this, q);
    hazard(i).store(0, std::memory_order_release);
    ++q.salt;
  });
  reap_table(multicast(0), h.multicast_high, kMaxMulticasts,
             [](MulticastRecord& m, std::uint32_t) { m.qpn.store(0, std::memory_order_release); });
  reap_table(srq(0), h.srq_high, kMaxSrqs, [this](SrqRecord& s, std::uint32_t) {
    const SharedGuard guard(*this, s.rq.lock);
    s.name.store(0, std::memory_order_release);
    s.phase.store(ObjectPhase::free, std::memory_order_release);
    s.rq.slots = 0;
  });
  reap_xrc(*this, token);
  reap_table(cq(0), h.cq_high, kMaxCqs, [this](CqRecord& c, std::uint32_t) {
    const SharedGuard guard(*this, c.lock);
    c.phase.store(ObjectPhase::free, std::memory_order_release);
    c.slots = 0;
  });
  reap_table(mr(0), h.mr_high, kMaxMrs,
             [](MrRecord& m, std::uint32_t) { m.key.store(0, std::memory_order_release); });
  // Of its own transfers nobody takes a range any more. A helper that has one finds that out.
  const std::uint32_t processes = std::min(h.process_high.load(), kMaxProcesses);
  for (std::uint32_t i = 0; i < processes; ++i) {
    CopyRecord& record = copy(i);
    std::uint64_t job = record.reserved.load(std::memory_order_acquire);
    if (job >> 32 != token) continue;
    record.open.store(0, std::memory_order_release);
    record.reserved.compare_exchange_strong(job, 0, std::memory_order_release);
  }
  copy(slot).open.store(0, std::memory_order_release);
  copy(slot).active.store(0, std::memory_order_release);
  const std::uint64_t pages = std::min(h.heap_high, Layout::heap_pages(size()));
  PageTag* tag = tags();
  for (std::uint64_t page = 0; page < pages;) {
    if (tag[page] != token) {
      ++page;
      continue;
    }
    std::uint64_t end = page;
    while (end < pages && tag[end] == token) ++end;
    free_pages(page, end - page);
    page = end;
  }
  Token expected = token;
  process(slot).token.compare_exchange_strong(expected, 0, std::memory_order_release);
}

void Fabric::reap(Token token) noexcept {
  if (token == 0 || token == me_ || slot_of(token) >= kMaxProcesses || alive(token)) return;
  {
    const TableGuard guard(*this);
    ProcessRecord& p = process(slot_of(token));
    if (p.token.load(std::memory_order_acquire) == token) {
      TURNOUT_LOG(hca, info, "process {} (slot {}) has exited; releasing its resources", p.pid,
                  slot_of(token));
      reap_locked(slot_of(token), token);
    }
  }
  // Whoever reaped it: these are ours.
  pipes_.forget(token);
}

bool Fabric::reap_dead() noexcept {
  bool found = false;
  const std::uint32_t high = std::min(header().process_high.load(), kMaxProcesses);
  for (std::uint32_t slot = 0; slot < high; ++slot) {
    const Token token = process(slot).token.load(std::memory_order_acquire);
    if (token == 0 || alive(token)) continue;
    reap(token);
    found = true;
  }
  return found;
}

}  // namespace turnout::hca
