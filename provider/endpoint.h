// SPDX-License-Identifier: BSD-3-Clause
// Ep: libfabric's fid_ep (FI_EP_RDM, FI_EP_MSG, FI_EP_DGRAM) over one turnout::Endpoint: its life
// from fi_endpoint to fi_close. Its data transfer is a DataPath, what the program sets on it are
// EpOptions.
//
// The core endpoint is created with the fid_ep, so that its name is available immediately; data
// transfer returns -FI_EOPBADSTATE until fi_enable. Owned by the program; closing it ends the core
// endpoint first, and unread completions stay in their queues. Every call holds the domain's lock,
// which the functions in this header require. Source: fi_endpoint(3).
#pragma once

#include <rdma/fi_atomic.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <cassert>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/endpoint.h"
#include "provider/address_format.h"
#include "provider/address_server.h"
#include "provider/cntr.h"
#include "provider/connection.h"
#include "provider/cq.h"
#include "provider/data_path.h"
#include "provider/domain.h"
#include "provider/endpoint_options.h"

namespace turnout::provider {

struct Ep final : ObjectOfDomain<Ep, fid_ep> {
  // Precondition: `info` has passed the checks of open().
  Ep(Domain& owner, std::unique_ptr<Endpoint> made, const fi_info& info);
  ~Ep() { assert(core == nullptr); }

  const std::uint64_t caps;
  const fi_ep_type type;
  const AddressFormat format;
  const bool wants_shared;         // FI_SHARED_CONTEXT: one has the receives
  std::unique_ptr<Endpoint> core;  // null once it is closed
  EpOptions options;
  DataPath path;
  bool enabled = false;
  std::optional<ServiceAddress> name;  // by which peers find it, if the program gave one; of
                                       // FI_EP_MSG, the end of its connection
  Descriptor name_socket;              // bound there, until it is enabled or connects
  std::unique_ptr<AddressServer> address_server;  // null: not enabled, or no port
  EventQueue* events = nullptr;                   // of FI_EP_MSG
  std::shared_ptr<Connection> connection;         // the same; null: none was asked for yet
  Cq* tx_cq = nullptr;
  Cq* rx_cq = nullptr;
  std::vector<Cntr*> counters;
  PeerReceives* receives = nullptr;            // FI_PEER, null: none was bound
  SharedReceives* shared = nullptr;            // the same of a shared context of our own
  std::uint64_t counted = 0;                   // FI_SEND, FI_RECV, ...: what the counters count
  std::unique_ptr<UnexpectedWatcher> watcher;  // for profiles; null: none was open

  // Of its own; else a context has them.
  [[nodiscard]] bool has_receives() const noexcept {
    return receives == nullptr && shared == nullptr;
  }
  // -FI_E* of fi_ep_bind and fi_enable.
  [[nodiscard]] int bind(Cq& cq, std::uint64_t flags);
  [[nodiscard]] int bind(Cntr& cntr, std::uint64_t flags);
  [[nodiscard]] int bind(AddressVector& av);
  [[nodiscard]] int bind(PeerReceives& peer);
  [[nodiscard]] int bind(SharedReceives& of_several);
  [[nodiscard]] int bind(EventQueue& eq);
  [[nodiscard]] int enable();
  // -FI_E* of fi_connect, fi_accept and fi_shutdown; FI_EP_MSG alone. They enable the endpoint.
  [[nodiscard]] int connect(const void* address, std::span<const std::byte> data);
  [[nodiscard]] int accept(std::span<const std::byte> data);
  [[nodiscard]] int shutdown();
  // -FI_E* of fi_setname, fi_getname and fi_getpeer.
  [[nodiscard]] int set_name(const void* bytes, std::size_t length);
  [[nodiscard]] int get_name(void* out, std::size_t* length);
  [[nodiscard]] int get_peer(void* out, std::size_t* length);
  // Deferred work of this endpoint counts there.
  void count_deferred(Cntr& cntr);
  // Takes this endpoint out of every object that could drive it, and ends the core endpoint.
  void end() noexcept;

  static int open(Domain& domain, fi_info* info, fid_ep** ep, void* context);

 private:
  void set_calls(bool after_enable) noexcept;
  // Precondition: it has a name.
  [[nodiscard]] int bind_name();
};

// Which calls an endpoint has; `sends`: after fi_enable, where a shared context has the receives.
enum class MessageCallSet : std::uint8_t { none, sends, all };
// The tables of calls before fi_enable and after it.
[[nodiscard]] fi_ops_msg& message_ops(MessageCallSet set) noexcept;
[[nodiscard]] fi_ops_tagged& tagged_ops(MessageCallSet set) noexcept;
[[nodiscard]] fi_ops_rma& rma_ops(bool enabled) noexcept;
// `offered`: FI_ATOMIC is among the endpoint's capabilities.
[[nodiscard]] fi_ops_atomic& atomic_ops(bool offered, bool enabled) noexcept;
// fi_query_atomic's work. Errors: -FI_EOPNOTSUPP, -FI_EBADFLAGS.
[[nodiscard]] int describe_atomic(fi_datatype type, fi_op op, std::uint64_t flags,
                                  fi_atomic_attr* attr) noexcept;

}  // namespace turnout::provider
