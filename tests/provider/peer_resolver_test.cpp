// SPDX-License-Identifier: BSD-3-Clause
// PeerResolver alone, with an address vector and the double of the core: what is looked up is
// remembered, what is removed is forgotten, errors are neither.
#include "provider/peer_resolver.h"

#include <gtest/gtest.h>

#include <optional>

#include "provider/av.h"
#include "tests/provider/loopback_endpoint.h"

namespace turnout::testing {
namespace {

using namespace turnout::provider;

constexpr std::uint64_t kCaps = FI_SOURCE | FI_DIRECTED_RECV;

Address made_up(std::uint64_t id) {
  Address address;
  address.id = id;
  address.seal();
  return address;
}

class PeerResolverTest : public ::testing::Test {
 protected:
  PeerResolverTest() { resolver.bind(av); }
  ~PeerResolverTest() override { faults().reset(); }

  Fabric fabric;
  Domain domain{fabric};
  AddressVector av{domain};
  LoopbackEndpoint core{{}};
  PeerResolver resolver{core, kCaps};
  PeerId peer = kAnyPeer;
};

TEST_F(PeerResolverTest, FindsAPeerAtItsFirstUseAndRemembersIt) {
  const fi_addr_t first = av.insert(made_up(1)), second = av.insert(made_up(2));
  EXPECT_EQ(core.known_peers(), 0u);
  ASSERT_EQ(resolver.find(second, peer), 0);
  EXPECT_EQ(core.peer_address(peer), made_up(2));
  faults().peer = {Code::over_budget, "no second look-up"};
  PeerId again = kAnyPeer;
  ASSERT_EQ(resolver.find(second, again), 0);
  EXPECT_EQ(again, peer);
  faults().reset();
  ASSERT_EQ(resolver.find(first, peer), 0);
  EXPECT_NE(peer, again);
  EXPECT_EQ(core.known_peers(), 2u);
}

TEST_F(PeerResolverTest, AddressesThatAreNotInTheVectorAreInvalid) {
  EXPECT_EQ(resolver.find(0, peer), -FI_EINVAL);
  ASSERT_EQ(av.insert(made_up(1)), 0u);
  EXPECT_EQ(resolver.find(1, peer), -FI_EINVAL);
  EXPECT_EQ(resolver.find(FI_ADDR_UNSPEC, peer), -FI_EINVAL);
  EXPECT_EQ(peer, kAnyPeer);
}

TEST_F(PeerResolverTest, AnErrorOfTheCoreIsReturnedAndNotRemembered) {
  const fi_addr_t address = av.insert(made_up(1));
  faults().peer = {Code::over_budget, "no memory for another peer"};
  EXPECT_EQ(resolver.find(address, peer), -FI_ENOMEM);
  EXPECT_EQ(peer, kAnyPeer);
  EXPECT_EQ(resolver.find(address, peer), 0);
}

TEST_F(PeerResolverTest, TheSourceCountsOnlyForDirectedReceives) {
  const fi_addr_t address = av.insert(made_up(1));
  EXPECT_EQ(resolver.find_source(FI_ADDR_UNSPEC, peer), 0);
  EXPECT_EQ(peer, kAnyPeer);
  EXPECT_EQ(resolver.find_source(address, peer), 0);
  EXPECT_NE(peer, kAnyPeer);
  EXPECT_EQ(resolver.find_source(7, peer), -FI_EINVAL);
  PeerResolver undirected(core, FI_SOURCE);
  undirected.bind(av);
  EXPECT_EQ(undirected.find_source(7, peer), 0);
  EXPECT_EQ(peer, kAnyPeer);
}

TEST_F(PeerResolverTest, NamesPeersOfTheVector) {
  const PeerId stranger = core.peer(made_up(9)).value();
  const fi_addr_t address = av.insert(made_up(1));
  const PeerId known = core.peer(made_up(1)).value();
  EXPECT_EQ(resolver.name_of(known), address);
  EXPECT_EQ(resolver.name_of(known), address);
  EXPECT_EQ(resolver.name_of(stranger), FI_ADDR_NOTAVAIL);
  EXPECT_EQ(resolver.name_of(kAnyPeer), FI_ADDR_NOTAVAIL);
  const fi_addr_t later = av.insert(made_up(9));
  EXPECT_EQ(resolver.name_of(stranger), later);
  PeerResolver nameless(core, FI_DIRECTED_RECV);
  nameless.bind(av);
  EXPECT_EQ(nameless.name_of(known), FI_ADDR_NOTAVAIL) << "without FI_SOURCE";
}

TEST_F(PeerResolverTest, ForgetsWhatIsRemovedFromTheVector) {
  const fi_addr_t address = av.insert(made_up(1));
  ASSERT_EQ(resolver.find(address, peer), 0);
  ASSERT_EQ(resolver.name_of(peer), address);
  ASSERT_EQ(av.remove(address), 0);
  PeerId other = kAnyPeer;
  EXPECT_EQ(resolver.find(address, other), -FI_EINVAL);
  EXPECT_EQ(resolver.name_of(peer), FI_ADDR_NOTAVAIL);
  ASSERT_EQ(av.insert(made_up(2)), address) << "the index is used again";
  ASSERT_EQ(resolver.find(address, other), 0);
  EXPECT_NE(other, peer);
  EXPECT_EQ(resolver.name_of(other), address);
}

TEST_F(PeerResolverTest, ReceiveContextsOfAnAddressAreOnePeer) {
  av.index_mask >>= 4;
  const fi_addr_t address = av.insert(made_up(1));
  ASSERT_EQ(resolver.find(address, peer), 0);
  PeerId same = kAnyPeer;
  EXPECT_EQ(resolver.find(fi_rx_addr(address, 3, 4), same), 0);
  EXPECT_EQ(same, peer);
  EXPECT_EQ(core.known_peers(), 1u);
}

TEST_F(PeerResolverTest, TellsTheCoreHowManyPeersToExpectAndLeavesTheVector) {
  ASSERT_EQ(av.insert(made_up(1)), 0u);
  std::optional<PeerResolver> second(std::in_place, core, kCaps);
  EXPECT_FALSE(second->bound());
  second->bind(av);
  EXPECT_TRUE(second->bound());
  EXPECT_EQ(core.expected_peers, 1u);
  EXPECT_EQ(av.resolvers.size(), 2u);
  second.reset();
  EXPECT_EQ(av.resolvers.size(), 1u);
  resolver.unbind();
  EXPECT_TRUE(av.resolvers.empty());
  EXPECT_EQ(resolver.name_of(0), FI_ADDR_NOTAVAIL);
}

}  // namespace
}  // namespace turnout::testing
