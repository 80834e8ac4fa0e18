// SPDX-License-Identifier: BSD-3-Clause
#include "provider/passive_endpoint.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "provider/endpoint_options.h"
#include "provider/eq.h"
#include "provider/errors.h"
#include "provider/info.h"
#include "provider/ops.h"

namespace turnout::provider {
namespace {

int close_passive(fid* f) {
  delete &PassiveEp::of(f);
  return 0;
}

int bind_passive(fid* f, fid* other, std::uint64_t flags) {
  PassiveEp& pep = PassiveEp::of(f);
  if (flags != 0) return -FI_EBADFLAGS;
  if (other->fclass != FI_CLASS_EQ || pep.events != nullptr) return -FI_EINVAL;
  pep.events = &EventQueue::of(other);
  pep.events->users.fetch_add(1);
  return 0;
}

int control_passive(fid* f, int command, void* argument) {
  if (command != FI_BACKLOG) return -FI_ENOSYS;
  const int* const backlog = static_cast<const int*>(argument);
  if (backlog == nullptr || *backlog < 1) return -FI_EINVAL;
  PassiveEp::of(f).backlog = *backlog;
  return 0;
}

int get_passive_option(fid*, int level, int name, void* value, std::size_t* length) {
  return get_connection_option(level, name, value, length);
}

int listen_at(fid_pep* f) {
  return contain([&] { return PassiveEp::of(f).listen(); });
}

int reject_request(fid_pep* f, fid_t handle, const void* data, std::size_t length) {
  if (length > ConnectionMessage::kMostData || (length != 0 && data == nullptr)) return -FI_EINVAL;
  return contain([&] {
    return PassiveEp::of(f).reject(handle, {static_cast<const std::byte*>(data), length});
  });
}

int get_passive_name(fid_t f, void* out, std::size_t* length) {
  if (f->fclass != FI_CLASS_PEP || length == nullptr) return -FI_EINVAL;
  return contain([&] { return PassiveEp::of(f).get_name(out, length); });
}

int set_passive_name(fid_t f, void* address, std::size_t length) {
  if (f->fclass != FI_CLASS_PEP || address == nullptr) return -FI_EINVAL;
  return contain([&] { return PassiveEp::of(f).set_name(address, length); });
}

fi_ops passive_fid_ops = object_ops(close_passive, bind_passive, control_passive);

fi_ops_ep passive_ops = [] {
  auto ops = every_call<fi_ops_ep>(kNotHere);
  ops.getopt = get_passive_option;
  return ops;
}();

fi_ops_cm passive_cm_ops = [] {
  auto ops = every_call<fi_ops_cm>(kNotHere);
  ops.setname = set_passive_name;
  ops.getname = get_passive_name;
  ops.listen = listen_at;
  ops.reject = reject_request;
  return ops;
}();

}  // namespace

int Listener::start(int backlog) {
  const std::lock_guard hold(mutex_);
  if (::listen(socket_.get(), backlog) != 0) return -errno;
  return -manager_.watch(socket_.get(), EPOLLIN, shared_from_this());
}

void Listener::stop() noexcept {
  const std::unique_lock hold = manager_.lock(mutex_);
  owner_ = nullptr;
  manager_.close(socket_);
}

bool Listener::report(std::shared_ptr<Connection> request, std::span<const std::byte> data,
                      const ServiceAddress& from) {
  const std::lock_guard hold(mutex_);
  if (owner_ == nullptr) return false;
  InfoPtr info(library().dupinfo(owner_->info.get()));
  const AddressFormat& format = owner_->format;
  const std::vector<std::byte> peer =
      format.encode(format.is_internet() ? Name(from) : Name(request->peer()));
  void* const copy = std::malloc(peer.size() + 1);  // libfabric releases it
  if (info == nullptr || copy == nullptr) {
    std::free(copy);
    return false;
  }
  std::memcpy(copy, peer.data(), peer.size());
  std::free(info->dest_addr);
  info->dest_addr = copy;
  info->dest_addrlen = peer.size();
  ::fid* const handle = info->handle = request->handle();
  manager_.add_request(handle, std::move(request));
  owner_->events->push_connection(FI_CONNREQ, &owner_->fid, info.release(), data);
  return true;
}

void Listener::ready() noexcept {
  static_cast<void>(contain([this] {
    const std::lock_guard hold(mutex_);
    if (owner_ == nullptr) return 0;
    Descriptor client(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (client) {
      Connection::receive(manager_, std::move(client), shared_from_this());
    } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      // No descriptor or no memory now; the client stays in the queue.
      if (!std::exchange(said_, true)) {
        TURNOUT_LOG(provider, warn,
                    "accepting a connection failed: {}; raise the limit of open files (ulimit -n)",
                    strerrordesc_np(errno));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return 0;
  }));
}

PassiveEp::~PassiveEp() {
  if (listener != nullptr) listener->stop();
  if (events != nullptr) {
    events->forget(&fid);
    events->users.fetch_sub(1);
  }
  fabric.remove(*this);
  fabric.references.fetch_sub(1);
}

int PassiveEp::open(Fabric& fabric, fi_info* info, fid_pep** pep, void* context) {
  if (info == nullptr || info->ep_attr == nullptr || info->ep_attr->type != FI_EP_MSG)
    return -FI_EINVAL;
  InfoPtr described(library().dupinfo(info));
  if (described == nullptr) return -FI_ENOMEM;
  auto made = std::make_unique<PassiveEp>(fabric, std::move(described));
  if (info->src_addr != nullptr) {
    if (const int error = made->set_name(info->src_addr, info->src_addrlen); error != 0)
      return error;
  }
  made->fid = {FI_CLASS_PEP, context, &passive_fid_ops};
  made->ops = &passive_ops;
  made->cm = &passive_cm_ops;
  *pep = made.release();
  return 0;
}

int PassiveEp::set_name(const void* bytes, std::size_t length) {
  if (socket || listener != nullptr || taken) return -FI_EOPBADSTATE;
  const std::optional<ServiceAddress> given = name_given(format, bytes, length);
  if (!given.has_value()) return -FI_EINVAL;
  name = given;
  return 0;
}

int PassiveEp::bind_socket() {
  if (socket || listener != nullptr || taken) return 0;
  if (!name.has_value() && format.is_internet()) name = format.anywhere();
  if (!name.has_value()) {
    const auto any = ServiceAddress::look_up(nullptr, "0", {.source = true});
    if (!any.ok()) return -FI_EADDRNOTAVAIL;
    name = any.value();
  }
  Result<Descriptor> made = name->bind(format.is_internet() ? format.family() : AF_INET);
  if (!made.ok()) {
    TURNOUT_LOG(provider, error, "listening failed: {}; choose another service",
                made.status().text());
    return -fi_error(made.status());
  }
  socket = std::move(made).value();
  return 0;
}

int PassiveEp::get_name(void* out, std::size_t* length) {
  if (const int error = bind_socket(); error != 0) return error;
  return put_name(format.encode(*name), out, length);
}

int PassiveEp::listen() {
  if (listener != nullptr || taken) return -FI_EOPBADSTATE;
  if (events == nullptr) return -FI_ENOEQ;
  if (const int error = bind_socket(); error != 0) return error;
  const auto manager = fabric.connection_manager();
  if (!manager.ok()) return -fi_error(manager.status());
  auto made = std::make_shared<Listener>(*manager.value(), *this, std::move(socket));
  const int error = made->start(backlog > 0 ? backlog : SOMAXCONN);
  if (error != 0) {
    made->stop();
    return error;
  }
  listener = std::move(made);
  return 0;
}

int PassiveEp::take_socket(Descriptor& out) {
  if (listener != nullptr || taken) return -FI_EOPBADSTATE;
  if (const int error = bind_socket(); error != 0) return error;
  out = std::move(socket);
  taken = true;
  return 0;
}

int PassiveEp::reject(::fid* handle, std::span<const std::byte> data) {
  const auto manager = fabric.connection_manager();
  if (!manager.ok()) return -fi_error(manager.status());
  const std::shared_ptr<Connection> request = manager.value()->take_request(handle);
  return request == nullptr ? -FI_EINVAL : request->reject(data);
}

}  // namespace turnout::provider
