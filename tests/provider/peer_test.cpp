// SPDX-License-Identifier: BSD-3-Clause
// FI_PEER: this provider's endpoint under an owner that has the completion queue, the receives and
// the counter, as libfabric's lnx has.
#include <gtest/gtest.h>
#include <rdma/fi_ext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "provider/compat.h"
#include "provider/library.h"
#include "provider/peer_layout.h"
#include "tests/provider/node.h"

namespace turnout::testing {
namespace {

using provider::CntrOwnerOps;
using provider::PeerCntrContext;
using provider::PeerCntrFid;
using provider::PeerMatch;
using provider::PeerRxEntry;
using provider::PeerSrxContext;
using provider::PeerSrxFid;
using provider::SrxOwnerOps;

constexpr int kRetry = 77;  // the sender's data

// The owner: its receives, and what it was told.
struct Owner {
  struct Entry {
    PeerRxEntry rx{};
    iovec part{};
    std::uint64_t ignore = 0;
    std::uint64_t key = 0;  // FI_TAGGED or FI_MSG
  };
  struct Told {
    void* context;
    std::uint64_t flags;
    std::size_t length;
    std::uint64_t data, tag;
    fi_addr_t source;
  };

  Owner() {
    cq.owner_ops = &cq_ops;
    srx.owner_ops = &srx_ops;
    srx.ep_fid.fid.context = this;
    cq.fid.context = this;
    counter.owner_ops = &cntr_ops;
    counter.fid.context = this;
  }

  template <class Fid>
  static Owner& of(Fid* fid) {
    if constexpr (requires { fid->ep_fid; }) {
      return *static_cast<Owner*>(fid->ep_fid.fid.context);
    } else {
      return *static_cast<Owner*>(fid->fid.context);
    }
  }

  void post(std::uint64_t key, void* buffer, std::size_t length, void* context,
            std::uint64_t tag = 0, std::uint64_t ignore = 0, fi_addr_t from = FI_ADDR_UNSPEC,
            std::uint64_t flags = FI_COMPLETION) {
    const auto matches = [&](const Entry& e) {
      return e.key == key && ((e.rx.tag ^ tag) & ~ignore) == 0 &&
             (from == FI_ADDR_UNSPEC || e.rx.addr == from);
    };
    const auto found = std::ranges::find_if(unexpected, matches);
    std::list<Entry>& list = found != unexpected.end() ? started : posted;
    if (found != unexpected.end()) {
      started.splice(started.end(), unexpected, found);
    } else {
      posted.emplace_back();
      posted.back().rx.tag = tag;
      posted.back().rx.addr = from;
    }
    Entry& entry = list.back();
    entry.key = key;
    entry.ignore = ignore;
    entry.part = {buffer, length};
    entry.rx.iov = &entry.part;
    entry.rx.count = 1;
    entry.rx.context = context;
    entry.rx.flags |= flags;
    if (&list == &started) {
      start_answer = key == FI_TAGGED ? srx.peer_ops->start_tag(&entry.rx)
                                      : srx.peer_ops->start_msg(&entry.rx);
    }
  }

  int get(std::uint64_t key, PeerMatch* match, PeerRxEntry** out) {
    const std::lock_guard hold(mutex);
    asked.push_back(*match);
    if (on_get) on_get();
    if (get_answer != 0) return get_answer;
    const auto found = std::ranges::find_if(posted, [&](const Entry& e) {
      return e.key == key && ((e.rx.tag ^ match->tag) & ~e.ignore) == 0 &&
             (e.rx.addr == FI_ADDR_UNSPEC || e.rx.addr == match->addr);
    });
    const bool is_match = found != posted.end();
    if (is_match) {
      started.splice(started.end(), posted, found);
    } else {
      started.emplace_back();
      started.back().rx.tag = match->tag;
      started.back().rx.addr = match->addr;
    }
    Entry& entry = started.back();
    entry.key = key;
    entry.rx.flags |= key | FI_RECV;
    entry.rx.msg_size = match->msg_size;
    entry.rx.owner_context = this;
    *out = &entry.rx;
    return is_match ? 0 : -FI_ENOENT;
  }

  static int queue(PeerRxEntry* rx) {
    Owner& owner = *static_cast<Owner*>(rx->owner_context);
    const std::lock_guard hold(owner.mutex);
    if (owner.queue_answer != 0) return owner.queue_answer;
    const auto at = std::ranges::find_if(owner.started, [&](Entry& e) { return &e.rx == rx; });
    owner.unexpected.splice(owner.unexpected.end(), owner.started, at);
    return 0;
  }

  static void free(PeerRxEntry* rx) {
    // A posted entry has no owner_context before it is matched; all that is freed was.
    Owner& owner = *static_cast<Owner*>(rx->owner_context);
    const std::lock_guard hold(owner.mutex);
    ++owner.freed;
    ASSERT_EQ(std::erase_if(owner.started, [&](Entry& e) { return &e.rx == rx; }), 1u);
  }

  std::recursive_mutex mutex;
  fid_peer_cq cq{};
  PeerSrxFid srx{};
  PeerCntrFid counter{};
  std::list<Entry> posted, unexpected, started;
  std::vector<PeerMatch> asked;
  std::vector<Told> told;
  std::vector<provider::CqErrEntry120> errors;
  std::function<void()> on_get;
  int get_answer = 0, queue_answer = 0, start_answer = 0;
  ssize_t write_answer = 0;
  int freed = 0;
  int counted = 0, errors_counted = 0;

  static fi_ops_cq_owner cq_ops;
  static SrxOwnerOps srx_ops;
  static CntrOwnerOps cntr_ops;
};

fi_ops_cq_owner Owner::cq_ops = {
    sizeof(fi_ops_cq_owner),
    [](fid_peer_cq* f, void* context, std::uint64_t flags, std::size_t length, void*,
       std::uint64_t data, std::uint64_t tag, fi_addr_t source) -> ssize_t {
      Owner& owner = Owner::of(f);
      if (owner.write_answer != 0) return owner.write_answer;
      owner.told.push_back({context, flags, length, data, tag, source});
      return 0;
    },
    [](fid_peer_cq* f, const fi_cq_err_entry* entry) -> ssize_t {
      // As the libraries do that know no smaller entry.
      Owner::of(f).errors.push_back(*reinterpret_cast<const provider::CqErrEntry120*>(entry));
      return 0;
    }};
SrxOwnerOps Owner::srx_ops = {sizeof(SrxOwnerOps),
                              [](PeerSrxFid* f, PeerMatch* match, PeerRxEntry** entry) {
                                return Owner::of(f).get(FI_MSG, match, entry);
                              },
                              [](PeerSrxFid* f, PeerMatch* match, PeerRxEntry** entry) {
                                return Owner::of(f).get(FI_TAGGED, match, entry);
                              },
                              queue,
                              queue,
                              [](PeerSrxFid* f, fi_addr_t (*get_addr)(PeerRxEntry*)) {
                                // Another provider's, which lnx passes, too.
                                Owner::Entry foreign;
                                foreign.rx.addr = FI_ADDR_UNSPEC;
                                EXPECT_EQ(get_addr(&foreign.rx), FI_ADDR_UNSPEC);
                                for (Owner::Entry& entry : Owner::of(f).unexpected) {
                                  if (entry.rx.addr == FI_ADDR_UNSPEC)
                                    entry.rx.addr = get_addr(&entry.rx);
                                }
                              },
                              Owner::free};
CntrOwnerOps Owner::cntr_ops = {sizeof(CntrOwnerOps),
                                [](PeerCntrFid* f) { ++Owner::of(f).counted; },
                                [](PeerCntrFid* f) { ++Owner::of(f).errors_counted; }};

struct Owned {
  explicit Owned(std::uint64_t caps, NodeOptions given = {})
      : node(options(caps, std::move(given))) {}

  NodeOptions options(std::uint64_t caps, NodeOptions out) {
    out.tx_bind = out.rx_bind = 0;
    out.caps = caps;
    out.before_enable = [this](fid_domain* domain, fid_ep* ep) {
      fi_cq_attr cq_attr{};
      cq_attr.flags = FI_PEER;
      fi_peer_cq_context cq_context{sizeof cq_context, &owner.cq};
      ASSERT_EQ(fi_cq_open(domain, &cq_attr, &cq, &cq_context), 0);
      fi_rx_attr rx_attr{};
      rx_attr.op_flags = FI_PEER;
      PeerSrxContext srx_context{sizeof srx_context, &owner.srx};
      ASSERT_EQ(fi_srx_context(domain, &rx_attr, &srx, &srx_context), 0);
      fi_cntr_attr cntr_attr{};
      cntr_attr.flags = FI_PEER;
      PeerCntrContext cntr_context{sizeof cntr_context, &owner.counter};
      ASSERT_EQ(fi_cntr_open(domain, &cntr_attr, &cntr, &cntr_context), 0);
      ASSERT_EQ(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), 0);
      ASSERT_EQ(fi_ep_bind(ep, &srx->fid, 0), 0);
      ASSERT_EQ(fi_ep_bind(ep, &cntr->fid, FI_RECV), 0);
    };
    return out;
  }
  ~Owned() {
    // What the program posted and never got is not the provider's.
    node.others = {&cq->fid, &cntr->fid};
    if (srx != nullptr) node.others.insert(node.others.begin(), &srx->fid);
  }
  void close_endpoint() {
    EXPECT_EQ(fi_close(&node.ep->fid), 0);
    node.ep = nullptr;
  }
  void drive() { EXPECT_EQ(fi_cq_read(cq, nullptr, 0), -FI_EAGAIN); }

  Owner owner;
  fid_cq* cq = nullptr;
  fid_ep* srx = nullptr;
  fid_cntr* cntr = nullptr;
  Node node;
};

NodeOptions of_threads() {
  NodeOptions out;
  out.threading = FI_THREAD_SAFE;
  return out;
}

NodeOptions sharing(fid_domain* domain) {
  NodeOptions out;
  out.domain = domain;
  return out;
}

struct Peer : ::testing::Test {
  explicit Peer(std::uint64_t caps = FI_MSG | FI_TAGGED | FI_SOURCE | FI_PEER) : b(caps) {
    to_b = a.insert(b.node);
    to_a = b.node.insert(a);
  }
  ~Peer() override { faults().reset(); }

  void send(const std::string& text, std::uint64_t tag, Node* from = nullptr,
            std::optional<fi_addr_t> to = std::nullopt) {
    Node& node = from != nullptr ? *from : a;
    ASSERT_EQ(fi_tsend(node.ep, text.data(), text.size(), nullptr, to.value_or(to_b), tag, nullptr),
              0);
  }
  [[nodiscard]] std::string text(std::size_t length) const { return {into.data(), length}; }

  Node a;
  Owned b;
  fi_addr_t to_a = FI_ADDR_NOTAVAIL, to_b = FI_ADDR_NOTAVAIL;
  std::array<char, 64> into{};
  int context = 0, other = 0;
};

TEST_F(Peer, ReceivesIntoWhatTheOwnerPosted) {
  b.owner.post(FI_TAGGED, into.data(), into.size(), &context, 7);
  send("hello", 7);
  b.drive();
  ASSERT_EQ(b.owner.told.size(), 1u);
  const Owner::Told& told = b.owner.told[0];
  EXPECT_EQ(told.context, &context);
  EXPECT_EQ(told.flags, static_cast<std::uint64_t>(FI_TAGGED | FI_RECV));
  EXPECT_EQ(told.length, 5u);
  EXPECT_EQ(told.tag, 7u);
  EXPECT_EQ(told.source, to_a);
  EXPECT_EQ(text(5), "hello");
  EXPECT_EQ(b.owner.freed, 1);
  EXPECT_EQ(b.owner.counted, 1);
  EXPECT_EQ(fi_cntr_read(b.cntr), 1u);
  ASSERT_EQ(b.owner.asked.size(), 1u);
  EXPECT_EQ(b.owner.asked[0].addr, to_a);
  EXPECT_EQ(b.owner.asked[0].msg_size, 5u);
  EXPECT_EQ(b.owner.asked[0].tag, 7u);
  EXPECT_NE(a.next(), nullptr);
}

TEST_F(Peer, HandsOverWhatNoReceiveWaitsFor) {
  const std::string words = "with data";
  ASSERT_EQ(fi_tsenddata(a.ep, words.data(), words.size(), nullptr, kRetry, to_b, 3, nullptr), 0);
  send("second", 3);
  b.drive();
  EXPECT_TRUE(b.owner.told.empty());
  ASSERT_EQ(b.owner.unexpected.size(), 2u);
  const PeerRxEntry& first = b.owner.unexpected.front().rx;
  EXPECT_EQ(first.msg_size, words.size());
  EXPECT_EQ(first.cq_data, static_cast<std::uint64_t>(kRetry));
  EXPECT_NE(first.flags & FI_REMOTE_CQ_DATA, 0u);
  EXPECT_EQ(first.addr, to_a);
  b.owner.post(FI_TAGGED, into.data(), into.size(), &context, 0, ~std::uint64_t{0});
  EXPECT_EQ(b.owner.start_answer, 0);
  b.drive();
  ASSERT_EQ(b.owner.told.size(), 1u);
  EXPECT_EQ(b.owner.told[0].context, &context);
  EXPECT_EQ(b.owner.told[0].data, static_cast<std::uint64_t>(kRetry));
  EXPECT_EQ(b.owner.told[0].flags,
            static_cast<std::uint64_t>(FI_TAGGED | FI_RECV | FI_REMOTE_CQ_DATA));
  EXPECT_EQ(text(words.size()), words);
  b.owner.post(FI_TAGGED, into.data(), into.size(), &other, 3);
  b.drive();
  ASSERT_EQ(b.owner.told.size(), 2u);
  EXPECT_EQ(text(6), "second");
  EXPECT_EQ(b.owner.freed, 2);
}

TEST_F(Peer, AsksForUntaggedMessagesApart) {
  b.owner.post(FI_TAGGED, into.data(), into.size(), &other, 0, ~std::uint64_t{0});
  ASSERT_EQ(fi_send(a.ep, "plain", 5, nullptr, to_b, nullptr), 0);
  b.drive();
  EXPECT_TRUE(b.owner.told.empty());
  b.owner.post(FI_MSG, into.data(), into.size(), &context);
  ASSERT_EQ(fi_send(a.ep, "again", 5, nullptr, to_b, nullptr), 0);
  b.owner.post(FI_MSG, into.data() + 32, 32, &context);
  b.drive();
  ASSERT_EQ(b.owner.told.size(), 2u);
  EXPECT_EQ(b.owner.told[1].flags, static_cast<std::uint64_t>(FI_MSG | FI_RECV));
  EXPECT_EQ(text(5), "plain");
  EXPECT_EQ(std::string(into.data() + 32, 5), "again");
}

TEST_F(Peer, TellsSourcesApart) {
  Node c;
  const fi_addr_t from_c = c.insert(b.node);
  const fi_addr_t to_c = b.node.insert(c);
  b.owner.post(FI_TAGGED, into.data(), 32, &context, 1, 0, to_c);
  b.owner.post(FI_TAGGED, into.data() + 32, 32, &other, 1, 0, to_a);
  send("from a", 1);
  send("from c", 1, &c, from_c);
  b.drive();
  ASSERT_EQ(b.owner.told.size(), 2u);
  EXPECT_EQ(text(6), "from c");
  EXPECT_EQ(std::string(into.data() + 32, 6), "from a");
}

TEST_F(Peer, NamesSourcesOnceTheyAreInserted) {
  Node c;
  const fi_addr_t from_c = c.insert(b.node);
  send("early", 1, &c, from_c);
  b.drive();
  ASSERT_EQ(b.owner.unexpected.size(), 1u);
  EXPECT_EQ(b.owner.unexpected.front().rx.addr, FI_ADDR_UNSPEC);
  const fi_addr_t to_c = b.node.insert(c);
  EXPECT_EQ(b.owner.unexpected.front().rx.addr, to_c);
  b.owner.post(FI_TAGGED, into.data(), into.size(), &context, 1, 0, to_c);
  b.drive();
  ASSERT_EQ(b.owner.told.size(), 1u);
  EXPECT_EQ(text(5), "early");
}

TEST_F(Peer, ReportsTruncationToTheOwner) {
  b.owner.post(FI_TAGGED, into.data(), 4, &context, 7);
  send("too long", 7);
  b.drive();
  ASSERT_EQ(b.owner.errors.size(), 1u);
  const provider::CqErrEntry120& error = b.owner.errors[0];
  EXPECT_EQ(error.base.err, FI_ETRUNC);
  EXPECT_EQ(error.base.op_context, &context);
  EXPECT_EQ(error.base.len, 4u);
  EXPECT_EQ(error.base.olen, 4u);
  EXPECT_EQ(error.base.tag, 7u);
  EXPECT_EQ(error.src_addr, to_a);
  EXPECT_EQ(error.base.err_data_size, 0u);
  EXPECT_EQ(text(4), "too ");
  EXPECT_EQ(b.owner.freed, 1);
  EXPECT_EQ(b.owner.errors_counted, 1);
}

TEST_F(Peer, DropsWhatTheOwnerDiscards) {
  send("unwanted", 1);
  send("wanted", 1);
  b.drive();
  ASSERT_EQ(b.owner.unexpected.size(), 2u);
  EXPECT_EQ(b.owner.srx.peer_ops->discard_tag(&b.owner.unexpected.front().rx), 0);
  b.owner.unexpected.pop_front();
  b.owner.post(FI_TAGGED, into.data(), into.size(), &context, 1);
  b.drive();
  ASSERT_EQ(b.owner.told.size(), 1u);
  EXPECT_EQ(text(6), "wanted");
  EXPECT_EQ(b.owner.freed, 1);  // the discarded entry is the owner's
  EXPECT_TRUE(b.owner.errors.empty());
}

TEST_F(Peer, AsksAgainInOrderWhenTheOwnerHasNoEntry) {
  b.owner.get_answer = -FI_ENOMEM;
  send("1", 1);
  send("2", 1);
  b.drive();
  EXPECT_EQ(b.owner.asked.size(), 1u);
  b.owner.get_answer = 0;
  b.owner.queue_answer = -FI_ENOMEM;
  b.drive();
  EXPECT_EQ(b.owner.freed, 1);
  EXPECT_TRUE(b.owner.unexpected.empty());
  b.owner.queue_answer = 0;
  b.drive();
  ASSERT_EQ(b.owner.unexpected.size(), 2u);
  for (const char* expected : {"1", "2"}) {
    b.owner.post(FI_TAGGED, into.data(), into.size(), &context, 1);
    b.drive();
    EXPECT_EQ(text(1), expected);
  }
}

TEST_F(Peer, WaitsForRoomInTheOwnersQueue) {
  b.owner.post(FI_TAGGED, into.data(), into.size(), &context, 7);
  b.owner.write_answer = -FI_EAGAIN;
  send("hello", 7);
  b.drive();
  b.drive();
  EXPECT_TRUE(b.owner.told.empty());
  b.owner.write_answer = 0;
  b.drive();
  EXPECT_EQ(b.owner.told.size(), 1u);
  EXPECT_EQ(b.owner.freed, 1);
  EXPECT_EQ(b.owner.counted, 1);
}

TEST_F(Peer, WaitsForTheCoreToHaveRoom) {
  b.owner.post(FI_TAGGED, into.data(), into.size(), &context, 7);
  faults().taken = {Code::again, "full"};
  send("hello", 7);
  b.drive();
  EXPECT_TRUE(b.owner.told.empty());
  b.drive();
  ASSERT_EQ(b.owner.told.size(), 1u);
  EXPECT_EQ(text(5), "hello");
}

TEST_F(Peer, ReportsWhatTheCoreRefuses) {
  b.owner.post(FI_TAGGED, into.data(), into.size(), &context, 7);
  faults().taken = {Code::invalid, "too many parts"};
  send("hello", 7);
  b.drive();
  ASSERT_EQ(b.owner.errors.size(), 1u);
  EXPECT_EQ(b.owner.errors[0].base.err, FI_EINVAL);
  EXPECT_EQ(b.owner.errors[0].base.op_context, &context);
  EXPECT_EQ(b.owner.freed, 1);
}

TEST_F(Peer, DropsWhatTheOwnerHasNoCallFor) {
  b.owner.get_answer = -FI_ENOSYS;  // as lnx answers for untagged ones
  ASSERT_EQ(fi_send(a.ep, "plain", 5, nullptr, to_b, nullptr), 0);
  b.drive();
  b.owner.get_answer = 0;
  b.owner.post(FI_TAGGED, into.data(), into.size(), &context, 1);
  send("next", 1);
  b.drive();
  EXPECT_EQ(b.owner.asked.size(), 2u);
  EXPECT_EQ(b.owner.told.size(), 1u);
}

TEST_F(Peer, ReportsNothingForReceivesThatAskForNothing) {
  b.owner.post(FI_TAGGED, into.data(), into.size(), &context, 7, 0, FI_ADDR_UNSPEC, 0);
  send("quiet", 7);
  b.drive();
  EXPECT_TRUE(b.owner.told.empty());
  EXPECT_EQ(b.owner.freed, 1);
  EXPECT_EQ(b.owner.counted, 1);
  EXPECT_EQ(text(5), "quiet");
}

TEST_F(Peer, WritesItsOwnCompletionsToTheOwner) {
  ASSERT_EQ(fi_tsend(b.node.ep, "out", 3, nullptr, to_a, 9, &context), 0);
  b.drive();
  ASSERT_EQ(b.owner.told.size(), 1u);
  EXPECT_EQ(b.owner.told[0].context, &context);
  EXPECT_EQ(b.owner.told[0].flags, static_cast<std::uint64_t>(FI_TAGGED | FI_SEND));
  EXPECT_EQ(b.owner.freed, 0);
}

TEST_F(Peer, HasNoOtherCallsOnSharedObjects) {
  fi_cq_tagged_entry entry;
  fi_cq_err_entry error{};
  EXPECT_EQ(fi_cq_readerr(b.cq, &error, 0), -FI_ENOSYS);
  EXPECT_EQ(fi_cq_sread(b.cq, &entry, 1, nullptr, 0), -FI_ENOSYS);
  EXPECT_EQ(fi_recv(b.node.ep, into.data(), 1, nullptr, FI_ADDR_UNSPEC, nullptr), -FI_EOPNOTSUPP);
  EXPECT_EQ(fi_trecv(b.node.ep, into.data(), 1, nullptr, FI_ADDR_UNSPEC, 0, 0, nullptr),
            -FI_EOPNOTSUPP);
  EXPECT_EQ(fi_recv(b.srx, into.data(), 1, nullptr, FI_ADDR_UNSPEC, nullptr), -FI_ENOSYS);
  EXPECT_EQ(fi_close(&b.srx->fid), -FI_EBUSY);
  EXPECT_EQ(fi_close(&b.cq->fid), -FI_EBUSY);
}

TEST_F(Peer, TellsTheOwnerThatAnEntrysEndpointIsClosed) {
  send("late", 1);
  b.drive();
  ASSERT_EQ(b.owner.unexpected.size(), 1u);
  b.close_endpoint();
  b.owner.post(FI_TAGGED, into.data(), into.size(), &context, 1);
  EXPECT_EQ(b.owner.start_answer, -FI_EOPBADSTATE);
  b.drive();
  EXPECT_TRUE(b.owner.told.empty());
}

TEST_F(Peer, CancelsReceivesThatTheOwnerHadMatchedWhenTheirEndpointCloses) {
  b.owner.post(FI_TAGGED, into.data(), into.size(), &context, 7);
  faults().taken = {Code::again, "full"};
  send("hello", 7);
  b.drive();
  EXPECT_EQ(b.owner.freed, 0);
  b.close_endpoint();
  EXPECT_EQ(b.owner.freed, 1);  // the owner may free its memory after this
  b.drive();
  ASSERT_EQ(b.owner.errors.size(), 1u);
  EXPECT_EQ(b.owner.errors[0].base.err, FI_ECANCELED);
  EXPECT_EQ(b.owner.errors[0].base.op_context, &context);
  EXPECT_EQ(b.owner.errors[0].base.tag, 7u);
  EXPECT_EQ(b.owner.errors[0].base.flags, static_cast<std::uint64_t>(FI_TAGGED | FI_RECV));
}

// lnx closes an endpoint, then its context, then frees all entries, and may read the queue later.
TEST_F(Peer, TellsWhatEndedBeforeItsEndpointWasClosed) {
  b.owner.post(FI_TAGGED, into.data(), into.size(), &context, 7);
  b.owner.write_answer = -FI_EAGAIN;
  send("hello", 7);
  b.drive();
  ASSERT_EQ(fi_tsend(b.node.ep, "out", 3, nullptr, to_a, 9, &other), 0);
  b.close_endpoint();
  EXPECT_EQ(b.owner.freed, 1);
  EXPECT_EQ(fi_close(&b.srx->fid), 0);
  b.srx = nullptr;
  b.owner.write_answer = 0;
  b.drive();
  ASSERT_EQ(b.owner.told.size(), 2u);
  EXPECT_EQ(b.owner.told[0].context, &context);
  EXPECT_EQ(b.owner.told[0].length, 5u);
  EXPECT_EQ(b.owner.told[1].context, &other);
  EXPECT_EQ(b.owner.freed, 1);
}

TEST_F(Peer, TellsWhatTheCoreReportsWhileItEnds) {
  std::uint64_t target = 0;
  fid_mr* region = nullptr;
  ASSERT_EQ(fi_mr_reg(a.domain, &target, sizeof target, FI_REMOTE_WRITE, 0, 0, 0, &region, nullptr),
            0);
  const std::uint64_t value = 1;
  ASSERT_EQ(fi_write(b.node.ep, &value, sizeof value, nullptr, to_a,
                     reinterpret_cast<std::uint64_t>(&target), fi_mr_key(region), &context),
            0);
  b.close_endpoint();
  b.drive();
  ASSERT_EQ(b.owner.errors.size(), 1u);
  EXPECT_EQ(b.owner.errors[0].base.err, FI_ECANCELED);
  EXPECT_EQ(b.owner.errors[0].base.op_context, &context);
  EXPECT_EQ(fi_close(&region->fid), 0);
}

TEST_F(Peer, GivesBackTheEntriesOfOtherEndpointsOnceToo) {
  NodeOptions options = sharing(b.node.domain);
  options.tx_bind = options.rx_bind = 0;
  options.caps = FI_TAGGED | FI_PEER;
  options.before_enable = [this](fid_domain*, fid_ep* ep) {
    ASSERT_EQ(fi_ep_bind(ep, &b.cq->fid, FI_TRANSMIT | FI_RECV), 0);
    ASSERT_EQ(fi_ep_bind(ep, &b.srx->fid, 0), 0);
  };
  Node second(options);
  const fi_addr_t to_second = a.insert(second);
  b.owner.post(FI_TAGGED, into.data(), 32, &context, 7);
  b.owner.post(FI_TAGGED, into.data() + 32, 32, &other, 8);
  b.owner.write_answer = -FI_EAGAIN;
  send("b", 7);
  send("second", 8, nullptr, to_second);
  b.drive();
  second.close();
  b.owner.write_answer = 0;
  b.drive();
  EXPECT_EQ(b.owner.told.size(), 2u);
  EXPECT_TRUE(b.owner.errors.empty());
  EXPECT_EQ(b.owner.freed, 2);
}

TEST_F(Peer, NamesASourceThatIsInsertedWhileTheOwnerIsAsked) {
  Node c;
  const fi_addr_t from_c = c.insert(b.node);
  fi_addr_t to_c = FI_ADDR_NOTAVAIL;
  b.owner.on_get = [&] {
    if (to_c == FI_ADDR_NOTAVAIL) to_c = b.node.insert(c);
  };
  send("early", 1, &c, from_c);
  b.drive();
  b.drive();
  ASSERT_EQ(b.owner.unexpected.size(), 1u);
  EXPECT_EQ(b.owner.unexpected.front().rx.addr, to_c);
}

TEST_F(Peer, AsksOnlyOwnersWhoseQueueIsRead) {
  Owned second(FI_TAGGED | FI_PEER, sharing(b.node.domain));
  const fi_addr_t to_second = a.insert(second.node);
  second.owner.get_answer = -FI_EAGAIN;
  send("x", 1, nullptr, to_second);
  second.drive();
  EXPECT_EQ(second.owner.asked.size(), 1u);
  b.drive();
  EXPECT_EQ(second.owner.asked.size(), 1u);
  second.drive();
  EXPECT_EQ(second.owner.asked.size(), 2u);
}

// Another process may insert an address into a vector with a name.
TEST(PeerOfProcesses, NamesSourcesThatOthersInsert) {
  const std::string name = "peer-" + std::to_string(getpid());
  NodeOptions options;
  options.av_name = name.c_str();
  Owned b(FI_TAGGED | FI_PEER, options);
  Node other(options), c;
  const fi_addr_t from_c = c.insert(b.node);
  ASSERT_EQ(fi_tsend(c.ep, "x", 1, nullptr, from_c, 1, nullptr), 0);
  b.drive();
  ASSERT_EQ(b.owner.unexpected.size(), 1u);
  EXPECT_EQ(b.owner.unexpected.front().rx.addr, FI_ADDR_UNSPEC);
  const fi_addr_t to_c = other.insert(c);
  b.drive();
  EXPECT_EQ(b.owner.unexpected.front().rx.addr, to_c);
}

TEST(PeerOfThreads, MayCloseAnEndpointWhileAnotherThreadReads) {
  constexpr int kMessages = 20;
  for (int round = 0; round < 50; ++round) {
    Node a;
    Owned b(FI_TAGGED | FI_PEER, of_threads());
    const fi_addr_t to_b = a.insert(b.node);
    std::array<char, kMessages> into{};
    for (char& byte : into) b.owner.post(FI_TAGGED, &byte, 1, &byte, 1);
    for (int i = 0; i < kMessages; ++i)
      ASSERT_EQ(fi_tsend(a.ep, "x", 1, nullptr, to_b, 1, nullptr), 0);
    std::atomic<int> reads{0};
    std::atomic<bool> closed{false};
    std::thread reader([&] {
      for (bool last = false; !last; ++reads) {
        last = closed;
        b.owner.write_answer = reads % 2 == 0 ? -FI_EAGAIN : 0;
        b.drive();
      }
    });
    while (reads < 1) std::this_thread::yield();
    b.close_endpoint();
    closed = true;
    reader.join();
    b.owner.write_answer = 0;
    b.drive();
    b.drive();
    // Every receive that was matched ended once.
    const std::size_t matched = kMessages - b.owner.posted.size();
    EXPECT_EQ(b.owner.told.size() + b.owner.errors.size(), matched);
    EXPECT_EQ(static_cast<std::size_t>(b.owner.freed), matched);
    EXPECT_TRUE(b.owner.started.empty());
  }
}

// lnx registers the buffer with this domain before it returns the entry.
TEST(PeerOfThreads, MayBeCalledFromTheOwnersCalls) {
  Node a;
  Owned b(FI_TAGGED | FI_PEER, of_threads());
  const fi_addr_t to_b = a.insert(b.node);
  std::array<char, 8> into{};
  fid_mr* region = nullptr;
  b.owner.on_get = [&] {
    EXPECT_EQ(fi_cq_read(b.cq, nullptr, 0), -FI_EAGAIN);
    EXPECT_EQ(
        fi_mr_reg(b.node.domain, into.data(), into.size(), FI_RECV, 0, 0, 0, &region, nullptr), 0);
  };
  b.owner.post(FI_TAGGED, into.data(), into.size(), nullptr, 1);
  ASSERT_EQ(fi_tsend(a.ep, "x", 1, nullptr, to_b, 1, nullptr), 0);
  b.drive();
  EXPECT_EQ(b.owner.told.size(), 1u);
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(fi_close(&region->fid), 0);
}

TEST(PeerOpen, RefusesWhatIsNoPeerContext) {
  Node node;
  Owner owner;
  fi_rx_attr rx_attr{};
  PeerSrxContext srx_context{sizeof srx_context, &owner.srx};
  fid_ep* srx = nullptr;
  rx_attr.op_flags = FI_PEER;
  EXPECT_EQ(fi_srx_context(node.domain, &rx_attr, &srx, nullptr), -FI_EINVAL);
  SrxOwnerOps old = Owner::srx_ops;
  old.size = sizeof(fi_ops_srx_owner);  // libfabric 1.17's
  owner.srx.owner_ops = &old;
  EXPECT_EQ(fi_srx_context(node.domain, &rx_attr, &srx, &srx_context), -FI_EINVAL);

  fid_cq* cq = nullptr;
  fi_cq_attr cq_attr{};
  cq_attr.flags = FI_PEER;
  EXPECT_EQ(fi_cq_open(node.domain, &cq_attr, &cq, nullptr), -FI_EINVAL);
  fi_peer_cq_context cq_context{1, &owner.cq};
  EXPECT_EQ(fi_cq_open(node.domain, &cq_attr, &cq, &cq_context), -FI_EINVAL);
  cq_context.size = sizeof cq_context;
  cq_attr.wait_obj = FI_WAIT_FD;
  EXPECT_EQ(fi_cq_open(node.domain, &cq_attr, &cq, &cq_context), -FI_ENOSYS);

  fid_cntr* cntr = nullptr;
  fi_cntr_attr cntr_attr{};
  cntr_attr.flags = FI_PEER;
  EXPECT_EQ(fi_cntr_open(node.domain, &cntr_attr, &cntr, nullptr), -FI_EINVAL);
}

TEST(PeerOpen, NeedsTheOwnersQueueForItsReceives) {
  Owner owner;
  fid_ep* srx = nullptr;
  NodeOptions options;
  options.caps = FI_TAGGED | FI_PEER;
  Node node(options);
  fid_ep* ep = nullptr;
  ASSERT_EQ(fi_endpoint(node.domain, node.info.get(), &ep, nullptr), 0);
  fi_rx_attr rx_attr{};
  rx_attr.op_flags = FI_PEER;
  PeerSrxContext context{sizeof context, &owner.srx};
  ASSERT_EQ(fi_srx_context(node.domain, &rx_attr, &srx, &context), 0);
  ASSERT_EQ(fi_ep_bind(ep, &node.av->fid, 0), 0);
  ASSERT_EQ(fi_ep_bind(ep, &node.cq->fid, FI_TRANSMIT | FI_RECV), 0);
  ASSERT_EQ(fi_ep_bind(ep, &srx->fid, 0), 0);
  EXPECT_EQ(fi_ep_bind(ep, &srx->fid, 0), -FI_EINVAL);
  EXPECT_EQ(fi_enable(ep), -FI_ENOCQ);
  EXPECT_EQ(fi_close(&ep->fid), 0);
  EXPECT_EQ(fi_close(&srx->fid), 0);
}

TEST(PeerOpen, NeedsTheCapability) {
  Owner owner;
  Node node;
  fid_ep *ep = nullptr, *srx = nullptr;
  ASSERT_EQ(fi_endpoint(node.domain, node.info.get(), &ep, nullptr), 0);
  fi_rx_attr rx_attr{};
  rx_attr.op_flags = FI_PEER;
  PeerSrxContext context{sizeof context, &owner.srx};
  ASSERT_EQ(fi_srx_context(node.domain, &rx_attr, &srx, &context), 0);
  EXPECT_EQ(fi_ep_bind(ep, &srx->fid, 0), -FI_EINVAL);
  EXPECT_EQ(fi_close(&ep->fid), 0);
  EXPECT_EQ(fi_close(&srx->fid), 0);
}

TEST(PeerOpen, RefusesLibrariesWhoseOwnersHaveOtherStructures) {
  Owner owner;
  Node node;
  fi_rx_attr rx_attr{};
  rx_attr.op_flags = FI_PEER;
  PeerSrxContext context{sizeof context, &owner.srx};
  const std::uint32_t version = provider::library().version;
  for (const std::uint32_t minor : {18u, 22u, 0u, 4u}) {
    const std::uint32_t other = FI_VERSION(minor > 17 ? 1u : 2u, minor);
    fid_ep* srx = nullptr;
    provider::library().version = other;
    EXPECT_EQ(fi_srx_context(node.domain, &rx_attr, &srx, &context), -FI_EINVAL) << other;
  }
  provider::library().version = version;
}

TEST(PeerOpen, IsACapabilityOfItsOwn) {
  InfoPtr hints = hints_for_all();
  InfoPtr info;
  ASSERT_EQ(ask(FI_VERSION(1, 17), hints.get(), info), 0);
  EXPECT_EQ(info->caps & (FI_PEER | FI_AV_USER_ID), 0u);
  hints->caps = FI_TAGGED | FI_PEER | FI_AV_USER_ID;
  ASSERT_EQ(ask(FI_VERSION(1, 17), hints.get(), info), 0);
  EXPECT_EQ(info->caps & (FI_PEER | FI_AV_USER_ID),
            static_cast<std::uint64_t>(FI_PEER | FI_AV_USER_ID));
  // As lnx bounds its own.
  EXPECT_EQ(info->rx_attr->iov_limit, 4u);
  EXPECT_EQ(info->ep_attr->protocol_version, 1u);
  hints->ep_attr->type = FI_EP_MSG;
  EXPECT_EQ(ask(FI_VERSION(1, 17), hints.get(), info), -FI_ENODATA);
}

TEST(UserIds, NameTheSource) {
  NodeOptions options;
  options.caps = FI_TAGGED | FI_SOURCE | FI_AV_USER_ID;
  Node a(options), b(options);
  const fi_addr_t to_b = a.insert(b);
  const Address address = a.name();
  constexpr fi_addr_t kName = 0xabcdef00;
  fi_addr_t to_a = kName;
  ASSERT_EQ(fi_av_insert(b.av, &address, 1, &to_a, FI_AV_USER_ID, nullptr), 1);
  EXPECT_EQ(to_a, 0u);  // for transfers
  EXPECT_EQ(fi_av_insert(b.av, &address, 1, nullptr, FI_AV_USER_ID, nullptr), -FI_EINVAL);
  const auto source_of_next = [&] {
    char byte = 0;
    EXPECT_EQ(fi_trecv(b.ep, &byte, 1, nullptr, FI_ADDR_UNSPEC, 0, 0, nullptr), 0);
    EXPECT_EQ(fi_tsend(a.ep, "x", 1, nullptr, to_b, 0, nullptr), 0);
    fi_cq_tagged_entry entry;
    fi_addr_t source = 0;
    EXPECT_EQ(fi_cq_readfrom(b.cq, &entry, 1, &source), 1);
    return source;
  };
  EXPECT_EQ(source_of_next(), kName);
  ASSERT_EQ(fi_av_remove(b.av, &to_a, 1, 0), 0);
  EXPECT_EQ(source_of_next(), FI_ADDR_NOTAVAIL);
  ASSERT_EQ(fi_av_insert(b.av, &address, 1, &to_a, 0, nullptr), 1);
  EXPECT_EQ(source_of_next(), to_a);
}

}  // namespace
}  // namespace turnout::testing
