// SPDX-License-Identifier: BSD-3-Clause
#include "core/endpoint/endpoint_parts.h"

namespace turnout {

EndpointEvents::EndpointEvents(EndpointParts& parts) noexcept : parts_(parts) {}

bool EndpointEvents::post_private_control(Peer& peer, wire::ControlMessage message,
                                          const wire::Detail* detail) {
  return parts_.messaging.private_receives.post_private_control(peer, message, detail);
}
void EndpointEvents::fall_back_to_fragments(Transfer& transfer) {
  parts_.operations.fragments.fall_back_to_fragments(transfer);
}
void EndpointEvents::end_rput_send(Transfer& transfer) {
  parts_.operations.rput.end_rput_send(transfer);
}
void EndpointEvents::end_put(Transfer& transfer) {
  parts_.operations.put.end_put(transfer);
}
bool EndpointEvents::try_operation(SendOperation& operation) {
  return parts_.operations.send_engine.try_operation(operation);
}
bool EndpointEvents::pump_backlog(Peer& peer) {
  return parts_.operations.send_engine.pump_backlog(peer);
}
void EndpointEvents::abandon_rtr(RecvOperation& receive) {
  parts_.operations.rtr.abandon_rtr(receive);
}
bool EndpointEvents::try_atomic(AtomicOperation& operation) {
  return parts_.operations.atomic_engine.try_atomic(operation);
}
void EndpointEvents::end_atomic(AtomicOperation& operation, Status status) {
  parts_.operations.atomic_engine.end_atomic(operation, std::move(status));
}
bool EndpointEvents::ask_segment(Transfer& transfer, std::uint64_t length) {
  return parts_.operations.atomic_engine.ask_segment(transfer, length);
}
bool EndpointEvents::relieve(Peer& peer) {
  return parts_.operations.unexpected.relieve(peer);
}
void EndpointEvents::continue_disconnect(Peer& peer) {
  parts_.channels.slots.continue_disconnect(peer);
}
void EndpointEvents::switch_sending(Peer& peer, ChannelKind to, std::uint32_t request,
                                    wire::Refusal refusal) {
  parts_.channels.negotiator.switch_sending(peer, to, request, refusal);
}
void EndpointEvents::on_flushed(Peer& peer) {
  parts_.channels.negotiator.on_flushed(peer);
}
void EndpointEvents::refuse(Peer& peer, std::uint32_t request, wire::Refusal why) {
  parts_.channels.negotiator.refuse(peer, request, why);
}
void EndpointEvents::finish_drain(Peer& peer) {
  parts_.channels.negotiator.finish_drain(peer);
}
void EndpointEvents::take_request(Peer& peer, std::uint32_t qp_id) {
  parts_.channels.negotiator.take_request(peer, qp_id);
}
void EndpointEvents::answer_refusal(Peer& peer, wire::Refusal why) {
  parts_.channels.negotiator.answer_refusal(peer, why);
}
void EndpointEvents::target_failed(Peer& peer, const Status& status) {
  parts_.channels.negotiator.target_failed(peer, status);
}
void EndpointEvents::on_queue_pair_stopped(Peer& peer) {
  parts_.channels.recovery.on_queue_pair_stopped(peer);
}
void EndpointEvents::give_up_lost(Recovery& recovery) {
  parts_.channels.recovery.give_up_lost(recovery);
}
void EndpointEvents::send_xrc_replay(Peer& peer) {
  parts_.channels.xrc_recovery.send_xrc_replay(peer);
}
void EndpointEvents::on_message_counted(Peer& peer) {
  parts_.channels.selector.on_message_counted(peer);
}
ChannelKind EndpointEvents::first_channel(const Peer& peer) {
  return parts_.channels.selector.first_channel(peer);
}
void EndpointEvents::request_failed(Peer& peer, const Status& status) {
  parts_.channels.selector.request_failed(peer, status);
}
void EndpointEvents::change_channel(Peer& peer, ChannelKind to, ChannelKind fallback,
                                    const std::string& reason, double gain) {
  parts_.channels.selector.change_channel(peer, to, fallback, reason, gain);
}
DataPath EndpointEvents::data_path(Peer& peer) {
  return parts_.channels.data_paths.data_path(peer);
}
DataPath EndpointEvents::path_of_transfer(Peer& peer) {
  return parts_.channels.data_paths.path_of_transfer(peer);
}
void EndpointEvents::use_one_sided(Peer& peer) {
  parts_.channels.data_paths.use_one_sided(peer);
}
void EndpointEvents::retire(const SendRecord& record) {
  parts_.send_completions.retire(record);
}
void EndpointEvents::on_transfer_done(Transfer& transfer, Status status) {
  parts_.send_completions.on_transfer_done(transfer, std::move(status));
}
void EndpointEvents::on_fin(Peer& peer, const Fin& fin) {
  parts_.operations.send_engine.on_fin(peer, fin);
}
bool EndpointEvents::poll_receive_queue() {
  return parts_.receive_dispatch.poll_receive_queue();
}
bool EndpointEvents::poll_send_queue() {
  return parts_.send_completions.poll_send_queue();
}
bool EndpointEvents::on_wireup_request(const wire::WireupRequest& wireup, PeerId* id) {
  return parts_.receive_dispatch.on_wireup_request(wireup, id);
}
void EndpointEvents::take_ud_header(Peer& peer, const wire::Datagram& datagram) {
  parts_.receive_dispatch.take_ud_header(peer, datagram);
}
void EndpointEvents::reject(Peer& peer) {
  parts_.channels.rejection.reject(peer);
}
void EndpointEvents::lose_peer(Peer& peer, const Status& why) {
  parts_.peer_loss.lose_peer(peer, why);
}
bool EndpointEvents::progress() {
  return parts_.call_time.run(parts_.context.clock,
                              [this] { return parts_.progress_loop.progress_now(); });
}

}  // namespace turnout
