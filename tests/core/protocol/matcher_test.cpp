// SPDX-License-Identifier: BSD-3-Clause
#include "core/protocol/matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

namespace turnout {
namespace {

struct Receive {
  Receive* next = nullptr;
  Receive* previous = nullptr;
  PostedMatch match;
};
struct Message {
  Message* next = nullptr;
  Message* previous = nullptr;
  PeerId peer = 0;
  std::uint64_t tag = 0;
  bool tagged = true;
};

TEST(Matcher, FirstPostedWinsAmongWildcardsAndExact) {
  Matcher<Receive, Message> matcher;
  Receive any, exact;
  any.match = {kAnyPeer, 0, ~std::uint64_t{0}, true};
  exact.match = {3, 7, 0, true};
  matcher.post(&any);
  matcher.post(&exact);
  EXPECT_EQ(matcher.find_posted(3, true, 7), &any);
  matcher.remove(&any);
  EXPECT_EQ(matcher.find_posted(3, true, 7), &exact);
  EXPECT_EQ(matcher.find_posted(4, true, 7), nullptr);
  EXPECT_EQ(matcher.find_posted(3, true, 8), nullptr);
}

TEST(Matcher, TaggedAndUntaggedAreApart) {
  Matcher<Receive, Message> matcher;
  Receive untagged;
  untagged.match = {kAnyPeer, 0, 0, false};
  matcher.post(&untagged);
  EXPECT_EQ(matcher.find_posted(0, true, 0), nullptr);
  EXPECT_EQ(matcher.find_posted(0, false, 99), &untagged);
}

TEST(Matcher, IgnoreBitsHideDifferencesOnly) {
  PostedMatch match{kAnyPeer, 0xff00, 0x00ff, true};
  EXPECT_TRUE(match.accepts(1, 0xff42));
  EXPECT_FALSE(match.accepts(1, 0xfe42));
}

TEST(Matcher, EarliestUnexpectedIsFound) {
  Matcher<Receive, Message> matcher;
  Message first, second;
  first.tag = second.tag = 5;
  first.peer = 1;
  second.peer = 2;
  matcher.add_unexpected(&first);
  matcher.add_unexpected(&second);
  EXPECT_EQ(matcher.find_unexpected({kAnyPeer, 5, 0, true}), &first);
  EXPECT_EQ(matcher.find_unexpected({2, 5, 0, true}), &second);
  matcher.remove_unexpected(&first);
  EXPECT_EQ(matcher.find_unexpected({kAnyPeer, 5, 0, true}), &second);
}

template <class T, class Fits>
T* first(const std::vector<T*>& of, Fits fits) {
  const auto found = std::find_if(of.begin(), of.end(), fits);
  return found == of.end() ? nullptr : *found;
}

// Against a plain re-statement of MPI's rules over two vectors.
TEST(Matcher, AgreesWithTheRulesOnRandomHistories) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    Matcher<Receive, Message> matcher;
    std::deque<Receive> receives;
    std::deque<Message> messages;
    std::vector<Receive*> posted;
    std::vector<Message*> waiting;
    for (int step = 0; step < 400; ++step) {
      const auto peer = static_cast<PeerId>(random() % 3);
      const std::uint64_t tag = random() % 4;
      if (random() % 2 == 0) {
        Receive& r = receives.emplace_back();
        r.match = {random() % 3 == 0 ? kAnyPeer : peer, tag,
                   random() % 3 == 0 ? ~std::uint64_t{0} : 0, true};
        Message* const found = matcher.find_unexpected(r.match);
        ASSERT_EQ(found,
                  first(waiting, [&](Message* m) { return r.match.accepts(m->peer, m->tag); }))
            << "seed " << seed << " step " << step;
        if (found != nullptr) {
          matcher.remove_unexpected(found);
          std::erase(waiting, found);
        } else {
          matcher.post(&r);
          posted.push_back(&r);
        }
      } else {
        Receive* const found = matcher.find_posted(peer, true, tag);
        ASSERT_EQ(found, first(posted, [&](Receive* r) { return r->match.accepts(peer, tag); }))
            << "seed " << seed << " step " << step;
        if (found != nullptr) {
          matcher.remove(found);
          std::erase(posted, found);
        } else {
          Message& m = messages.emplace_back();
          m.peer = peer;
          m.tag = tag;
          matcher.add_unexpected(&m);
          waiting.push_back(&m);
        }
      }
    }
  }
}

TEST(LinkedList, PushFrontAndRemoveKeepOrder) {
  LinkedList<Message> list;
  Message a, b, c;
  list.push_back(&b);
  list.push_front(&a);
  list.push_back(&c);
  EXPECT_EQ(list.size(), 3u);
  list.remove(&b);
  EXPECT_EQ(list.first(), &a);
  EXPECT_EQ(list.last(), &c);
  EXPECT_EQ(list.pop_front(), &a);
  EXPECT_EQ(list.pop_front(), &c);
  EXPECT_EQ(list.pop_front(), nullptr);
}

}  // namespace
}  // namespace turnout
