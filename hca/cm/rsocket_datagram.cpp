// SPDX-License-Identifier: BSD-3-Clause
#include "hca/cm/rsocket_datagram.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string>
#include <tuple>

#include "base/settings.h"
#include "hca/cm/adapter.h"
#include "hca/cm/channel.h"

namespace turnout::cm {
namespace {

constexpr std::uint32_t kMtuBytes = 4096, kGrh = sizeof(ibv_grh);
constexpr std::uint32_t kDatagramSlot = kMtuBytes + kGrh;
constexpr std::size_t kLongest = 65507 - sizeof(DatagramHeader);  // udp(7)
constexpr std::chrono::seconds kTrusted{1};
constexpr std::chrono::milliseconds kAskAgain{100};
constexpr std::size_t kMostPeers = 4096;

// Queue pairs are numbers of a fabric: those of another one are strangers.
std::uint32_t fabric_number() {
  static const std::uint32_t number = [] {
    const char* const name = environment_value("fabric");
    const std::string text = std::to_string(geteuid()) + ' ' + (name != nullptr ? name : "");
    return static_cast<std::uint32_t>(std::hash<std::string>{}(text));
  }();
  return number;
}

socklen_t length_of(const sockaddr* address) {
  return address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

int move_qp(ibv_qp* qp, ibv_qp_attr attr, int mask, ibv_qp_state state) {
  attr.qp_state = state;
  return ibv_modify_qp(qp, &attr, mask | IBV_QP_STATE);
}

}  // namespace

bool RsocketDatagram::AddressLess::operator()(const Address& a, const Address& b) const noexcept {
  return std::tie(a.family, a.port, a.scope, a.ip) < std::tie(b.family, b.port, b.scope, b.ip);
}

RsocketDatagram::Queues::~Queues() {
  if (qp != nullptr) ibv_destroy_qp(qp);
  if (route != nullptr) ibv_destroy_ah(route);
}

RsocketDatagram::~RsocketDatagram() = default;

std::shared_ptr<RsocketDatagram> RsocketDatagram::make(int domain) {
  auto made = std::make_shared<RsocketDatagram>(domain);
  made->number_ = Descriptor(epoll_create1(EPOLL_CLOEXEC));
  made->udp_ = Descriptor(socket(domain, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made->number_ || !made->udp_) return nullptr;
  epoll_event e{};
  e.events = EPOLLIN;
  if (epoll_ctl(made->number_.get(), EPOLL_CTL_ADD, made->udp_.get(), &e) != 0) return nullptr;
  // As an identifier of a stream does.
  const Lock lock(state_lock());
  return adapter() != nullptr ? made : nullptr;
}

int RsocketDatagram::create(Queues& q) const {
  const RsocketOptions& o = const_cast<RsocketDatagram*>(this)->options();
  q.sends = o.send_queue;
  q.receives = o.receive_queue;
  if (getrandom(&q.key, sizeof q.key, 0) != sizeof q.key) return errno;
  q.key &= 0x7fff'ffff;  // the highest bit says something else, IBTA 10.2.5
  ibv_pd* pd = nullptr;
  Adapter a;
  {
    const Lock lock(state_lock());
    Adapter* const opened = adapter();
    if (opened == nullptr) return errno;
    pd = default_pd(*opened);
    if (pd == nullptr) return errno;
    a = *opened;
  }
  const std::size_t own =
      std::size_t{q.sends} * kMtuBytes + std::size_t{q.receives} * kDatagramSlot;
  if (const int error = q.memory.create(pd, own, 0); error != 0) return error;
  if (const int error = q.queue.create(a.verbs, q.sends + q.receives); error != 0) return error;
  ibv_ah_attr route{};
  route.dlid = a.lid;
  route.port_num = kPort;
  q.route = ibv_create_ah(pd, &route);
  if (q.route == nullptr) return errno;
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_UD;
  init.send_cq = init.recv_cq = q.queue.verbs();
  init.sq_sig_all = 1;
  init.cap = {q.sends, q.receives, 1, 1, o.inline_data};
  q.qp = ibv_create_qp(pd, &init);
  if (q.qp == nullptr) return errno;
  ibv_qp_attr attr{};
  attr.port_num = kPort;
  attr.qkey = q.key;
  int error = move_qp(q.qp, attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, IBV_QPS_INIT);
  if (error == 0) error = move_qp(q.qp, attr, 0, IBV_QPS_RTR);
  if (error == 0) error = move_qp(q.qp, attr, IBV_QP_SQ_PSN, IBV_QPS_RTS);
  return error;
}

int RsocketDatagram::make_queues() {
  if (queues_ != nullptr) return 0;
  auto made = std::make_unique<Queues>();
  if (const int error = create(*made); error != 0) return error;
  epoll_event e{};
  e.events = EPOLLIN;
  if (epoll_ctl(number_.get(), EPOLL_CTL_ADD, made->queue.descriptor(), &e) != 0) return errno;
  queues_ = std::move(made);
  for (std::uint32_t slot = 0; slot < queues_->receives; ++slot) {
    if (!post_receive(slot)) {
      const int error = errno;
      queues_.reset();
      return error;
    }
  }
  return 0;
}

std::uint8_t* RsocketDatagram::slot_at(std::uint32_t slot) const noexcept {
  return queues_->memory.own() + std::size_t{queues_->sends} * kMtuBytes +
         std::size_t{slot} * kDatagramSlot;
}

bool RsocketDatagram::post_receive(std::uint32_t slot) {
  ibv_sge part{reinterpret_cast<std::uintptr_t>(slot_at(slot)), kDatagramSlot,
               queues_->memory.own_key()};
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.wr_id = (std::uint64_t{1} << 32) | slot;
  wr.sg_list = &part;
  wr.num_sge = 1;
  const int error = ibv_post_recv(queues_->qp, &wr, &bad);
  if (error != 0) errno = error;
  return error == 0;
}

int RsocketDatagram::bind(const sockaddr* address) {
  const int reuse = options().reuse_address ? 1 : 0, only = options().v6_only ? 1 : 0;
  if (setsockopt(udp_.get(), SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse) != 0) return errno;
  if (domain() == AF_INET6 &&
      setsockopt(udp_.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only) != 0) {
    return errno;
  }
  if (::bind(udp_.get(), address, length_of(address)) != 0) return errno;
  return make_queues();
}

int RsocketDatagram::listen(int) {
  return EOPNOTSUPP;
}

ssize_t RsocketDatagram::try_accept(std::shared_ptr<Rsocket>&) {
  return -EOPNOTSUPP;
}

int RsocketDatagram::connect(const sockaddr* address) {
  const bool ends = address->sa_family == AF_UNSPEC;
  if (::connect(udp_.get(), address, ends ? sizeof(sockaddr) : length_of(address)) != 0) {
    return errno;
  }
  connected_.reset();
  if (ends) return 0;
  sockaddr_storage name;
  if (const int error = peer_name(name); error != 0) return error;
  Address peer;
  static_cast<void>(from_sockaddr(reinterpret_cast<const sockaddr*>(&name), peer));
  connected_ = peer;
  return make_queues();
}

DatagramHeader RsocketDatagram::header(DatagramKind kind) const noexcept {
  DatagramHeader h;
  h.kind = kind;
  h.queue_pair = queues_->qp->qp_num;
  h.key = queues_->key;
  h.fabric = fabric_number();
  return h;
}

// Whether messages from there are taken: strangers on other hosts have no queue pair here.
bool RsocketDatagram::known(const Address& address) {
  return peers_.contains(address) || is_local(address);
}

bool RsocketDatagram::take_datagrams() {
  static constexpr std::size_t kRoom = 65536;
  thread_local std::vector<std::uint8_t> buffer;
  bool some = false;
  for (;;) {
    // What nobody reads stays with the kernel, which drops what does not fit there.
    if (arrived_bytes_ > options().receive_buffer) return some;
    buffer.resize(kRoom);
    sockaddr_storage name{};
    socklen_t length = sizeof name;
    const ssize_t n = recvfrom(udp_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT,
                               reinterpret_cast<sockaddr*>(&name), &length);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return some;
      set_error(errno);  // ECONNREFUSED: nobody has the address we are connected to
      if (connected_) peers_.erase(*connected_);
      return true;
    }
    some = true;
    DatagramHeader h;
    Address from;
    if (static_cast<std::size_t>(n) < sizeof h ||
        !from_sockaddr(reinterpret_cast<const sockaddr*>(&name), from)) {
      continue;
    }
    std::memcpy(&h, buffer.data(), sizeof h);
    if (!valid(h) || h.fabric != fabric_number() || !known(from)) continue;
    on_datagram(h, from, {buffer.begin() + sizeof h, buffer.begin() + n});
  }
}

void RsocketDatagram::on_datagram(const DatagramHeader& h, const Address& from,
                                  std::vector<std::uint8_t> bytes) {
  if (peers_.size() > kMostPeers) peers_.clear();
  if (senders_.size() > kMostPeers) senders_.clear();
  Peer& peer = peers_[from];
  senders_[h.queue_pair] = from;
  if (h.kind == DatagramKind::answer) {
    peer.queue_pair = h.queue_pair;
    peer.key = h.key;
    peer.confirmed = std::chrono::steady_clock::now();
    return;
  }
  if (h.answer_wanted != 0) {
    const DatagramHeader answer = header(DatagramKind::answer);
    sockaddr_storage name;
    to_sockaddr(from, name);
    const auto* const to = reinterpret_cast<const sockaddr*>(&name);
    // It may be lost like any datagram: then it is asked for again.
    static_cast<void>(sendto(udp_.get(), &answer, sizeof answer, MSG_DONTWAIT | MSG_NOSIGNAL,
                             connected_ ? nullptr : to, connected_ ? 0 : length_of(to)));
  }
  if (read_shut_) return;
  Arrived a;
  a.from = from;
  a.length = static_cast<std::uint32_t>(bytes.size());
  a.bytes = std::move(bytes);
  arrived_bytes_ += a.length + sizeof a;
  arrived_.push_back(std::move(a));
}

bool RsocketDatagram::take_completions() {
  ibv_wc all[16];
  const int n = ibv_poll_cq(queues_->queue.verbs(), 16, all);
  if (n <= 0) return false;
  // Sent before these, those that took the other way are before them.
  if (std::any_of(all, all + n, [](const ibv_wc& wc) { return (wc.opcode & IBV_WC_RECV) != 0; })) {
    take_datagrams();
  }
  for (int i = 0; i < n; ++i) {
    const ibv_wc& wc = all[i];
    if ((wc.wr_id >> 32) == 0) {
      ++queues_->completed;
      continue;
    }
    const auto slot = static_cast<std::uint32_t>(wc.wr_id);
    if (slot >= queues_->receives) continue;
    const auto sender = senders_.find(wc.src_qp);
    const bool wanted = wc.status == IBV_WC_SUCCESS && wc.byte_len >= kGrh &&
                        wc.byte_len <= kDatagramSlot && sender != senders_.end() && !read_shut_ &&
                        (!connected_ || *connected_ == sender->second);
    if (!wanted) {
      if (wc.status == IBV_WC_SUCCESS) static_cast<void>(post_receive(slot));
      continue;
    }
    Arrived a;
    a.from = sender->second;
    a.slot = slot;
    a.length = wc.byte_len - kGrh;
    arrived_.push_back(std::move(a));
  }
  return true;
}

// The queue alone, which takes no system call.
bool RsocketDatagram::look() {
  if (queues_ == nullptr) return false;
  bool some = false;
  while (take_completions()) some = true;
  if (some) changed();
  return some;
}

bool RsocketDatagram::look_at_both() {
  if (queues_ == nullptr) return false;
  const bool completions = look();
  if (!take_datagrams()) return completions;
  changed();
  return true;
}

bool RsocketDatagram::arm() {
  if (queues_ == nullptr) return true;
  return queues_->queue.arm() && !look_at_both();
}

void RsocketDatagram::drop_front() {
  const Arrived& a = arrived_.front();
  if (a.slot) {
    static_cast<void>(post_receive(*a.slot));
  } else {
    arrived_bytes_ -= a.length + sizeof a;
  }
  arrived_.pop_front();
}

ssize_t RsocketDatagram::try_receive(IovCursor& to, int flags, MessageAddress& from) {
  if (const int error = make_queues(); error != 0) return -error;
  if (arrived_.empty()) look();
  if (arrived_.empty()) look_at_both();
  if (const int error = take_error(); error != 0) return -error;
  if (arrived_.empty()) return read_shut_ ? 0 : -EAGAIN;
  const Arrived& a = arrived_.front();
  to_sockaddr(a.from, from.from);
  const std::size_t taken = std::min<std::size_t>(to.left(), a.length);
  if (taken != 0) to.copy_in(a.slot ? slot_at(*a.slot) + kGrh : a.bytes.data(), taken);
  const std::size_t whole = a.length;
  from.truncated = taken < whole;
  if ((flags & MSG_PEEK) == 0) drop_front();
  return static_cast<ssize_t>((flags & MSG_TRUNC) != 0 ? whole : taken);
}

bool RsocketDatagram::trusts(const Address& destination) const {
  const auto found = peers_.find(destination);
  return found != peers_.end() && found->second.queue_pair != 0 &&
         std::chrono::steady_clock::now() - found->second.confirmed < kTrusted;
}

ssize_t RsocketDatagram::try_send(IovCursor& from, int, const MessageAddress& to) {
  if (write_shut_) return -EPIPE;
  if (from.left() > kLongest) return -EMSGSIZE;
  Address destination;
  if (to.to != nullptr) {
    if (!from_sockaddr(to.to, destination)) return -EAFNOSUPPORT;
  } else if (connected_) {
    destination = *connected_;
  } else {
    return -EDESTADDRREQ;
  }
  if (const int error = make_queues(); error != 0) return -error;
  if (trusts(destination) && from.left() <= kMtuBytes) {
    if (queues_->posted - queues_->completed >= queues_->sends / 2) look();
    return send_over_queue(from, peers_[destination]);
  }
  look_at_both();  // an answer may be there, or an error
  if (const int error = take_error(); error != 0) return -error;
  if (peers_.size() > kMostPeers) peers_.clear();
  Peer& peer = peers_[destination];
  return trusts(destination) && from.left() <= kMtuBytes ? send_over_queue(from, peer)
                                                         : send_over_udp(from, peer, to);
}

ssize_t RsocketDatagram::send_over_queue(IovCursor& from, const Peer& peer) {
  Queues& q = *queues_;
  if (q.posted - q.completed >= q.sends) return -EAGAIN;
  const std::size_t length = from.left();
  std::uint8_t* const place = q.memory.own() + q.posted % q.sends * kMtuBytes;
  from.copy_out(place, length);
  ibv_sge part{reinterpret_cast<std::uintptr_t>(place), static_cast<std::uint32_t>(length),
               q.memory.own_key()};
  ibv_send_wr wr{}, *bad = nullptr;
  wr.opcode = IBV_WR_SEND;
  wr.sg_list = &part;
  wr.num_sge = length != 0 ? 1 : 0;
  wr.wr.ud.ah = q.route;
  wr.wr.ud.remote_qpn = peer.queue_pair;
  wr.wr.ud.remote_qkey = peer.key;
  if (const int error = ibv_post_send(q.qp, &wr, &bad); error != 0) return -error;
  ++q.posted;
  return static_cast<ssize_t>(length);
}

ssize_t RsocketDatagram::send_over_udp(IovCursor& from, Peer& peer, const MessageAddress& to) {
  const std::size_t length = from.left();
  const auto now = std::chrono::steady_clock::now();
  DatagramHeader h = header(DatagramKind::data);
  if (now - peer.asked >= kAskAgain) {
    peer.asked = now;
    h.answer_wanted = 1;
  }
  std::vector<std::uint8_t> whole(sizeof h + length);
  std::memcpy(whole.data(), &h, sizeof h);
  if (length != 0) from.copy_out(whole.data() + sizeof h, length);
  const ssize_t n = sendto(udp_.get(), whole.data(), whole.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                           to.to, to.to != nullptr ? to.to_length : 0);
  if (n >= 0) return static_cast<ssize_t>(length);
  // The kernel has no room: as on a wire, the message is lost.
  return errno == EAGAIN ? static_cast<ssize_t>(length) : -errno;
}

int RsocketDatagram::shutdown(int how) {
  if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return EINVAL;
  if (!connected_) return ENOTCONN;
  if (how != SHUT_WR) {
    read_shut_ = true;
    while (!arrived_.empty()) drop_front();
  }
  if (how != SHUT_RD) write_shut_ = true;
  changed();
  return 0;
}

int RsocketDatagram::local_name(sockaddr_storage& name) const {
  socklen_t length = sizeof name;
  return getsockname(udp_.get(), reinterpret_cast<sockaddr*>(&name), &length) == 0 ? 0 : errno;
}

int RsocketDatagram::peer_name(sockaddr_storage& name) const {
  socklen_t length = sizeof name;
  return getpeername(udp_.get(), reinterpret_cast<sockaddr*>(&name), &length) == 0 ? 0 : errno;
}

short RsocketDatagram::events() {
  look_at_both();
  int all = 0;
  if (!arrived_.empty() || read_shut_) all |= POLLIN | POLLRDNORM;
  if (has_error()) all |= POLLERR;
  if (queues_ == nullptr || write_shut_ || queues_->posted - queues_->completed < queues_->sends) {
    all |= POLLOUT | POLLWRNORM;
  }
  return static_cast<short>(all);
}

void RsocketDatagram::close() {
  arrived_.clear();
  queues_.reset();
  udp_.reset();
}

void RsocketDatagram::abandon() {
  static_cast<void>(queues_.release());
  udp_.reset();
  number_.reset();
}

}  // namespace turnout::cm
