// SPDX-License-Identifier: BSD-3-Clause
// Shared receive contexts: which receive a message of several endpoints takes, and what becomes of
// receives and messages when endpoints come and go.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/provider/node.h"

namespace turnout::testing {
namespace {

constexpr std::size_t kRoom = 16;

fid_ep* open_context(fid_domain* domain, fi_rx_attr* attr = nullptr) {
  fid_ep* made = nullptr;
  EXPECT_EQ(fi_srx_context(domain, attr, &made, nullptr), 0);
  return made;
}

// A receiver with two endpoints on one context, and a sender.
struct Shared {
  explicit Shared(fi_rx_attr* attr = nullptr, std::uint64_t rx_bind = FI_RECV)
      : receiver(options(attr, rx_bind)), sender(NodeOptions{}) {
    fid_ep* made = nullptr;
    EXPECT_EQ(fi_endpoint(receiver.domain, receiver.info.get(), &made, nullptr), 0);
    second = made;
    EXPECT_EQ(fi_ep_bind(second, &receiver.av->fid, 0), 0);
    EXPECT_EQ(fi_ep_bind(second, &receiver.cq->fid, FI_TRANSMIT), 0);
    EXPECT_EQ(fi_ep_bind(second, &receiver.cq->fid, rx_bind), 0);
    EXPECT_EQ(fi_ep_bind(second, &context->fid, 0), 0);
    EXPECT_EQ(fi_enable(second), 0);
    first_at = sender.insert(receiver);
    Address address;
    std::size_t length = sizeof address;
    EXPECT_EQ(fi_getname(&second->fid, &address, &length), 0);
    EXPECT_EQ(fi_av_insert(sender.av, &address, 1, &second_at, 0, nullptr), 1);
    of_sender = receiver.insert(sender);
  }
  ~Shared() {
    close_second();
    EXPECT_EQ(fi_close(&receiver.ep->fid), 0);
    receiver.ep = nullptr;
    EXPECT_EQ(fi_close(&context->fid), 0);
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  NodeOptions options(fi_rx_attr* attr, std::uint64_t rx_bind) {
    NodeOptions made;
    made.rx_bind = rx_bind;
    made.before_enable = [this, attr](fid_domain* domain, fid_ep* ep) {
      context = open_context(domain, attr);
      EXPECT_EQ(fi_ep_bind(ep, &context->fid, 0), 0);
    };
    return made;
  }
  void close_second() {
    if (second != nullptr) {
      EXPECT_EQ(fi_close(&second->fid), 0);
    }
    second = nullptr;
  }
  void send(fi_addr_t to, const std::string& text) {
    EXPECT_EQ(fi_inject(sender.ep, text.data(), text.size(), to), 0);
  }
  void send(fi_addr_t to, std::uint64_t tag, const std::string& text) {
    EXPECT_EQ(fi_tinject(sender.ep, text.data(), text.size(), to, tag), 0);
  }
  ssize_t receive(std::size_t which, fi_addr_t from = FI_ADDR_UNSPEC) {
    return fi_recv(context, buffers[which].data(), kRoom, nullptr, from, &buffers[which]);
  }
  ssize_t receive_tagged(std::size_t which, std::uint64_t tag, std::uint64_t ignore) {
    return fi_trecv(context, buffers[which].data(), kRoom, nullptr, FI_ADDR_UNSPEC, tag, ignore,
                    &buffers[which]);
  }
  // The next completion is of this buffer, which has this text.
  void expect(std::size_t which, const std::string& text) {
    const auto entry = receiver.next();
    ASSERT_NE(entry, nullptr);
    EXPECT_EQ(entry->op_context, &buffers[which]);
    EXPECT_EQ(std::string(buffers[which].data(), entry->len), text);
  }

  fid_ep* context = nullptr;
  Node receiver, sender;
  fid_ep* second = nullptr;
  fi_addr_t first_at = 0, second_at = 0, of_sender = 0;
  std::array<std::array<char, kRoom>, 8> buffers{};
};

// Whatever is posted and sent, in whatever order: each message and each receive are matched as MPI
// would have it, the first with the first that fits.
RC_GTEST_PROP(SharedReceives, AreMatchedAsInAModel, ()) {
  struct Step {
    bool posts, second;
    std::uint64_t tag, ignore;
  };
  struct Posted {
    std::uint64_t tag, ignore;
    std::size_t number;
  };
  const auto steps = *rc::gen::container<std::vector<Step>>(rc::gen::construct<Step>(
      rc::gen::arbitrary<bool>(), rc::gen::arbitrary<bool>(), rc::gen::inRange<std::uint64_t>(0, 4),
      rc::gen::element<std::uint64_t>(0, 1, 2, 3)));
  Shared s;
  std::vector<std::array<char, kRoom>> buffers(steps.size());
  std::vector<Posted> posted;                // of the model
  std::vector<std::uint64_t> waiting;        // tags of messages
  std::vector<std::size_t> waiting_numbers;  // the same ones
  for (std::size_t n = 0; n < steps.size(); ++n) {
    const Step& step = steps[n];
    std::optional<std::pair<std::size_t, std::size_t>> match;  // receive, message
    const auto fits = [](std::uint64_t a, std::uint64_t b, std::uint64_t ignore) {
      return ((a ^ b) & ~ignore) == 0;
    };
    if (step.posts) {
      RC_ASSERT(fi_trecv(s.context, buffers[n].data(), kRoom, nullptr, FI_ADDR_UNSPEC, step.tag,
                         step.ignore, &buffers[n]) == 0);
      std::size_t at = 0;
      while (at < waiting.size() && !fits(waiting[at], step.tag, step.ignore)) ++at;
      if (at == waiting.size()) {
        posted.push_back({step.tag, step.ignore, n});
      } else {
        match = {n, waiting_numbers[at]};
        waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(at));
        waiting_numbers.erase(waiting_numbers.begin() + static_cast<std::ptrdiff_t>(at));
      }
    } else {
      s.send(step.second ? s.second_at : s.first_at, step.tag, std::to_string(n));
      std::size_t at = 0;
      while (at < posted.size() && !fits(step.tag, posted[at].tag, posted[at].ignore)) ++at;
      if (at == posted.size()) {
        waiting.push_back(step.tag);
        waiting_numbers.push_back(n);
      } else {
        match = {posted[at].number, n};
        posted.erase(posted.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
    const auto entry = s.receiver.next();
    RC_ASSERT((entry != nullptr) == match.has_value());
    if (entry == nullptr) continue;
    RC_ASSERT((entry->op_context == &buffers[match->first]));
    RC_ASSERT(std::string(buffers[match->first].data(), entry->len) ==
              std::to_string(match->second));
    RC_ASSERT(entry->tag == steps[match->second].tag);
  }
}

TEST(SharedReceives, AreTakenInOrderByTheMessagesOfAllEndpoints) {
  Shared s;
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(s.receive(i), 0);
  s.send(s.second_at, "one");
  s.expect(0, "one");
  s.send(s.first_at, "two");
  s.expect(1, "two");
  s.send(s.second_at, "three");
  s.expect(2, "three");
  EXPECT_EQ(s.receiver.next(), nullptr);
}

TEST(SharedReceives, TakeMessagesThatWaitInTheOrderTheyCame) {
  Shared s;
  s.send(s.second_at, "one");
  EXPECT_EQ(s.receiver.next(), nullptr);
  s.send(s.first_at, "two");
  EXPECT_EQ(s.receiver.next(), nullptr);
  EXPECT_EQ(s.receive(0), 0);
  s.expect(0, "one");
  EXPECT_EQ(s.receive(1), 0);
  s.expect(1, "two");
}

TEST(SharedReceives, MatchTagsAndIgnoredBits) {
  Shared s;
  EXPECT_EQ(s.receive(4), 0);  // no tagged message takes it
  EXPECT_EQ(s.receive_tagged(0, 7, 0), 0);
  EXPECT_EQ(s.receive_tagged(1, 0, ~std::uint64_t{0}), 0);
  EXPECT_EQ(s.receive_tagged(2, 8, 0), 0);
  s.send(s.second_at, 8, "any");
  s.expect(1, "any");
  s.send(s.first_at, 9, "later");
  EXPECT_EQ(s.receiver.next(), nullptr);
  s.send(s.first_at, 8, "eight");
  s.expect(2, "eight");
  s.send(s.second_at, 7, "seven");
  s.expect(0, "seven");
  EXPECT_EQ(s.receive_tagged(3, 8, 1), 0);  // 9 waits
  s.expect(3, "later");
  s.send(s.second_at, "untagged");
  s.expect(4, "untagged");
}

TEST(SharedReceives, LookAtTheSourceWhereTheProgramAskedForIt) {
  fi_rx_attr attr{};
  attr.caps = FI_MSG | FI_RECV | FI_DIRECTED_RECV;
  Shared s(&attr);
  Node other;
  const fi_addr_t of_other = s.receiver.insert(other);
  EXPECT_EQ(s.receive(0, of_other), 0);
  EXPECT_EQ(s.receive(1, s.of_sender), 0);
  s.send(s.first_at, "mine");
  s.expect(1, "mine");
  const fi_addr_t at = other.insert(s.receiver);
  EXPECT_EQ(fi_inject(other.ep, "other's", 7, at), 0);
  s.expect(0, "other's");
  // Without it the source means nothing.
  Shared any;
  EXPECT_EQ(any.receive(0, 77), 0);
  any.send(any.first_at, "any");
  any.expect(0, "any");
}

TEST(SharedReceives, WaitUntilTheCoreHasRoom) {
  Shared s;
  EXPECT_EQ(s.receive(0), 0);
  s.send(s.first_at, "one");
  faults().taken = Status(Code::again, "no room");  // for the first attempt
  EXPECT_EQ(s.receiver.next(), nullptr);
  s.expect(0, "one");
  s.send(s.second_at, "two");
  EXPECT_EQ(s.receiver.next(), nullptr);
  faults().taken = Status(Code::again, "no room");
  EXPECT_EQ(s.receive(1), 0);
  s.expect(1, "two");
}

TEST(SharedReceives, EndWithTheErrorsOfTheCore) {
  Shared s;
  faults().taken = Status(Code::invalid, "segments");
  EXPECT_EQ(s.receive(0), 0);
  s.send(s.first_at, "one");
  fi_cq_err_entry error = s.receiver.next_error();
  EXPECT_EQ(error.err, FI_EINVAL);
  EXPECT_EQ(error.op_context, &s.buffers[0]);
  EXPECT_EQ(error.flags, std::uint64_t{FI_RECV | FI_MSG});
  EXPECT_EQ(s.receive(1), 0);
  s.send(s.first_at, "more than sixteen bytes");
  error = s.receiver.next_error();
  EXPECT_EQ(error.err, FI_ETRUNC);
  EXPECT_EQ(error.op_context, &s.buffers[1]);
}

TEST(SharedReceives, CancelTheMostRecentOneWithThatContext) {
  Shared s;
  EXPECT_EQ(fi_cancel(&s.context->fid, &s.buffers[0]), -FI_ENOENT);
  EXPECT_EQ(s.receive_tagged(0, 3, 0), 0);
  EXPECT_EQ(s.receive(1), 0);
  EXPECT_EQ(fi_cancel(&s.context->fid, &s.buffers[0]), 0);
  const fi_cq_err_entry error = s.receiver.next_error();
  EXPECT_EQ(error.err, FI_ECANCELED);
  EXPECT_EQ(error.op_context, &s.buffers[0]);
  EXPECT_EQ(error.flags, std::uint64_t{FI_RECV | FI_TAGGED});
  EXPECT_EQ(error.tag, 3U);
  EXPECT_EQ(fi_cancel(&s.context->fid, &s.buffers[0]), -FI_ENOENT);
  s.send(s.first_at, "one");
  s.expect(1, "one");
}

TEST(SharedReceives, AreAsManyAsTheProgramAskedFor) {
  fi_rx_attr attr{};
  attr.size = 2;
  Shared s(&attr);
  EXPECT_EQ(s.receive(0), 0);
  EXPECT_EQ(s.receive_tagged(1, 1, 0), 0);
  EXPECT_EQ(s.receive(2), -FI_EAGAIN);
  s.send(s.second_at, "one");
  s.expect(0, "one");
  EXPECT_EQ(s.receive(2), 0);
}

TEST(SharedReceives, OfAClosedEndpointAreForTheOthers) {
  Shared s;
  s.send(s.second_at, "lost");
  s.send(s.second_at, 5, "lost, too");
  EXPECT_EQ(s.receiver.next(), nullptr);
  s.close_second();
  EXPECT_EQ(s.receive(0), 0);
  EXPECT_EQ(s.receive_tagged(1, 5, 0), 0);
  EXPECT_EQ(s.receiver.next(), nullptr);
  s.send(s.first_at, "one");
  s.expect(0, "one");
  s.send(s.first_at, 5, "five");
  s.expect(1, "five");
}

TEST(SharedReceives, WhoseMessageHasNotBegunAreForTheOthersAgain) {
  Shared s;
  s.send(s.second_at, "lost");
  EXPECT_EQ(s.receiver.next(), nullptr);
  faults().taken = Status(Code::again, "no room");
  EXPECT_EQ(s.receive(0), 0);
  EXPECT_EQ(s.receive(1), 0);
  s.close_second();
  s.send(s.first_at, "one");
  s.expect(0, "one");
  s.send(s.first_at, "two");
  s.expect(1, "two");
}

TEST(SharedReceives, AreReportedAsTheirEndpointsQueueIsBound) {
  Shared s(nullptr, FI_RECV | FI_SELECTIVE_COMPLETION);
  EXPECT_EQ(s.receive(0), 0);
  s.send(s.first_at, "silent");
  EXPECT_EQ(s.receiver.next(), nullptr);
  EXPECT_EQ(std::string(s.buffers[0].data(), 6), "silent");
  iovec iov{s.buffers[1].data(), kRoom};
  fi_msg message{};
  message.msg_iov = &iov;
  message.iov_count = 1;
  message.addr = FI_ADDR_UNSPEC;
  message.context = &s.buffers[1];
  EXPECT_EQ(fi_recvmsg(s.context, &message, FI_COMPLETION), 0);
  s.send(s.first_at, "told");
  s.expect(1, "told");
}

TEST(SharedReceives, RefuseWhatACompletionQueueOfTheirOwnWouldAnswer) {
  Shared s;
  iovec iov{s.buffers[0].data(), kRoom};
  fi_msg_tagged message{};
  message.msg_iov = &iov;
  message.iov_count = 1;
  EXPECT_EQ(fi_trecvmsg(s.context, &message, FI_PEEK), -FI_EOPNOTSUPP);
  EXPECT_EQ(fi_trecvmsg(s.context, &message, FI_CLAIM), -FI_EOPNOTSUPP);
  EXPECT_EQ(fi_trecvmsg(s.context, &message, FI_INJECT), -FI_EBADFLAGS);
  fi_msg untagged{};
  untagged.msg_iov = &iov;
  untagged.iov_count = 1;
  EXPECT_EQ(fi_recvmsg(s.context, &untagged, FI_MULTI_RECV), -FI_EOPNOTSUPP);
  std::vector<iovec> many(9, iov);
  EXPECT_EQ(fi_recvv(s.context, many.data(), nullptr, many.size(), FI_ADDR_UNSPEC, nullptr),
            -FI_EINVAL);
  EXPECT_EQ(fi_ep_bind(s.context, &s.receiver.cq->fid, FI_RECV), -FI_ENOSYS);
  EXPECT_EQ(fi_enable(s.context), 0);
  EXPECT_EQ(fi_close(&s.context->fid), -FI_EBUSY);
  // Its endpoints have none of their own.
  EXPECT_EQ(fi_recv(s.receiver.ep, s.buffers[0].data(), kRoom, nullptr, FI_ADDR_UNSPEC, nullptr),
            -FI_EOPNOTSUPP);
  EXPECT_EQ(fi_trecv(s.second, s.buffers[0].data(), kRoom, nullptr, FI_ADDR_UNSPEC, 0, 0, nullptr),
            -FI_EOPNOTSUPP);
}

TEST(SharedReceives, AreBoundOnceAndBeforeTheEndpointIsEnabled) {
  Shared s;
  Node node;
  fid_ep* const other = open_context(node.domain);
  EXPECT_EQ(fi_ep_bind(node.ep, &other->fid, 0), -FI_EOPBADSTATE);
  fid_ep* ep = nullptr;
  ASSERT_EQ(fi_endpoint(node.domain, node.info.get(), &ep, nullptr), 0);
  EXPECT_EQ(fi_ep_bind(ep, &s.context->fid, 0), -FI_EDOMAIN);
  EXPECT_EQ(fi_ep_bind(ep, &other->fid, 0), 0);
  EXPECT_EQ(fi_ep_bind(ep, &other->fid, 0), -FI_EINVAL);
  EXPECT_EQ(fi_close(&ep->fid), 0);
  EXPECT_EQ(fi_close(&other->fid), 0);
}

TEST(SharedReceives, TakeOneAddressVectorForAllEndpoints) {
  Shared s;
  fi_av_attr attr{};
  attr.type = FI_AV_TABLE;
  fid_av* av = nullptr;
  ASSERT_EQ(fi_av_open(s.receiver.domain, &attr, &av, nullptr), 0);
  fid_ep* ep = nullptr;
  ASSERT_EQ(fi_endpoint(s.receiver.domain, s.receiver.info.get(), &ep, nullptr), 0);
  EXPECT_EQ(fi_ep_bind(ep, &av->fid, 0), 0);
  EXPECT_EQ(fi_ep_bind(ep, &s.receiver.cq->fid, FI_TRANSMIT | FI_RECV), 0);
  EXPECT_EQ(fi_ep_bind(ep, &s.context->fid, 0), 0);
  EXPECT_EQ(fi_enable(ep), -FI_EINVAL);
  EXPECT_EQ(fi_close(&ep->fid), 0);
  EXPECT_EQ(fi_close(&av->fid), 0);
}

TEST(SharedReceives, AreToBeBoundWhereTheProgramSaidSo) {
  const InfoPtr hints = hints_for_all();
  hints->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
  InfoPtr info;
  ASSERT_EQ(ask(FI_VERSION(1, 17), hints.get(), info), 0);
  EXPECT_EQ(info->ep_attr->rx_ctx_cnt, std::size_t{FI_SHARED_CONTEXT});
  EXPECT_GE(info->domain_attr->max_ep_srx_ctx, 2U);
  Node node;
  fid_ep* ep = nullptr;
  ASSERT_EQ(fi_endpoint(node.domain, info.get(), &ep, nullptr), 0);
  EXPECT_EQ(fi_ep_bind(ep, &node.av->fid, 0), 0);
  EXPECT_EQ(fi_ep_bind(ep, &node.cq->fid, FI_TRANSMIT | FI_RECV), 0);
  EXPECT_EQ(fi_enable(ep), -FI_EINVAL);
  fid_ep* const context = open_context(node.domain, info->rx_attr);
  EXPECT_EQ(fi_ep_bind(ep, &context->fid, 0), 0);
  EXPECT_EQ(fi_enable(ep), 0);
  EXPECT_EQ(fi_close(&ep->fid), 0);
  EXPECT_EQ(fi_close(&context->fid), 0);
}

TEST(SharedReceives, RefuseAttributesThatTheyCannotHave) {
  Node node;
  fid_ep* made = nullptr;
  fi_rx_attr attr{};
  attr.op_flags = FI_INJECT;
  EXPECT_EQ(fi_srx_context(node.domain, &attr, &made, nullptr), -FI_EINVAL);
  attr.op_flags = FI_MULTI_RECV;
  EXPECT_EQ(fi_srx_context(node.domain, &attr, &made, nullptr), -FI_EOPNOTSUPP);
  attr.op_flags = 0;
  attr.iov_limit = 9;
  EXPECT_EQ(fi_srx_context(node.domain, &attr, &made, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_srx_context(node.domain, nullptr, nullptr, nullptr), -FI_EINVAL);
}

}  // namespace
}  // namespace turnout::testing
