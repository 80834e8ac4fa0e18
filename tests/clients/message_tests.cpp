// SPDX-License-Identifier: BSD-3-Clause
// Messages of connectionless endpoints, and of all types where the type makes no difference.
// Source: fi_msg(3), fi_tagged(3), fi_cq(3), fi_poll(3).
#include <sys/uio.h>

#include <array>
#include <cstring>
#include <deque>

#include "tests/clients/rig.h"

namespace turnout::clients {
namespace {

constexpr std::size_t kMegabyte = 1 << 20;
constexpr unsigned kPause = 50'000;  // us: for messages that nobody has posted a receive for

Setup of(fi_ep_type type, std::uint64_t caps = FI_MSG, Wait wait = Wait::spin) {
  Setup setup;
  setup.type = type;
  setup.caps = caps;
  setup.wait = wait;
  return setup;
}

void pause_a_while(Node& node) {
  for (unsigned passed = 0; passed < kPause; passed += 1000) {
    node.progress();
    usleep(1000);
  }
}

// One message of each side.
void greet(Node& node, std::size_t number) {
  const std::size_t size = std::min<std::size_t>(1000, node.largest());
  Op sending, receiving;
  node.receive(size, receiving);
  if (node.run().server) {
    node.wait_received(receiving);
    verify(node.in().first(size), number);
  }
  fill(node.out().first(size), number);
  node.send(size, sending);
  node.wait_sent(sending);
  if (node.run().server) return;
  node.wait_received(receiving);
  verify(node.in().first(size), number);
}

void greeting(const Run& run, const Setup& setup) {
  Node node(run, setup);
  for (std::size_t i = 0; i < 3; ++i) greet(node, i);
  node.sync();
}

// The peer is removed from the vector and comes back.
void av_transfer(const Run& run, const Setup& setup) {
  Node node(run, setup);
  greet(node, 0);
  node.sync();
  for (std::size_t i = 1; i < 4; ++i) {
    Bytes name(512);
    std::size_t size = name.size();
    check(fi_av_lookup(node.av(), node.peer(), name.data(), &size), "fi_av_lookup");
    name.resize(size);
    fi_addr_t old = node.peer();
    check(fi_av_remove(node.av(), &old, 1, 0), "fi_av_remove");
    node.set_peer(node.insert(name));
    greet(node, i);
  }
  node.sync();
}

void send_data(const Run& run, fi_ep_type type) {
  Setup setup = of(type);
  setup.more = [](fi_info& hints) { hints.domain_attr->cq_data_size = 4; };
  Node node(run, setup);
  const std::size_t size = std::min<std::size_t>(1000, node.largest());
  const std::uint64_t all = node.info().domain_attr->cq_data_size >= 8 ? ~0ULL : 0xffffffffULL;
  for (std::size_t i = 0; i < 5; ++i) {
    const std::uint64_t data = (0x0123456789abcdefULL + i * 0x1111) & all;
    Op op;
    if (run.server) {
      node.receive(size, op);
      node.wait_received(op);
      require((op.entry.flags & FI_REMOTE_CQ_DATA) != 0, "no flag tells of remote data");
      require(op.entry.data == data, "the remote data are others");
      verify(node.in().first(size), i);
      node.sync();
    } else {
      fill(node.out().first(size), i);
      node.post("fi_senddata", [&] {
        return fi_senddata(node.ep(), node.out().data(), size, node.out_desc(), data, node.peer(),
                           &op);
      });
      node.wait_sent(op);
      node.sync();
    }
  }
}

// Which of several objects has something.
void poll_set(const Run& run, bool counters) {
  Setup setup = of(FI_EP_RDM);
  setup.counters = counters;
  Node node(run, setup);
  node.sync();
  fi_poll_attr attr{};
  fid_poll* opened = nullptr;
  check_offered(fi_poll_open(node.domain(), &attr, &opened), "fi_poll_open");
  const FiHandle<fid_poll> set(opened);
  fid_t objects[] = {counters ? &node.sent()->fid : &node.sends()->fid,
                     counters ? &node.received()->fid : &node.receives()->fid};
  std::uint64_t before[2] = {};
  for (int i = 0; i < 2; ++i) {
    if (counters) before[i] = fi_cntr_read(i == 0 ? node.sent() : node.received());
    check_offered(fi_poll_add(set.get(), objects[i], 0), "fi_poll_add");
  }
  const auto await = [&](fid_t object, const auto& taken) {
    stage("fi_poll");
    while (!taken()) {
      std::array<void*, 2> found{};
      const int n = fi_poll(set.get(), found.data(), 2);
      check(n, "fi_poll");
      for (int i = 0; i < n; ++i) {
        require(found[static_cast<std::size_t>(i)] == objects[0]->context ||
                    found[static_cast<std::size_t>(i)] == objects[1]->context,
                "fi_poll tells an unknown context");
      }
      if (n == 0 || found[0] == nullptr) continue;
      if (std::find(found.begin(), found.begin() + n, object->context) == found.begin() + n)
        continue;
    }
  };
  for (std::size_t i = 0; i < 5; ++i) {
    const std::size_t size = 100;
    Op sending, receiving;
    node.receive(size, receiving);
    const auto come = [&] {
      await(objects[1], [&] {
        if (counters) return fi_cntr_read(node.received()) == before[1] + i + 1;
        while (node.read(node.receives())) {
        }
        return receiving.done != 0;
      });
      verify(node.in().first(size), i);
    };
    if (run.server) come();
    fill(node.out().first(size), i);
    node.send(size, sending);
    await(objects[0], [&] {
      if (counters) return fi_cntr_read(node.sent()) == before[0] + i + 1;
      while (node.read(node.sends())) {
      }
      return sending.done != 0;
    });
    if (!run.server) come();
  }
  check(fi_poll_del(set.get(), objects[0], 0), "fi_poll_del");
  check(fi_poll_del(set.get(), objects[1], 0), "fi_poll_del");
  node.sync();
}

// Messages that nobody has posted a receive for are looked at, claimed and thrown away.
class Peeker {
 public:
  explicit Peeker(Node& node) : node_(node) {}

  // False: there is none.
  bool look(std::uint64_t tag, std::uint64_t flags, Op& op, std::size_t size = 0) {
    iovec part{node_.in().data(), size};
    void* desc = node_.in_desc();
    const fi_msg_tagged msg{&part, &desc, 1, node_.peer(), tag, 0, &op, 0};
    op.error = 0;
    node_.post("fi_trecvmsg", [&] { return fi_trecvmsg(node_.ep(), &msg, flags); });
    node_.wait_received(op);
    require(op.error == 0 || op.error == FI_ENOMSG,
            std::string("a look at a message failed: ") + fi_strerror(op.error));
    return op.error == 0;
  }
  void find(std::uint64_t tag, std::uint64_t flags, Op& op) {
    while (!look(tag, flags, op)) {
    }
  }

 private:
  Node& node_;
};

constexpr std::size_t kPeeked = 500;

void peek(const Run& run) {
  Setup setup = of(FI_EP_RDM, FI_TAGGED | FI_MSG);
  Node node(run, setup);
  node.tolerate(true);
  if (!run.server) {
    for (std::uint64_t tag = 1; tag <= 5; ++tag) {
      Op op;
      fill(node.out().first(kPeeked), tag);
      node.send(kPeeked, op, tag);
      node.wait_sent(op);
    }
    node.sync();
    return;
  }
  Peeker peeker(node);
  Op op;
  require(!peeker.look(0x666, FI_PEEK, op), "a message was found that nobody sent");
  peeker.find(3, FI_PEEK, op);
  require(op.entry.len == kPeeked && op.entry.tag == 3, "what was found is another message");
  // A look takes nothing away.
  require(peeker.look(3, FI_PEEK, op), "the message went by looking at it");
  Op receiving;
  node.receive(kPeeked, receiving, 3);
  node.wait_received(receiving);
  require(receiving.error == 0 && receiving.entry.len == kPeeked, "the message was not received");
  verify(node.in().first(kPeeked), 3);
  require(!peeker.look(3, FI_PEEK, op), "the message is still there");
  // Claimed, it is of who claimed it.
  peeker.find(1, FI_PEEK | FI_CLAIM, op);
  Op other;
  require(!peeker.look(1, FI_PEEK, other), "a claimed message was found again");
  require(peeker.look(1, FI_CLAIM, op, kPeeked), "the claimed message was not received");
  verify(node.in().first(kPeeked), 1);
  // Thrown away at once, and after it was claimed.
  peeker.find(2, FI_PEEK | FI_DISCARD, op);
  require(!peeker.look(2, FI_PEEK, op), "a discarded message is still there");
  peeker.find(4, FI_PEEK | FI_CLAIM, op);
  require(peeker.look(4, FI_CLAIM | FI_DISCARD, op), "a claimed message was not discarded");
  require(!peeker.look(4, FI_PEEK, op), "a discarded message is still there");
  node.receive(kPeeked, receiving, 5);
  node.wait_received(receiving);
  verify(node.in().first(kPeeked), 5);
  node.sync();
}

// One large buffer takes many messages, one after another.
void multi_recv(const Run& run, fi_ep_type type) {
  constexpr std::size_t kSize = 1024, kCount = 16;
  Setup setup = of(type, FI_MSG | FI_MULTI_RECV);
  setup.room = 2 * kSize * kCount;
  setup.more = [](fi_info& hints) {
    hints.tx_attr->msg_order = hints.rx_attr->msg_order = FI_ORDER_SAS;
  };
  Node node(run, setup);
  const std::size_t rounds = run.standard ? 100 : 6;
  const std::size_t most = kSize;
  check(fi_setopt(&node.ep()->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &most, sizeof most),
        "fi_setopt of FI_OPT_MIN_MULTI_RECV");
  if (!run.server) {
    node.sync();
    for (std::size_t i = 0; i < rounds * kCount; ++i) {
      Op op;
      fill(node.out().first(kSize), i);
      node.send(kSize, op);
      node.wait_sent(op);
    }
    node.sync();
    return;
  }
  node.sync();
  std::array<fi_context2, 2> contexts{};
  const auto post = [&](std::size_t half) {
    iovec part{node.in().data() + half * kSize * kCount, kSize * kCount};
    void* desc = node.in_desc();
    const fi_msg msg{&part, &desc, 1, FI_ADDR_UNSPEC, &contexts[half], 0};
    node.post("fi_recvmsg", [&] { return fi_recvmsg(node.ep(), &msg, FI_MULTI_RECV); });
  };
  post(0);
  post(1);
  stage("messages into one buffer");
  std::size_t received = 0, released = 0;
  while (received < rounds * kCount) {
    fi_cq_tagged_entry entry{};
    const ssize_t n = fi_cq_read(node.receives(), &entry, 1);
    if (n == -FI_EAGAIN) continue;
    check(n, "fi_cq_read");
    const std::size_t half = entry.op_context == &contexts[1];
    require(half == 1 || entry.op_context == &contexts[0], "an entry of an unknown receive");
    if ((entry.flags & FI_RECV) != 0) {
      require(entry.len == kSize, "a message has another size");
      verify({static_cast<const std::byte*>(entry.buf), kSize}, received++);
    }
    if ((entry.flags & FI_MULTI_RECV) != 0) {
      ++released;
      // All of these have been read: the entries come in order.
      if (received < (rounds - 1) * kCount) post(half);
    }
  }
  require(released >= rounds - 2, "buffers were not given back");
  // What is left of the buffers must not take the note.
  for (fi_context2& context : contexts) fi_cancel(&node.ep()->fid, &context);
  node.tolerate(true);
  for (bool more = true; more;) {
    fi_cq_tagged_entry entry{};
    const ssize_t n = fi_cq_read(node.receives(), &entry, 1);
    fi_cq_err_entry error{};
    more = n == 1 || (n == -FI_EAVAIL && fi_cq_readerr(node.receives(), &error, 0) == 1);
  }
  node.tolerate(false);
  node.sync();
}

void cancel(const Run& run, std::uint64_t caps) {
  constexpr std::size_t kSize = 512;
  Node node(run, of(FI_EP_RDM, caps));
  node.tolerate(true);
  if (run.server) {
    Op first, canceled, last;
    node.receive(kSize, canceled, 11);
    check(fi_cancel(&node.ep()->fid, &canceled), "fi_cancel");
    node.wait_received(canceled);
    require(canceled.error == FI_ECANCELED, "a cancelled receive ended otherwise");
    // One behind it goes on.
    node.receive(kSize, first, 12);
    node.receive(kSize, last, 13);
    check(fi_cancel(&node.ep()->fid, &last), "fi_cancel");
    node.wait_received(last);
    require(last.error == FI_ECANCELED, "a cancelled receive ended otherwise");
    node.sync();
    node.wait_received(first);
    require(first.error == 0, "a receive was cancelled with another");
    verify(node.in().first(kSize), 3);
    // After it is done there is nothing to cancel.
    fi_cancel(&node.ep()->fid, &first);
    require(first.done == 0, "a receive ended twice");
  } else {
    node.sync();
    Op op;
    fill(node.out().first(kSize), 3);
    node.send(kSize, op, 12);
    node.wait_sent(op);
  }
  node.sync();
}

// The sender is done with many before the receiver posts a receive.
void unexpected(const Run& run, fi_ep_type type, std::size_t size, std::uint64_t caps) {
  Setup setup = of(type, caps);
  setup.room = size * 32;
  Node node(run, setup);
  const std::size_t count = 16;
  const std::size_t rounds = run.standard ? 20 : 3;
  for (std::size_t round = 0; round < rounds; ++round) {
    std::deque<Op> ops(count);
    if (run.server) {
      pause_a_while(node);
      for (std::size_t i = 0; i < count; ++i) {
        std::byte* const at = node.in().data() + i * size;
        node.post("fi_recv", [&] {
          return node.tagged()
                     ? fi_trecv(node.ep(), at, size, node.in_desc(), FI_ADDR_UNSPEC, i, 0, &ops[i])
                     : fi_recv(node.ep(), at, size, node.in_desc(), FI_ADDR_UNSPEC, &ops[i]);
        });
      }
      for (std::size_t i = 0; i < count; ++i) {
        node.wait_received(ops[i]);
        require(ops[i].entry.len == size, "a message has another size");
        verify(node.in().subspan(i * size, size), round * count + i);
      }
    } else {
      for (std::size_t i = 0; i < count; ++i) {
        const auto part = node.out().subspan(i * size, size);
        fill(part, round * count + i);
        node.post("fi_send", [&] {
          return node.tagged()
                     ? fi_tsend(node.ep(), part.data(), size, node.out_desc(), node.peer(), i,
                                &ops[i])
                     : fi_send(node.ep(), part.data(), size, node.out_desc(), node.peer(), &ops[i]);
        });
      }
      for (Op& op : ops) node.wait_sent(op);
    }
    node.sync();
  }
}

struct Inject {
  fi_ep_type type = FI_EP_RDM;
  std::uint64_t flag = FI_INJECT;
  bool message = false;    // the flag is of fi_sendmsg; else of the endpoint
  bool selective = false;  // entries only where asked for
  std::uint64_t caps = FI_MSG;
};

// The buffer is the program's again: at once, or with the completion.
void inject(const Run& run, const Inject& how) {
  Setup setup = of(how.type, how.caps);
  setup.selective = how.selective;
  setup.more = [&](fi_info& hints) {
    if (!how.message) hints.tx_attr->op_flags = how.flag;
  };
  Node node(run, setup);
  std::size_t most = node.largest();
  if (how.flag == FI_INJECT) most = std::min(most, node.info().tx_attr->inject_size);
  std::size_t number = 0;
  for (const std::size_t size : {std::size_t{1}, most / 2 + 1, most}) {
    for (std::size_t i = 0; i < (run.standard ? 100 : 5); ++i, ++number) {
      Op op;
      const std::uint64_t asked = how.selective ? FI_COMPLETION : 0;
      void* desc = run.server ? node.in_desc() : node.out_desc();
      iovec part{run.server ? node.in().data() : node.out().data(), size};
      if (run.server) {
        node.post("fi_recvmsg", [&] {
          if (node.tagged()) {
            const fi_msg_tagged msg{&part, &desc, 1, FI_ADDR_UNSPEC, 0xabc, 0, &op, 0};
            return fi_trecvmsg(node.ep(), &msg, asked);
          }
          const fi_msg msg{&part, &desc, 1, FI_ADDR_UNSPEC, &op, 0};
          return fi_recvmsg(node.ep(), &msg, asked);
        });
        node.wait_received(op);
        require(op.entry.len == size, "a message has another size");
        verify(node.in().first(size), number);
      } else {
        fill(node.out().first(size), number);
        node.post("fi_send", [&] {
          if (node.tagged()) {
            const fi_msg_tagged msg{&part, &desc, 1, node.peer(), 0xabc, 0, &op, 0};
            return how.message || how.selective
                       ? fi_tsendmsg(node.ep(), &msg, how.flag | asked)
                       : fi_tsend(node.ep(), part.iov_base, size, desc, node.peer(), 0xabc, &op);
          }
          const fi_msg msg{&part, &desc, 1, node.peer(), &op, 0};
          return how.message || how.selective
                     ? fi_sendmsg(node.ep(), &msg, how.flag | asked)
                     : fi_send(node.ep(), part.iov_base, size, desc, node.peer(), &op);
        });
        if (how.flag == FI_INJECT) std::fill_n(node.out().begin(), size, std::byte{0xb});
        node.wait_sent(op);
        std::fill_n(node.out().begin(), size, std::byte{0xb});
      }
      if (how.type == FI_EP_DGRAM) node.sync();
    }
    node.sync();
  }
}

// fi_inject and its like have no completion at all.
void inject_calls(const Run& run, std::uint64_t caps) {
  Setup setup = of(FI_EP_RDM, caps);
  setup.more = [](fi_info& hints) { hints.domain_attr->cq_data_size = 4; };
  Node node(run, setup);
  const std::size_t size = std::min(node.info().tx_attr->inject_size, node.largest());
  for (std::size_t i = 0; i < 20; ++i) {
    if (run.server) {
      Op op;
      node.receive(size, op, 0xabc);
      node.wait_received(op);
      verify(node.in().first(size), i);
      require(i % 2 == 0 || op.entry.data == i, "the remote data are others");
    } else {
      fill(node.out().first(size), i);
      node.post("fi_inject", [&] {
        const void* const from = node.out().data();
        if (i % 2 != 0) {
          return node.tagged() ? fi_tinjectdata(node.ep(), from, size, i, node.peer(), 0xabc)
                               : fi_injectdata(node.ep(), from, size, i, node.peer());
        }
        return node.tagged() ? fi_tinject(node.ep(), from, size, node.peer(), 0xabc)
                             : fi_inject(node.ep(), from, size, node.peer());
      });
      std::fill_n(node.out().begin(), size, std::byte{0xb});
    }
  }
  node.sync();
}

// More operations than the queues hold: -FI_EAGAIN, and none is lost.
void overflow(const Run& run, const Setup& setup, bool late) {
  Node node(run, setup);
  const std::size_t count = run.standard ? 5000 : 1000;
  const std::size_t size = 256;
  std::deque<Op> ops(count);
  if (run.server) {
    if (late) pause_a_while(node);
    for (std::size_t i = 0; i < count; ++i) {
      node.post("fi_recv", [&] {
        return node.tagged() ? fi_trecv(node.ep(), node.in().data(), size, node.in_desc(),
                                        node.peer(), i, 0, &ops[i])
                             : fi_recv(node.ep(), node.in().data(), size, node.in_desc(),
                                       node.peer(), &ops[i]);
      });
    }
    for (Op& op : ops) node.wait_received(op);
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      node.post("fi_send", [&] {
        return node.tagged() ? fi_tsend(node.ep(), node.out().data(), size, node.out_desc(),
                                        node.peer(), i, &ops[i])
                             : fi_send(node.ep(), node.out().data(), size, node.out_desc(),
                                       node.peer(), &ops[i]);
      });
    }
    for (Op& op : ops) node.wait_sent(op);
  }
  node.sync();
}

}  // namespace

std::vector<Test> message_tests() {
  std::vector<Test> tests;
  const auto add = [&](const std::string& name, auto body) { tests.push_back({name, 2, body}); };
  using R = const Run&;
  add("fi_av_xfer -e rdm", [](R r) { av_transfer(r, of(FI_EP_RDM)); });
  add("fi_av_xfer -e dgram", [](R r) { av_transfer(r, of(FI_EP_DGRAM)); });
  add("fi_cq_data -e msg -o senddata", [](R r) { send_data(r, FI_EP_MSG); });
  add("fi_cq_data -e rdm -o senddata", [](R r) { send_data(r, FI_EP_RDM); });
  add("fi_cq_data -e dgram -o senddata", [](R r) { send_data(r, FI_EP_DGRAM); });
  add("fi_dgram", [](R r) { greeting(r, of(FI_EP_DGRAM)); });
  add("fi_dgram_waitset", [](R r) { greeting(r, of(FI_EP_DGRAM, FI_MSG, Wait::set)); });
  add("fi_msg", [](R r) { greeting(r, of(FI_EP_MSG)); });
  add("fi_msg_epoll", [](R r) { greeting(r, of(FI_EP_MSG, FI_MSG, Wait::epoll)); });
  add("fi_poll -t queue", [](R r) { poll_set(r, false); });
  add("fi_poll -t counter", [](R r) { poll_set(r, true); });
  add("fi_rdm", [](R r) { greeting(r, of(FI_EP_RDM)); });
  add("fi_rdm_tagged_peek", peek);
  add("fi_multi_recv -e rdm", [](R r) { multi_recv(r, FI_EP_RDM); });
  add("fi_multi_recv -e msg", [](R r) { multi_recv(r, FI_EP_MSG); });
  add("fi_recv_cancel -e rdm", [](R r) { cancel(r, FI_TAGGED); });
  add("fi_recv_cancel -e rdm untagged", [](R r) {
    if (!r.out_of_band) return cancel(r, FI_TAGGED | FI_MSG);
    cancel(r, FI_MSG);
  });
  for (const fi_ep_type type : {FI_EP_MSG, FI_EP_RDM}) {
    const std::string name = type == FI_EP_MSG ? "msg" : "rdm";
    for (const std::size_t size : {std::size_t{64}, std::size_t{4096}, kMegabyte}) {
      add("fi_unexpected_msg -e " + name + " -S " + std::to_string(size),
          [=](R r) { unexpected(r, type, size, FI_MSG); });
    }
    if (type == FI_EP_RDM) {
      add("fi_unexpected_msg -e rdm -S 65536 tagged",
          [](R r) { unexpected(r, FI_EP_RDM, 65536, FI_TAGGED); });
    }
  }
  add("fi_inject_test -A inject -v", [](R r) {
    inject(r, {FI_EP_RDM, FI_INJECT, false, false, FI_TAGGED});
  });
  add("fi_inject_test -N -A inject -v", [](R r) {
    inject(r, {FI_EP_RDM, FI_INJECT, true, false, FI_TAGGED});
  });
  add("fi_inject_test -A inj_complete -v", [](R r) {
    inject(r, {FI_EP_RDM, FI_INJECT_COMPLETE, false, false, FI_TAGGED});
  });
  add("fi_inject_test -N -A inj_complete -v", [](R r) {
    inject(r, {FI_EP_RDM, FI_INJECT_COMPLETE, true, false, FI_TAGGED});
  });
  add("fi_inject_test calls", [](R r) { inject_calls(r, FI_MSG); });
  add("fi_inject_test calls tagged", [](R r) { inject_calls(r, FI_TAGGED); });
  const std::pair<const char*, fi_ep_type> types[] = {
      {"msg", FI_EP_MSG}, {"rdm", FI_EP_RDM}, {"dgram", FI_EP_DGRAM}};
  for (const auto& [name, type] : types) {
    for (const bool selective : {false, true}) {
      add(std::string("fi_inj_complete -e ") + name + (selective ? " -SR" : ""),
          [=, kind = type](R r) {
            inject(r, {kind, FI_INJECT_COMPLETE, false, selective, FI_MSG});
          });
    }
  }
  const auto small = [](fi_ep_type type, std::uint64_t caps) {
    Setup setup = of(type, caps);
    setup.more = [](fi_info& hints) { hints.tx_attr->size = hints.rx_attr->size = 16; };
    setup.queue = 16;
    return setup;
  };
  add("fi_resmgmt_test -e msg", [=](R r) { overflow(r, small(FI_EP_MSG, FI_MSG), false); });
  add("fi_resmgmt_test -e rdm", [=](R r) { overflow(r, small(FI_EP_RDM, FI_MSG), false); });
  add("fi_resmgmt_test -e rdm -d", [=](R r) { overflow(r, small(FI_EP_RDM, FI_MSG), true); });
  add("fi_resmgmt_test -e rdm -t -d", [=](R r) { overflow(r, small(FI_EP_RDM, FI_TAGGED), true); });
  add("fi_resmgmt_test -e rdm -j", [=](R r) {
    Setup setup = small(FI_EP_RDM, FI_MSG);
    setup.one_queue = true;
    overflow(r, setup, false);
  });
  add("fi_resmgmt_test -e rdm -A", [=](R r) {
    Setup setup = small(FI_EP_RDM, FI_MSG);
    setup.more = [](fi_info& hints) { hints.domain_attr->av_type = FI_AV_TABLE; };
    overflow(r, setup, false);
  });
  return tests;
}

}  // namespace turnout::clients
