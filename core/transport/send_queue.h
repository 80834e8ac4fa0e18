// SPDX-License-Identifier: BSD-3-Clause
// SendQueue: the send side of one queue pair, with a record of every work request in flight.
//
// Records complete in posting order, so most work requests are unsignalled: the completion of a
// signalled one retires all before it. After an error the records show which requests did not
// complete; a DC initiator, which serves many peers, reposts those of live peers (recover()).
//
// Owner: the endpoint; one thread. A wr_id is queue (24 bits) | epoch (8) | position (32);
// completions of an earlier epoch are stale and ignored.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "core/types/completion.h"
#include "core/types/growing_queue.h"
#include "core/verbs/handles.h"

namespace turnout {

struct Transfer;

struct SendRecord {
  // flush: done when all before it is; then the direction changes its channel
  // credit: into the peer's CreditWord
  enum class Kind : std::uint8_t { none, message, transfer, probe, flush, credit };
  // kept: a data buffer that stays until the peer has acknowledged it (flow/ud_reliability.h)
  // logged: no buffer; `local` is where its bytes are in the queue's SentLog
  // large: a buffer for a message that fits only a large ring entry
  enum class Pool : std::uint8_t { none, data, control, kept, logged, large };
  Kind kind = Kind::none;
  Pool pool = Pool::none;  // where `buffer` goes when done
  std::uint8_t opcode = IBV_WR_SEND;
  bool signalled = false;
  bool takes_private = false;  // consumes a receive of a private receive queue
  PeerId peer = kAnyPeer;
  std::uint32_t buffer = 0;
  std::uint32_t length = 0;
  std::uint32_t lkey = 0;
  std::uint32_t rkey = 0;
  std::uint32_t dct = 0;  // number of the queue pair it goes to; XRC: of the receive queue
  std::uint64_t local = 0;
  std::uint64_t remote = 0;
  Transfer* transfer = nullptr;
  std::uint64_t operation = 0;  // of a message: the send that ends with it; 0: none
  ibv_ah* ah = nullptr;
  std::uint64_t dc_key = 0;  // id of the endpoint it goes to
};

// Of all queues that use one pool. The buffers of requests that no signalled request follows yet
// are limited to a share of the pool: further requests are signalled, so the pool cannot be
// exhausted with no completion pending that would return buffers.
struct UnsignalledBuffers {
  std::uint32_t held = 0;
  std::uint32_t limit = 0;
  std::uint32_t signalled = 0;  // requests in flight whose completion will come
};

class SendQueue {
 public:
  // A queue pair that takes over the id of one destroyed starts where its epochs ended.
  SendQueue(std::uint32_t id, std::uint32_t depth, UnsignalledBuffers& buffers,
            std::uint8_t epoch = 0)
      : depth_(depth), buffers_(buffers), id_(id), epoch_(epoch) {}
  ~SendQueue() {
    buffers_.held -= held_;
    while (!records_.empty()) drop_oldest();
  }
  SendQueue(const SendQueue&) = delete;
  SendQueue& operator=(const SendQueue&) = delete;

  [[nodiscard]] bool full() const noexcept { return records_.size() == depth_; }
  [[nodiscard]] bool idle() const noexcept { return records_.empty(); }
  // The latest record; undefined when idle().
  [[nodiscard]] const SendRecord& newest() const noexcept { return records_[records_.size() - 1]; }
  // The newest record that matches; null: none.
  template <class Condition>
  [[nodiscard]] const SendRecord* find_newest(Condition&& condition) const {
    for (std::size_t i = records_.size(); i-- > 0;) {
      if (condition(records_[i])) return &records_[i];
    }
    return nullptr;
  }
  [[nodiscard]] std::uint32_t id() const noexcept { return id_; }
  [[nodiscard]] std::uint8_t epoch() const noexcept { return epoch_; }
  [[nodiscard]] ibv_qp* qp() const noexcept { return qp_.get(); }

  static std::uint32_t queue_of(std::uint64_t wr_id) noexcept {
    return static_cast<std::uint32_t>(wr_id >> 40);
  }
  // True if the entry belongs to a request that is still recorded.
  [[nodiscard]] bool current(std::uint64_t wr_id) const noexcept {
    return static_cast<std::uint8_t>(wr_id >> 32) == epoch_ &&
           static_cast<std::uint32_t>(wr_id) - head_ < records_.size();
  }
  // Retires every record before `wr_id`'s through `done`, and that one too if `inclusive`.
  template <class Done>
  void retire(std::uint64_t wr_id, bool inclusive, Done&& done) {
    for (std::uint32_t n = count_until(wr_id, inclusive); n > 0; --n) done(take_oldest());
  }
  // Takes out all records, oldest first; entries still to come for them are stale from now on.
  [[nodiscard]] std::vector<SendRecord> take_all() {
    std::vector<SendRecord> all;
    while (!records_.empty()) all.push_back(take_oldest());
    ++epoch_;
    signalled();
    return all;
  }

 protected:
  // Records before `wr_id`'s, and that one if `inclusive`.
  [[nodiscard]] std::uint32_t count_until(std::uint64_t wr_id, bool inclusive) const noexcept {
    return static_cast<std::uint32_t>(wr_id) - head_ + (inclusive ? 1 : 0);
  }
  [[nodiscard]] const SendRecord& oldest() const noexcept { return records_[0]; }
  void drop_oldest() noexcept {
    buffers_.signalled -= oldest().signalled;
    records_.pop_front();
    ++head_;
  }
  SendRecord take_oldest() noexcept {
    const SendRecord record = oldest();
    drop_oldest();
    return record;
  }
  [[nodiscard]] std::uint64_t next_wr_id() const noexcept {
    return std::uint64_t{id_} << 40 | std::uint64_t{epoch_} << 32 |
           static_cast<std::uint32_t>(head_ + records_.size());
  }
  // Signalled now? At least every `every`-th request is, or its records would never retire.
  [[gnu::always_inline]] bool decide_signal(bool wanted, bool holds_buffer,
                                            std::uint32_t every) noexcept {
    if (wanted || ++unsignalled_ >= every || (holds_buffer && buffers_.held >= buffers_.limit)) {
      signalled();
      return true;
    }
    if (holds_buffer) {
      ++held_;
      ++buffers_.held;
    }
    return false;
  }
  // By value and inline: a record that was made in smaller pieces is not read again in larger ones,
  // which would wait until every earlier store is done, those to a peer's memory among them.
  [[gnu::always_inline]] void push(SendRecord record, bool signalled) {
    record.signalled = signalled;
    buffers_.signalled += signalled;
    records_.push_back() = record;
  }
  // To the adapter, by ibv_post_send(3). 0 or errno.
  [[nodiscard]] int submit(ibv_send_wr* request) noexcept {
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp_.get(), request, &bad);
  }

  verbs::Qp qp_;

 private:
  void signalled() noexcept {
    unsignalled_ = 0;
    buffers_.held -= held_;
    held_ = 0;
  }
  std::size_t depth_;
  GrowingQueue<SendRecord> records_;  // most queues never fill
  UnsignalledBuffers& buffers_;
  std::uint32_t held_ = 0;
  std::uint32_t head_ = 0;  // position of the first record
  std::uint32_t id_;
  std::uint32_t unsignalled_ = 0;
  std::uint8_t epoch_;
};

}  // namespace turnout
