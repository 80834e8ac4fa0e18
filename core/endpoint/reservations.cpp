// SPDX-License-Identifier: BSD-3-Clause
// The part of the budget reserved at the start, and the sizes of queue pairs and queues: as
// computed by mlx5's driver, unless a simulation injects ObjectSizes.
#include "base/log.h"
#include "core/endpoint/startup.h"
#include "core/memory/node_share.h"

namespace turnout {

std::uint64_t Startup::dc_pool_bytes(Object pool, std::uint64_t initiators,
                                     std::uint64_t targets) const noexcept {
  return context_.object_bytes(pool, initiators,
                               initiators * queue_pair_bytes(QpService::dci, kQueueDepth, 2, 0) +
                                   targets * queue_pair_bytes(QpService::dct, 0, 0, 0));
}

std::uint32_t Startup::receive_entries() const noexcept {
  return static_cast<std::uint32_t>(context_.settings.receive_buffers +
                                    context_.settings.control_buffers);
}

std::uint32_t Startup::send_entries() const noexcept {
  const std::uint64_t queues = context_.settings.data_qps + context_.settings.credit_qps +
                               context_.settings.establishment_qps + context_.settings.rc_pool +
                               context_.settings.max_active_rc;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(
      queues * kQueueDepth, static_cast<std::uint64_t>(context_.device->attributes().max_cqe)));
}

// For all queue pairs that may be in use.
std::uint32_t Startup::private_entries() const noexcept {
  if (!context_.traits.has_private_receives) return 0;
  const auto cqe = static_cast<std::uint64_t>(context_.device->attributes().max_cqe);
  return static_cast<std::uint32_t>(
      std::min(channels_.rc.connection_slots() * context_.most_private(),
               cqe - std::min<std::uint64_t>(cqe, receive_entries())));
}

std::array<Need, 4> Startup::fixed_needs() const noexcept {
  // A completion entry takes 64 bytes, a receive with one segment 32 (mlx5: one stride each).
  const std::uint64_t receives = receive_entries();
  const std::uint64_t entries = receives + private_entries() + send_entries();
  const std::uint64_t buffer_size = context_.settings.ring_entry_size;
  const std::uint64_t data = context_.settings.data_qps, credit = context_.settings.credit_qps,
                      establishment = context_.settings.establishment_qps;
  const std::uint64_t datagrams = data + credit + establishment;
  return {
      {{MemoryKind::queues,
        context_.object_bytes(Object::cq_entry, entries, 64 * entries) +
            context_.object_bytes(Object::srq_entry, receives, 32 * receives),
        4},
       {MemoryKind::receive_buffers,
        context_.first_receives() * buffer_size +
            context_.settings.control_buffers * wire::kControlBuffer,
        context_.first_receives() + context_.settings.control_buffers},
       {MemoryKind::send_buffers,
        (context_.settings.send_buffers + kRecoveryBuffers) * buffer_size +
            std::uint64_t{kControlSendBuffers} * wire::kControlBuffer,
        context_.settings.send_buffers + kRecoveryBuffers + kControlSendBuffers},
       context_.over_datagrams()
           ? Need{MemoryKind::queue_pairs,
                  context_.object_bytes(
                      Object::ud_queue_pair, datagrams,
                      datagrams * queue_pair_bytes(QpService::ud, kQueueDepth, 1, 0)),
                  datagrams}
           : Need{MemoryKind::queue_pairs,
                  dc_pool_bytes(Object::dc_data_pool, data, context_.data_targets()) +
                      dc_pool_bytes(Object::dc_credit_pool, credit, context_.credit_targets()) +
                      dc_pool_bytes(Object::dc_establishment_pool, establishment, establishment),
                  data + context_.data_targets() + credit + context_.credit_targets() +
                      2 * establishment}}};
}

// In addition to the fixed needs: one block of each kind of record.
std::uint64_t Startup::needed_at_start() const noexcept {
  std::uint64_t bytes = records_.sends.first_bytes() + records_.receives.first_bytes() +
                        records_.messages.first_bytes() + records_.transfers.first_bytes();
  for (const Need& need : fixed_needs()) bytes += need.bytes;
  return bytes;
}

bool Startup::fits_at_start() const noexcept {
  return needed_at_start() + peer_table_.reserved_headroom() <= context_.account.budget();
}

// Whether the minimum of this endpoint fits the budget; the error names the budget that would do.
Status Startup::check_budget() const {
  if (fits_at_start()) return {};
  const std::uint64_t needed = needed_at_start();
  const std::uint64_t least =
      needed + (needed - 1) / 7;  // of which reserved_headroom() leaves that much
  const ProcessBudget budget = budget_of_process(context_.settings);
  const std::string which =
      budget.of_node
          ? fmt::format("TURNOUT_NODE_BUDGET={} is too small for {} processes ({} bytes each): ",
                        context_.settings.node_budget, budget.processes, budget.bytes)
          : fmt::format("TURNOUT_MEMORY_BUDGET={} is too small: ", budget.bytes);
  return {Code::over_budget,
          fmt::format("{}{} bytes are needed before the first message, plus one eighth for "
                      "messages; raise it to {}, or lower TURNOUT_SEND_BUFFERS, or receive_first "
                      "or control_buffers in TURNOUT_TUNING",
                      which, needed, budget.of_node ? least * budget.processes : least)};
}

Status Startup::reserve_fixed() {
  if (Status s = check_budget(); !s.ok()) return s;
  for (const Need& need : fixed_needs()) {
    Reservation reservation =
        Reservation::take(context_.account, need.kind, need.bytes, 0, need.objects);
    assert(reservation);
    resources_.fixed.push_back(std::move(reservation));
  }
  return {};
}

}  // namespace turnout
