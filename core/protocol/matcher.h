// SPDX-License-Identifier: BSD-3-Clause
// Matcher: MPI's matching rules in libfabric's terms: (peer, tag, ignore), wildcards, posting
// order, arrival order, cancel, peek and claim. Pure: it owns no memory and reads no message;
// operations and unexpected messages are linked in place.
//
// Tagged and untagged messages are separate. Posted receives match in posting order, messages in
// the order of delivery; the caller delivers each source's messages in stream order, which gives
// MPI's order per (source, tag, communicator). One thread.
#pragma once

#include <cstdint>

#include "core/types/completion.h"
#include "core/types/linked_list.h"

namespace turnout {

// What a posted receive waits for.
struct PostedMatch {
  PeerId peer = kAnyPeer;
  std::uint64_t tag = 0;
  std::uint64_t ignore = 0;
  bool tagged = false;

  [[nodiscard]] bool accepts(PeerId from, std::uint64_t with_tag) const noexcept {
    return (peer == kAnyPeer || peer == from) && (!tagged || ((tag ^ with_tag) & ~ignore) == 0);
  }
};

// Posted is any struct with members `match` (PostedMatch), `next`, `previous`; Message one with
// `peer`, `tag`, `tagged`, `next`, `previous`.
template <class Posted, class Message>
class Matcher {
 public:
  void post(Posted* receive) noexcept { posted_[receive->match.tagged].push_back(receive); }
  void remove(Posted* receive) noexcept { posted_[receive->match.tagged].remove(receive); }

  // The first posted receive that takes such a message; stays posted until remove().
  [[nodiscard]] Posted* find_posted(PeerId peer, bool tagged, std::uint64_t tag) const noexcept {
    for (Posted* p = posted_[tagged].first(); p != nullptr; p = p->next) {
      if (p->match.accepts(peer, tag)) return p;
    }
    return nullptr;
  }

  void add_unexpected(Message* message) noexcept {
    unexpected_[message->tagged].push_back(message);
  }
  void remove_unexpected(Message* message) noexcept {
    unexpected_[message->tagged].remove(message);
  }
  [[nodiscard]] Message* find_unexpected(const PostedMatch& match) const noexcept {
    for (Message* m = unexpected_[match.tagged].first(); m != nullptr; m = m->next) {
      if (match.accepts(m->peer, m->tag)) return m;
    }
    return nullptr;
  }

  [[nodiscard]] LinkedList<Posted>& posted(bool tagged) noexcept { return posted_[tagged]; }
  [[nodiscard]] LinkedList<Message>& unexpected(bool tagged) noexcept {
    return unexpected_[tagged];
  }

 private:
  LinkedList<Posted> posted_[2];
  LinkedList<Message> unexpected_[2];
};

}  // namespace turnout
