// SPDX-License-Identifier: BSD-3-Clause
#include "tests/clients/rig.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>

namespace turnout::clients {
namespace {

constexpr std::uint32_t kApi = FI_VERSION(1, 17);
constexpr std::size_t kNote = 4096;                  // the longest message of exchange()
constexpr std::size_t kShortNote = 1024;             // the same of datagrams
constexpr std::uint64_t kNoteTag = 0x6e6f7465'0000;  // no test has it
constexpr int kEventPart = 20;                       // ms
constexpr int kEventWait = 10'000;                   // ms; a test that hangs is ended from outside

std::atomic<const char*> at_stage{"start"};

}  // namespace

void stage(const char* name) noexcept {
  at_stage = name;
}
const char* current_stage() noexcept {
  return at_stage;
}

void say_ready() {
  static bool said = false;
  if (std::exchange(said, true)) return;
  std::puts("ready");
  std::fflush(stdout);
}

void check(long code, const char* call) {
  if (code < 0) throw FiError(call, static_cast<int>(code));
}

void check_offered(long code, const char* call) {
  if (code == -FI_ENOSYS || code == -FI_EOPNOTSUPP || code == -FI_ENODATA) {
    throw Unsupported(std::string(call) + ": " + fi_strerror(static_cast<int>(-code)));
  }
  check(code, call);
}

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

void fill(std::span<std::byte> data, std::size_t number) {
  for (std::size_t i = 0; i < data.size(); ++i) {
    data[i] = static_cast<std::byte>(i * 7 + (i >> 8) * 31 + number * 13 + 1);
  }
}

void verify(std::span<const std::byte> data, std::size_t number) {
  for (std::size_t i = 0; i < data.size(); ++i) {
    const auto expected = static_cast<std::byte>(i * 7 + (i >> 8) * 31 + number * 13 + 1);
    if (data[i] == expected) continue;
    throw std::runtime_error("message " + std::to_string(number) + " of " +
                             std::to_string(data.size()) + " bytes is wrong at byte " +
                             std::to_string(i));
  }
}

std::vector<std::size_t> sizes(const Run& run, std::size_t most) {
  std::vector<std::size_t> all;
  if (run.standard) {
    for (std::size_t size = 1; size <= std::size_t{4} << 20; size *= 2) all.push_back(size);
  } else {
    all = {64, 256, 1024, 4096, 65536, 1 << 20};
  }
  std::erase_if(all, [most](std::size_t size) { return size > most; });
  return all;
}

std::size_t iterations(const Run& run, std::size_t size) {
  if (!run.standard) return 5;
  return size <= 16384 ? 1000 : size <= 262144 ? 100 : 20;
}

std::string provider_of(const Run& run, fi_ep_type type) {
  if (run.provider != "tcp;ofi_rxm" || type == FI_EP_RDM) return run.provider;
  return type == FI_EP_MSG ? "tcp" : "udp";
}

InfoPtr hints_of(const Run& run, const Ask& ask) {
  InfoPtr hints(fi_allocinfo());
  require(hints != nullptr, "no memory");
  hints->fabric_attr->prov_name = strdup(provider_of(run, ask.type).c_str());
  hints->ep_attr->type = ask.type;
  hints->caps = ask.caps;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->domain_attr->mr_mode =
      FI_MR_LOCAL | FI_MR_ENDPOINT | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  if (ask.more) ask.more(*hints);
  return hints;
}

InfoPtr get_info(const Run& run, const Ask& ask) {
  stage("fi_getinfo");
  const InfoPtr hints = hints_of(run, ask);
  fi_info* info = nullptr;
  const int code = run.out_of_band ? fi_getinfo(kApi, nullptr, nullptr, 0, hints.get(), &info)
                                   : fi_getinfo(kApi, run.host.c_str(), run.port.c_str(),
                                                run.server ? FI_SOURCE : 0, hints.get(), &info);
  check_offered(code, "fi_getinfo");
  return InfoPtr(info);
}

Control::Control(const Run& run) {
  stage("control socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(run.port)));
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  const auto* const at = reinterpret_cast<const sockaddr*>(&address);
  if (run.server) {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    require(::bind(listener, at, sizeof address) == 0 && ::listen(listener, 1) == 0,
            "the control socket cannot listen at port " + run.port);
    say_ready();
    fd_ = ::accept(listener, nullptr, nullptr);
    ::close(listener);
  } else {
    do {
      if (fd_ >= 0) ::close(fd_);
      fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    } while (::connect(fd_, at, sizeof address) != 0 && usleep(10'000) == 0);
  }
  require(fd_ >= 0, "no control socket");
  const int one = 1;
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

Control::~Control() {
  ::close(fd_);
}

void Control::send(std::span<const std::byte> data) const {
  const auto size = static_cast<std::uint32_t>(data.size());
  require(::write(fd_, &size, sizeof size) == sizeof size, "the control socket is broken");
  require(
      data.empty() || ::write(fd_, data.data(), data.size()) == static_cast<ssize_t>(data.size()),
      "the control socket is broken");
}

Bytes Control::receive(const std::function<void()>& meanwhile) const {
  const auto take = [&](std::span<std::byte> into) {
    while (!into.empty()) {
      const ssize_t got = ::recv(fd_, into.data(), into.size(), MSG_DONTWAIT);
      require(got != 0 && (got > 0 || errno == EAGAIN), "the peer has closed the control socket");
      if (got > 0) into = into.subspan(static_cast<std::size_t>(got));
      if (meanwhile) meanwhile();
    }
  };
  std::uint32_t size = 0;
  take(std::as_writable_bytes(std::span(&size, 1)));
  Bytes data(size);
  take(data);
  return data;
}

const Control& control_of(const Run& run) {
  static const Control control(run);
  return control;
}

CmEvent next_event(fid_eq* eq, std::uint32_t event, fid_cq* queue) {
  stage("fi_eq_sread");
  alignas(fi_eq_cm_entry) std::array<std::byte, sizeof(fi_eq_cm_entry) + 512> space{};
  std::uint32_t got = 0;
  ssize_t size = -FI_EAGAIN;
  for (int left = kEventWait; size == -FI_EAGAIN && left > 0; left -= kEventPart) {
    size = fi_eq_sread(eq, &got, space.data(), space.size(), kEventPart, 0);
    if (queue != nullptr) fi_cq_read(queue, nullptr, 0);
  }
  if (size == -FI_EAVAIL) {
    fi_eq_err_entry error{};
    check(fi_eq_readerr(eq, &error, 0), "fi_eq_readerr");
    throw FiError("a connection's event", -error.err);
  }
  check(size, "fi_eq_sread");
  const auto& entry = *reinterpret_cast<const fi_eq_cm_entry*>(space.data());
  require(got == event,
          "event " + std::to_string(got) + " where " + std::to_string(event) + " was expected");
  CmEvent found{InfoPtr(got == FI_CONNREQ ? entry.info : nullptr), entry.fid, {}};
  found.data.assign(space.begin() + sizeof(fi_eq_cm_entry), space.begin() + size);
  return found;
}

Node::Node(const Run& run, Setup setup) : run_(run), setup_(std::move(setup)) {
  out_.resize(setup_.room);
  in_.resize(setup_.room);
  const std::size_t note = setup_.type == FI_EP_DGRAM ? kShortNote : kNote;
  note_out_.resize(note);
  note_in_.resize(note);
  Ask question = setup_;
  question.more = [this](fi_info& hints) {
    if (setup_.shared_send) hints.ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT;
    if (setup_.shared_receive) hints.ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
    if (setup_.more) setup_.more(hints);
  };
  info_ = get_info(run, question);
  open_fabric();
  if (setup_.type == FI_EP_MSG) {
    run.server ? accept() : connect();
  } else {
    open_domain();
    open_endpoint();
    find_peer();
  }
}

void Node::open_fabric() {
  fid_fabric* fabric = nullptr;
  check(fi_fabric(info_->fabric_attr, &fabric, nullptr), "fi_fabric");
  fabric_.reset(fabric);
  fi_eq_attr attr{};
  attr.wait_obj = FI_WAIT_UNSPEC;
  fid_eq* eq = nullptr;
  // Only connections need one here.
  const int code = fi_eq_open(fabric, &attr, &eq, nullptr);
  if (setup_.type == FI_EP_MSG) check(code, "fi_eq_open");
  if (code == 0) eq_.reset(eq);
}

FiHandle<fid_cq> Node::open_queue(Wait wait, std::size_t size, void* context) const {
  fi_cq_attr attr{};
  attr.size = size;
  attr.format = FI_CQ_FORMAT_TAGGED;
  attr.wait_obj = wait == Wait::spin    ? FI_WAIT_NONE
                  : wait == Wait::sread ? FI_WAIT_UNSPEC
                  : wait == Wait::set   ? FI_WAIT_SET
                                        : FI_WAIT_FD;
  attr.wait_set = wait_set_.get();
  fid_cq* cq = nullptr;
  check_offered(fi_cq_open(domain(), &attr, &cq, context), "fi_cq_open");
  return FiHandle<fid_cq>(cq);
}

FiHandle<fid_cq> open_tagged_queue(fid_domain* domain, std::size_t size) {
  fi_cq_attr attr{};
  attr.size = size;
  attr.format = FI_CQ_FORMAT_TAGGED;
  fid_cq* cq = nullptr;
  check(fi_cq_open(domain, &attr, &cq, nullptr), "fi_cq_open");
  return FiHandle<fid_cq>(cq);
}

void Node::open_domain() {
  fid_domain* domain = nullptr;
  check(fi_domain(fabric(), info_.get(), &domain, nullptr), "fi_domain");
  domain_.reset(domain);
  if (setup_.type != FI_EP_MSG) {
    fi_av_attr attr{};
    attr.type = setup_.av != FI_AV_UNSPEC ? setup_.av : info_->domain_attr->av_type;
    if (!setup_.av_name.empty()) attr.name = setup_.av_name.c_str();
    fid_av* av = nullptr;
    check_offered(fi_av_open(domain, &attr, &av, nullptr), "fi_av_open");
    av_.reset(av);
  }
  const std::size_t queue = setup_.queue;
  const std::size_t both = info_->tx_attr->size + info_->rx_attr->size;
  if (setup_.wait == Wait::set) {
    fi_wait_attr attr{};
    attr.wait_obj = FI_WAIT_UNSPEC;
    fid_wait* set = nullptr;
    check_offered(fi_wait_open(fabric(), &attr, &set), "fi_wait_open");
    wait_set_.reset(set);
  }
  sends_ = open_queue(setup_.wait,
                      queue != 0         ? queue
                      : setup_.one_queue ? both
                                         : info_->tx_attr->size,
                      &sends_);
  if (!setup_.one_queue) {
    receives_ = open_queue(setup_.wait, queue != 0 ? queue : info_->rx_attr->size, &receives_);
  }
  if (setup_.counters) {
    const auto open = [&](void* context) {
      fi_cntr_attr attr{};
      attr.events = FI_CNTR_EVENTS_COMP;
      attr.wait_obj = setup_.wait == Wait::spin ? FI_WAIT_NONE : FI_WAIT_UNSPEC;
      fid_cntr* cntr = nullptr;
      check_offered(fi_cntr_open(domain, &attr, &cntr, context), "fi_cntr_open");
      return FiHandle<fid_cntr>(cntr);
    };
    sent_ = open(&sent_);
    received_ = open(&received_);
  }
  if (setup_.shared_send) {
    fid_stx* stx = nullptr;
    check_offered(fi_stx_context(domain, info_->tx_attr, &stx, nullptr), "fi_stx_context");
    stx_.reset(stx);
  }
  if (setup_.shared_receive) {
    for (FiHandle<fid_ep>* const context : {&srx_, &srx_of_others_}) {
      fid_ep* srx = nullptr;
      check_offered(fi_srx_context(domain, info_->rx_attr, &srx, nullptr), "fi_srx_context");
      context->reset(srx);
    }
  }
  std::uint64_t access = FI_SEND | FI_RECV;
  if ((setup_.caps & (FI_RMA | FI_ATOMIC)) != 0) {
    access |= FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
  }
  // FI_MR_ENDPOINT: they are bound to the endpoint before they are enabled.
  if ((info_->domain_attr->mr_mode & FI_MR_LOCAL) != 0 ||
      (setup_.caps & (FI_RMA | FI_ATOMIC)) != 0) {
    std::uint64_t key = 0x1000;
    const auto enroll = [&](Bytes& area) {
      fid_mr* mr = nullptr;
      check(fi_mr_reg(domain, area.data(), area.size(), access, 0, key++, 0, &mr, nullptr),
            "fi_mr_reg");
      return FiHandle<fid_mr>(mr);
    };
    out_mr_ = enroll(out_);
    in_mr_ = enroll(in_);
    note_out_mr_ = enroll(note_out_);
    note_in_mr_ = enroll(note_in_);
  }
}

void Node::open_endpoint() {
  fid_ep* ep = nullptr;
  check_offered(fi_endpoint(domain(), info_.get(), &ep, nullptr), "fi_endpoint");
  ep_.reset(ep);
  if (setup_.type == FI_EP_MSG)
    check(fi_ep_bind(ep, &eq_->fid, 0), "fi_ep_bind of the event queue");
  if (av_) check(fi_ep_bind(ep, &av_->fid, 0), "fi_ep_bind of the address vector");
  const std::uint64_t flags = setup_.counters || setup_.selective ? FI_SELECTIVE_COMPLETION : 0;
  if (setup_.one_queue) {
    check(fi_ep_bind(ep, &sends_->fid, FI_TRANSMIT | FI_RECV | flags), "fi_ep_bind of the queue");
  } else {
    check(fi_ep_bind(ep, &sends_->fid, FI_TRANSMIT | flags), "fi_ep_bind of the send queue");
    check(fi_ep_bind(ep, &receives_->fid, FI_RECV | flags), "fi_ep_bind of the receive queue");
  }
  if (setup_.counters) {
    std::uint64_t out = FI_SEND, in = FI_RECV;
    if ((setup_.caps & (FI_RMA | FI_ATOMIC)) != 0) out |= FI_READ | FI_WRITE;
    // What comes one-sided, without the notes.
    if ((setup_.caps & FI_RMA_EVENT) != 0) in = FI_REMOTE_WRITE;
    check_offered(fi_ep_bind(ep, &sent_->fid, out), "fi_ep_bind of a counter");
    check_offered(fi_ep_bind(ep, &received_->fid, in), "fi_ep_bind of a counter");
  }
  share_contexts(ep, srx_);
  check(fi_enable(ep), "fi_enable");
  if ((info_->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0) {
    for (fid_mr* mr : {out_mr_.get(), in_mr_.get(), note_out_mr_.get(), note_in_mr_.get()}) {
      if (mr == nullptr) continue;
      check(fi_mr_bind(mr, &ep->fid, 0), "fi_mr_bind");
      check(fi_mr_enable(mr), "fi_mr_enable");
    }
  }
}

FiHandle<fid_ep> Node::another_endpoint(fid_cq* queue, fid_av* av) {
  // With a source of its own: this one's place is taken.
  Run anywhere = run_;
  anywhere.out_of_band = true;
  const InfoPtr info = get_info(anywhere, setup_);
  fid_ep* ep = nullptr;
  check_offered(fi_endpoint(domain(), info.get(), &ep, nullptr), "fi_endpoint of another");
  FiHandle<fid_ep> handle(ep);
  if (setup_.type == FI_EP_MSG)
    check(fi_ep_bind(ep, &eq_->fid, 0), "fi_ep_bind of the event queue");
  if (setup_.type != FI_EP_MSG) {
    check(fi_ep_bind(ep, av != nullptr ? &av->fid : &av_->fid, 0), "fi_ep_bind of the vector");
  }
  check(fi_ep_bind(ep, queue != nullptr ? &queue->fid : &sends()->fid, FI_TRANSMIT),
        "fi_ep_bind of the send queue");
  check(fi_ep_bind(ep, queue != nullptr ? &queue->fid : &receives()->fid, FI_RECV),
        "fi_ep_bind of the receive queue");
  share_contexts(ep, srx_of_others_);
  check(fi_enable(ep), "fi_enable");
  return handle;
}

void Node::share_contexts(fid_ep* ep, const FiHandle<fid_ep>& srx) const {
  if (stx_) check_offered(fi_ep_bind(ep, &stx_->fid, 0), "fi_ep_bind of a shared context");
  if (srx) check_offered(fi_ep_bind(ep, &srx->fid, 0), "fi_ep_bind of a shared context");
}

FiHandle<fid_mr> Node::register_memory(std::span<std::byte> area, std::uint64_t access,
                                       std::uint64_t key) const {
  fid_mr* mr = nullptr;
  check(fi_mr_reg(domain(), area.data(), area.size(), access, 0, key, 0, &mr, nullptr),
        "fi_mr_reg");
  FiHandle<fid_mr> handle(mr);
  if ((info_->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0) {
    check(fi_mr_bind(mr, &ep()->fid, 0), "fi_mr_bind");
    check(fi_mr_enable(mr), "fi_mr_enable");
  }
  return handle;
}

fi_rma_iov Node::remote(std::span<std::byte> area, fid_mr* mr) const {
  const bool by_address = (info_->domain_attr->mr_mode & (FI_MR_VIRT_ADDR | FI_MR_BASIC)) != 0;
  return {by_address ? reinterpret_cast<std::uint64_t>(area.data()) : 0, area.size(),
          fi_mr_key(mr)};
}

Bytes Node::name(fid_ep* ep) const {
  Bytes bytes(512);
  std::size_t size = bytes.size();
  check(fi_getname(&ep->fid, bytes.data(), &size), "fi_getname");
  bytes.resize(size);
  return bytes;
}

fi_addr_t Node::insert(const Bytes& address) {
  stage("fi_av_insert");
  fi_addr_t at = FI_ADDR_NOTAVAIL;
  const int done = fi_av_insert(av(), address.data(), 1, &at, 0, nullptr);
  check(done, "fi_av_insert");
  require(done == 1, "fi_av_insert has not inserted the address");
  return at;
}

// Notes are messages of this file: they have entries of their own even where the test asks for
// none.
void Node::post_note(Op& op) {
  const std::uint64_t flags = setup_.counters || setup_.selective ? FI_COMPLETION : 0;
  iovec part{note_in_.data(), note_in_.size()};
  void* place = desc(note_in_mr_.get());
  post("fi_recvmsg", [&] {
    if (tagged()) {
      const fi_msg_tagged msg{&part, &place, 1, FI_ADDR_UNSPEC, kNoteTag, 0, &op, 0};
      return fi_trecvmsg(receiver(), &msg, flags);
    }
    const fi_msg msg{&part, &place, 1, FI_ADDR_UNSPEC, &op, 0};
    return fi_recvmsg(receiver(), &msg, flags);
  });
}

void Node::send_note(std::span<const std::byte> data, Op& op) {
  const std::uint64_t flags = setup_.counters || setup_.selective ? FI_COMPLETION : 0;
  require(data.size() <= note_out_.size(), "a note is too long");
  std::copy(data.begin(), data.end(), note_out_.begin());
  iovec part{note_out_.data(), data.size()};
  void* place = desc(note_out_mr_.get());
  post("fi_sendmsg", [&] {
    if (tagged()) {
      const fi_msg_tagged msg{&part, &place, 1, peer_, kNoteTag, 0, &op, 0};
      return fi_tsendmsg(ep(), &msg, flags);
    }
    const fi_msg msg{&part, &place, 1, peer_, &op, 0};
    return fi_sendmsg(ep(), &msg, flags);
  });
}

Bytes Node::note_of(const Op& op) const {
  const auto size = static_cast<std::ptrdiff_t>(std::min(op.entry.len, note_in_.size()));
  return {note_in_.begin(), note_in_.begin() + size};
}

void Node::find_peer() {
  stage("finding the peer");
  if (run_.out_of_band) {
    peer_ = insert(exchange(name(ep())));
  } else if (run_.server) {
    Op op;
    post_note(op);
    say_ready();
    wait_received(op);
    peer_ = insert(note_of(op));
  } else {
    require(info_->dest_addr != nullptr, "fi_getinfo of host and port gave no dest_addr");
    const auto* const at = static_cast<const std::byte*>(info_->dest_addr);
    peer_ = insert(Bytes(at, at + info_->dest_addrlen));
    Op op;
    send_note(name(ep()), op);
    wait_sent(op);
  }
  sync();
}

Bytes Node::exchange(std::span<const std::byte> mine) {
  if (run_.out_of_band) {
    const Control& control = control_of(run_);
    control.send(mine);
    stage("waiting for the peer at the control socket");
    return control.receive([this] {
      if (ep_) progress();
    });
  }
  Op sending, receiving;
  post_note(receiving);
  send_note(mine, sending);
  stage("waiting for the peer's message");
  wait_sent(sending);
  wait_received(receiving);
  return note_of(receiving);
}

void Node::connect() {
  Bytes at;
  if (run_.out_of_band) {
    at = control_of(run_).receive({});
  } else {
    require(info_->dest_addr != nullptr, "fi_getinfo of host and port gave no dest_addr");
    const auto* const given = static_cast<const std::byte*>(info_->dest_addr);
    at.assign(given, given + info_->dest_addrlen);
  }
  open_domain();
  open_endpoint();
  check(fi_connect(ep(), at.data(), nullptr, 0), "fi_connect");
  const CmEvent event = next_event(eq(), FI_CONNECTED);
  require(event.fid == &ep()->fid, "FI_CONNECTED of another endpoint");
}

void Node::accept() {
  fid_pep* pep = nullptr;
  check(fi_passive_ep(fabric(), info_.get(), &pep, nullptr), "fi_passive_ep");
  passive_.reset(pep);
  check(fi_pep_bind(pep, &eq_->fid, 0), "fi_pep_bind");
  check(fi_listen(pep), "fi_listen");
  if (run_.out_of_band) {
    Bytes at(512);
    std::size_t size = at.size();
    check(fi_getname(&pep->fid, at.data(), &size), "fi_getname of a passive endpoint");
    at.resize(size);
    control_of(run_).send(at);
  } else {
    say_ready();
  }
  CmEvent request = next_event(eq(), FI_CONNREQ);
  require(request.fid == &pep->fid, "FI_CONNREQ of another endpoint");
  info_ = std::move(request.info);
  open_domain();
  open_endpoint();
  check(fi_accept(ep(), nullptr, 0), "fi_accept");
  const CmEvent event = next_event(eq(), FI_CONNECTED);
  require(event.fid == &ep()->fid, "FI_CONNECTED of another endpoint");
}

void Node::send(std::size_t size, Op& op, std::uint64_t tag) {
  post("fi_send", [&] {
    return tagged() ? fi_tsend(ep(), out_.data(), size, out_desc(), peer_, tag, &op)
                    : fi_send(ep(), out_.data(), size, out_desc(), peer_, &op);
  });
}

void Node::receive(std::size_t size, Op& op, std::uint64_t tag) {
  post("fi_recv", [&] {
    return tagged() ? fi_trecv(receiver(), in_.data(), size, in_desc(), FI_ADDR_UNSPEC, tag, 0, &op)
                    : fi_recv(receiver(), in_.data(), size, in_desc(), FI_ADDR_UNSPEC, &op);
  });
}

bool Node::read(fid_cq* queue) {
  fi_cq_tagged_entry entry{};
  const ssize_t n = fi_cq_read(queue, &entry, 1);
  if (n == -FI_EAGAIN) return false;
  if (n == -FI_EAVAIL) {
    fi_cq_err_entry error{};
    const ssize_t got = fi_cq_readerr(queue, &error, 0);
    if (got == -FI_EAGAIN) return false;
    check(got, "fi_cq_readerr");
    if (!tolerant_ || error.op_context == nullptr) {
      throw FiError("the completion of an operation", -error.err);
    }
    Op& op = *Op::of(error.op_context);
    op.error = error.err;
    op.entry = {error.op_context, error.flags, error.len, error.buf, error.data, error.tag};
    ++op.done;
    return true;
  }
  check(n, "fi_cq_read");
  require(n == 1, "fi_cq_read of one entry gave another number");
  if (entry.op_context == nullptr ||
      ((entry.flags & FI_REMOTE_WRITE) != 0 && (entry.flags & FI_RMA) != 0)) {
    strays_.push_back(entry);
    return true;
  }
  Op& op = *Op::of(entry.op_context);
  op.entry = entry;
  ++op.done;
  return true;
}

void Node::progress() {
  while (read(sends())) {
  }
  while (receives_ && read(receives())) {
  }
}

// Until there may be an entry.
void Node::block(fid_cq* queue) {
  if (setup_.wait == Wait::sread) {
    // No entry is asked for: only that there is one.
    const ssize_t n = fi_cq_sread(queue, nullptr, 0, nullptr, kEventWait);
    if (n < 0 && n != -FI_EAGAIN && n != -FI_EAVAIL) check(n, "fi_cq_sread");
    return;
  }
  if (setup_.wait == Wait::set) {
    const int code = fi_wait(wait_set_.get(), kEventWait);
    require(code == 0 || code == -FI_EAGAIN, "fi_wait answered " + std::to_string(code));
    return;
  }
  int fd = -1;
  check(fi_control(&queue->fid, FI_GETWAIT, &fd), "fi_control for FI_GETWAIT");
  fid* all[] = {&queue->fid};
  const int may = fi_trywait(fabric(), all, 1);
  if (may == -FI_EAGAIN) return;
  check(may, "fi_trywait");
  if (setup_.wait == Wait::epoll) {
    const int set = epoll_create1(EPOLL_CLOEXEC);
    epoll_event event{EPOLLIN, {}};
    const bool watched = epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0;
    const bool signalled = watched && epoll_wait(set, &event, 1, kEventWait) == 1;
    ::close(set);
    require(signalled, "a completion's descriptor was not signalled to epoll");
    return;
  }
  pollfd at{fd, POLLIN, 0};
  require(::poll(&at, 1, kEventWait) > 0, "a completion's descriptor was not signalled");
}

void Node::wait(fid_cq* queue, Op& op) {
  while (op.done == 0) {
    if (read(queue)) continue;
    if (setup_.wait != Wait::spin) block(queue);
    // Its own queue is asked first; what the other has is progress, too.
    if (setup_.wait == Wait::spin) progress();
  }
  --op.done;
}

void Node::until(const char* what, const std::function<bool()>& condition) {
  stage(what);
  while (!condition()) progress();
}

}  // namespace turnout::clients
