// SPDX-License-Identifier: BSD-3-Clause
// Address vectors: what comes in is checked, what was removed is forgotten, indices stay.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/provider/node.h"
#include "tests/support/made_up_address.h"

namespace turnout::testing {
namespace {

TEST(AddressVector, IndicesCountUpAndAddressesComeBack) {
  Node node;
  std::vector<Address> many;
  for (std::uint64_t i = 0; i < 1000; ++i) many.push_back(made_up(1u << 20 | i));
  std::vector<fi_addr_t> out(many.size());
  ASSERT_EQ(fi_av_insert(node.av, many.data(), many.size(), out.data(), 0, nullptr), 1000);
  for (std::size_t i = 0; i < many.size(); ++i) {
    ASSERT_EQ(out[i], i);
    Address back;
    std::size_t length = sizeof(back);
    ASSERT_EQ(fi_av_lookup(node.av, out[i], &back, &length), 0);
    EXPECT_EQ(length, sizeof(back));
    EXPECT_EQ(back, many[i]);
  }
  EXPECT_EQ(node.core->known_peers(), 0u) << "an address that was not used costs no peer";
  EXPECT_EQ(node.core->expected_peers, 1000u) << "but its record's memory is left free";
}

TEST(AddressVector, TableInsertsWithoutOutput) {
  Node node;
  const Address address = made_up(77);
  EXPECT_EQ(fi_av_insert(node.av, &address, 1, nullptr, 0, nullptr), 1);
  Address back;
  std::size_t length = sizeof(back);
  EXPECT_EQ(fi_av_lookup(node.av, 0, &back, &length), 0);
  EXPECT_EQ(back, address);
}

TEST(AddressVector, DamagedAddressesAreRefusedOneByOne) {
  Node node;
  std::vector<Address> many = {made_up(1), made_up(2), made_up(3)};
  many[1].lid ^= 1;  // the checksum does not agree any more
  fi_addr_t out[3] = {};
  int errors[3] = {};
  EXPECT_EQ(fi_av_insert(node.av, many.data(), 3, out, FI_SYNC_ERR, errors), 2);
  EXPECT_EQ(out[0], 0u);
  EXPECT_EQ(out[1], FI_ADDR_NOTAVAIL);
  EXPECT_EQ(out[2], 1u);
  EXPECT_EQ(errors[0], 0);
  EXPECT_EQ(errors[1], FI_EINVAL);
  EXPECT_EQ(errors[2], 0);
}

TEST(AddressVector, LookupTruncatesAndTellsTheLength) {
  Node node;
  const Address address = made_up(9);
  ASSERT_EQ(fi_av_insert(node.av, &address, 1, nullptr, 0, nullptr), 1);
  char part[16];
  std::size_t length = sizeof(part);
  EXPECT_EQ(fi_av_lookup(node.av, 0, part, &length), 0);
  EXPECT_EQ(length, sizeof(Address));
  EXPECT_EQ(std::memcmp(part, &address, sizeof(part)), 0);
  EXPECT_EQ(fi_av_lookup(node.av, 5, part, &length), -FI_EINVAL);
}

TEST(AddressVector, TextFitsTheBuffer) {
  Node node;
  const Address address = made_up(0xabcdef);
  char text[256];
  std::size_t length = sizeof(text);
  EXPECT_EQ(fi_av_straddr(node.av, &address, text, &length), text);
  EXPECT_EQ(length, std::strlen(text) + 1);
  char few[8];
  std::size_t short_length = sizeof(few);
  fi_av_straddr(node.av, &address, few, &short_length);
  EXPECT_EQ(short_length, length) << "what would be needed";
  EXPECT_EQ(std::strlen(few), sizeof(few) - 1);
}

TEST(AddressVector, RemovedAddressesAreForgottenAndTheirIndexIsUsedAgain) {
  PairOfNodes pair;
  Node other;
  int x = 1;
  ASSERT_EQ(fi_inject(pair.a.ep, &x, sizeof(x), pair.to_b), 0);
  ASSERT_EQ(fi_av_remove(pair.a.av, &pair.to_b, 1, 0), 0);
  EXPECT_EQ(fi_inject(pair.a.ep, &x, sizeof(x), pair.to_b), -FI_EINVAL);
  EXPECT_EQ(fi_av_remove(pair.a.av, &pair.to_b, 1, 0), -FI_EINVAL) << "it is gone already";
  const fi_addr_t again = pair.a.insert(other);
  EXPECT_EQ(again, pair.to_b);
  ASSERT_EQ(fi_inject(pair.a.ep, &x, sizeof(x), again), 0);
  int y = 0;
  ASSERT_EQ(fi_recv(other.ep, &y, sizeof(y), nullptr, FI_ADDR_UNSPEC, nullptr), 0);
  ASSERT_NE(other.next(), nullptr);
  EXPECT_EQ(y, 1) << "the index means the new address, not the one it had before";
}

TEST(AddressVector, SourceIsTheIndexOfTheSender) {
  Node receiver;
  std::vector<std::unique_ptr<Node>> senders;
  for (int i = 0; i < 20; ++i) {
    senders.push_back(std::make_unique<Node>());
    receiver.insert(*senders.back());
  }
  Node stranger;  // never inserted at the receiver
  const fi_addr_t from_stranger = stranger.insert(receiver);
  for (int i = 0; i < 20; ++i) {
    const fi_addr_t to = senders[static_cast<std::size_t>(i)]->insert(receiver);
    ASSERT_EQ(fi_inject(senders[static_cast<std::size_t>(i)]->ep, &i, sizeof(i), to), 0);
  }
  int x = 20;
  ASSERT_EQ(fi_inject(stranger.ep, &x, sizeof(x), from_stranger), 0);
  for (std::size_t i = 0; i < 21; ++i) {
    int got = -1;
    ASSERT_EQ(fi_recv(receiver.ep, &got, sizeof(got), nullptr, FI_ADDR_UNSPEC, nullptr), 0);
    fi_cq_tagged_entry entry;
    fi_addr_t source = 0;
    ssize_t n = -FI_EAGAIN;
    while (n == -FI_EAGAIN) n = fi_cq_readfrom(receiver.cq, &entry, 1, &source);
    ASSERT_EQ(n, 1);
    EXPECT_EQ(got, static_cast<int>(i));
    EXPECT_EQ(source, i < 20 ? i : FI_ADDR_NOTAVAIL);
  }
  // As soon as the stranger is inserted its messages have a source.
  const fi_addr_t known = receiver.insert(stranger);
  ASSERT_EQ(fi_inject(stranger.ep, &x, sizeof(x), from_stranger), 0);
  int got = 0;
  ASSERT_EQ(fi_recv(receiver.ep, &got, sizeof(got), nullptr, FI_ADDR_UNSPEC, nullptr), 0);
  fi_cq_tagged_entry entry;
  fi_addr_t source = 0;
  ssize_t n = -FI_EAGAIN;
  while (n == -FI_EAGAIN) n = fi_cq_readfrom(receiver.cq, &entry, 1, &source);
  ASSERT_EQ(n, 1);
  EXPECT_EQ(source, known);
}

TEST(AddressVector, RefusesWhatItDoesNotHave) {
  Node node;
  fid_av* av = nullptr;
  fi_av_attr attr{};
  attr.flags = FI_AV_USER_ID;
  EXPECT_EQ(fi_av_open(node.domain, &attr, &av, nullptr), -FI_EBADFLAGS);
  attr = {};
  ASSERT_EQ(fi_av_open(node.domain, &attr, &av, nullptr), 0);
  EXPECT_EQ(attr.type, FI_AV_TABLE);
  EXPECT_EQ(fi_close(&av->fid), 0);
}

TEST(AddressVector, AsynchronousInsertionReportsToTheEventQueue) {
  Node node;
  fi_eq_attr eq_attr{};
  fid_eq* eq = nullptr;
  ASSERT_EQ(fi_eq_open(node.fabric, &eq_attr, &eq, nullptr), 0);
  fi_av_attr attr{};
  attr.flags = FI_EVENT;
  fid_av* av = nullptr;
  ASSERT_EQ(fi_av_open(node.domain, &attr, &av, nullptr), 0);
  Address two[2] = {made_up(1), made_up(2)};
  two[1].check ^= 1;
  EXPECT_EQ(fi_av_insert(av, two, 2, nullptr, 0, &two), -FI_ENOEQ);
  ASSERT_EQ(fi_av_bind(av, &eq->fid, 0), 0);
  fi_addr_t out[2];
  EXPECT_EQ(fi_av_insert(av, two, 2, out, 0, &two), 0);
  std::uint32_t event = 0;
  fi_eq_entry entry{};
  EXPECT_EQ(fi_eq_read(eq, &event, &entry, sizeof(entry), 0), -FI_EAVAIL);
  fi_eq_err_entry error{};
  ASSERT_EQ(fi_eq_readerr(eq, &error, 0), ssize_t{sizeof(error)});
  EXPECT_EQ(error.data, 1u);
  EXPECT_EQ(error.err, FI_EINVAL);
  ASSERT_EQ(fi_eq_read(eq, &event, &entry, sizeof(entry), 0), ssize_t{sizeof(entry)});
  EXPECT_EQ(event, std::uint32_t{FI_AV_COMPLETE});
  EXPECT_EQ(entry.data, 1u);
  EXPECT_EQ(entry.context, &two);
  EXPECT_EQ(fi_close(&av->fid), 0);
  EXPECT_EQ(fi_close(&eq->fid), 0);
}

TEST(EventQueue, HandsOutWhatTheProgramWrites) {
  Node node;
  fi_eq_attr attr{};
  attr.flags = FI_WRITE;
  attr.wait_obj = FI_WAIT_UNSPEC;
  fid_eq* eq = nullptr;
  ASSERT_EQ(fi_eq_open(node.fabric, &attr, &eq, nullptr), 0);
  fi_eq_entry in{};
  in.data = 42;
  ASSERT_EQ(fi_eq_write(eq, FI_NOTIFY, &in, sizeof(in), 0), ssize_t{sizeof(in)});
  std::uint32_t event = 0;
  fi_eq_entry out{};
  EXPECT_EQ(fi_eq_read(eq, &event, &out, 4, 0), -FI_ETOOSMALL);
  EXPECT_EQ(fi_eq_sread(eq, &event, &out, sizeof(out), -1, FI_PEEK), ssize_t{sizeof(out)});
  EXPECT_EQ(fi_eq_read(eq, &event, &out, sizeof(out), 0), ssize_t{sizeof(out)});
  EXPECT_EQ(out.data, 42u);
  EXPECT_EQ(fi_eq_sread(eq, &event, &out, sizeof(out), 0, 0), -FI_EAGAIN);
  char text[64];
  EXPECT_NE(fi_eq_strerror(eq, ENOENT, nullptr, text, sizeof(text)), nullptr);
  EXPECT_EQ(fi_close(&eq->fid), 0);
}

}  // namespace
}  // namespace turnout::testing
