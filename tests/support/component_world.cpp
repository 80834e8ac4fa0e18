// SPDX-License-Identifier: BSD-3-Clause
#include "tests/support/component_world.h"

namespace turnout {

EndpointEvents::EndpointEvents(EndpointParts& parts) noexcept : parts_(parts) {}
bool EndpointEvents::post_private_control(Peer& peer, wire::ControlMessage /*message*/,
                                          const wire::Detail* /*detail*/) {
  parts_.record("post_private_control", &peer);
  return parts_.answer;
}
void EndpointEvents::fall_back_to_fragments(Transfer& /*transfer*/) {
  parts_.record("fall_back_to_fragments", nullptr);
}
void EndpointEvents::end_rput_send(Transfer& /*transfer*/) {
  parts_.record("end_rput_send", nullptr);
}
void EndpointEvents::end_put(Transfer& /*transfer*/) {
  parts_.record("end_put", nullptr);
}
bool EndpointEvents::try_operation(SendOperation& /*operation*/) {
  parts_.record("try_operation", nullptr);
  return parts_.answer;
}
bool EndpointEvents::pump_backlog(Peer& peer) {
  parts_.record("pump_backlog", &peer);
  return parts_.answer;
}
void EndpointEvents::abandon_rtr(RecvOperation& /*receive*/) {
  parts_.record("abandon_rtr", nullptr);
}
bool EndpointEvents::try_atomic(AtomicOperation& /*operation*/) {
  parts_.record("try_atomic", nullptr);
  return parts_.answer;
}
void EndpointEvents::end_atomic(AtomicOperation& /*operation*/, Status /*status*/) {
  parts_.record("end_atomic", nullptr);
}
bool EndpointEvents::ask_segment(Transfer& /*transfer*/, std::uint64_t /*length*/) {
  parts_.record("ask_segment", nullptr);
  return parts_.answer;
}
bool EndpointEvents::relieve(Peer& peer) {
  parts_.record("relieve", &peer);
  return parts_.answer;
}
void EndpointEvents::continue_disconnect(Peer& peer) {
  parts_.record("continue_disconnect", &peer);
}
void EndpointEvents::switch_sending(Peer& peer, ChannelKind /*to*/, std::uint32_t /*request*/,
                                    wire::Refusal /*refusal*/) {
  parts_.record("switch_sending", &peer);
}
void EndpointEvents::on_flushed(Peer& peer) {
  parts_.record("on_flushed", &peer);
}
void EndpointEvents::refuse(Peer& peer, std::uint32_t /*request*/, wire::Refusal why) {
  parts_.refusal = why;
  parts_.record("refuse", &peer);
}
void EndpointEvents::finish_drain(Peer& peer) {
  parts_.record("finish_drain", &peer);
}
void EndpointEvents::take_request(Peer& peer, std::uint32_t /*qp_id*/) {
  parts_.record("take_request", &peer);
}
void EndpointEvents::answer_refusal(Peer& peer, wire::Refusal why) {
  parts_.refusal = why;
  parts_.record("answer_refusal", &peer);
}
void EndpointEvents::target_failed(Peer& peer, const Status& /*status*/) {
  parts_.record("target_failed", &peer);
}
void EndpointEvents::on_queue_pair_stopped(Peer& peer) {
  parts_.record("on_queue_pair_stopped", &peer);
}
void EndpointEvents::give_up_lost(Recovery& /*recovery*/) {
  parts_.record("give_up_lost", nullptr);
}
void EndpointEvents::send_xrc_replay(Peer& peer) {
  parts_.record("send_xrc_replay", &peer);
}
void EndpointEvents::on_message_counted(Peer& peer) {
  parts_.record("on_message_counted", &peer);
}
ChannelKind EndpointEvents::first_channel(const Peer& /*peer*/) {
  parts_.record("first_channel", nullptr);
  return parts_.channel;
}
void EndpointEvents::request_failed(Peer& peer, const Status& /*status*/) {
  parts_.record("request_failed", &peer);
}
void EndpointEvents::change_channel(Peer& peer, ChannelKind /*to*/, ChannelKind /*fallback*/,
                                    const std::string& /*reason*/, double /*gain*/) {
  parts_.record("change_channel", &peer);
}
DataPath EndpointEvents::data_path(Peer& peer) {
  parts_.record("data_path", &peer);
  return parts_.path;
}
DataPath EndpointEvents::path_of_transfer(Peer& peer) {
  parts_.record("path_of_transfer", &peer);
  return parts_.path;
}
void EndpointEvents::use_one_sided(Peer& peer) {
  parts_.record("use_one_sided", &peer);
}
void EndpointEvents::retire(const SendRecord& /*record*/) {
  parts_.record("retire", nullptr);
}
void EndpointEvents::on_transfer_done(Transfer& /*transfer*/, Status /*status*/) {
  parts_.record("on_transfer_done", nullptr);
}
void EndpointEvents::on_fin(Peer& peer, const Fin& fin) {
  parts_.record("on_fin", &peer);
  parts_.fins.push_back(fin.operation);
}
bool EndpointEvents::poll_receive_queue() {
  parts_.record("poll_receive_queue", nullptr);
  if (parts_.arrives) parts_.arrives();
  return parts_.answer;
}
bool EndpointEvents::poll_send_queue() {
  parts_.record("poll_send_queue", nullptr);
  if (parts_.arrives) parts_.arrives();
  return parts_.answer;
}
bool EndpointEvents::on_wireup_request(const wire::WireupRequest& /*wireup*/, PeerId* /*id*/) {
  parts_.record("on_wireup_request", nullptr);
  return parts_.answer;
}
void EndpointEvents::take_ud_header(Peer& peer, const wire::Datagram& /*datagram*/) {
  parts_.record("take_ud_header", &peer);
}
void EndpointEvents::reject(Peer& peer) {
  parts_.record("reject", &peer);
}
void EndpointEvents::lose_peer(Peer& peer, const Status& why) {
  parts_.loss = why;
  parts_.record("lose_peer", &peer);
}
bool EndpointEvents::progress() {
  parts_.record("progress", nullptr);
  return parts_.answer;
}

}  // namespace turnout
