// SPDX-License-Identifier: BSD-3-Clause
// Connections: their data, refusals, ends, many at once, and endpoints that take the socket of a
// passive one. Source: fi_cm(3), fi_eq(3), fi_endpoint(3).
#include <array>
#include <cstring>
#include <deque>
#include <map>

#include "tests/clients/rig.h"

namespace turnout::clients {
namespace {

const Ask kConnected{FI_EP_MSG, FI_MSG, {}};
const Ask kInternet{FI_EP_MSG, FI_MSG, [](fi_info& hints) { hints.addr_format = FI_SOCKADDR_IN; }};

// One side's objects, before there is an endpoint. They are used in turn: the peer is behind
// `run`'s port or, out of band, told over the control socket.
class Side {
 public:
  explicit Side(const Run& run, const Ask& ask = kConnected)
      : run_(run), info_(get_info(run, ask)) {
    fid_fabric* fabric = nullptr;
    check(fi_fabric(info_->fabric_attr, &fabric, nullptr), "fi_fabric");
    fabric_.reset(fabric);
    fi_eq_attr attr{};
    attr.wait_obj = FI_WAIT_UNSPEC;
    fid_eq* eq = nullptr;
    check(fi_eq_open(fabric, &attr, &eq, nullptr), "fi_eq_open");
    eq_.reset(eq);
    if (run.server) listen();
    fid_domain* domain = nullptr;
    check(fi_domain(fabric, info_.get(), &domain, nullptr), "fi_domain");
    domain_.reset(domain);
    cq_ = open_tagged_queue(domain, 1024);
    if (run.server) return;
    if (run.out_of_band) {
      at_ = control_of(run).receive({});
    } else {
      require(info_->dest_addr != nullptr, "fi_getinfo of host and port gave no dest_addr");
      const auto* const given = static_cast<const std::byte*>(info_->dest_addr);
      at_.assign(given, given + info_->dest_addrlen);
    }
  }

  [[nodiscard]] fid_eq* eq() const noexcept { return eq_.get(); }
  [[nodiscard]] fid_cq* cq() const noexcept { return cq_.get(); }
  [[nodiscard]] fid_pep* passive() const noexcept { return passive_.get(); }
  [[nodiscard]] fid_fabric* fabric() const noexcept { return fabric_.get(); }
  [[nodiscard]] fi_info* info() const noexcept { return info_.get(); }
  [[nodiscard]] const Bytes& peer() const noexcept { return at_; }
  [[nodiscard]] FiHandle<fid_ep> endpoint(fi_info* info) const {
    fid_ep* ep = nullptr;
    check(fi_endpoint(domain_.get(), info, &ep, nullptr), "fi_endpoint");
    FiHandle<fid_ep> handle(ep);
    check(fi_ep_bind(ep, &eq_->fid, 0), "fi_ep_bind of the event queue");
    check(fi_ep_bind(ep, &cq_->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind of the queue");
    check(fi_enable(ep), "fi_enable");
    return handle;
  }
  [[nodiscard]] std::size_t most_data() const {
    std::size_t most = 0, size = sizeof most;
    const FiHandle<fid_ep> probe = run_.server ? FiHandle<fid_ep>() : endpoint(info());
    fid_t at = run_.server ? &passive_->fid : &probe->fid;
    check(fi_getopt(at, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &most, &size), "fi_getopt");
    return most;
  }

 private:
  void listen() {
    fid_pep* pep = nullptr;
    check(fi_passive_ep(fabric(), info(), &pep, nullptr), "fi_passive_ep");
    passive_.reset(pep);
    check(fi_pep_bind(pep, &eq_->fid, 0), "fi_pep_bind");
    check(fi_listen(pep), "fi_listen");
    if (!run_.out_of_band) return say_ready();
    Bytes at(512);
    std::size_t size = at.size();
    check(fi_getname(&pep->fid, at.data(), &size), "fi_getname of a passive endpoint");
    at.resize(size);
    control_of(run_).send(at);
  }

  const Run& run_;
  InfoPtr info_;
  FiHandle<fid_fabric> fabric_;
  FiHandle<fid_eq> eq_;
  FiHandle<fid_pep> passive_;
  FiHandle<fid_domain> domain_;
  FiHandle<fid_cq> cq_;
  Bytes at_;
};

void connect_data(const Run& run) {
  Side side(run);
  const std::size_t most = side.most_data();
  require(most > 0, "a connection takes no data");
  std::vector<std::size_t> all{1, most / 2, most};
  for (const std::size_t size : all) {
    Bytes out(size), back(size);
    fill(out, size);
    fill(back, size + 1);
    if (run.server) {
      CmEvent request = next_event(side.eq(), FI_CONNREQ);
      require(request.data.size() >= size, "the request has fewer data");
      verify(std::span(request.data).first(size), size);
      const auto ep = side.endpoint(request.info.get());
      check(fi_accept(ep.get(), back.data(), back.size()), "fi_accept");
      require(next_event(side.eq(), FI_CONNECTED).fid == &ep->fid, "another is connected");
      require(next_event(side.eq(), FI_SHUTDOWN, side.cq()).fid == &ep->fid,
              "another was shut down");
    } else {
      const auto ep = side.endpoint(side.info());
      check(fi_connect(ep.get(), side.peer().data(), out.data(), out.size()), "fi_connect");
      const CmEvent event = next_event(side.eq(), FI_CONNECTED);
      require(event.fid == &ep->fid, "another is connected");
      require(event.data.size() >= size, "the answer has fewer data");
      verify(std::span(event.data).first(size), size + 1);
      check(fi_shutdown(ep.get(), 0), "fi_shutdown");
    }
  }
}

// A refusal, with a reason; the next is accepted.
void reject(const Run& run) {
  Side side(run);
  Bytes reason(16);
  fill(reason, 5);
  if (run.server) {
    CmEvent request = next_event(side.eq(), FI_CONNREQ);
    check(fi_reject(side.passive(), request.info->handle, reason.data(), reason.size()),
          "fi_reject");
    request = next_event(side.eq(), FI_CONNREQ);
    const auto ep = side.endpoint(request.info.get());
    check(fi_accept(ep.get(), nullptr, 0), "fi_accept");
    require(next_event(side.eq(), FI_CONNECTED).fid == &ep->fid, "another is connected");
    require(next_event(side.eq(), FI_SHUTDOWN, side.cq()).fid == &ep->fid, "another was shut down");
    return;
  }
  {
    const auto ep = side.endpoint(side.info());
    check(fi_connect(ep.get(), side.peer().data(), nullptr, 0), "fi_connect");
    stage("a refusal");
    fi_eq_cm_entry entry{};
    std::uint32_t event = 0;
    const ssize_t got = fi_eq_sread(side.eq(), &event, &entry, sizeof entry, 10'000, 0);
    require(got == -FI_EAVAIL, "a refused connection was made");
    std::array<std::byte, 256> data{};
    fi_eq_err_entry error{};
    error.err_data = data.data();
    error.err_data_size = data.size();
    check(fi_eq_readerr(side.eq(), &error, 0), "fi_eq_readerr");
    require(error.err == FI_ECONNREFUSED && error.fid == &ep->fid, "it failed otherwise");
    require(error.err_data_size >= reason.size(), "the reason is not told");
    verify({static_cast<const std::byte*>(error.err_data), reason.size()}, 5);
  }
  const auto ep = side.endpoint(side.info());
  check(fi_connect(ep.get(), side.peer().data(), nullptr, 0), "fi_connect");
  require(next_event(side.eq(), FI_CONNECTED).fid == &ep->fid, "another is connected");
  check(fi_shutdown(ep.get(), 0), "fi_shutdown");
}

void nobody_listens(const Run& run) {
  Run client = run;
  client.out_of_band = false;
  client.server = false;
  const InfoPtr info = get_info(client, kConnected);
  Side side(client);
  const auto ep = side.endpoint(side.info());
  const int code = fi_connect(ep.get(), side.peer().data(), nullptr, 0);
  if (code == -FI_ECONNREFUSED) return;
  check(code, "fi_connect");
  stage("a refusal");
  fi_eq_cm_entry entry{};
  std::uint32_t event = 0;
  const ssize_t got = fi_eq_sread(side.eq(), &event, &entry, sizeof entry, 20'000, 0);
  require(got == -FI_EAVAIL, "there is a connection where nobody listens");
  fi_eq_err_entry error{};
  check(fi_eq_readerr(side.eq(), &error, 0), "fi_eq_readerr");
  require(error.err == FI_ECONNREFUSED,
          std::string("it failed otherwise: ") + fi_strerror(error.err));
}

// All are asked for before one is accepted; each carries a message both ways, and then they end.
void many(const Run& run, std::size_t count) {
  Side side(run);
  std::vector<FiHandle<fid_ep>> endpoints;
  std::map<fid_t, std::size_t> numbers;
  if (!run.server) {
    for (std::size_t i = 0; i < count; ++i) {
      endpoints.push_back(side.endpoint(side.info()));
      numbers[&endpoints.back()->fid] = i;
      const auto data = static_cast<std::uint32_t>(i);
      check(fi_connect(endpoints.back().get(), side.peer().data(), &data, sizeof data),
            "fi_connect");
    }
    for (std::size_t i = 0; i < count; ++i) {
      require(numbers.contains(next_event(side.eq(), FI_CONNECTED).fid), "an unknown is connected");
    }
  } else {
    std::vector<FiHandle<fid_ep>> accepted(count);
    std::size_t connected = 0, asked = 0;
    stage("many connections");
    while (connected < count) {
      alignas(fi_eq_cm_entry) std::array<std::byte, sizeof(fi_eq_cm_entry) + 512> space{};
      std::uint32_t event = 0;
      const ssize_t got = fi_eq_sread(side.eq(), &event, space.data(), space.size(), 10'000, 0);
      check(got, "fi_eq_sread");
      const auto& entry = *reinterpret_cast<const fi_eq_cm_entry*>(space.data());
      if (event == FI_CONNECTED) {
        require(numbers.contains(entry.fid), "an unknown is connected");
        ++connected;
        continue;
      }
      require(event == FI_CONNREQ, "another event");
      const InfoPtr info(entry.info);
      std::uint32_t number = 0;
      require(static_cast<std::size_t>(got) >= sizeof entry + sizeof number, "no data");
      std::memcpy(&number, entry.data, sizeof number);
      require(number < count && accepted[number] == nullptr, "a connection is asked for twice");
      accepted[number] = side.endpoint(info.get());
      numbers[&accepted[number]->fid] = number;
      check(fi_accept(accepted[number].get(), nullptr, 0), "fi_accept");
      ++asked;
    }
    require(asked == count, "another number of connections");
    endpoints = std::move(accepted);
  }
  // The bytes are not registered: who wants that is not offered this endpoint.
  if ((side.info()->domain_attr->mr_mode & FI_MR_LOCAL) != 0) throw Unsupported("FI_MR_LOCAL");
  constexpr std::size_t kSize = 300;
  std::vector<Bytes> in(count, Bytes(kSize)), out(count, Bytes(kSize));
  std::deque<Op> receiving(count), sending(count);
  const auto await = [&](std::deque<Op>& ops) {
    stage("messages of many connections");
    for (Op& op : ops) {
      while (op.done == 0) {
        fi_cq_tagged_entry entry{};
        const ssize_t n = fi_cq_read(side.cq(), &entry, 1);
        if (n == -FI_EAGAIN) continue;
        check(n, "fi_cq_read");
        ++Op::of(entry.op_context)->done;
      }
    }
  };
  const auto retry = [&](const char* name, auto call) {
    long code = 0;
    while ((code = call()) == -FI_EAGAIN) fi_cq_read(side.cq(), nullptr, 0);
    check(code, name);
  };
  for (std::size_t i = 0; i < count; ++i) {
    retry("fi_recv", [&] {
      return fi_recv(endpoints[i].get(), in[i].data(), kSize, nullptr, FI_ADDR_UNSPEC,
                     &receiving[i]);
    });
  }
  if (run.server) await(receiving);
  for (std::size_t i = 0; i < count; ++i) {
    fill(out[i], i);
    retry("fi_send", [&] {
      return fi_send(endpoints[i].get(), out[i].data(), kSize, nullptr, 0, &sending[i]);
    });
  }
  await(sending);
  if (!run.server) await(receiving);
  for (std::size_t i = 0; i < count; ++i) verify(in[i], i);
  if (!run.server) {
    for (const auto& ep : endpoints) check(fi_shutdown(ep.get(), 0), "fi_shutdown");
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    require(numbers.erase(next_event(side.eq(), FI_SHUTDOWN, side.cq()).fid) == 1,
            "a second end of one");
  }
}

std::vector<std::byte> name_of(fid_t object) {
  Bytes at(512);
  std::size_t size = at.size();
  check(fi_getname(object, at.data(), &size), "fi_getname");
  at.resize(size);
  return at;
}

// A passive endpoint's socket becomes that of an active one: fi_info::handle.
void sockets(const Run& run) {
  Side side(run, kInternet);
  if (run.server) {
    const Bytes own = name_of(&side.passive()->fid);
    require(!own.empty(), "a passive endpoint has no name");
    CmEvent request = next_event(side.eq(), FI_CONNREQ);
    const auto ep = side.endpoint(request.info.get());
    check(fi_accept(ep.get(), nullptr, 0), "fi_accept");
    require(next_event(side.eq(), FI_CONNECTED).fid == &ep->fid, "another is connected");
    // Who asks is told before and after.
    Bytes peer(512);
    std::size_t size = peer.size();
    check(fi_getpeer(ep.get(), peer.data(), &size), "fi_getpeer");
    require(request.info->dest_addrlen == size &&
                std::memcmp(request.info->dest_addr, peer.data(), size) == 0,
            "the peer's name is not the one that asked");
    check(fi_shutdown(ep.get(), 0), "fi_shutdown");
    return;
  }
  fid_pep* pep = nullptr;
  check_offered(fi_passive_ep(side.fabric(), side.info(), &pep, nullptr), "fi_passive_ep");
  FiHandle<fid_pep> passive(pep);
  // Its name is known before anything is connected.
  const Bytes before = name_of(&pep->fid);
  const InfoPtr info(fi_dupinfo(side.info()));
  info->handle = &pep->fid;
  const auto ep = side.endpoint(info.get());
  require(name_of(&ep->fid) == before, "the endpoint has another name than the passive one");
  check(fi_connect(ep.get(), side.peer().data(), nullptr, 0), "fi_connect");
  require(next_event(side.eq(), FI_CONNECTED).fid == &ep->fid, "another is connected");
  require(name_of(&ep->fid).size() == before.size(), "the endpoint's name changed");
  require(next_event(side.eq(), FI_SHUTDOWN, side.cq()).fid == &ep->fid, "another was shut down");
}

}  // namespace

std::vector<Test> connection_tests() {
  std::vector<Test> tests;
  const auto add = [&](const std::string& name, int processes, auto body) {
    tests.push_back({name, processes, body});
  };
  using R = const Run&;
  add("fi_cm_data", 2, connect_data);
  add("fi_cm_data reject", 2, reject);
  add("fi_msg nobody listens", 1, nobody_listens);
  add("fi_msg_sockets", 2, sockets);
  add("fi_multi_ep -e msg", 2, [](R r) { many(r, 3); });
  add("fi_multi_ep -e msg -C 32", 2, [](R r) { many(r, 32); });
  return tests;
}

}  // namespace turnout::clients
