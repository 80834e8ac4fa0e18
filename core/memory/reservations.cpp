// What an endpoint takes of its budget at its start, and the size of queue pairs and queues: as
// mlx5's driver computes it, unless the injected Processor knows better.
#include <fmt/format.h>

#include "core/endpoint_core.h"

namespace turnout {

std::uint64_t EndpointCore::object_bytes(Object object, std::uint64_t count,
                                         std::uint64_t computed) const noexcept {
  return processor_ != nullptr ? processor_->object_bytes(object, count, computed) : computed;
}

Status EndpointCore::reserve_fixed(MemoryKind kind, std::uint64_t bytes, const char* what,
                                   std::uint64_t objects) {
  Reservation reservation = Reservation::take(account_, kind, bytes, 0, objects);
  if (!reservation) {
    return {Code::over_budget,
            fmt::format("TURNOUT_MEMORY_BUDGET={} is too small: {} needs {} bytes and {} are "
                        "used; raise it, or lower TURNOUT_RECEIVE_FIRST, "
                        "TURNOUT_CONTROL_BUFFERS or TURNOUT_SEND_BUFFERS",
                        account_.budget(), what, bytes, account_.used())};
  }
  fixed_.push_back(std::move(reservation));
  return {};
}

std::uint64_t EndpointCore::dc_pool_bytes(Object pool, std::uint64_t initiators,
                                          std::uint64_t targets) const noexcept {
  return object_bytes(pool, initiators,
                      initiators * queue_pair_bytes(QpService::dci, kQueueDepth, 2, 0) +
                          targets * queue_pair_bytes(QpService::dct, 0, 0, 0));
}

Status EndpointCore::reserve_fixed(std::uint32_t receive_entries, std::uint32_t own_entries,
                                   std::uint32_t send_entries) {
  // A completion entry takes 64 bytes, a receive with one piece 32 (mlx5: one stride each).
  const std::uint64_t entries = std::uint64_t{receive_entries} + own_entries + send_entries;
  const std::uint64_t receives = receive_entries;
  if (Status s = reserve_fixed(MemoryKind::queues,
                               object_bytes(Object::cq_entry, entries, 64 * entries) +
                                   object_bytes(Object::srq_entry, receives, 32 * receives),
                               "the completion and receive queues", 4);
      !s.ok()) {
    return s;
  }
  const std::uint64_t buffer_size = settings_.ring_entry_size;
  if (Status s = reserve_fixed(
          MemoryKind::receive_buffers,
          first_receives() * buffer_size + settings_.control_buffers * wire::kControlBuffer,
          "the receive buffers", first_receives() + settings_.control_buffers);
      !s.ok()) {
    return s;
  }
  if (Status s = reserve_fixed(MemoryKind::send_buffers,
                               (settings_.send_buffers + kRecoveryBuffers) * buffer_size +
                                   std::uint64_t{kControlSendBuffers} * wire::kControlBuffer,
                               "the send buffers",
                               settings_.send_buffers + kRecoveryBuffers + kControlSendBuffers);
      !s.ok()) {
    return s;
  }
  if (over_datagrams()) {
    const std::uint64_t count =
        settings_.data_qps + settings_.credit_qps + settings_.establishment_qps;
    return reserve_fixed(MemoryKind::queue_pairs,
                         object_bytes(Object::ud_queue_pair, count,
                                      count * queue_pair_bytes(QpService::ud, kQueueDepth, 1, 0)),
                         "the UD queue pairs", count);
  }
  const std::uint64_t data = settings_.data_qps, credit = settings_.credit_qps,
                      establishment = settings_.establishment_qps;
  return reserve_fixed(
      MemoryKind::queue_pairs,
      dc_pool_bytes(Object::dc_data_pool, data, data_targets()) +
          dc_pool_bytes(Object::dc_credit_pool, credit, credit) +
          dc_pool_bytes(Object::dc_establishment_pool, establishment, establishment),
      "the DC queue pairs", data + data_targets() + 2 * (credit + establishment));
}

}  // namespace turnout
