// SPDX-License-Identifier: BSD-3-Clause
#include "provider/address_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/signal_free_thread.h"

namespace turnout::provider {
namespace {

Status failed(const char* what, const ServiceAddress& at, int error) {
  return {Code::system, fmt::format("{} at {}: {}", what, at.to_string(), strerrordesc_np(error)),
          error};
}

}  // namespace

Result<std::unique_ptr<AddressServer>> AddressServer::start(const ServiceAddress& at,
                                                            const Address& address) {
  Result<Descriptor> bound = at.bound_socket();
  if (!bound.ok()) return bound.status();
  return start(std::move(bound).value(), at, address);
}

Result<std::unique_ptr<AddressServer>> AddressServer::start(Descriptor fd, const ServiceAddress& at,
                                                            const Address& address) {
  if (::listen(fd.get(), SOMAXCONN) != 0) return failed("listening", at, errno);
  Descriptor stop(eventfd(0, EFD_CLOEXEC));
  if (!stop) return failed("creating an eventfd to stop listening", at, errno);
  std::unique_ptr<AddressServer> server(new AddressServer(std::move(fd), std::move(stop), address));
  auto thread = start_signal_free_thread("turnout-listen", [&own = *server] { own.serve(); });
  if (!thread.ok()) return thread.status();
  server->thread_ = std::make_unique<std::thread>(std::move(thread).value());
  return server;
}

AddressServer::~AddressServer() {
  if (thread_ == nullptr) return;
  if (getpid() != pid_) {
    static_cast<void>(thread_.release());
    return;
  }
  const std::uint64_t one = 1;
  while (write(stop_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
  thread_->join();
  // A child of fork() has the socket, too: nobody is to connect to it.
  ::shutdown(socket_.get(), SHUT_RDWR);
}

void AddressServer::serve() noexcept {
  const auto rest = [] { std::this_thread::sleep_for(std::chrono::milliseconds(10)); };
  for (;;) {
    pollfd wanted[] = {{socket_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (poll(wanted, 2, -1) < 0) {
      if (errno != EINTR) rest();
      continue;
    }
    if (wanted[1].revents != 0) return;
    if ((wanted[0].revents & (POLLNVAL | POLLERR)) != 0) return;  // the program has closed it
    if (wanted[0].revents == 0) continue;
    const Descriptor client(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (client) {
      static_cast<void>(send(client.get(), &address_, sizeof address_, MSG_NOSIGNAL));
    } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      rest();  // no descriptor or no memory now; the client stays in the queue
    }
  }
}

}  // namespace turnout::provider
