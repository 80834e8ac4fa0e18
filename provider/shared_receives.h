// SPDX-License-Identifier: BSD-3-Clause
// SharedReceives: a shared receive context (fi_srx_context). A message of any endpoint bound to it
// takes the first of its receives that matches, and ends in the queue and counter of that endpoint.
//
// Its endpoints post no receives to their cores: each message that has come is taken from there, in
// order, and matched here. Among those that wait, a receive takes the one that came first. It has
// no queue of its own, as the manual demands, so it answers no peeks; a cancelled receive ends in
// the queue of the endpoint that was bound first.
//
// Opened and closed by the program, which closes the endpoints first. Calls hold the domain's lock.
// Memory: a record for each of at most rx_attr->size receives that are posted, and for each message
// that waits, whose bytes are charged to its endpoint. A receive is looked for among those posted
// before it. Errors: -FI_E*. Source: fi_endpoint(3), "SHARED CONTEXTS".
#pragma once

#include <rdma/fi_endpoint.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "provider/data_path.h"
#include "provider/domain.h"
#include "provider/info.h"

namespace turnout::provider {

struct Ep;

class SharedReceives final : public ObjectOfDomain<SharedReceives, fid_ep> {
 public:
  SharedReceives(Domain& on, const fi_rx_attr* attr, void* context);

  static int open(Domain& domain, fi_rx_attr* attr, fid_ep** made, void* context);
  // Both kinds of contexts are of one class.
  [[nodiscard]] static bool is(const ::fid& other) noexcept;

  void join(Ep& ep) { endpoints_.push_back(&ep); }
  // After its core has ended: its messages are gone.
  void leave(Ep& ep) noexcept;
  // fi_endpoint(3): endpoints without connections share one address vector, too.
  [[nodiscard]] bool has_vector_of(const Ep& ep) const noexcept;
  [[nodiscard]] bool in_use() const noexcept { return !endpoints_.empty(); }

  // What the program posts. -FI_EAGAIN: as many are posted as the context has room for.
  [[nodiscard]] ssize_t post(const RecvRequest& request, const Call& call, bool is_message);
  // Ends with FI_ECANCELED. -FI_ENOENT: none is posted with that context.
  [[nodiscard]] ssize_t cancel(void* context);
  // Matches what has come for that endpoint. True: something did.
  bool match(DataPath& path);

 private:
  struct Receive {
    std::array<iovec, kIovLimit> buffer;
    std::size_t count = 0;
    bool tagged = false;
    bool is_message = false;  // of fi_recvmsg or fi_trecvmsg, which have flags of their own
    std::uint64_t tag = 0, ignore = 0;
    Call call;
  };
  struct Arrived {
    DataPath* path = nullptr;
    TakenMessage message;
  };
  struct Matched {
    Arrived arrived;
    std::list<Receive> receive;  // one
  };
  // Untagged, tagged.
  template <class T>
  using ByKind = std::array<std::list<T>, 2>;

  [[nodiscard]] bool fits(const Receive& receive, const Arrived& arrived) const;
  // True: the endpoint's core receives it, or has ended it with an error.
  [[nodiscard]] static bool start(const Arrived& arrived, const Receive& receive);
  void begin(const Arrived& arrived, std::list<Receive>& from,
             std::list<Receive>::iterator receive);

  const std::size_t most_;  // receives
  const bool directed_;     // their sources matter
  std::vector<Ep*> endpoints_;
  ByKind<Receive> posted_;      // in order
  ByKind<Arrived> waiting_;     // in order
  std::list<Matched> matched_;  // wait until the core has room
  std::list<Receive> spare_;    // records for others
  std::list<Arrived> spare_messages_;
};

}  // namespace turnout::provider
