// SPDX-License-Identifier: BSD-3-Clause
#include "hca/cm/rsocket_stream.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "hca/cm/identifier.h"

namespace turnout::cm {
namespace {

constexpr std::size_t kMostBacklog = 128;  // Linux's SOMAXCONN of old
// For what was sent to be delivered when it is closed, without SO_LINGER. The adapter has delivered
// it already, unless it had to begin a request again.
constexpr std::chrono::seconds kDelivery{2};

rdma_conn_param with_hello(const Hello& hello) {
  rdma_conn_param p{};
  p.private_data = &hello;
  p.private_data_len = sizeof hello;
  p.responder_resources = p.initiator_depth = 0;  // writes only
  p.flow_control = 1;
  p.retry_count = p.rnr_retry_count = 7;
  return p;
}

int connect_error(const rdma_cm_event& event) {
  switch (event.event) {
    case RDMA_CM_EVENT_REJECTED:
      return ECONNREFUSED;
    case RDMA_CM_EVENT_UNREACHABLE:
      return event.status == -ETIMEDOUT ? ETIMEDOUT : ENETUNREACH;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
      return event.status < 0 ? -event.status : EHOSTUNREACH;
    default:
      return event.status < 0 ? -event.status : ECONNABORTED;
  }
}

}  // namespace

std::shared_ptr<RsocketStream> RsocketStream::make(int domain) {
  auto made = std::make_shared<RsocketStream>(domain);
  made->channel_ = rdma_create_event_channel();
  if (made->channel_ == nullptr) return nullptr;
  if (fcntl(made->channel_->fd, F_SETFL, O_RDWR | O_NONBLOCK) != 0) return nullptr;
  return made;
}

RsocketStream::~RsocketStream() {
  drop_id();
  if (channel_ != nullptr) rdma_destroy_event_channel(channel_);
}

int RsocketStream::make_id() {
  drop_id();
  if (rdma_create_id(channel_, &id_, nullptr, RDMA_PS_TCP) != 0) return errno;
  id_of(id_).options.refused_at_once = true;
  int only = options().v6_only ? 1 : 0;
  if (domain() == AF_INET6 &&
      rdma_set_option(id_, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only, sizeof only) != 0) {
    return errno;
  }
  return 0;
}

void RsocketStream::drop_id() {
  data_.reset();  // with the identifier's queue pair
  if (id_ != nullptr) rdma_destroy_id(id_);
  id_ = nullptr;
}

void RsocketStream::enter(StreamState state) {
  state_ = state;
  set_handshaking(state == StreamState::listening || state == StreamState::connecting ||
                  state == StreamState::accepting);
  changed();
}

void RsocketStream::fail(int error) {
  set_error(error);
  enter(StreamState::failed);
}

int RsocketStream::bind(const sockaddr* address) {
  if (state_ != StreamState::fresh) return EINVAL;
  if (address->sa_family != domain()) return EAFNOSUPPORT;
  if (const int error = make_id(); error != 0) return error;
  if (rdma_bind_addr(id_, const_cast<sockaddr*>(address)) != 0) return errno;
  enter(StreamState::bound);
  return 0;
}

int RsocketStream::listen(int backlog) {
  const auto most =
      static_cast<std::size_t>(std::clamp(backlog, 1, static_cast<int>(kMostBacklog)));
  if (state_ == StreamState::fresh) {
    sockaddr_storage any;
    to_sockaddr(any_address(static_cast<std::uint16_t>(domain())), any);
    if (const int error = bind(reinterpret_cast<const sockaddr*>(&any)); error != 0) return error;
  }
  if (state_ != StreamState::bound && state_ != StreamState::listening) return EINVAL;
  if (state_ == StreamState::bound && rdma_listen(id_, backlog) != 0) return errno;
  backlog_ = most;
  enter(StreamState::listening);
  return 0;
}

void RsocketStream::take_requests() {
  pollfd waiting{channel_->fd, POLLIN, 0};
  accept_error_ = 0;
  while (accepted_.size() < backlog_ && ::poll(&waiting, 1, 0) == 1) {
    // Before the request is taken: if there is no descriptor left, it waits for one.
    auto made = make(domain());
    if (made == nullptr) {
      accept_error_ = errno;
      return;
    }
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(channel_, &event) != 0) return;
    const auto& asked = event->param.conn;
    std::array<std::uint8_t, 256> data{};
    const std::size_t length = std::min<std::size_t>(asked.private_data_len, data.size());
    if (asked.private_data != nullptr) std::memcpy(data.data(), asked.private_data, length);
    const bool request = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
    rdma_cm_id* const child = event->id;
    rdma_ack_cm_event(event);
    if (!request) continue;
    if (made->answer(child, data.data(), length, options()) != 0) continue;
    accepted_.push_back(std::move(made));
    changed();
  }
}

int RsocketStream::answer(rdma_cm_id* child, const void* data, std::size_t length,
                          const RsocketOptions& inherited) {
  options() = inherited;
  id_ = child;
  int error = rdma_migrate_id(child, channel_) == 0 ? make_data() : errno;
  if (error == 0 && !data_->adopt(data, length)) error = EPROTO;
  if (error != 0) {
    rdma_reject(child, nullptr, 0);
    return error;
  }
  const Hello hello = data_->hello();
  rdma_conn_param answer = with_hello(hello);
  if (rdma_accept(child, &answer) != 0) return errno;
  enter(StreamState::accepting);
  return 0;
}

ssize_t RsocketStream::try_accept(std::shared_ptr<Rsocket>& accepted) {
  if (state_ != StreamState::listening) return -EINVAL;
  take_requests();
  if (accepted_.empty()) return accept_error_ != 0 ? -accept_error_ : -EAGAIN;
  accepted = std::move(accepted_.front());
  accepted_.pop_front();
  return 0;
}

int RsocketStream::make_data() {
  data_ = std::make_unique<RsocketChannel>();
  if (const int error = data_->create(*id_, options()); error != 0) return error;
  // One descriptor shows both.
  return watch_beside(channel_of(channel_), data_->descriptor());
}

int RsocketStream::connect(const sockaddr* address) {
  switch (state_) {
    case StreamState::connecting:
      return EALREADY;
    case StreamState::fresh:
    case StreamState::failed:
      if (const int error = make_id(); error != 0) return error;
      break;
    case StreamState::bound:
      break;
    default:
      return EISCONN;
  }
  static_cast<void>(take_error());
  if (address->sa_family != domain()) return EAFNOSUPPORT;
  constexpr int kResolveMs = 2000;
  if (rdma_resolve_addr(id_, nullptr, const_cast<sockaddr*>(address), kResolveMs) != 0) {
    return errno;
  }
  enter(StreamState::connecting);
  advance();
  if (state_ == StreamState::connecting) return EINPROGRESS;
  return state_ == StreamState::failed ? take_error() : 0;
}

ssize_t RsocketStream::ends_connecting() {
  advance();
  if (state_ == StreamState::connecting) return -EAGAIN;
  return state_ == StreamState::failed ? -take_error() : 0;
}

int RsocketStream::send_request() {
  if (const int error = make_data(); error != 0) return error;
  const Hello hello = data_->hello();
  rdma_conn_param request = with_hello(hello);
  return rdma_connect(id_, &request) == 0 ? 0 : errno;
}

void RsocketStream::on_event(const rdma_cm_event& event) {
  const bool connecting = state_ == StreamState::connecting;
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (rdma_resolve_route(id_, 0) != 0) fail(errno);
      return;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      if (const int error = send_request(); error != 0) fail(error);
      return;
    case RDMA_CM_EVENT_ESTABLISHED:
      if (state_ == StreamState::accepting) return enter(StreamState::connected);
      if (!connecting) return;
      if (!data_->adopt(event.param.conn.private_data, event.param.conn.private_data_len)) {
        return fail(ECONNREFUSED);
      }
      return enter(StreamState::connected);
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
      return;
    default:
      break;
  }
  if (connecting) return fail(connect_error(event));
  if (!has_peer()) return;
  // What the peer sent before it ended is here.
  static_cast<void>(data_->poll());
  enter(StreamState::disconnected);
}

bool RsocketStream::take_events(Look when) {
  if (when == Look::at_times) {
    constexpr std::chrono::milliseconds kOften{1};
    const auto now = std::chrono::steady_clock::now();
    if (now - events_taken_ < kOften) return false;
    events_taken_ = now;
  }
  bool some = false;
  rdma_cm_event* event = nullptr;
  while (id_ != nullptr && rdma_get_cm_event(channel_, &event) == 0) {
    rdma_cm_event copy = *event;
    std::array<std::uint8_t, 256> data{};
    auto& p = copy.param.conn;
    if (p.private_data != nullptr) {
      std::memcpy(data.data(), p.private_data,
                  std::min<std::size_t>(p.private_data_len, data.size()));
      p.private_data = data.data();
    }
    // First: the steps that follow may wait for it.
    rdma_ack_cm_event(event);
    some = true;
    on_event(copy);
  }
  return some;
}

void RsocketStream::advance() {
  if (state_ == StreamState::listening) return take_requests();
  if (state_ >= StreamState::connecting) static_cast<void>(take_events());
  if (state_ == StreamState::accepting) {
    look();
    // Data can overtake the connection manager's last message.
    if (data_->heard()) enter(StreamState::connected);
  }
  finish_if_due();
}

bool RsocketStream::look() {
  if (data_ == nullptr || !data_->poll()) return false;
  finish_if_due();
  changed();
  return true;
}

bool RsocketStream::arm() {
  switch (state_) {
    case StreamState::listening: {
      const std::size_t before = accepted_.size();
      take_requests();
      return accepted_.size() == before;
    }
    case StreamState::connecting:
      return !take_events() && state_ == StreamState::connecting;
    case StreamState::accepting:
    case StreamState::connected:
      if (!data_->arm()) {
        finish_if_due();
        changed();
        return false;
      }
      return !take_events();
    default:
      return true;
  }
}

int RsocketStream::sleeping_descriptor(short events) const noexcept {
  // A listener's requests that nobody asks for would keep it readable.
  return listening() && (events & POLLIN) == 0 ? -1 : descriptor();
}

int RsocketStream::end_of_connection() const noexcept {
  if (data_->broken() && !data_->finished()) return ECONNRESET;
  return state_ == StreamState::disconnected ? EPIPE : 0;
}

// Of a call that had `wanted` bytes: how many it took, or why it could not take one.
ssize_t RsocketStream::answer_of_sending(std::size_t wanted, const IovCursor& from) {
  if (from.left() != wanted || wanted == 0) return static_cast<ssize_t>(wanted - from.left());
  static_cast<void>(take_events(Look::at_times));
  const int error = end_of_connection();
  if (error != 0) return -error;
  return data_->broken() ? -EPIPE : -EAGAIN;
}

ssize_t RsocketStream::try_send(IovCursor& from, int, const MessageAddress& to) {
  if (state_ < StreamState::connecting) return -ENOTCONN;
  if (to.to != nullptr) return -EISCONN;
  if (state_ < StreamState::connected) advance();
  if (state_ == StreamState::connecting || state_ == StreamState::accepting) return -EAGAIN;
  if (state_ == StreamState::failed) {
    const int error = take_error();
    return error != 0 ? -error : -ENOTCONN;
  }
  if (write_shut_) return -EPIPE;
  const std::size_t wanted = from.left();
  for (bool again = true; from.left() != 0;) {
    if (state_ == StreamState::disconnected || data_->broken()) break;
    if (data_->send(from) != 0) {
      again = true;
    } else if (!std::exchange(again, false)) {
      break;
    } else {
      look();
    }
  }
  return answer_of_sending(wanted, from);
}

ssize_t RsocketStream::try_receive(IovCursor& to, int flags, MessageAddress& from) {
  if (state_ < StreamState::connecting) return -ENOTCONN;
  if (state_ < StreamState::connected) advance();
  if (state_ == StreamState::connecting) return -EAGAIN;
  if (state_ == StreamState::failed) {
    const int error = take_error();
    return error != 0 ? -error : -ENOTCONN;
  }
  static_cast<void>(peer_name(from.from));
  if (read_shut_) {
    look();  // throws away what has come, so that the peer can go on
    return 0;
  }
  if (to.left() == 0) return 0;
  const bool peek = (flags & MSG_PEEK) != 0;
  // With MSG_PEEK all of it must be there at the same time.
  const std::size_t least =
      peek && (flags & MSG_WAITALL) != 0 ? std::min(to.left(), data_->ring_size()) : 1;
  for (bool looked = false;; looked = true) {
    const bool ended = data_->finished() || data_->broken() || state_ == StreamState::disconnected;
    if (data_->unread() >= least || (ended && data_->unread() != 0)) {
      return static_cast<ssize_t>(data_->read(to, peek));
    }
    if (data_->finished()) return 0;
    if (looked) break;
    look();
    if (data_->unread() < least && state_ != StreamState::disconnected) {
      static_cast<void>(take_events(Look::at_times));
    }
  }
  if (data_->broken() && state_ != StreamState::disconnected) return -ECONNRESET;
  return state_ == StreamState::disconnected ? 0 : -EAGAIN;
}

int RsocketStream::shutdown(int how) {
  if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return EINVAL;
  if (!has_peer()) return ENOTCONN;
  if (how != SHUT_WR && !read_shut_) {
    read_shut_ = true;
    data_->discard();
  }
  if (how != SHUT_RD && !write_shut_) {
    write_shut_ = finish_due_ = true;
    finish_if_due();
  }
  changed();
  return 0;
}

void RsocketStream::finish_if_due() {
  if (!finish_due_) return;
  if (state_ == StreamState::connected && !data_->broken() && !data_->finish()) return;
  // An accepted one may not know yet that it is connected.
  if (state_ == StreamState::accepting) return;
  finish_due_ = false;
}

int RsocketStream::local_name(sockaddr_storage& name) const {
  if (id_ == nullptr || state_ == StreamState::fresh) {
    to_sockaddr(any_address(static_cast<std::uint16_t>(domain())), name);
    return 0;
  }
  std::memcpy(&name, rdma_get_local_addr(id_), sizeof name);
  return 0;
}

int RsocketStream::peer_name(sockaddr_storage& name) const {
  if (!has_peer()) return ENOTCONN;
  std::memcpy(&name, rdma_get_peer_addr(id_), sizeof name);
  return 0;
}

int RsocketStream::largest_segment() const noexcept {
  constexpr int kMtu = 4096;
  return kMtu;
}

short RsocketStream::events() {
  if (state_ == StreamState::listening) {
    take_requests();
    return accepted_.empty() && accept_error_ == 0 ? 0 : POLLIN;
  }
  if (state_ < StreamState::connecting) return POLLOUT | POLLHUP;
  if (state_ < StreamState::connected) advance();
  if (state_ == StreamState::connecting) return 0;
  if (state_ == StreamState::failed) return POLLIN | POLLOUT | POLLERR | POLLHUP;
  look();
  if (data_->unread() == 0) static_cast<void>(take_events(Look::at_times));
  int all = 0;
  if (data_->unread() != 0 || read_shut_) all |= POLLIN | POLLRDNORM;
  if (data_->finished()) all |= POLLIN | POLLRDNORM | POLLRDHUP;
  if (data_->finished() && write_shut_) all |= POLLHUP;
  const bool open = state_ == StreamState::connected;
  if (write_shut_ || (open && data_->room() != 0)) all |= POLLOUT | POLLWRNORM;
  if (state_ == StreamState::disconnected) {
    all |= POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM | POLLHUP | POLLRDHUP;
  } else if (data_->broken()) {
    all |= POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM | POLLERR | POLLHUP | POLLRDHUP;
  }
  return static_cast<short>(all);
}

int RsocketStream::map(void* buffer, std::size_t length, int protection, off_t& offset) {
  if (state_ < StreamState::connected) advance();
  if (!has_peer() || id_->pd == nullptr) return EINVAL;
  return mappings_.map(id_->pd, *data_, buffer, length, protection, offset);
}

int RsocketStream::unmap(const void* buffer, std::size_t length) {
  return has_peer() ? mappings_.unmap(*data_, buffer, length) : EINVAL;
}

ssize_t RsocketStream::try_write(IovCursor& from, std::uint64_t offset) {
  if (state_ < StreamState::connected) advance();
  if (state_ == StreamState::connecting || state_ == StreamState::accepting) return -EAGAIN;
  if (!has_peer()) return -ENOTCONN;
  if (write_shut_) return -EPIPE;
  const std::size_t wanted = from.left();
  for (bool again = true; from.left() != 0;) {
    if (state_ == StreamState::disconnected || data_->broken()) break;
    const RemoteMapping* const to = data_->find(offset);
    const std::size_t n = to != nullptr ? data_->write(*to, offset, from) : 0;
    if (n != 0) {
      again = true;
      offset += n;
    } else if (std::exchange(again, false)) {
      look();  // room, or the mapping
    } else if (to == nullptr && from.left() == wanted) {
      return -EINVAL;
    } else {
      break;
    }
  }
  return answer_of_sending(wanted, from);
}

void RsocketStream::linger_on() {
  const linger& wished = options().lingering;
  if (wished.l_onoff != 0 && wished.l_linger == 0) return;
  const auto end = std::chrono::steady_clock::now() +
                   (wished.l_onoff != 0 ? std::chrono::seconds(wished.l_linger) : kDelivery);
  for (;;) {
    static_cast<void>(take_events());
    look();
    finish_if_due();
    const bool open = state_ == StreamState::connected && !data_->broken();
    if (!open || (data_->drained() && !finish_due_)) return;
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return;
    if (!data_->arm()) continue;
    pollfd ready{channel_->fd, POLLIN, 0};
    static_cast<void>(
        ::poll(&ready, 1, static_cast<int>(std::min<std::int64_t>(left.count(), 100))));
  }
}

void RsocketStream::close() {
  for (const auto& waiting : accepted_) waiting->close();
  accepted_.clear();
  if (has_peer()) {
    advance();
    if (!write_shut_) write_shut_ = finish_due_ = true;
    finish_if_due();
    linger_on();
    static_cast<void>(rdma_disconnect(id_));
  }
  enter(StreamState::failed);
  drop_id();
}

void RsocketStream::abandon() {
  for (const auto& waiting : accepted_) waiting->abandon();
  accepted_.clear();
  abandon_in_child(id_, channel_);
  static_cast<void>(data_.release());
  id_ = nullptr;
  channel_ = nullptr;
}

}  // namespace turnout::cm
