// SPDX-License-Identifier: BSD-3-Clause
// Executor: one work request from its checks to its completions, in the initiator's thread.
//
// Order of an operation with a receive: take the receive, move the data, complete the receive, then
// the request. Before it relies on a peer's queue pair or region the initiator names it in its
// hazard word: see hazards.h.
//
// All with the sq_lock of the queue pair held.
#pragma once

#include "hca/device/rules.h"
#include "hca/live/indirect_keys.h"
#include "hca/live/multicast.h"
#include "hca/live/windows.h"

namespace turnout::hca {

enum class Step : std::uint8_t { done, receiver_not_ready, no_answer, delayed };
// How an attempt at a request ended, by either of the two; with a status it is done.
struct Attempt {
  Attempt(Step how) : step(how) {}
  Attempt(ibv_wc_status result) : status(result) {}
  Step step = Step::done;
  ibv_wc_status status = IBV_WC_SUCCESS;
};

class Executor : LiveParts {
 public:
  explicit Executor(const LiveParts& parts) : LiveParts(parts) {}

  [[nodiscard]] Attempt execute(Qp& qp, SendWqe& wqe) noexcept;
  // Does nothing of it: it ends with `status`, and its target with it where the target would have
  // said so.
  [[nodiscard]] Attempt refuse(Qp& qp, const SendWqe& wqe, ibv_wc_status status) noexcept;

 private:
  struct Segment {
    std::uint8_t* data;
    std::uint64_t length;
  };
  struct Segments {
    Segment part[kMaxSge + 1];
    std::uint32_t count = 0;
    std::uint64_t length = 0;
    void add(std::uint8_t* data, std::uint64_t n) {
      part[count++] = {data, n};
      length += n;
    }
  };
  // One with pieces of indirect keys among its own: they go through memory of ours.
  [[nodiscard, gnu::noinline]] Attempt execute_indirect(Qp& qp, SendWqe& wqe) noexcept;
  [[nodiscard]] bool names_indirect(const SendWqe& wqe) const noexcept;
  // Moves the bytes of the request between its pieces and `bytes`, or checks that it might.
  [[nodiscard]] bool move_pieces(Qp& qp, const SendWqe& wqe, IndirectKeys::Use use,
                                 std::uint8_t* bytes) noexcept;
  // One that goes to a peer, as far as its answer.
  [[nodiscard, gnu::always_inline]] Attempt run(Qp& qp, SendWqe& wqe, Segments& local) noexcept;
  [[nodiscard, gnu::always_inline]] RequestTarget find_target(Qp& qp, const SendWqe& wqe) noexcept;
  // XRC: completes `target` by the SRQ that the request names. False: there is no such SRQ.
  [[nodiscard]] bool find_srq(const SendWqe& wqe, RequestTarget& target) const noexcept;
  // What is inline needs no key.
  [[nodiscard]] ibv_wc_status gather(Qp& qp, SendWqe& wqe, unsigned rights,
                                     Segments& out) noexcept {
    if (!wqe.is_inline) return gather_regions(qp, wqe, rights, out);
    out.add(wqe.data, wqe.length);
    return IBV_WC_SUCCESS;
  }
  [[nodiscard]] ibv_wc_status gather_regions(Qp& qp, SendWqe& wqe, unsigned rights,
                                             Segments& out) noexcept;
  [[nodiscard, gnu::always_inline]] Attempt run_rdma(Qp& qp, SendWqe& wqe,
                                                     const RequestTarget& target,
                                                     Segments& local) noexcept;
  // Of an indirect key of the target's.
  [[nodiscard, gnu::noinline]] Attempt run_rdma_indirect(Qp& qp, SendWqe& wqe,
                                                         const RequestTarget& target,
                                                         const Segments& local) noexcept;
  // It has reached the target but not moved its bytes. `receive`: that it took; null: none.
  [[nodiscard, gnu::noinline]] Attempt refuse_rdma(Qp& qp, const SendWqe& wqe,
                                                   const RequestTarget& target,
                                                   const TakenReceive* receive, Access moved,
                                                   ibv_event_type event) noexcept;
  void deliver_imm(Qp& qp, const SendWqe& wqe, const RequestTarget& target,
                   const TakenReceive& receive, std::uint64_t length) noexcept;
  [[nodiscard]] Attempt run_atomic(Qp& qp, SendWqe& wqe, const RequestTarget& target,
                                   Segments& local) noexcept;
  [[nodiscard]] Attempt run_send(Qp& qp, SendWqe& wqe, const RequestTarget& target,
                                 Segments& local) noexcept;
  void send_to_group(Qp& qp, const SendWqe& wqe, const Segments& local) noexcept;
  [[nodiscard]] Access scatter(Qp& qp, std::uint32_t number, const TakenReceive& receive,
                               const Segments& data) noexcept;
  // Fills `room` bytes of a receive's piece with `data`, from byte `used` of its part `part` on.
  [[nodiscard, gnu::noinline]] Access scatter_indirect(Qp& qp, std::uint32_t number,
                                                       std::uint32_t pd, const ReceiveSge& sge,
                                                       std::uint64_t room, const Segments& data,
                                                       std::uint32_t part,
                                                       std::uint64_t used) noexcept;
  [[nodiscard]] ibv_wc_status remote_failure(const RequestTarget& target, Access access,
                                             ibv_event_type event) noexcept;
  // What kept a request from the target's memory, which goes when its owner dies: then nobody
  // answers, whatever it looked like.
  [[nodiscard]] Access judge(const RequestTarget& target, Access access) const noexcept {
    return access == Access::ok ? access : judge_failure(target, access);
  }
  [[nodiscard]] Access judge_failure(const RequestTarget& target, Access access) const noexcept;
  // A request that was carried out, or that nobody had to answer.
  static void count(Qp& qp, const SendWqe& wqe, std::uint64_t length) noexcept {
    QpCounters& counters = qp.record->counters;
    counters.bytes += length;
    counters.packets += packets_of(length);
    if (is_fetch(wqe.opcode)) ++counters.packets;  // without data, for the answer
    if (is_send(wqe.opcode)) ++counters.sends;
  }
  // A message of no bytes is a packet.
  [[nodiscard]] static std::uint64_t packets_of(std::uint64_t length) noexcept {
    return length <= kMtu ? 1 : (length + kMtu - 1) / kMtu;
  }
  // Takes a receive of the target for this request. Done with success: it was taken.
  [[nodiscard]] Attempt take(Qp& qp, const RequestTarget& target, TakenReceive& receive) noexcept;
  // Completes the receive taken from `target`.
  void deliver(Qp& qp, const SendWqe& wqe, const RequestTarget& target, const TakenReceive& receive,
               const Completion& entry) noexcept;
};

}  // namespace turnout::hca
