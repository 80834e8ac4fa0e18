// SPDX-License-Identifier: BSD-3-Clause
// Profiles of endpoints and domains (fi_profile(3)).
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "core/memory/account.h"
#include "provider/compat.h"
#include "provider/profile_layout.h"
#include "tests/provider/node.h"

namespace turnout::testing {
namespace {

using provider::CqErrEntry120;
using provider::ProfileDesc;
using provider::ProfileFid;

// As fi_profile_open does.
ProfileFid* open_profile(fid* of, void* context = nullptr) {
  void* ops = nullptr;
  EXPECT_EQ(fi_open_ops(of, "fi_profile_ops", 0, &ops, context), 0);
  return reinterpret_cast<ProfileFid*>(static_cast<char*>(ops) - offsetof(ProfileFid, ops));
}

std::uint64_t read(ProfileFid* profile, std::uint32_t id) {
  std::uint64_t value = 0;
  std::size_t size = sizeof value;
  EXPECT_EQ(profile->ops->read_var(profile, id, &value, &size), 8) << id;
  return value;
}

std::vector<CqErrEntry120> read_queue(ProfileFid* profile) {
  std::vector<CqErrEntry120> queue(8);
  std::size_t size = queue.size() * sizeof queue[0];
  const ssize_t n =
      profile->ops->read_var(profile, provider::kUnexpectedQueue, queue.data(), &size);
  EXPECT_GE(n, 0);
  queue.resize(static_cast<std::size_t>(n) / sizeof queue[0]);
  return queue;
}

struct Heard {
  struct Event {
    std::uint32_t id;
    CqErrEntry120 entry;
    std::uint64_t count;  // of unexpected messages, read within the callback
  };
  static int hear(ProfileFid* profile, ProfileDesc* event, void* param, std::size_t size,
                  void* context) {
    EXPECT_EQ(size, sizeof(CqErrEntry120));
    static_cast<Heard*>(context)->events.push_back(
        {event->id, *static_cast<CqErrEntry120*>(param), read(profile, 0)});
    return 0;
  }
  std::vector<Event> events;
};

NodeOptions with_sources() {
  NodeOptions options;
  options.caps = FI_MSG | FI_TAGGED | FI_SOURCE;
  options.threading = FI_THREAD_SAFE;
  return options;
}

struct Profiles : ::testing::Test {
  void send(const std::string& text, std::uint64_t tag) {
    ASSERT_EQ(
        fi_tsenddata(nodes.a.ep, text.data(), text.size(), nullptr, 5, nodes.to_b, tag, nullptr),
        0);
    EXPECT_EQ(nodes.b.next(), nullptr);  // it arrives
  }
  void receive(std::uint64_t tag) {
    char in[16];
    ASSERT_EQ(fi_trecv(nodes.b.ep, in, sizeof in, nullptr, FI_ADDR_UNSPEC, tag, 0, nullptr), 0);
    EXPECT_NE(nodes.b.next(), nullptr);
  }
  PairOfNodes nodes{with_sources()};
};

TEST_F(Profiles, SayWhatTheyHave) {
  int context = 0;
  ProfileFid* const profile = open_profile(&nodes.b.ep->fid, &context);
  EXPECT_EQ(profile->fid.context, &context);
  std::size_t count = 0;
  EXPECT_EQ(profile->ops->query_vars(profile, nullptr, &count), 0);
  EXPECT_EQ(count, 5u);
  std::vector<ProfileDesc> list(count);
  count = 2;
  EXPECT_EQ(profile->ops->query_vars(profile, list.data(), &count), 2);
  EXPECT_EQ(count, 5u);
  EXPECT_EQ(profile->ops->query_vars(profile, list.data(), &count), 5);
  for (const ProfileDesc& one : list) {
    EXPECT_NE(one.name, nullptr);
    EXPECT_NE(one.desc, nullptr);
    if (one.datatype_sel == 0) {
      EXPECT_EQ(read(profile, one.id), 0u);
    }
  }
  EXPECT_STREQ(list[0].name, "pvar_unexp_msg_cnt");
  EXPECT_EQ(profile->ops->query_events(profile, nullptr, &count), 0);
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(profile->ops->query_events(profile, list.data(), &count), 2);
  EXPECT_EQ(list[1].id, static_cast<std::uint32_t>(provider::kUnexpectedMatched));
  EXPECT_EQ(profile->ops->query_vars(profile, list.data(), nullptr), -FI_EINVAL);
  std::uint64_t value = 0;
  std::size_t size = sizeof value;
  for (const std::uint32_t unknown : {4u, 8u, ~0u})  // FI_VAR_CONN_REQUEST, and none
    EXPECT_EQ(profile->ops->read_var(profile, unknown, &value, &size), -FI_EINVAL);
  size = 7;
  EXPECT_EQ(profile->ops->read_var(profile, 0, &value, &size), -FI_ETOOSMALL);
  EXPECT_EQ(size, 8u);
  EXPECT_EQ(profile->ops->reg_callback(profile, 2, Heard::hear, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_close(&profile->fid), 0);
}

TEST_F(Profiles, CountAndListUnexpectedMessages) {
  ProfileFid* const profile = open_profile(&nodes.b.ep->fid);
  send("first", 1);
  send("other", 2);
  EXPECT_EQ(read(profile, provider::kUnexpectedCount), 2u);
  profile->ops->start_reads(profile, 0);
  receive(1);
  EXPECT_EQ(read(profile, provider::kUnexpectedCount), 2u) << "as it was";
  EXPECT_EQ(read_queue(profile).size(), 2u);
  profile->ops->end_reads(profile, 0);
  EXPECT_EQ(read(profile, provider::kUnexpectedCount), 1u);
  const auto queue = read_queue(profile);
  ASSERT_EQ(queue.size(), 1u);
  EXPECT_EQ(queue[0].base.tag, 2u);
  EXPECT_EQ(queue[0].base.len, 5u);
  EXPECT_EQ(queue[0].base.data, 5u);
  EXPECT_EQ(queue[0].base.flags,
            static_cast<std::uint64_t>(FI_TAGGED | FI_RECV | FI_REMOTE_CQ_DATA));
  EXPECT_EQ(queue[0].src_addr, nodes.to_a);
  EXPECT_EQ(fi_close(&profile->fid), 0);
}

TEST_F(Profiles, TellOfMessagesThatComeAndGo) {
  ProfileFid* const profile = open_profile(&nodes.b.ep->fid);
  Heard heard;
  for (const std::uint32_t event : {0u, 1u})
    EXPECT_EQ(profile->ops->reg_callback(profile, event, Heard::hear, &heard), 0);
  send("hello", 7);
  receive(7);
  ASSERT_EQ(heard.events.size(), 2u);
  for (const std::uint32_t event : {0u, 1u}) {
    EXPECT_EQ(heard.events[event].id, event);
    EXPECT_EQ(heard.events[event].entry.base.tag, 7u);
    EXPECT_EQ(heard.events[event].entry.base.len, 5u);
    EXPECT_EQ(heard.events[event].entry.src_addr, nodes.to_a);
    EXPECT_EQ(heard.events[event].count, 1u - event);
  }
  profile->ops->reset(profile, 0);
  send("hello", 7);
  EXPECT_EQ(heard.events.size(), 2u);
  EXPECT_EQ(fi_close(&profile->fid), 0);
  EXPECT_FALSE(nodes.b.core->is_watched()) << "nobody is there";
  receive(7);
}

TEST_F(Profiles, OfADomainSumItsEndpoints) {
  ProfileFid* const profile = open_profile(&nodes.b.domain->fid);
  Heard heard;
  EXPECT_EQ(profile->ops->reg_callback(profile, 0, Heard::hear, &heard), 0);
  NodeOptions sharing = with_sources();
  sharing.domain = nodes.b.domain;
  Node later(sharing);
  const fi_addr_t to_later = nodes.a.insert(later);
  send("one", 1);
  ASSERT_EQ(fi_tsend(nodes.a.ep, "two", 3, nullptr, to_later, 2, nullptr), 0);
  EXPECT_EQ(later.next(), nullptr);
  EXPECT_EQ(heard.events.size(), 2u);
  EXPECT_EQ(read(profile, provider::kUnexpectedCount), 2u);
  for (Node* const node : {&nodes.b, &later}) {
    EndpointReport& report = node->core->reported;
    report.used = 3 << 20;
    report.connections.made = 2;
    report.memory.push_back(
        {.kind = std::string(name(MemoryKind::queue_pairs)), .now = 1, .peak = 1, .objects = 4});
  }
  EXPECT_EQ(read(profile, provider::kMemory), 6u);
  EXPECT_EQ(read(profile, provider::kConnectionCount), 4u);
  EXPECT_EQ(read(profile, provider::kQueueCount), 8u);
  later.close();
  EXPECT_EQ(read(profile, provider::kUnexpectedCount), 1u);
  EXPECT_EQ(fi_close(&profile->fid), 0);
}

TEST_F(Profiles, MayOutliveTheirEndpoint) {
  ProfileFid* const profile = open_profile(&nodes.b.ep->fid);
  send("hello", 7);
  EXPECT_EQ(fi_close(&nodes.b.ep->fid), 0);
  nodes.b.ep = nullptr;
  EXPECT_EQ(read(profile, provider::kUnexpectedCount), 0u);
  EXPECT_EQ(fi_close(&nodes.b.domain->fid), -FI_EBUSY);
  EXPECT_EQ(fi_close(&profile->fid), 0);
}

TEST_F(Profiles, AreNoOtherOperations) {
  void* ops = nullptr;
  EXPECT_EQ(fi_open_ops(&nodes.b.ep->fid, "other", 0, &ops, nullptr), -FI_ENOSYS);
  EXPECT_EQ(fi_open_ops(&nodes.b.ep->fid, "fi_profile_ops", 1, &ops, nullptr), -FI_EBADFLAGS);
  EXPECT_EQ(fi_open_ops(&nodes.b.cq->fid, "fi_profile_ops", 0, &ops, nullptr), -FI_ENOSYS);
}

}  // namespace
}  // namespace turnout::testing
