// SPDX-License-Identifier: BSD-3-Clause
// Several endpoints of one process, what they share, and clients that come one after another.
// Source: fi_endpoint(3) (scalable endpoints, shared contexts), fi_av(3).
#include <fcntl.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <deque>

#include "tests/clients/rig.h"

namespace turnout::clients {
namespace {

constexpr std::size_t kSize = 700;
constexpr std::uint64_t kTag = 9;

// Names of this side's endpoints, in a note.
Bytes pack(const std::vector<Bytes>& names) {
  Bytes all;
  for (const Bytes& name : names) {
    const auto size = static_cast<std::uint32_t>(name.size());
    const auto* const at = reinterpret_cast<const std::byte*>(&size);
    all.insert(all.end(), at, at + sizeof size);
    all.insert(all.end(), name.begin(), name.end());
  }
  return all;
}

std::vector<Bytes> unpack(const Bytes& all) {
  std::vector<Bytes> names;
  for (std::size_t at = 0; at < all.size();) {
    std::uint32_t size = 0;
    require(all.size() - at >= sizeof size, "a note of names is cut");
    std::memcpy(&size, all.data() + at, sizeof size);
    at += sizeof size;
    require(all.size() - at >= size, "a note of names is cut");
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(at);
    names.emplace_back(begin, begin + size);
    at += size;
  }
  return names;
}

// One of several endpoints of a process, with memory of its own.
struct Another {
  FiHandle<fid_cq> cq;
  FiHandle<fid_av> av;
  FiHandle<fid_ep> ep;
  Bytes in = Bytes(kSize), out = Bytes(kSize);
  FiHandle<fid_mr> in_mr, out_mr;
  fi_addr_t peer = FI_ADDR_UNSPEC;
  Op receiving, sending;
};

void multi_ep(const Run& run, fi_ep_type type, bool shared_cq, bool shared_av) {
  constexpr std::size_t kCount = 3;
  Setup setup;
  setup.type = type;
  Node node(run, setup);
  std::deque<Another> all(kCount);
  std::vector<Bytes> names;
  for (Another& one : all) {
    if (!shared_cq) one.cq = node.open_queue(Wait::spin, 64);
    if (!shared_av) {
      fi_av_attr attr{};
      attr.type = node.info().domain_attr->av_type;
      fid_av* av = nullptr;
      check(fi_av_open(node.domain(), &attr, &av, nullptr), "fi_av_open");
      one.av.reset(av);
    }
    one.ep = node.another_endpoint(one.cq.get(), one.av.get());
    if ((node.info().domain_attr->mr_mode & FI_MR_LOCAL) != 0) {
      one.in_mr = node.register_memory(one.in, FI_RECV, 100 + names.size() * 2);
      one.out_mr = node.register_memory(one.out, FI_SEND, 101 + names.size() * 2);
    }
    names.push_back(node.name(one.ep.get()));
  }
  const std::vector<Bytes> theirs = unpack(node.exchange(pack(names)));
  require(theirs.size() == kCount, "the peer has another number of endpoints");
  for (std::size_t i = 0; i < kCount; ++i) {
    fid_av* const av = shared_av ? node.av() : all[i].av.get();
    const int done = fi_av_insert(av, theirs[i].data(), 1, &all[i].peer, 0, nullptr);
    require(done == 1, "fi_av_insert answered " + std::to_string(done));
  }
  const auto pass = [&](std::size_t first, std::size_t number) {
    const auto await = [&](Another& one, Op& op) {
      while (op.done == 0) {
        shared_cq ? node.progress() : void(node.read(one.cq.get()));
        node.progress();
      }
      --op.done;
    };
    for (std::size_t i = first; i < kCount; ++i) {
      Another& one = all[i];
      node.post("fi_recv", [&] {
        return fi_recv(one.ep.get(), one.in.data(), kSize,
                       one.in_mr ? fi_mr_desc(one.in_mr.get()) : nullptr, FI_ADDR_UNSPEC,
                       &one.receiving);
      });
    }
    for (std::size_t i = first; i < kCount; ++i) {
      Another& one = all[i];
      fill(one.out, number + i);
      stage("fi_send of several endpoints");
      long code = 0;
      while ((code = fi_send(one.ep.get(), one.out.data(), kSize,
                             one.out_mr ? fi_mr_desc(one.out_mr.get()) : nullptr, one.peer,
                             &one.sending)) == -FI_EAGAIN) {
        node.progress();
        if (one.cq) node.read(one.cq.get());
      }
      check(code, "fi_send");
    }
    for (std::size_t i = first; i < kCount; ++i) {
      await(all[i], all[i].sending);
      await(all[i], all[i].receiving);
      verify(all[i].in, number + i);
    }
  };
  node.sync();
  pass(0, 0);
  pass(0, 10);
  node.sync();
  all[0].ep.reset();  // the others go on
  all[0].cq.reset();
  pass(1, 20);
  node.sync();
}

// Clients that come one after another to one server.
void multi_client(const Run& run, std::size_t clients, bool delivered) {
  Setup setup;
  setup.more = [=](fi_info& hints) {
    if (delivered) hints.tx_attr->op_flags = FI_DELIVERY_COMPLETE;
  };
  std::unique_ptr<Node> node;
  for (std::size_t client = 0; client < clients; ++client) {
    if (run.server && node) {
      fi_addr_t old = node->peer();
      check(fi_av_remove(node->av(), &old, 1, 0), "fi_av_remove");
      node->set_peer(FI_ADDR_UNSPEC);
      node->find_peer();
    } else {
      node.reset();
      node = std::make_unique<Node>(run, setup);
    }
    for (std::size_t i = 0; i < 5; ++i) {
      Op sending, receiving;
      node->receive(kSize, receiving);
      if (run.server) {
        node->wait_received(receiving);
        verify(node->in().first(kSize), client + i);
      }
      fill(node->out().first(kSize), client + i);
      node->send(kSize, sending);
      node->wait_sent(sending);
      if (run.server) continue;
      node->wait_received(receiving);
      verify(node->in().first(kSize), client + i);
    }
    node->sync();
  }
}

// A vector that has a name: a second process has its addresses, by their indices.
void shared_av(const Run& run) {
  std::array<int, 2> down{};
  require(::pipe(down.data()) == 0, "no pipe");
  const std::string name = "clients-" + run.port + (run.server ? "-server" : "-client");
  const auto reader = [&](const Run& own) {  // of the second process
    fi_addr_t at = 0;
    if (::read(down[0], &at, sizeof at) != sizeof at) return ENODATA;
    const InfoPtr hints = hints_of(own, {FI_EP_RDM, FI_MSG | FI_TAGGED,
                                         [](fi_info& h) { h.domain_attr->caps |= FI_SHARED_AV; }});
    fi_info* found = nullptr;
    check_offered(fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints.get(), &found),
                  "fi_getinfo");
    const InfoPtr info(found);
    fid_fabric* fabric = nullptr;
    check(fi_fabric(info->fabric_attr, &fabric, nullptr), "fi_fabric");
    const FiHandle<fid_fabric> f(fabric);
    fid_domain* domain = nullptr;
    check(fi_domain(fabric, info.get(), &domain, nullptr), "fi_domain");
    const FiHandle<fid_domain> d(domain);
    fi_av_attr attr{};
    attr.type = FI_AV_TABLE;
    attr.count = 16;
    attr.name = name.c_str();
    attr.flags = FI_READ;
    fid_av* av = nullptr;
    check_offered(fi_av_open(domain, &attr, &av, nullptr), "fi_av_open by name");
    const FiHandle<fid_av> a(av);
    const auto* const indices = static_cast<const fi_addr_t*>(attr.map_addr);
    require(indices != nullptr && indices[at] != FI_ADDR_NOTAVAIL, "no index of the shared vector");
    const FiHandle<fid_cq> cq = open_tagged_queue(domain);
    fid_ep* ep = nullptr;
    check(fi_endpoint(domain, info.get(), &ep, nullptr), "fi_endpoint");
    const FiHandle<fid_ep> e(ep);
    check(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind");
    check(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    check(fi_enable(ep), "fi_enable");
    Bytes out(kSize);
    fill(out, 77);
    Op op;
    long code = 0;
    stage("fi_tsend of the second process");
    while ((code = fi_tsend(ep, out.data(), kSize, nullptr, indices[at], kTag, &op)) ==
           -FI_EAGAIN) {
      fi_cq_read(cq.get(), nullptr, 0);
    }
    check(code, "fi_tsend");
    fi_cq_tagged_entry entry{};
    while ((code = fi_cq_read(cq.get(), &entry, 1)) == -FI_EAGAIN) {
    }
    check(code, "fi_cq_read");
    // Its provider may have to help until the message is there.
    char done = 0;
    require(::fcntl(down[0], F_SETFL, O_NONBLOCK) == 0, "no non-blocking pipe");
    while (::read(down[0], &done, 1) < 0 && errno == EAGAIN) fi_cq_read(cq.get(), nullptr, 0);
    return 0;
  };
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(down[1]);  // so that it learns that the first one has ended
    int code = 1;
    try {
      code = reader(run);
    } catch (const Unsupported&) {
      code = ENODATA;
    } catch (const std::exception& e) {
      std::fprintf(stderr, "second process: %s\n", e.what());
    }
    _exit(code);
  }
  const auto end_child = [&](bool good) {
    const char done = 'd';
    if (!good || ::write(down[1], &done, 1) != 1) ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  };
  try {
    Setup setup;
    // The peer's own messages may come before its second process's.
    setup.caps = FI_MSG | FI_TAGGED;
    setup.av = FI_AV_TABLE;
    setup.av_name = name;
    setup.more = [](fi_info& hints) { hints.domain_attr->caps |= FI_SHARED_AV; };
    Node node(run, setup);
    Op receiving;
    node.sync();
    node.receive(kSize, receiving, kTag);
    const fi_addr_t peer = node.peer();
    require(::write(down[1], &peer, sizeof peer) == sizeof peer, "the pipe is broken");
    node.until("a message of the peer's second process", [&] { return receiving.done != 0; });
    verify(node.in().first(kSize), 77);
    node.sync();
    const int code = end_child(true);
    if (code == ENODATA) throw Unsupported("a shared address vector for reading");
    require(code == 0, "the second process ended with " + std::to_string(code));
  } catch (...) {
    end_child(false);
    throw;
  }
}

// Contexts that several endpoints send or receive through.
void shared_contexts(const Run& run, fi_ep_type type, bool send, bool receive) {
  constexpr std::size_t kCount = 3;
  Setup setup;
  setup.type = type;
  setup.shared_send = send;
  setup.shared_receive = receive;
  Node node(run, setup);
  if (type == FI_EP_MSG) {  // one connection shows whether the contexts carry messages
    for (std::size_t i = 0; i < 5; ++i) {
      Op sending, receiving;
      node.receive(kSize, receiving);
      fill(node.out().first(kSize), i);
      node.send(kSize, sending);
      node.wait_sent(sending);
      node.wait_received(receiving);
      verify(node.in().first(kSize), i);
      node.sync();
    }
    return;
  }
  std::vector<FiHandle<fid_ep>> all;
  std::vector<Bytes> names;
  for (std::size_t i = 0; i < kCount; ++i) {
    all.push_back(node.another_endpoint());
    names.push_back(node.name(all.back().get()));
  }
  const std::vector<Bytes> theirs = unpack(node.exchange(pack(names)));
  std::vector<fi_addr_t> peers;
  for (const Bytes& name : theirs) peers.push_back(node.insert(name));
  node.sync();
  for (std::size_t i = 0; i < kCount; ++i) {
    Op sending, receiving;
    fid_ep* const from = receive ? node.shared_receives() : all[i].get();
    node.post("fi_recv", [&] {
      return fi_recv(from, node.in().data(), kSize, node.in_desc(), FI_ADDR_UNSPEC, &receiving);
    });
    fill(node.out().first(kSize), i);
    node.post("fi_send", [&] {
      return fi_send(all[i].get(), node.out().data(), kSize, node.out_desc(), peers[i], &sending);
    });
    node.wait_sent(sending);
    node.wait_received(receiving);
    verify(node.in().first(kSize), i);
    node.sync();
  }
}

// One address, several contexts to send and to receive with.
void scalable(const Run& run) {
  constexpr int kBits = 2;
  Ask question;
  question.caps = FI_MSG | FI_NAMED_RX_CTX;
  const InfoPtr info = get_info(run, question);
  const std::size_t count = std::min<std::size_t>(
      {2, info->domain_attr->max_ep_tx_ctx, info->domain_attr->max_ep_rx_ctx});
  if (count < 2) throw Unsupported("one context of an endpoint");
  info->ep_attr->tx_ctx_cnt = info->ep_attr->rx_ctx_cnt = count;
  fid_fabric* fabric = nullptr;
  check(fi_fabric(info->fabric_attr, &fabric, nullptr), "fi_fabric");
  const FiHandle<fid_fabric> f(fabric);
  fid_domain* domain = nullptr;
  check(fi_domain(fabric, info.get(), &domain, nullptr), "fi_domain");
  const FiHandle<fid_domain> d(domain);
  fi_av_attr attr{};
  attr.type = info->domain_attr->av_type;
  attr.rx_ctx_bits = kBits;
  fid_av* av = nullptr;
  check(fi_av_open(domain, &attr, &av, nullptr), "fi_av_open");
  const FiHandle<fid_av> a(av);
  const FiHandle<fid_cq> cq = open_tagged_queue(domain);
  fid_ep* sep = nullptr;
  check_offered(fi_scalable_ep(domain, info.get(), &sep, nullptr), "fi_scalable_ep");
  const FiHandle<fid_ep> s(sep);
  check(fi_scalable_ep_bind(sep, &av->fid, 0), "fi_scalable_ep_bind");
  std::vector<FiHandle<fid_ep>> tx, rx;
  for (std::size_t i = 0; i < count; ++i) {
    fid_ep* one = nullptr;
    check(fi_tx_context(sep, static_cast<int>(i), nullptr, &one, nullptr), "fi_tx_context");
    tx.emplace_back(one);
    check(fi_ep_bind(one, &cq->fid, FI_SEND), "fi_ep_bind");
    check(fi_enable(one), "fi_enable");
    check(fi_rx_context(sep, static_cast<int>(i), nullptr, &one, nullptr), "fi_rx_context");
    rx.emplace_back(one);
    check(fi_ep_bind(one, &cq->fid, FI_RECV), "fi_ep_bind");
    check(fi_enable(one), "fi_enable");
  }
  check(fi_enable(sep), "fi_enable");
  // To itself: this is about the contexts, not about finding another.
  Bytes own(512);
  std::size_t size = own.size();
  check(fi_getname(&sep->fid, own.data(), &size), "fi_getname");
  fi_addr_t at = FI_ADDR_NOTAVAIL;
  require(fi_av_insert(av, own.data(), 1, &at, 0, nullptr) == 1, "fi_av_insert");
  for (std::size_t i = 0; i < count; ++i) {
    Bytes in(kSize), out(kSize);
    fill(out, i);
    Op sending, receiving;
    check(fi_recv(rx[i].get(), in.data(), kSize, nullptr, FI_ADDR_UNSPEC, &receiving), "fi_recv");
    check(fi_send(tx[i].get(), out.data(), kSize, nullptr,
                  fi_rx_addr(at, static_cast<int>(i), kBits), &sending),
          "fi_send");
    while (sending.done == 0 || receiving.done == 0) {
      fi_cq_tagged_entry entry{};
      const ssize_t n = fi_cq_read(cq.get(), &entry, 1);
      if (n == -FI_EAGAIN) continue;
      check(n, "fi_cq_read");
      ++Op::of(entry.op_context)->done;
    }
    verify(in, i);
  }
}

}  // namespace

std::vector<Test> endpoint_tests() {
  std::vector<Test> tests;
  const auto add = [&](const std::string& name, int processes, auto body) {
    tests.push_back({name, processes, body});
  };
  using R = const Run&;
  add("fi_multi_ep -e rdm", 2, [](R r) { multi_ep(r, FI_EP_RDM, false, false); });
  add("fi_multi_ep -e rdm --shared-cq", 2, [](R r) { multi_ep(r, FI_EP_RDM, true, false); });
  add("fi_multi_ep -e rdm --shared-av", 2, [](R r) { multi_ep(r, FI_EP_RDM, false, true); });
  add("fi_multi_ep -e rdm --shared-cq --shared-av", 2,
      [](R r) { multi_ep(r, FI_EP_RDM, true, true); });
  add("fi_multi_ep -e dgram", 2, [](R r) { multi_ep(r, FI_EP_DGRAM, false, false); });
  add("fi_rdm_multi_client -C 10 -I 5", 2,
      [](R r) { multi_client(r, r.standard ? 50 : 10, false); });
  add("fi_rdm_multi_client -C 10 -I 5 -U", 2,
      [](R r) { multi_client(r, r.standard ? 50 : 10, true); });
  add("fi_rdm_shared_av", 2, shared_av);
  add("fi_scalable_ep", 1, scalable);
  const std::pair<const char*, fi_ep_type> types[] = {
      {"rdm", FI_EP_RDM}, {"msg", FI_EP_MSG}, {"dgram", FI_EP_DGRAM}};
  for (const auto& [word, type] : types) {
    const std::string name = std::string("fi_shared_ctx -e ") + word;
    add(name, 2, [kind = type](R r) { shared_contexts(r, kind, true, true); });
    add(name + " --no-tx-shared-ctx", 2,
        [kind = type](R r) { shared_contexts(r, kind, false, true); });
    add(name + " --no-rx-shared-ctx", 2,
        [kind = type](R r) { shared_contexts(r, kind, true, false); });
  }
  return tests;
}

}  // namespace turnout::clients
