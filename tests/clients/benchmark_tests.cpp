// SPDX-License-Identifier: BSD-3-Clause
// Ping-pongs and streams over all types of endpoints, in all ways to wait. Nothing is measured:
// what counts is that all arrives, whole. Source: fi_msg(3), fi_tagged(3), fi_cq(3), fi_cntr(3).
#include <deque>

#include "tests/clients/rig.h"

namespace turnout::clients {
namespace {

constexpr std::size_t kWindow = 64;     // messages of a stream before the answer
constexpr std::size_t kRoom = 4 << 20;  // bytes of the longest message

struct Pattern {
  Setup setup;
  bool verified = false;
};

void answer_each(Node& node, std::size_t size, std::size_t number, bool verified) {
  Op sending, receiving;
  node.receive(size, receiving);
  if (node.run().server) {
    node.wait_received(receiving);
    if (verified) verify(node.in().first(size), number);
  }
  if (verified) fill(node.out().first(size), number);
  node.send(size, sending);
  node.wait_sent(sending);
  if (node.run().server) return;
  node.wait_received(receiving);
  require(receiving.entry.len == size, "the answer has another size");
  if (verified) verify(node.in().first(size), number);
}

void ping_pong(const Run& run, Pattern pattern) {
  pattern.setup.room = kRoom;
  Node node(run, pattern.setup);
  std::size_t number = 0;
  for (const std::size_t size : sizes(run, node.largest())) {
    for (std::size_t i = iterations(run, size); i != 0; --i) {
      answer_each(node, size, number++, pattern.verified);
    }
  }
  node.sync();
}

// Many messages before an answer; `unready` microseconds the receiver waits before it posts
// receives.
void stream(const Run& run, Pattern pattern, unsigned unready = 0) {
  pattern.setup.room = kRoom;
  Node node(run, pattern.setup);
  std::size_t number = 0;
  for (const std::size_t size : sizes(run, node.largest())) {
    const std::size_t depth =
        std::min({kWindow, node.info().tx_attr->size, node.info().rx_attr->size, kRoom / size});
    for (std::size_t i = run.standard ? std::max<std::size_t>(iterations(run, size) / kWindow, 2)
                                      : 2;
         i != 0; --i) {
      std::deque<Op> ops(depth);
      if (run.server) {
        if (unready != 0) {
          stage("not ready");
          usleep(unready);
        }
        for (std::size_t k = 0; k < depth; ++k) {
          auto* const at = node.in().data() + k * size;
          node.post("fi_recv", [&] {
            return node.tagged()
                       ? fi_trecv(node.ep(), at, size, node.in_desc(), FI_ADDR_UNSPEC, k, 0,
                                  &ops[k])
                       : fi_recv(node.ep(), at, size, node.in_desc(), FI_ADDR_UNSPEC, &ops[k]);
          });
        }
        for (Op& op : ops) node.wait_received(op);
        if (pattern.verified) {
          for (std::size_t k = 0; k < depth; ++k)
            verify(node.in().subspan(k * size, size), number + k);
        }
      } else {
        for (std::size_t k = 0; k < depth; ++k) {
          const auto part = node.out().subspan(k * size, size);
          if (pattern.verified) fill(part, number + k);
          node.post("fi_send", [&] {
            return node.tagged() ? fi_tsend(node.ep(), part.data(), size, node.out_desc(),
                                            node.peer(), k, &ops[k])
                                 : fi_send(node.ep(), part.data(), size, node.out_desc(),
                                           node.peer(), &ops[k]);
          });
        }
        for (Op& op : ops) node.wait_sent(op);
      }
      number += depth;
      node.sync();
    }
  }
}

// Without entries: both directions are counted.
void count_ping_pong(const Run& run, Wait wait) {
  Setup setup;
  setup.room = kRoom;
  setup.counters = true;
  setup.wait = wait;
  Node node(run, setup);
  std::uint64_t sent = fi_cntr_read(node.sent()), received = fi_cntr_read(node.received());
  node.sync();  // none of the next messages is counted in these
  sent = fi_cntr_read(node.sent());
  received = fi_cntr_read(node.received());
  const auto reach = [&](fid_cntr* cntr, std::uint64_t value) {
    if (wait == Wait::spin) {
      node.until("a counter", [&] { return fi_cntr_read(cntr) >= value; });
    } else {
      stage("fi_cntr_wait");
      check(fi_cntr_wait(cntr, value, 10'000), "fi_cntr_wait");
    }
    require(fi_cntr_readerr(cntr) == 0, "an error was counted");
  };
  std::size_t number = 0;
  // The peer's sync() is behind both ends' counts only if it waits for its last send.
  Op unused_out, unused_in;
  for (const std::size_t size : sizes(run, node.largest())) {
    for (std::size_t i = iterations(run, size); i != 0; --i, ++number) {
      node.receive(size, unused_in);
      if (run.server) {
        reach(node.received(), ++received);
        verify(node.in().first(size), number);
      }
      fill(node.out().first(size), number);
      node.send(size, unused_out);
      reach(node.sent(), ++sent);
      if (run.server) continue;
      reach(node.received(), ++received);
      verify(node.in().first(size), number);
    }
  }
  require(unused_out.done == 0 && unused_in.done == 0, "an entry that nobody asked for");
  node.sync();
}

Setup of(fi_ep_type type, std::uint64_t caps, Wait wait = Wait::spin) {
  Setup setup;
  setup.type = type;
  setup.caps = caps;
  setup.wait = wait;
  return setup;
}

Setup with_progress(Setup setup, fi_progress progress) {
  setup.more = [progress](fi_info& hints) {
    hints.domain_attr->control_progress = hints.domain_attr->data_progress = progress;
  };
  return setup;
}

}  // namespace

std::vector<Test> benchmark_tests() {
  std::vector<Test> tests;
  const auto add = [&](const std::string& name, auto body) {
    tests.push_back({name, 2, std::move(body)});
  };
  struct Kind {
    const char* program;
    fi_ep_type type;
    std::uint64_t caps;
  };
  const Kind kinds[] = {{"fi_msg_pingpong", FI_EP_MSG, FI_MSG},
                        {"fi_rdm_pingpong", FI_EP_RDM, FI_MSG},
                        {"fi_rdm_tagged_pingpong", FI_EP_RDM, FI_TAGGED},
                        {"fi_dgram_pingpong", FI_EP_DGRAM, FI_MSG}};
  for (const Kind& kind : kinds) {
    const std::string program = kind.program;
    for (const bool verified : {false, true}) {
      add(program + (verified ? " -v" : ""), [=](const Run& run) {
        ping_pong(run, {of(kind.type, kind.caps), verified});
      });
    }
    add(program + " -v -c sread", [=](const Run& run) {
      ping_pong(run, {of(kind.type, kind.caps, Wait::sread), true});
    });
    add(program + " -v -c fd", [=](const Run& run) {
      ping_pong(run, {of(kind.type, kind.caps, Wait::fd), true});
    });
    add(program + " -v progress auto", [=](const Run& run) {
      ping_pong(run, {with_progress(of(kind.type, kind.caps), FI_PROGRESS_AUTO), true});
    });
    add(program + " -v progress manual", [=](const Run& run) {
      ping_pong(run, {with_progress(of(kind.type, kind.caps), FI_PROGRESS_MANUAL), true});
    });
  }
  const Kind streams[] = {{"fi_msg_bw", FI_EP_MSG, FI_MSG},
                          {"fi_rdm_bw", FI_EP_RDM, FI_MSG},
                          {"fi_rdm_tagged_bw", FI_EP_RDM, FI_TAGGED}};
  for (const Kind& kind : streams) {
    for (const bool verified : {false, true}) {
      add(std::string(kind.program) + (verified ? " -v" : ""), [=](const Run& run) {
        stream(run, {of(kind.type, kind.caps), verified});
      });
    }
  }
  // The receiver is not ready for a while; -U: a completion means that the message is in its
  // memory.
  for (const fi_ep_type type : {FI_EP_RDM, FI_EP_MSG}) {
    for (const bool delivered : {false, true}) {
      add(std::string("fi_bw -e ") + (type == FI_EP_RDM ? "rdm" : "msg") + " -v -T 1" +
              (delivered ? " -U" : ""),
          [=](const Run& run) {
            Setup setup = of(type, FI_MSG);
            if (delivered) {
              setup.more = [](fi_info& hints) { hints.tx_attr->op_flags = FI_DELIVERY_COMPLETE; };
            }
            stream(run, {setup, true}, run.standard ? 50'000 : 20'000);
          });
    }
  }
  add("fi_rdm_cntr_pingpong", [](const Run& run) { count_ping_pong(run, Wait::spin); });
  add("fi_rdm_cntr_pingpong -c sread", [](const Run& run) { count_ping_pong(run, Wait::sread); });
  return tests;
}

}  // namespace turnout::clients
