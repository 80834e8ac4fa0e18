// SPDX-License-Identifier: BSD-3-Clause
#include "core/endpoint/peer_loss.h"
#include "base/log.h"

namespace turnout {

void PeerLoss::lose_peer(Peer& peer, const Status& why) {
  if (peer.lost) return;
  peer.lost = true;
  SrqFlowControl::close(peer.rx.grant);
  peer.state.make().loss =
      Status{Code::peer_lost, why.text(), why.sys_errno() != 0 ? why.sys_errno() : EHOSTDOWN};
  if (peer.shut_down || context_.closing) {
    TURNOUT_LOG(connection, debug, "peer lost: {}", why.text());
  } else {
    TURNOUT_LOG(connection, error, "peer lost: {}; its operations fail, other peers are unaffected",
                why.text());
  }
  if (peer.change->decision != 0) channels_.outcomes.decided(peer, "peer lost");
  // Messages of a peer that shut down stay in the history: at the end of a job these are all peers.
  // The selection considers live peers only.
  if (context_.statistics.get() != nullptr && !peer.shut_down)
    context_.statistics.get()->forget(peer.id);
  operations_.atomic_engine.end_atomics(peer);
  while (SendOperation* const operation = peer.state.make().tx.backlog.pop_front())
    operations_.backlog.end_send(*operation, peer.state->loss);
  std::erase_if(operations_.rput.rput_sends(),
                [&](const SendOperation* operation) { return operation->peer == &peer; });
  if (peer.state->tx.rtrs) peer.state->tx.rtrs->open.clear();
  for (std::size_t slot = 0; slot < operations_.backlog.awaiting_fin().size(); ++slot) {
    SendOperation* const operation = operations_.backlog.awaiting_fin()[slot];
    // One that is being written ends with its transfer.
    if (operation != nullptr && operation->peer == &peer && !operation->writing) {
      operations_.backlog.end_send(*operation, peer.state->loss);
    }
  }
  peer.tx.awaiting_fin = 0;
  for (const bool tagged : {true, false}) {
    for (RecvOperation* r = records_.matcher.posted(tagged).first(); r != nullptr;) {
      RecvOperation* const next = r->next;
      if (r->match.peer == peer.id) {
        operations_.posted.unpost(*r);
        --peer.rx.directed_receives;
        Completion completion{.context = r->report.context,
                              .tag = r->match.tag,
                              .flags = kRecv | (tagged ? kTagged : kMessage),
                              .source = peer.id};
        if (r->multi) completion.flags |= kMultiRecvDone;
        context_.fail(r->report, completion, peer.state->loss);
        records_.receives.give_back(r);
      }
      r = next;
    }
  }
  // Transfers with work to post and nothing in flight would never end.
  for (Transfer* t = operations_.rdma.active_transfers().first(); t != nullptr;) {
    Transfer* const next = t->next;
    if (t->peer == &peer && t->in_flight == 0) {
      t->status = peer.state->loss;
      operations_.rdma.pump(*t);
    }
    t = next;
  }
  operations_.fragments.end_incoming(&peer);
  operations_.unexpected.drop_partial(peer);
  if (peer.link) ud_.drop_ud(peer);
  if (peer.connection->eviction.waits_for_slot) eviction_.stop_waiting(peer.connect().eviction);
  if (peer.connection->recovery) channels_.recovery.end_recovery(peer);
  channels_.xrc_nodes.forget_xrc(peer);
  if (peer.connection->has_rc()) channels_.rc.discard_rc(peer);
  if (peer.state->rx.ring) {
    rings_.remove(peer);
    // A ring that still contains messages is kept.
    if (peer.state->rx.ring->all_returned()) peer.state.make().rx.ring.reset();
  }
  while (!peer.state->rx.reorder_buffer.empty())
    operations_.receive_engine.free_out_of_order(operations_.receive_engine.take_out_of_order(
        peer, peer.state->rx.reorder_buffer.size() - 1));
  flow_.forget(peer.rx.grant);
  credits_.serve_credit_waiters();
  if (peer.self || peer.shut_down || context_.closing || why.code() == Code::peer_lost) return;
  peer.state.make().given_up = why.code();
  channels_.rejection.reject(peer);
}

}  // namespace turnout
