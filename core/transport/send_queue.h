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
#include <utility>
#include <vector>

#include "base/status.h"
#include "core/types/completion.h"
#include "core/verbs/handles.h"

namespace turnout {

struct Transfer;

struct SendRecord {
  // flush: done when all before it is; then the direction changes its channel
  enum class Kind : std::uint8_t { none, message, transfer, probe, flush };
  // kept: a data buffer that stays until the peer has acknowledged it (flow/ud_reliability.h)
  // logged: no buffer; `local` is where its bytes are in the queue's SentLog
  enum class Pool : std::uint8_t { none, data, control, kept, logged };
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
  ibv_ah* ah = nullptr;
  std::uint64_t dc_key = 0;  // id of the endpoint it goes to
};

// Buffers of one pool used by requests that no signalled request follows yet, over all queues that
// use the pool. Limited to a share of the pool: further requests are signalled, so the pool cannot
// be exhausted with no completion pending that would return buffers.
struct UnsignalledBuffers {
  std::uint32_t held = 0;
  std::uint32_t limit = 0;
};

class SendQueue {
 public:
  // A queue pair that takes over the id of one destroyed starts where its epochs ended.
  SendQueue(std::uint32_t id, std::uint32_t depth, UnsignalledBuffers& buffers,
            std::uint8_t epoch = 0)
      : depth_(depth), buffers_(buffers), id_(id), epoch_(epoch) {}
  ~SendQueue() { buffers_.held -= held_; }
  SendQueue(const SendQueue&) = delete;
  SendQueue& operator=(const SendQueue&) = delete;

  [[nodiscard]] bool full() const noexcept { return tail_ - head_ == depth_; }
  [[nodiscard]] std::size_t free_slots() const noexcept {
    return depth_ - static_cast<std::size_t>(tail_ - head_);
  }
  [[nodiscard]] bool idle() const noexcept { return tail_ == head_; }
  // The latest record; undefined when idle().
  [[nodiscard]] const SendRecord& newest() const noexcept { return record_at(tail_ - 1); }
  // The newest record that matches; null: none.
  template <class Condition>
  [[nodiscard]] const SendRecord* find_newest(Condition&& condition) const {
    for (std::uint64_t at = tail_; at != head_; --at) {
      const SendRecord& record = record_at(at - 1);
      if (condition(record)) return &record;
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
    const auto position = static_cast<std::uint32_t>(wr_id);
    return static_cast<std::uint8_t>(wr_id >> 32) == epoch_ &&
           position - static_cast<std::uint32_t>(head_) < static_cast<std::uint32_t>(tail_ - head_);
  }
  // Retires every record before `wr_id`'s through `done`, and that one too if `inclusive`.
  template <class Done>
  void retire(std::uint64_t wr_id, bool inclusive, Done&& done) {
    std::uint32_t n = static_cast<std::uint32_t>(wr_id) - static_cast<std::uint32_t>(head_);
    if (inclusive) ++n;
    for (; n > 0; --n) {
      const SendRecord record = record_at(head_);
      ++head_;
      done(record);
    }
  }
  // Takes out all records, oldest first; entries still to come for them are stale from now on.
  [[nodiscard]] std::vector<SendRecord> take_all() {
    std::vector<SendRecord> all;
    for (; head_ != tail_; ++head_) all.push_back(record_at(head_));
    ++epoch_;
    signalled();
    return all;
  }

 protected:
  [[nodiscard]] std::uint64_t next_wr_id() const noexcept {
    return std::uint64_t{id_} << 40 | std::uint64_t{epoch_} << 32 |
           static_cast<std::uint32_t>(tail_);
  }
  // Signalled now? At least every `every`-th request is, or its records would never retire.
  bool decide_signal(bool wanted, bool holds_buffer, std::uint32_t every) noexcept {
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
  void push(const SendRecord& record) {
    if (tail_ - head_ == records_.size()) grow();
    record_at(tail_++) = record;
  }

  verbs::Qp qp_;

 private:
  void signalled() noexcept {
    unsignalled_ = 0;
    buffers_.held -= held_;
    held_ = 0;
  }
  // The size of the ring is a power of two.
  [[nodiscard]] SendRecord& record_at(std::uint64_t position) noexcept {
    return records_[position & (records_.size() - 1)];
  }
  [[nodiscard]] const SendRecord& record_at(std::uint64_t position) const noexcept {
    return records_[position & (records_.size() - 1)];
  }
  // Most queues never fill: the ring of records grows on demand, up to the depth or the next power
  // of two.
  void grow() {
    const std::size_t size = records_.empty() ? 8 : records_.size() * 2;
    std::vector<SendRecord> records(size);
    for (std::uint64_t i = head_; i != tail_; ++i) {
      records[i & (size - 1)] = record_at(i);
    }
    records_ = std::move(records);
  }
  std::size_t depth_;
  std::vector<SendRecord> records_;
  UnsignalledBuffers& buffers_;
  std::uint32_t held_ = 0;
  std::uint64_t head_ = 0;
  std::uint64_t tail_ = 0;
  std::uint32_t id_;
  std::uint32_t unsignalled_ = 0;
  std::uint8_t epoch_;
};

}  // namespace turnout
