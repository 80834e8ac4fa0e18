// SPDX-License-Identifier: BSD-3-Clause
#include "hca/virtual/operations.h"

#include <cassert>

namespace turnout::hca {

Operation* Operations::create() {
  constexpr std::size_t kBlock = 256;
  if (free_ == nullptr) {
    blocks_.push_back(std::make_unique<Operation[]>(kBlock));
    for (std::size_t i = 0; i < kBlock; ++i) {
      blocks_.back()[i].next_free = free_;
      free_ = &blocks_.back()[i];
    }
  }
  Operation* const operation = free_;
  free_ = operation->next_free;
  operation->qp = nullptr;
  operation->place = Operation::Place::queued;
  operation->status = IBV_WC_SUCCESS;
  operation->answer_at = 0;
  operation->events = operation->attempts = 0;
  operation->signalled = operation->datagram = operation->lost = false;
  operation->local = operation->received = false;
  operation->spread = 0;
  operation->at_responder = operation->xrc = operation->took_receive = false;
  operation->tail_first = operation->tail_placed = false;
  operation->copy.clear();
  return operation;
}

void Operations::free(Operation* operation) noexcept {
  assert(operation->events == 0);
  operation->qp = nullptr;
  operation->next_free = free_;
  free_ = operation;
}

}  // namespace turnout::hca
