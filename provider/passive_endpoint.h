// SPDX-License-Identifier: BSD-3-Clause
// PassiveEp: libfabric's fid_pep: listens at a host and a port for connections of FI_EP_MSG
// endpoints, and reports each request to an event queue.
//
// Owned by the program. Its calls may come from any thread, one at a time. Requests that no
// endpoint has taken when it is closed stay with the fabric. Source: fi_endpoint(3), fi_cm(3).
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "base/file_descriptor.h"
#include "provider/address_format.h"
#include "provider/connection.h"
#include "provider/connection_manager.h"
#include "provider/fabric.h"
#include "provider/library.h"
#include "provider/service_address.h"

namespace turnout::provider {

struct PassiveEp;

// The socket of a passive endpoint; shared with the manager's thread.
class Listener final : public Watched, public std::enable_shared_from_this<Listener> {
 public:
  Listener(ConnectionManager& manager, PassiveEp& owner, Descriptor socket)
      : manager_(manager), owner_(&owner), socket_(std::move(socket)) {}

  // 0 or -FI_E*.
  [[nodiscard]] int start(int backlog);
  // From here on nothing of the owner is used.
  void stop() noexcept;
  // A request has arrived. False: nobody learns of it. Called with the connection's lock.
  // `from`: the other end of its socket.
  [[nodiscard]] bool report(std::shared_ptr<Connection> request, std::span<const std::byte> data,
                            const ServiceAddress& from);
  void ready() noexcept override;

 private:
  ConnectionManager& manager_;
  std::mutex mutex_;  // guards the rest
  PassiveEp* owner_;  // null: it was closed
  Descriptor socket_;
  bool said_ = false;  // that no connection can be accepted
};

struct PassiveEp final : Object<PassiveEp, fid_pep> {
  PassiveEp(Fabric& owner, InfoPtr described)
      : fabric(owner), info(std::move(described)), format(info->addr_format) {
    fabric.add(*this);
    fabric.references.fetch_add(1);
  }
  ~PassiveEp();

  Fabric& fabric;
  const InfoPtr info;  // what requests are described with
  const AddressFormat format;
  std::optional<ServiceAddress> name;
  EventQueue* events = nullptr;
  int backlog = 0;     // 0: the system's
  Descriptor socket;   // bound; from listen() on the listener's
  bool taken = false;  // it is an endpoint's
  std::shared_ptr<Listener> listener;

  // -FI_E* of fi_setname, fi_getname, fi_listen and fi_reject.
  [[nodiscard]] int set_name(const void* bytes, std::size_t length);
  [[nodiscard]] int get_name(void* out, std::size_t* length);
  [[nodiscard]] int listen();
  // For the endpoint that takes this one's place (fi_info::handle): the socket, which has a name
  // from then on. Not after listen(), and once.
  [[nodiscard]] int take_socket(Descriptor& out);
  [[nodiscard]] int reject(::fid* handle, std::span<const std::byte> data);

  static int open(Fabric& fabric, fi_info* info, fid_pep** pep, void* context);

 private:
  [[nodiscard]] int bind_socket();
};

}  // namespace turnout::provider
