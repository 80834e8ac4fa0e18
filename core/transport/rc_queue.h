// SPDX-License-Identifier: BSD-3-Clause
// RcQueue: the RC queue pair of one pair of endpoints, for both directions, or this process's XRC
// initiator for a node, which sends to all processes there (IBTA vol. 1, annex A14).
//
// Small ring writes are inline and unsignalled, and are kept until known to be complete: when the
// queue pair fails, they are resent elsewhere. Larger ones use a registered buffer. An unused
// queue pair is RESET and can be connected to any peer (the pool of AQPS 3.4). Messages over it
// consume receives of the shared receive queue, or of a private one if it was created with one;
// RESET empties that. One thread.
#pragma once

#include <span>

#include "core/transport/credit_words.h"
#include "core/transport/dc_queue.h"
#include "core/transport/qp_id.h"
#include "core/transport/sent_log.h"

namespace turnout {

class RcQueue : public SendQueue {
 public:
  // `use`: generation; must differ from that of an earlier queue pair with the same number.
  RcQueue(std::uint32_t id, std::uint32_t depth, UnsignalledBuffers& buffers, std::uint8_t epoch,
          std::uint8_t use, MemoryAccount& account)
      : SendQueue(id, depth, buffers, epoch), use_(use), log_(account) {}
  // `srq`: null for a private receive queue, of `receives`.
  [[nodiscard]] Status create(const verbs::Device& device, ibv_cq* cq, ibv_cq* receive_cq,
                              ibv_srq* srq, std::uint32_t receives, std::uint32_t depth,
                              const QpTuning& tuning);
  // An XRC initiator, which receives nothing.
  [[nodiscard]] Status create_initiator(const verbs::Device& device, ibv_cq* cq,
                                        std::uint32_t depth, const QpTuning& tuning);
  // As reported to the peer, see qp_id.h; another after each reset().
  [[nodiscard]] std::uint32_t qp_id() const noexcept { return make_qp_id(qp_->qp_num, use_); }
  // The peer's; 0 when not connected.
  [[nodiscard]] std::uint32_t connected_to() const noexcept { return remote_; }
  // RESET (if it was connected), then up to ready-to-send, connected to that QP id. The QP id
  // reported to the peer stays valid.
  [[nodiscard]] Status connect(std::uint32_t remote, std::uint16_t lid,
                               const std::array<std::uint8_t, 16>& gid);
  // To INIT, where it waits for connect().
  [[nodiscard]] Status prepare();
  // RESETs the queue pair; records must have been removed.
  [[nodiscard]] Status reset() {
    ++use_;
    return disconnect();
  }
  // To the error state: pending requests complete with errors, and nothing arrives any more.
  [[nodiscard]] Status fail();
  void destroy() noexcept { qp_.reset(); }

  // Whether so many bytes can be sent inline, and logged.
  [[nodiscard]] bool takes_inline(std::size_t bytes) noexcept {
    return bytes <= tuning_.max_inline && log_.has_room(bytes);
  }
  // Where to write the bytes of such a request before it is posted, so that they are copied once:
  // in the log, or where that has no place in one piece, in `aside`.
  [[nodiscard]] std::byte* place_of_inline(std::size_t bytes, std::byte* aside) const noexcept {
    std::byte* const place = log_.place_of_next(bytes);
    return place != nullptr ? place : aside;
  }
  // RDMA write, inline. Undefined when full() or not takes_inline(). `srq`: of an initiator, the
  // number of the XRC receive queue whose owner's memory it is.
  [[nodiscard, gnu::always_inline]] Status write_inline(std::span<const std::byte> bytes,
                                                        std::uint64_t remote, std::uint32_t rkey,
                                                        PeerId peer, std::uint32_t srq = 0,
                                                        std::uint64_t operation = 0);
  // The same, into the peer's credit word.
  [[nodiscard]] Status write_credits(std::uint64_t value, std::uint64_t remote, std::uint32_t rkey,
                                     PeerId peer) {
    return post_inline(std::as_bytes(std::span(&value, 1)), {.kind = SendRecord::Kind::credit,
                                                             .opcode = IBV_WR_RDMA_WRITE,
                                                             .peer = peer,
                                                             .rkey = rkey,
                                                             .remote = remote});
  }
  // The same as a message; `takes_private`: it consumes a receive of a private receive queue.
  [[nodiscard]] Status send_inline(std::span<const std::byte> bytes, PeerId peer,
                                   bool takes_private, std::uint64_t operation = 0);
  // Of an initiator: record.dct is the number of the XRC receive queue.
  [[nodiscard, gnu::always_inline]] Status post(const SendRecord& record);
  template <class Done>
  void retire(std::uint64_t wr_id, bool inclusive, Done&& done) {
    for (std::uint32_t n = count_until(wr_id, inclusive); n > 0; --n) {
      if (oldest().pool == SendRecord::Pool::logged) {
        log_.pop(oldest().length);
        if (oldest().operation == 0) {  // nobody waits for it
          drop_oldest();
          continue;
        }
      }
      done(take_oldest());
    }
  }
  // All records, oldest first; `log`, if given, takes over the bytes of those that are logged.
  [[nodiscard]] std::vector<SendRecord> take_all(std::shared_ptr<const SentLog>* log = nullptr);
  // Into its private receive queue; it is connected.
  [[nodiscard]] Status post_receive(std::uint64_t wr_id, ibv_sge sge);

  // Chunks of the endpoint's ReceivePool whose buffers are this queue's.
  std::vector<std::uint32_t> receive_chunks;
  // Where the peer writes the credits of the ring that we send to.
  CreditWord credit_word;

 private:
  [[nodiscard]] Status create(const verbs::Device& device, ibv_cq* cq, std::uint32_t depth,
                              const QpTuning& tuning, ibv_qp_init_attr attr, const char* object);
  [[nodiscard]] Status disconnect();
  // `what`: to whom, and where to; the record of it has the rest, too.
  [[nodiscard, gnu::always_inline]] Status post_inline(std::span<const std::byte> bytes,
                                                       const SendRecord& what);
  [[nodiscard]] ibv_qp_attr init_attributes() const noexcept;
  static constexpr const char* kRcName = "RC queue pair";
  static constexpr std::uint32_t kSignalBufferEvery = 8;
  // Records of inline writes hold nothing: few completions are enough. Below half the depth.
  static constexpr std::uint32_t kSignalInlineEvery = 32;

  bool initiator_ = false;  // of XRC
  bool prepared_ = false;   // in INIT
  std::uint8_t use_;
  const verbs::Device* device_ = nullptr;
  QpTuning tuning_;
  std::uint32_t remote_ = 0;
  SentLog log_;
};

inline Status RcQueue::post(const SendRecord& record) {
  const bool signalled = decide_signal(record.signalled || record.kind != SendRecord::Kind::message,
                                       record.pool != SendRecord::Pool::none, kSignalBufferEvery);
  ibv_sge sge{record.local, record.length, record.lkey};
  ibv_send_wr request;  // what its opcode does not use stays as it is
  request.wr_id = next_wr_id();
  request.next = nullptr;
  request.sg_list = &sge;
  request.num_sge = record.length > 0 ? 1 : 0;
  request.opcode = static_cast<ibv_wr_opcode>(record.opcode);
  request.send_flags = signalled ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0u;
  request.wr.rdma.remote_addr = record.remote;
  request.wr.rdma.rkey = record.rkey;
  request.qp_type.xrc.remote_srqn = record.dct;
  if (const int error = submit(&request); error != 0) [[unlikely]]
    return verbs::failure("ibv_post_send", kRcName, error);
  push(record, signalled);
  return {};
}

inline Status RcQueue::post_inline(std::span<const std::byte> bytes, const SendRecord& what) {
  const bool signalled = decide_signal(what.operation != 0, false, kSignalInlineEvery);
  ibv_sge sge{reinterpret_cast<std::uint64_t>(bytes.data()),
              static_cast<std::uint32_t>(bytes.size()), 0};
  ibv_send_wr request;  // what its opcode does not use stays as it is
  request.wr_id = next_wr_id();
  request.next = nullptr;
  request.sg_list = &sge;
  request.num_sge = 1;
  request.opcode = static_cast<ibv_wr_opcode>(what.opcode);
  request.send_flags = static_cast<unsigned>(IBV_SEND_INLINE) |
                       (signalled ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0u);
  request.wr.rdma.remote_addr = what.remote;
  request.wr.rdma.rkey = what.rkey;
  request.qp_type.xrc.remote_srqn = what.dct;
  if (const int error = submit(&request); error != 0) [[unlikely]]
    return verbs::failure("ibv_post_send", kRcName, error);
  push({.kind = what.kind,
        .pool = SendRecord::Pool::logged,
        .opcode = what.opcode,
        .takes_private = what.takes_private,
        .peer = what.peer,
        .length = sge.length,
        .rkey = what.rkey,
        .dct = what.dct,
        .local = log_.append(bytes.data(), bytes.size()),
        .remote = what.remote,
        .operation = what.operation},
       signalled);
  return {};
}

inline Status RcQueue::write_inline(std::span<const std::byte> bytes, std::uint64_t remote,
                                    std::uint32_t rkey, PeerId peer, std::uint32_t srq,
                                    std::uint64_t operation) {
  return post_inline(bytes, {.kind = SendRecord::Kind::message,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .peer = peer,
                             .rkey = rkey,
                             .dct = srq,
                             .remote = remote,
                             .operation = operation});
}

inline Status RcQueue::send_inline(std::span<const std::byte> bytes, PeerId peer,
                                   bool takes_private, std::uint64_t operation) {
  return post_inline(bytes, {.kind = SendRecord::Kind::message,
                             .opcode = IBV_WR_SEND,
                             .takes_private = takes_private,
                             .peer = peer,
                             .operation = operation});
}

}  // namespace turnout
