// SPDX-License-Identifier: BSD-3-Clause
// AddressServer: tells the Address of an endpoint to everybody who connects to its port.
//
// Owned by an endpoint with a ServiceAddress as its source, from fi_enable on. A thread of its own
// accepts, so that a server that computes is found, too. It sends 64 bytes, which fit the buffer of
// a new connection, reads nothing and waits for nobody. Construction and destruction: one thread at
// a time. The child of a fork() has no such thread, and its copy ends without one.
#pragma once

#include <unistd.h>

#include <memory>
#include <thread>
#include <utility>

#include "base/file_descriptor.h"
#include "base/status.h"
#include "provider/service_address.h"

namespace turnout::provider {

class AddressServer {
 public:
  // Errors: system, with the errno of bind(2) (EADDRINUSE, EACCES, ...) or of what else failed.
  [[nodiscard]] static Result<std::unique_ptr<AddressServer>> start(const ServiceAddress& at,
                                                                    const Address& address);
  // The same with a socket that is bound there.
  [[nodiscard]] static Result<std::unique_ptr<AddressServer>> start(Descriptor bound,
                                                                    const ServiceAddress& at,
                                                                    const Address& address);
  ~AddressServer();
  AddressServer(const AddressServer&) = delete;
  AddressServer& operator=(const AddressServer&) = delete;

 private:
  AddressServer(Descriptor socket, Descriptor stop, const Address& address)
      : socket_(std::move(socket)), stop_(std::move(stop)), address_(address), pid_(getpid()) {}
  void serve() noexcept;

  const Descriptor socket_;
  const Descriptor stop_;  // an eventfd
  const Address address_;
  const pid_t pid_;
  // Let go in the child of a fork(), where its number may be another thread's.
  std::unique_ptr<std::thread> thread_;
};

}  // namespace turnout::provider
