// SPDX-License-Identifier: BSD-3-Clause
// Cq: libfabric's fid_cq. Reading it drives the endpoints bound to it (manual progress).
//
// It has an internal queue per bound endpoint (a Source), because a completion names its peer by a
// number that is local to the endpoint. A source outlives its endpoint until it is drained. Owned
// by the program; closing it is refused while endpoints are bound. Calls hold the domain's lock; a
// blocking read releases it between polls. Source: fi_cq(3).
#pragma once

#include <rdma/fi_eq.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/types/completion.h"
#include "provider/data_path.h"
#include "provider/domain.h"
#include "provider/peer_cq.h"
#include "provider/wait_set.h"

namespace turnout::provider {

struct Cq final : ObjectOfDomain<Cq, fid_cq> {
  struct Source {
    DataPath* endpoint;  // null once it is closed
    CompletionQueue queue;

    // What the endpoint's address vector has for the sender; FI_ADDR_NOTAVAIL: nothing, any more.
    [[nodiscard]] fi_addr_t name_of(PeerId sender) const {
      return endpoint != nullptr ? endpoint->peers.name_of(sender) : FI_ADDR_NOTAVAIL;
    }
  };

  using ObjectOfDomain::ObjectOfDomain;
  ~Cq() {
    assert(!in_use());
    wait.leave();
    domain.stop_watching(*this);
  }

  std::size_t expected = 0;  // completions an endpoint is likely to have unread
  bool may_wait = false;
  bool by_threshold = false;         // waiting reads are given the least number of entries
  std::atomic<unsigned> signals{0};  // of fi_cq_signal
  std::string error_text;            // of the error entry read last
  int error_number = 0;              // its prov_errno
  std::vector<std::unique_ptr<Source>> sources;
  Source* only = nullptr;  // of one, which almost every queue has; null: none, or several
  WaitHandle wait;
  unsigned poll_sets = 0;        // that it is in
  std::unique_ptr<PeerCq> peer;  // of one opened with FI_PEER, null: of others

  // The queue for this endpoint's completions, made at its first bind.
  [[nodiscard]] CompletionQueue& join(DataPath& endpoint);
  void leave(DataPath& endpoint) noexcept;
  [[nodiscard]] bool in_use() const noexcept {
    return poll_sets != 0 || std::any_of(sources.begin(), sources.end(),
                                         [](const auto& s) { return s->endpoint != nullptr; });
  }
  // An error entry is unread.
  [[nodiscard]] bool failed() const noexcept {
    return std::any_of(sources.begin(), sources.end(),
                       [](const auto& s) { return s->queue.has_error(); });
  }
  [[nodiscard]] std::size_t unread() const noexcept {
    std::size_t n = 0;
    for (const auto& source : sources) n += source->queue.size();
    return n;
  }
  // A read would find something.
  [[nodiscard]] bool has_news() const noexcept { return unread() != 0 || failed(); }
  // fi_poll tells of it, until it is read.
  [[nodiscard]] bool tells_poll() const noexcept { return has_news(); }
  // Moves every bound endpoint once.
  void progress();

  static int open(Domain& domain, fi_cq_attr* attr, fid_cq** cq, void* context);

 private:
  void note_only() noexcept { only = sources.size() == 1 ? sources.front().get() : nullptr; }
};

// The FI_* flags of an entry for the core's CompletionFlag bits.
[[nodiscard]] std::uint64_t entry_flags(std::uint32_t flags) noexcept;
// All fields but err_data. Of a success, those of errors say that there is none.
void write_error_entry(fi_cq_err_entry& out, const ErrorCompletion& c) noexcept;

}  // namespace turnout::provider
