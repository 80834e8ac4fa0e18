// SPDX-License-Identifier: BSD-3-Clause
// The part of the budget reserved at the start, and the sizes of queue pairs and queues: as
// computed by mlx5's driver, unless the injected Processor gives them.
#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "base/log.h"
#include "core/endpoint/endpoint_core.h"
#include "core/memory/node_share.h"

namespace turnout {

namespace {
constexpr std::uint64_t kPartOfRecords = 4;  // of the budget
}

std::uint64_t EndpointCore::object_bytes(Object object, std::uint64_t count,
                                         std::uint64_t computed) const noexcept {
  return processor_ != nullptr ? processor_->object_bytes(object, count, computed) : computed;
}

std::uint64_t EndpointCore::dc_pool_bytes(Object pool, std::uint64_t initiators,
                                          std::uint64_t targets) const noexcept {
  return object_bytes(pool, initiators,
                      initiators * queue_pair_bytes(QpService::dci, kQueueDepth, 2, 0) +
                          targets * queue_pair_bytes(QpService::dct, 0, 0, 0));
}

std::uint32_t EndpointCore::receive_entries() const noexcept {
  return static_cast<std::uint32_t>(settings_.receive_buffers + settings_.control_buffers);
}

std::uint32_t EndpointCore::send_entries() const noexcept {
  const std::uint64_t queues = settings_.data_qps + settings_.credit_qps +
                               settings_.establishment_qps + settings_.rc_pool +
                               settings_.max_active_rc;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(
      queues * kQueueDepth, static_cast<std::uint64_t>(device_->attributes().max_cqe)));
}

// For all queue pairs that may be in use.
std::uint32_t EndpointCore::private_entries() const noexcept {
  if (!has_private_receives_) return 0;
  const auto cqe = static_cast<std::uint64_t>(device_->attributes().max_cqe);
  return static_cast<std::uint32_t>(std::min(
      connection_slots() * most_private(), cqe - std::min<std::uint64_t>(cqe, receive_entries())));
}

std::array<EndpointCore::Need, 4> EndpointCore::fixed_needs() const noexcept {
  // A completion entry takes 64 bytes, a receive with one segment 32 (mlx5: one stride each).
  const std::uint64_t receives = receive_entries();
  const std::uint64_t entries = receives + private_entries() + send_entries();
  const std::uint64_t buffer_size = settings_.ring_entry_size;
  const std::uint64_t data = settings_.data_qps, credit = settings_.credit_qps,
                      establishment = settings_.establishment_qps;
  const std::uint64_t datagrams = data + credit + establishment;
  return {
      {{MemoryKind::queues,
        object_bytes(Object::cq_entry, entries, 64 * entries) +
            object_bytes(Object::srq_entry, receives, 32 * receives),
        4},
       {MemoryKind::receive_buffers,
        first_receives() * buffer_size + settings_.control_buffers * wire::kControlBuffer,
        first_receives() + settings_.control_buffers},
       {MemoryKind::send_buffers,
        (settings_.send_buffers + kRecoveryBuffers) * buffer_size +
            std::uint64_t{kControlSendBuffers} * wire::kControlBuffer,
        settings_.send_buffers + kRecoveryBuffers + kControlSendBuffers},
       over_datagrams()
           ? Need{MemoryKind::queue_pairs,
                  object_bytes(Object::ud_queue_pair, datagrams,
                               datagrams * queue_pair_bytes(QpService::ud, kQueueDepth, 1, 0)),
                  datagrams}
           : Need{MemoryKind::queue_pairs,
                  dc_pool_bytes(Object::dc_data_pool, data, data_targets()) +
                      dc_pool_bytes(Object::dc_credit_pool, credit, credit) +
                      dc_pool_bytes(Object::dc_establishment_pool, establishment, establishment),
                  data + data_targets() + 2 * (credit + establishment)}}};
}

// In addition to the fixed needs: one block of each kind of record.
std::uint64_t EndpointCore::needed_at_start() const noexcept {
  std::uint64_t bytes = sends_.first_bytes() + receives_.first_bytes() + messages_.first_bytes() +
                        transfers_.first_bytes();
  for (const Need& need : fixed_needs()) bytes += need.bytes;
  return bytes;
}

// The record and its table entries; rings and queue pairs are accounted separately.
std::uint64_t EndpointCore::record_bytes() const noexcept {
  return kPeerBytes + 96 + (over_datagrams() ? sizeof(UdReliability) + 64 : 0);
}

// A program may communicate with few of the peers in its address vector.
std::uint64_t EndpointCore::expected_records() const noexcept {
  return account_.budget() / kPartOfRecords / record_bytes();
}

std::uint64_t EndpointCore::reserved_headroom() const noexcept {
  const std::uint64_t expected = std::min<std::uint64_t>(expected_peers_, expected_records());
  const std::uint64_t missing = expected > peers_.size() ? expected - peers_.size() : 0;
  return account_.budget() / 8 + missing * record_bytes();
}

std::uint64_t EndpointCore::room_for_channels() const noexcept {
  const std::uint64_t room = account_.available() + rc_pool_.size() * rc_bytes_;
  return room - std::min(room, reserved_headroom());
}

void EndpointCore::expect_peers(std::size_t count) {
  const std::uint64_t most = expected_records();
  if (count > most &&
      expected_peers_ <= most) {  // logged once, also if addresses are inserted one by one
    TURNOUT_LOG(memory, warn,
                "reserving memory for the records of {} peers failed: TURNOUT_MEMORY_BUDGET={}: "
                "{} at most; raise it to {} if the program communicates with all of them",
                count, account_.budget(), most, count * kPartOfRecords * record_bytes());
  }
  expected_peers_ = count;
}

bool EndpointCore::fits_at_start() const noexcept {
  return needed_at_start() + reserved_headroom() <= account_.budget();
}

// Whether the minimum of this endpoint fits the budget; the error names the budget that would do.
Status EndpointCore::check_budget() const {
  if (fits_at_start()) return {};
  const std::uint64_t needed = needed_at_start();
  const std::uint64_t least =
      needed + (needed - 1) / 7;  // of which reserved_headroom() leaves that much
  const ProcessBudget budget = budget_of_process(settings_);
  const std::string which =
      budget.of_node
          ? fmt::format("TURNOUT_NODE_BUDGET={} is too small for {} processes ({} bytes each): ",
                        settings_.node_budget, budget.processes, budget.bytes)
          : fmt::format("TURNOUT_MEMORY_BUDGET={} is too small: ", budget.bytes);
  return {Code::over_budget,
          fmt::format("{}{} bytes are needed before the first message, plus one eighth for "
                      "messages; raise it to {}, or lower TURNOUT_SEND_BUFFERS, or receive_first "
                      "or control_buffers in TURNOUT_TUNING",
                      which, needed, budget.of_node ? least * budget.processes : least)};
}

Status EndpointCore::reserve_fixed() {
  if (Status s = check_budget(); !s.ok()) return s;
  for (const Need& need : fixed_needs()) {
    Reservation reservation = Reservation::take(account_, need.kind, need.bytes, 0, need.objects);
    assert(reservation);
    fixed_.push_back(std::move(reservation));
  }
  return {};
}

}  // namespace turnout
