// SPDX-License-Identifier: BSD-3-Clause
// Random schedules: endpoints send, receive, progress and rest in an order drawn from a seed, with
// channel switches forced all the time and little memory. Checked: every message exactly once,
// whole, in MPI's order per (source, tag), the budget never exceeded, nothing left over.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "tests/support/test_world.h"

namespace turnout {
namespace {

struct Stamp {
  std::uint32_t source, tag, number, length, delivery_complete;
};

class Schedule {
 public:
  Schedule(unsigned seed, const Overrides& settings)
      : seed_(seed), random_(seed), world_(2 + random_() % 3, settings, seed % 2) {}

  void play(int messages) {
    const std::size_t n = world_.size();
    for (int i = 0; i < messages; ++i) {
      const std::size_t from = random_() % n;
      std::size_t to = random_() % n;
      const auto tag = static_cast<std::uint32_t>(random_() % 3);
      plan_[to].push_back({from, tag});
      to_send_[from].push_back({to, tag});
    }
    for (int step = 0;; ++step) {
      ASSERT_LT(step, 4'000'000) << "seed " << seed_ << " hangs: " << received_ << " received, "
                                 << sent_ << " sent of " << messages << state();
      const std::size_t at = random_() % n;
      switch (random_() % 4) {
        case 0:
          send_one(at);
          break;
        case 1:
          receive_one(at);
          break;
        default:
          for (auto k = random_() % 8; k > 0; --k) world_[at].progress();
      }
      world_.clock().advance(static_cast<Nanoseconds>(random_() % 20000));
      drain(at);
      if (testing::Test::HasFatalFailure()) return;
      if (received_ == messages && sent_ == messages) break;
    }
    for (std::size_t i = 0; i < n; ++i) {
      const EndpointReport report = world_[i].report();
      EXPECT_LE(report.peak, report.budget) << "seed " << seed_;
      switches_ += report.decisions.size();
    }
  }
  [[nodiscard]] std::size_t switches() const { return switches_; }

 private:
  // Of a run that hangs: what is left where.
  std::string state() {
    std::string text;
    for (std::size_t i = 0; i < world_.size(); ++i) {
      const EndpointReport report = world_[i].report();
      text += "\n" + std::to_string(i) + ": to send " + std::to_string(to_send_[i].size()) +
              ", to receive " + std::to_string(plan_[i].size()) + ", wild " +
              std::to_string(wild_[i]) + ", unexpected now " +
              std::to_string(report.memory[6].now) + ", last decisions";
      for (std::size_t d = report.decisions.size() < 3 ? 0 : report.decisions.size() - 3;
           d < report.decisions.size(); ++d) {
        text += " [peer " + std::to_string(report.decisions[d].peer) + " " +
                report.decisions[d].outcome + "]";
      }
    }
    for (const auto& [key, buffer] : buffers_) {
      text += "\n" + std::string(buffer->receive ? "receive" : "send") + " of " +
              std::to_string(buffer->owner) + " pending";
      if (!buffer->receive) {
        Stamp stamp;
        std::memcpy(&stamp, buffer->bytes.data(), sizeof stamp);
        text += ": tag " + std::to_string(stamp.tag) + " number " + std::to_string(stamp.number) +
                " length " + std::to_string(stamp.length);
      }
    }
    return text;
  }

  struct Target {
    std::size_t peer;
    std::uint32_t tag;
  };
  struct Buffer {
    std::vector<std::byte> bytes;
    std::size_t owner = 0;
    bool receive = false;
  };

  std::size_t random_size() {
    switch (random_() % 8) {
      case 0:
        return 0;
      case 1:
        return 3900 + random_() % 250;
      case 2:
        return random_() % 70000;
      default:
        return random_() % 400;
    }
  }

  void send_one(std::size_t at) {
    auto& waiting = to_send_[at];
    if (waiting.empty()) return;
    const Target target = waiting.front();
    const Stamp stamp{static_cast<std::uint32_t>(at), target.tag,
                      numbers_[{at, target.peer, target.tag}],
                      static_cast<std::uint32_t>(random_size()), random_() % 50 == 0 ? 1u : 0u};
    auto buffer = std::make_unique<Buffer>();
    buffer->owner = at;
    buffer->bytes.resize(sizeof stamp + stamp.length);
    std::memcpy(buffer->bytes.data(), &stamp, sizeof stamp);
    std::mt19937 content(stamp.number * 7919 + stamp.source * 31 + stamp.tag);
    for (std::size_t i = sizeof stamp; i < buffer->bytes.size(); ++i) {
      buffer->bytes[i] = static_cast<std::byte>(content());
    }
    iovec pieces[2] = {{buffer->bytes.data(), buffer->bytes.size() / 2},
                       {buffer->bytes.data() + buffer->bytes.size() / 2,
                        buffer->bytes.size() - buffer->bytes.size() / 2}};
    SendRequest request;
    request.peer = world_.peer(at, target.peer);
    request.data = {pieces, 2};
    request.tagged = true;
    request.tag = target.tag;
    request.delivery_complete = stamp.delivery_complete != 0;
    request.match_complete = request.delivery_complete && stamp.number % 2 != 0;
    request.report = world_.report(at, buffer.get());
    const Status status = world_[at].send(request);
    if (status.code() == Code::again) {
      world_[at].progress();
      return;
    }
    ASSERT_TRUE(status.ok()) << "seed " << seed_ << ": " << status.text();
    ++numbers_[{at, target.peer, target.tag}];
    waiting.pop_front();
    buffers_[buffer.get()] = std::move(buffer);
  }

  void receive_one(std::size_t at) {
    auto& planned = plan_[at];
    if (planned.empty()) return;
    const Target source = planned.front();
    planned.pop_front();
    auto buffer = std::make_unique<Buffer>();
    buffer->owner = at;
    buffer->receive = true;
    buffer->bytes.resize(80000);
    iovec piece{buffer->bytes.data(), buffer->bytes.size()};
    RecvRequest request;
    // Wildcards now and then: what they take is somebody else's plan, so every planned receive of
    // this endpoint after the first wildcard is one too.
    wild_[at] = wild_[at] || random_() % 40 == 0;
    request.peer = wild_[at] ? kAnyPeer : world_.peer(at, source.peer);
    request.buffer = {&piece, 1};
    request.tagged = true;
    request.tag = source.tag;
    request.ignore = wild_[at] ? ~std::uint64_t{0} : 0;
    request.report = world_.report(at, buffer.get());
    const Status status = world_[at].recv(request);
    if (status.code() == Code::again) {
      planned.push_front(source);
      world_[at].progress();
      return;
    }
    ASSERT_TRUE(status.ok()) << "seed " << seed_ << ": " << status.text();
    buffers_[buffer.get()] = std::move(buffer);
  }

  void drain(std::size_t at) {
    CompletionQueue& queue = world_.queue(at);
    if (queue.has_error()) {
      FAIL() << "seed " << seed_ << ": " << queue.pop_error().status.text();
    }
    while (queue.size() > 0) {
      const Completion c = queue.front();
      queue.pop();
      auto found = buffers_.find(static_cast<Buffer*>(c.context));
      ASSERT_NE(found, buffers_.end()) << "seed " << seed_ << ": completed twice";
      if (found->second->receive) {
        check(at, c, found->second->bytes);
        ++received_;
      } else {
        ++sent_;
      }
      buffers_.erase(found);
      if (testing::Test::HasFatalFailure()) return;
    }
  }

  void check(std::size_t at, const Completion& c, const std::vector<std::byte>& bytes) {
    Stamp stamp{};
    ASSERT_GE(c.length, sizeof stamp);
    std::memcpy(&stamp, bytes.data(), sizeof stamp);
    ASSERT_EQ(c.length, sizeof stamp + stamp.length) << "seed " << seed_;
    ASSERT_EQ(c.tag, stamp.tag);
    ASSERT_EQ(c.source, world_.peer(at, stamp.source));
    std::mt19937 content(stamp.number * 7919 + stamp.source * 31 + stamp.tag);
    for (std::size_t i = sizeof stamp; i < c.length; ++i) {
      ASSERT_EQ(bytes[i], static_cast<std::byte>(content())) << "seed " << seed_ << " byte " << i;
    }
    // Matched in order; large messages may end in another: only what ended is known here.
    auto& seen = seen_[{stamp.source, at, stamp.tag}];
    ASSERT_TRUE(seen.insert(stamp.number).second) << "seed " << seed_ << ": twice";
    if (stamp.length + sizeof stamp <= 3900 && stamp.delivery_complete == 0) {
      auto& last = last_small_[{stamp.source, at, stamp.tag}];
      ASSERT_GE(stamp.number + 1, last) << "seed " << seed_ << ": order";
      last = stamp.number + 1;
    }
  }

  unsigned seed_;
  std::mt19937 random_;
  TestWorld world_;
  std::map<std::size_t, std::deque<Target>> plan_, to_send_;
  std::map<std::tuple<std::size_t, std::size_t, std::uint32_t>, std::uint32_t> numbers_;
  std::map<std::tuple<std::size_t, std::size_t, std::uint32_t>, std::set<std::uint32_t>> seen_;
  std::map<std::tuple<std::size_t, std::size_t, std::uint32_t>, std::uint32_t> last_small_;
  std::map<std::size_t, bool> wild_;
  std::map<Buffer*, std::unique_ptr<Buffer>> buffers_;
  int received_ = 0, sent_ = 0;
  std::size_t switches_ = 0;
};

TEST(EndpointStress, ForcedSwitchesUnderRandomSchedules) {
  std::size_t switches = 0;
  for (unsigned seed = 1; seed <= 30; ++seed) {
    Schedule run(seed, {{"test_switch_every", "7"},
                        {"credits", "4"},
                        {"ring_entries", "4"},
                        {"receive_buffers", "64"},
                        {"send_buffers", "16"},
                        {"unexpected_memory", "64KiB"}});
    run.play(600);
    if (HasFatalFailure()) return;
    switches += run.switches();
  }
  EXPECT_GT(switches, 100u);
}

// Little more than what an endpoint needs to begin.
TEST(EndpointStress, ScarceMemoryUnderRandomSchedules) {
  for (unsigned seed = 300; seed < 320; ++seed) {
    Schedule run(seed, {{"test_switch_every", "7"},
                        {"credits", "4"},
                        {"ring_entries", "4"},
                        {"receive_buffers", "32"},
                        {"control_buffers", "32"},
                        {"send_buffers", "16"},
                        {"rc_pool", "1"},
                        {"max_active_rc", "1"},
                        {"memory_budget", "1250KiB"}});
    run.play(800);
    if (HasFatalFailure()) return;
  }
}

TEST(EndpointStress, DefaultsUnderRandomSchedules) {
  for (unsigned seed = 100; seed < 110; ++seed) {
    Schedule run(seed, {{"interval", "1ms"}});
    run.play(1500);
    if (HasFatalFailure()) return;
  }
}

TEST(EndpointStress, RingAtTheFirstMessage) {
  for (unsigned seed = 200; seed < 210; ++seed) {
    Schedule run(seed, {{"policy", "rc-rdma-od"}, {"ring_entries", "2"}, {"credits", "2"}});
    run.play(800);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace turnout
