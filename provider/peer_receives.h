// SPDX-License-Identifier: BSD-3-Clause
// PeerReceives: a shared receive context whose receives another provider, its owner, has and
// matches (FI_PEER). Its endpoints post none to the core: each message that arrives is taken from
// there, the owner is asked for its receive, and if there is none keeps an entry for it.
//
// Opened and closed by the owner, which may not close it while endpoints are bound. The owner's
// calls are made without the domain's lock, as they may lead to calls on this domain; they are made
// by threads of the owner alone, within its reads of the peer CQ and its insertions of addresses.
// The owner serializes these with its calls of start and discard (fi_peer(3)). Receives that it has
// matched end with FI_ECANCELED when their endpoint is closed, which gives their entries back; the
// entries of messages that wait stay with it. Errors: -FI_E*.
// Source: fi_peer(3), "PEER SRX".
#pragma once

#include <rdma/fi_endpoint.h>

#include <list>
#include <vector>

#include "provider/data_path.h"
#include "provider/domain.h"
#include "provider/peer_layout.h"

namespace turnout::provider {

struct Cq;
struct Ep;
class PeerCq;

class PeerReceives final : public ObjectOfDomain<PeerReceives, fid_ep> {
 public:
  PeerReceives(Domain& on, PeerSrxFid& srx, void* context);
  void leave_domain();  // holding the lock: no other thread finds it from here on

  // Of fi_srx_context with FI_PEER: `context` is its fi_peer_srx_context.
  static int open(Domain& domain, fi_rx_attr* attr, fid_ep** made, void* context);

  // The following with the domain's lock.
  void join(Ep& ep) { endpoints_.push_back(&ep); }
  void leave(Ep& ep) noexcept;
  [[nodiscard]] bool in_use() const noexcept { return users_ != 0 || !endpoints_.empty(); }
  // Around calls of the owner's that are made without the lock: it cannot be closed.
  void begin_call() noexcept { ++users_; }
  void end_call() noexcept { --users_; }
  // The entry of a receive that has ended, by the context of its completion.
  [[nodiscard]] PeerRxEntry& finished(void* context) noexcept;
  // Its receive is done with an entry; false: nothing is to be reported.
  [[nodiscard]] static bool reports(const PeerRxEntry& entry) noexcept {
    return (entry.flags & FI_COMPLETION) != 0;
  }

  // The following without it.
  // Asks the owners of all contexts about the messages of the endpoints that receive to this queue.
  static void hand_over(Cq& queue);
  // Addresses were inserted: tells owners the sources of messages that were unknown so far.
  static void name_sources(Domain& domain);
  void free_entry(PeerRxEntry* entry) const { srx_.owner_ops->free_entry(entry); }

 private:
  // A message that was taken from the core.
  struct Held {
    PeerReceives* receives = nullptr;
    DataPath* path = nullptr;  // null: its endpoint is closed, and the message is gone
    TakenMessage message;
    PeerRxEntry* entry = nullptr;
    bool named = false;  // the owner knows its source
    std::list<Held>::iterator self;
  };
  using List = std::list<Held>;
  enum class Next { stop, go_on };
  struct Naming;

  template <class Begin, class Use, class Finish>
  static void use_each(Domain& domain, Begin&& begin, Use&& use, Finish&& finish);
  [[nodiscard]] bool receives_to(const Cq& queue) const noexcept;
  void hand_over_from(Cq& queue);
  [[nodiscard]] bool has_new_names();
  void name_sources();
  [[nodiscard]] Held* next_message(Cq& queue, PeerMatch& match);
  [[nodiscard]] Next ask(Held& held, PeerMatch& match, PeerCq& of_owner);
  [[nodiscard]] Next queue(Held& held, PeerRxEntry& entry);
  void start(Held& held);
  void cancel(Held& held, PeerCq& of_owner);
  void drop(Held& held);
  static void move(Held& held, List& from, List& to) { to.splice(to.end(), from, held.self); }
  [[nodiscard]] List& waiting(const Held& held) { return held.named ? waiting_ : unnamed_; }
  static int start_entry(PeerRxEntry* entry);
  static int discard_entry(PeerRxEntry* entry);
  static fi_addr_t source_of_entry(PeerRxEntry* entry);
  static SrxPeerOps peer_ops;

  PeerSrxFid& srx_;
  std::vector<Ep*> endpoints_;
  unsigned users_ = 0;         // threads within the owner's calls
  bool handing_over_ = false;  // one of them
  // Domain::names_known when the owner was told last; 0: it got an entry since.
  std::uint64_t names_told_ = 0;
  List fresh_;    // the owner was not asked yet, or could not answer; in order
  List waiting_;  // entries of the owner
  List unnamed_;  // the same, whose source it does not know
  List matched_;  // wait for the core to have room
  List started_;  // the core receives them
  List spare_;    // records for others
};

}  // namespace turnout::provider
