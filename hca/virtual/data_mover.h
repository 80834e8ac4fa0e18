// SPDX-License-Identifier: BSD-3-Clause
// DataMover: copies the bytes of operations between registered memory.
//
// Regions of the sender were checked when the request was posted; the part of one that is gone
// meanwhile is left out. One thread.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstring>
#include <vector>

#include "hca/virtual/regions.h"

namespace turnout::hca {

class DataMover : EngineParts {
 public:
  explicit DataMover(const EngineParts& parts) : EngineParts(parts) {}

  // Into the receive that the operation took. What goes wrong is the status of both.
  void to_receive(Operation& operation, Completion& entry) {
    const VirtualReceive& receive = operation.receive;
    std::uint8_t grh[kGrhBytes] = {};
    gather(operation);
    if (operation.datagram) spans_.insert(spans_.begin(), Span{grh, sizeof grh});
    std::uint64_t total = 0;
    for (const Span& span : spans_) total += span.length;
    entry.byte_len = static_cast<std::uint32_t>(total);
    if (total > receive.room) {
      entry.status = IBV_WC_LOC_LEN_ERR;
      operation.status = IBV_WC_REM_INV_REQ_ERR;
      return;
    }
    std::size_t at = 0;
    std::uint64_t used = 0;  // of spans_[at]
    for (std::uint32_t i = 0; i < receive.count && total > 0; ++i) {
      const ibv_sge& sge = i == 0 ? receive.first : receive.more[i - 1];
      const std::uint64_t room = std::min<std::uint64_t>(sge.length, total);
      if (room == 0) continue;
      const Region* const region = regions.find(sge.lkey, sge.addr, room, IBV_ACCESS_LOCAL_WRITE);
      if (region == nullptr) {
        entry.status = IBV_WC_LOC_PROT_ERR;
        operation.status = IBV_WC_REM_OP_ERR;
        return;
      }
      auto* to = reinterpret_cast<std::uint8_t*>(region->address + (sge.addr - region->iova));
      std::uint64_t left = room;
      while (left > 0) {
        const std::uint64_t n = std::min(left, spans_[at].length - used);
        std::memcpy(to, spans_[at].data + used, n);
        to += n;
        left -= n;
        used += n;
        if (used == spans_[at].length) {
          ++at;
          used = 0;
        }
      }
      total -= room;
    }
  }
  // Of the sender's data the bytes [from, to), to where they belong in the target's memory.
  void place(const Operation& operation, std::uint8_t* target, std::uint64_t from,
             std::uint64_t to) {
    gather(operation);
    std::uint64_t offset = 0;
    for (const Span& span : spans_) {
      const std::uint64_t begin = std::max(offset, from);
      const std::uint64_t end = std::min(offset + span.length, to);
      if (begin < end) std::memcpy(target + begin, span.data + (begin - offset), end - begin);
      offset += span.length;
    }
  }
  // The sender's data into `copy`, which has room for them.
  void copy_from(const Operation& operation, std::vector<std::uint8_t>& copy) {
    gather(operation);
    std::size_t at = 0;
    for (const Span& span : spans_) {
      assert(at + span.length <= copy.size());
      std::copy_n(span.data, span.length, copy.data() + at);
      at += span.length;
    }
  }
  // operation.copy into the sender's memory. False: its size is not what the request had.
  [[nodiscard]] bool copy_back(const Operation& operation) {
    std::uint64_t offset = 0;
    gather(operation);
    for (const Span& span : spans_) {
      if (span.length > 0) std::memcpy(span.data, operation.copy.data() + offset, span.length);
      offset += span.length;
    }
    return offset == operation.copy.size();
  }

 private:
  struct Span {
    std::uint8_t* data;
    std::uint64_t length;
  };
  // Where the sender's data lie, into spans_.
  void gather(const Operation& operation) {
    spans_.clear();
    if (operation.datagram) {
      spans_.push_back({const_cast<std::uint8_t*>(operation.copy.data()), operation.copy.size()});
    } else if (operation.wqe.is_inline) {
      spans_.push_back({const_cast<std::uint8_t*>(operation.wqe.data), operation.wqe.length});
    } else {
      for (std::uint32_t i = 0; i < operation.wqe.num_sge; ++i) {
        const ibv_sge& sge = operation.wqe.sge[i];
        const Region* const region = regions.find(sge.lkey, sge.addr, sge.length, 0);
        if (sge.length == 0) continue;
        // A region deregistered meanwhile leaves its memory to its owner: its part is left out.
        static std::uint8_t nothing[1];
        if (region == nullptr) {
          spans_.push_back({nothing, 0});
        } else {
          spans_.push_back(
              {reinterpret_cast<std::uint8_t*>(region->address + (sge.addr - region->iova)),
               sge.length});
        }
      }
    }
  }

  std::vector<Span> spans_;  // scratch
};

}  // namespace turnout::hca
