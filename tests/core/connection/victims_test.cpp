// SPDX-License-Identifier: BSD-3-Clause
// Victims by examples, and each order against a model that works it out anew from all that
// happened.
#include "core/connection/victims.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <list>
#include <map>
#include <vector>

namespace turnout {
namespace {

constexpr auto kAny = [](const ConnectionUse&) { return true; };

TEST(Victims, AreNamedAsTheSettingIs) {
  EXPECT_EQ(victim_order_named("none"), VictimOrder::none);
  EXPECT_EQ(victim_order_named("lru"), VictimOrder::lru);
  EXPECT_EQ(victim_order_named("lru-m"), VictimOrder::lru_m);
  EXPECT_EQ(victim_order_named("cost"), VictimOrder::cost);
  EXPECT_FALSE(victim_order_named("LRU").has_value());
}

TEST(Victims, LruMTakesTheOldestOfThoseTornDownLeast) {
  Victims victims(VictimOrder::lru_m, 4);
  std::array<ConnectionUse, 3> uses;
  for (std::uint32_t i = 0; i < uses.size(); ++i) {
    uses[i].peer = i;
    victims.add(uses[i], 1);
    victims.touch(uses[i], true);
  }
  victims.tear_down(uses[0], true);  // and comes back
  victims.remove(uses[0]);
  victims.add(uses[0], 1);
  for (int n = 0; n < 5; ++n) victims.touch(uses[1], true);
  EXPECT_EQ(victims.choose(kAny)->peer, 2u);
  EXPECT_EQ(victims.choose([](const ConnectionUse& use) { return use.peer != 2; })->peer, 1u);
  EXPECT_EQ(victims.choose([](const ConnectionUse&) { return false; }), nullptr);
}

// A peer that was busy and fell silent is overtaken by one in moderate use.
TEST(Victims, CostForgetsWhatWasUsedLongAgo) {
  Victims victims(VictimOrder::cost, 2);
  std::array<ConnectionUse, 2> uses;
  for (std::uint32_t i = 0; i < uses.size(); ++i) {
    uses[i].peer = i;
    victims.add(uses[i], 100);
  }
  for (int n = 0; n < 1000; ++n) victims.touch(uses[0], true);
  for (int n = 0; n < 5; ++n) victims.touch(uses[1], true);
  EXPECT_EQ(victims.choose(kAny)->peer, 1u);
  for (int n = 0; n < 200; ++n) victims.touch(uses[1], true);
  EXPECT_EQ(victims.choose(kAny)->peer, 0u);
}

TEST(Victims, CostKeepsWhatIsDearToMakeAgain) {
  Victims victims(VictimOrder::cost, 8);
  std::array<ConnectionUse, 2> uses;
  uses[1].peer = 1;
  victims.add(uses[0], 500);
  victims.add(uses[1], 100);
  victims.touch(uses[0], true);
  for (int n = 0; n < 4; ++n) victims.touch(uses[1], true);
  EXPECT_EQ(victims.choose(kAny)->peer, 1u);
  victims.touch(uses[1], true);
  victims.touch(uses[1], true);
  EXPECT_EQ(victims.choose(kAny)->peer, 0u);
}

// Choosing looks at each connection's record once, whatever the order.
TEST(Victims, ChoosingLooksAtEachOnce) {
  for (const VictimOrder order : {VictimOrder::lru, VictimOrder::lru_m, VictimOrder::cost}) {
    Victims victims(order, 128);
    std::vector<ConnectionUse> uses(128);
    for (std::uint32_t i = 0; i < uses.size(); ++i) {
      uses[i].peer = i;
      victims.add(uses[i], 1);
      victims.touch(uses[i], true);
    }
    std::size_t looks = 0;
    ASSERT_NE(victims.choose([&](const ConnectionUse&) {
      ++looks;
      return true;
    }),
              nullptr);
    EXPECT_LE(looks, uses.size());
  }
}

// Keeps what the definitions speak of: lists in the order of use, queues by tear-downs, and counts
// that are all halved at once.
struct Model {
  struct Line {
    bool connected = false;
    std::uint32_t torn_down = 0;
    std::uint32_t count = 0;
    double inflation = 0, cost = 0;
  };
  VictimOrder order;
  std::uint64_t sample, counted = 0;
  double inflation = 0;
  std::vector<Line> lines;
  std::list<std::uint32_t> by_use;  // of all peers that were used, the latest last

  void used(std::uint32_t i) {
    by_use.remove(i);
    by_use.push_back(i);
  }
  void touch(std::uint32_t i) {
    used(i);
    ++lines[i].count;
    lines[i].inflation = inflation;
    if (++counted < sample) return;
    counted = 0;
    for (Line& line : lines) line.count /= 2;
  }
  double value(const Line& line) const { return line.inflation + line.count * line.cost; }
  std::uint32_t choose(const std::vector<bool>& may) const {
    std::vector<std::uint32_t> open;
    for (const std::uint32_t i : by_use) {
      if (lines[i].connected && may[i]) open.push_back(i);
    }
    if (open.empty()) return UINT32_MAX;
    if (order == VictimOrder::lru) return open.front();
    if (order == VictimOrder::lru_m) {
      std::map<std::uint32_t, std::vector<std::uint32_t>> queues;
      for (const std::uint32_t i : open) queues[lines[i].torn_down].push_back(i);
      return queues.begin()->second.front();
    }
    return *std::min_element(open.begin(), open.end(), [&](std::uint32_t a, std::uint32_t b) {
      return value(lines[a]) < value(lines[b]);  // the first of equals: unused for longest
    });
  }
};

RC_GTEST_PROP(VictimsProperty, ChoosesAsTheDefinitionsSay, ()) {
  const auto order = *rc::gen::element(VictimOrder::lru, VictimOrder::lru_m, VictimOrder::cost);
  const auto peers = *rc::gen::inRange<std::uint32_t>(1, 9);
  const auto places = *rc::gen::inRange<std::uint32_t>(1, 5);
  Victims victims(order, places);
  std::vector<ConnectionUse> uses(peers);
  Model model{order, Victims::kSampleOfPlace * places, 0, 0, std::vector<Model::Line>(peers), {}};
  for (std::uint32_t i = 0; i < peers; ++i) uses[i].peer = i;
  const auto steps =
      *rc::gen::container<std::vector<std::pair<std::uint32_t, std::uint32_t>>>(rc::gen::pair(
          rc::gen::inRange<std::uint32_t>(0, 8), rc::gen::inRange<std::uint32_t>(0, 1u << 16)));
  for (const auto& [what, drawn] : steps) {
    const std::uint32_t i = drawn % peers;
    Model::Line& line = model.lines[i];
    if (what < 4) {
      const bool over = line.connected && drawn % 3 != 0;
      victims.touch(uses[i], over);
      model.touch(i);
      if (over) RC_ASSERT(uses[i].carried);
    } else if (what == 4 && !line.connected) {
      const double cost = 1 + drawn % 5;
      victims.add(uses[i], cost);
      // Made now, which says when it was used last; others were used before.
      model.used(i);
      victims.touch(uses[i], false);
      model.touch(i);
      line.connected = true;
      line.cost = cost;
    } else if (what == 5 && line.connected) {  // by its peer, or the peer is lost
      if (drawn % 2 == 0) {
        victims.tear_down(uses[i], false);
        ++line.torn_down;
      }
      victims.remove(uses[i]);
      line.connected = false;
    } else {
      std::vector<bool> may(peers);
      for (std::uint32_t p = 0; p < peers; ++p) may[p] = (drawn >> p & 1u) != 0;
      ConnectionUse* const victim =
          victims.choose([&](const ConnectionUse& use) { return may[use.peer]; });
      const std::uint32_t expected = model.choose(may);
      RC_ASSERT((victim != nullptr) == (expected != UINT32_MAX));
      if (victim == nullptr) continue;
      RC_ASSERT(victim->peer == expected);
      if (what == 6) continue;
      Model::Line& gone = model.lines[expected];
      victims.tear_down(*victim, true);
      victims.remove(*victim);
      model.inflation = std::max(model.inflation, model.value(gone));
      ++gone.torn_down;
      gone.connected = false;
    }
    std::size_t connected = 0;
    for (const Model::Line& of : model.lines) connected += of.connected ? 1 : 0;
    RC_ASSERT(victims.connected().size() == connected);
    for (const ConnectionUse* const use : victims.connected()) {
      RC_ASSERT(model.lines[use->peer].connected);
    }
  }
}

}  // namespace
}  // namespace turnout
