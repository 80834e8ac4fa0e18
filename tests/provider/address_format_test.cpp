// SPDX-License-Identifier: BSD-3-Clause
// Programs that name endpoints by internet addresses or texts (fi_info's addr_format).
#include "provider/address_format.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/provider/node.h"

namespace turnout::testing {
namespace {

using provider::AddressFormat;
using Bytes = std::vector<char>;

// An endpoint of a format, with a vector of its own.
struct Named {
  explicit Named(std::uint32_t format) {
    InfoPtr hints = hints_for_all();
    hints->addr_format = format;
    EXPECT_EQ(ask(FI_VERSION(1, 17), hints.get(), info), 0);
    EXPECT_EQ(provider().fabric(info->fabric_attr, &fabric, nullptr), 0);
    fabric->api_version = FI_VERSION(1, 17);
    EXPECT_EQ(fi_domain(fabric, info.get(), &domain, nullptr), 0);
    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_TAGGED;
    EXPECT_EQ(fi_cq_open(domain, &cq_attr, &cq, nullptr), 0);
    fi_av_attr av_attr{};
    EXPECT_EQ(fi_av_open(domain, &av_attr, &av, nullptr), 0);
    EXPECT_EQ(fi_endpoint(domain, info.get(), &ep, nullptr), 0);
    EXPECT_EQ(fi_ep_bind(ep, &av->fid, 0), 0);
    EXPECT_EQ(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), 0);
    early = name();  // before it is enabled
    EXPECT_EQ(fi_enable(ep), 0);
  }
  ~Named() {
    for (fid* one : {&ep->fid, &av->fid, &cq->fid, &domain->fid, &fabric->fid})
      EXPECT_EQ(fi_close(one), 0);
  }
  [[nodiscard]] Bytes name() const {
    std::size_t length = 0;
    EXPECT_EQ(fi_getname(&ep->fid, nullptr, &length), -FI_ETOOSMALL);
    Bytes name(length);
    EXPECT_EQ(fi_getname(&ep->fid, name.data(), &length), 0);
    return name;
  }
  int insert(const Bytes& name, fi_addr_t& out) const {
    const char* const text = name.data();
    const bool is_text = info->addr_format == FI_ADDR_STR;
    return fi_av_insert(av, is_text ? static_cast<const void*>(&text) : text, 1, &out, 0, nullptr);
  }

  InfoPtr info;
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_cq* cq = nullptr;
  fid_av* av = nullptr;
  fid_ep* ep = nullptr;
  Bytes early;
};

class NameFormats : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(NameFormats, NameEndpointsThatExchangeThem) {
  const Named a(GetParam()), b(GetParam());
  EXPECT_EQ(b.early, b.name());
  fi_addr_t to_b = FI_ADDR_NOTAVAIL;
  ASSERT_EQ(a.insert(b.name(), to_b), 1);
  Bytes found(b.name().size());
  std::size_t length = found.size();
  ASSERT_EQ(fi_av_lookup(a.av, to_b, found.data(), &length), 0);
  EXPECT_EQ(length, found.size());
  EXPECT_EQ(found, b.name());
  char in[4] = {};
  ASSERT_EQ(fi_recv(b.ep, in, sizeof in, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
  ASSERT_EQ(fi_inject(a.ep, "abc", 4, to_b), 0);
  fi_cq_tagged_entry entry;
  EXPECT_EQ(fi_cq_read(b.cq, &entry, 1), 1);
  EXPECT_STREQ(in, "abc");
  char text[256];
  length = sizeof text;
  fi_av_straddr(a.av, found.data(), text, &length);
  EXPECT_NE(std::string(text).find(GetParam() == FI_ADDR_STR ? "turnout://" : "fi_sockaddr_in"),
            std::string::npos);
}

TEST_P(NameFormats, OtherNamesAreRefused) {
  const Named node(GetParam());
  fi_addr_t out = 0;
  Bytes wrong(sizeof(sockaddr_in6), 'x');
  wrong.back() = '\0';
  EXPECT_EQ(node.insert(wrong, out), 0);
  EXPECT_EQ(out, FI_ADDR_NOTAVAIL);
  wrong.assign(wrong.size(), '\0');
  EXPECT_EQ(node.insert(wrong, out), 0);
  EXPECT_EQ(fi_setname(&node.ep->fid, wrong.data(), wrong.size()), -FI_EOPBADSTATE) << "enabled";
}

TEST_P(NameFormats, AreShareableUnlessTheyAreOfTheInternet) {
  const Named node(GetParam());
  const std::string name = "formats/" + std::to_string(::getpid());
  fi_av_attr attr{};
  attr.name = name.c_str();
  fid_av* av = nullptr;
  const int answer = fi_av_open(node.domain, &attr, &av, nullptr);
  EXPECT_EQ(answer, GetParam() == FI_ADDR_STR ? 0 : -FI_EOPNOTSUPP);
  if (answer == 0) {
    EXPECT_EQ(fi_close(&av->fid), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, NameFormats,
                         ::testing::Values(FI_SOCKADDR_IN, FI_SOCKADDR, FI_ADDR_STR));

TEST(InternetAddresses, AreWhatFiGetinfoAnswers) {
  for (const auto& [asked, answer, host] : {std::tuple{FI_SOCKADDR, FI_SOCKADDR_IN, "127.0.0.1"},
                                            {FI_SOCKADDR, FI_SOCKADDR_IN6, "::1"},
                                            {FI_SOCKADDR_IN, FI_SOCKADDR_IN, "127.0.0.1"},
                                            {FI_SOCKADDR_IN6, FI_SOCKADDR_IN6, "::1"}}) {
    InfoPtr hints = hints_for_all();
    hints->addr_format = static_cast<std::uint32_t>(asked);
    fi_info* raw = nullptr;
    ASSERT_EQ(provider().getinfo(FI_VERSION(1, 17), host, "4711", 0, hints.get(), &raw), 0);
    const InfoPtr info(raw);
    EXPECT_EQ(info->addr_format, static_cast<std::uint32_t>(answer));
    ASSERT_EQ(info->dest_addrlen,
              answer == FI_SOCKADDR_IN ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    sockaddr_in there{};
    std::memcpy(&there, info->dest_addr, sizeof there);
    EXPECT_EQ(there.sin_port, htons(4711));
    EXPECT_EQ(info->src_addr, nullptr);
  }
}

TEST(AddressFormats, OfATextAreOneOfTwo) {
  const AddressFormat text(FI_ADDR_STR);
  const auto service = text.decode("turnout://127.0.0.1:4711");
  ASSERT_TRUE(service.ok());
  EXPECT_EQ(std::get<provider::ServiceAddress>(service.value()).port(), 4711);
  EXPECT_TRUE(text.decode("fi_sockaddr_in6://[::1]:4711").ok());
  for (const char* wrong : {"", "turnout://", "turnout://host", "turnout://host:", "http://host:1",
                            "127.0.0.1:4711", "turnout://x#00"}) {
    EXPECT_FALSE(text.decode(wrong).ok()) << wrong;
  }
}

TEST(AddressFormats, OfATextAreOfTheFamilyThatIsAsked) {
  const auto family_of = [](const char* text, int family) {
    const auto name = AddressFormat::decode_text(text, family);
    if (!name.ok()) return -1;
    const auto& service = std::get<provider::ServiceAddress>(name.value());
    return service.count == 1 ? int{service.socket()->sa_family} : -2;
  };
  EXPECT_EQ(family_of("turnout://127.0.0.1:4711", AF_INET), AF_INET);
  EXPECT_EQ(family_of("turnout://127.0.0.1:4711", AF_INET6), -1);
  EXPECT_EQ(family_of("turnout://[::1]:4711", AF_INET6), AF_INET6);
  EXPECT_EQ(family_of("turnout://[::1]:4711", AF_INET), -1);
  EXPECT_EQ(family_of("fi_sockaddr_in://localhost:4711", AF_UNSPEC), AF_INET);
  EXPECT_EQ(family_of("fi_sockaddr_in://localhost:4711", AF_INET6), -1);
  // fi_av_insertsvc without a service.
  const Named node(FI_SOCKADDR_IN);
  fi_addr_t out = 0;
  EXPECT_EQ(fi_av_insertsvc(node.av, "turnout://[::1]:4711", nullptr, &out, 0, nullptr), 0);
  EXPECT_EQ(out, FI_ADDR_NOTAVAIL);
}

TEST(AddressFormats, OfConnectionsNameTheirSockets) {
  InfoPtr hints = hints_for_all(), info;
  hints->ep_attr->type = FI_EP_MSG;
  hints->addr_format = FI_SOCKADDR_IN;
  ASSERT_EQ(ask(FI_VERSION(1, 17), hints.get(), info), 0);
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_eq* eq = nullptr;
  fid_cq* cq = nullptr;
  fid_pep* pep = nullptr;
  fid_ep *client = nullptr, *server = nullptr;
  ASSERT_EQ(provider().fabric(info->fabric_attr, &fabric, nullptr), 0);
  fabric->api_version = FI_VERSION(1, 17);
  ASSERT_EQ(fi_domain(fabric, info.get(), &domain, nullptr), 0);
  fi_eq_attr eq_attr{};
  eq_attr.wait_obj = FI_WAIT_UNSPEC;
  ASSERT_EQ(fi_eq_open(fabric, &eq_attr, &eq, nullptr), 0);
  fi_cq_attr cq_attr{};
  ASSERT_EQ(fi_cq_open(domain, &cq_attr, &cq, nullptr), 0);
  ASSERT_EQ(fi_passive_ep(fabric, info.get(), &pep, nullptr), 0);
  ASSERT_EQ(fi_pep_bind(pep, &eq->fid, 0), 0);
  ASSERT_EQ(fi_listen(pep), 0);
  sockaddr_in at{}, own{}, peer{};
  std::size_t length = sizeof at;
  ASSERT_EQ(fi_getname(&pep->fid, &at, &length), 0);
  EXPECT_EQ(length, sizeof at);
  EXPECT_EQ(at.sin_family, AF_INET);
  const auto open = [&](fi_info* of, fid_ep** ep) {
    ASSERT_EQ(fi_endpoint(domain, of, ep, nullptr), 0);
    ASSERT_EQ(fi_ep_bind(*ep, &eq->fid, 0), 0);
    ASSERT_EQ(fi_ep_bind(*ep, &cq->fid, FI_TRANSMIT | FI_RECV), 0);
  };
  open(info.get(), &client);
  ASSERT_EQ(fi_connect(client, &at, nullptr, 0), 0);
  std::uint32_t event = 0;
  fi_eq_cm_entry entry{};
  ASSERT_GT(fi_eq_sread(eq, &event, &entry, sizeof entry, 20'000, 0), 0);
  ASSERT_EQ(event, FI_CONNREQ);
  const InfoPtr request(entry.info);
  EXPECT_EQ(request->dest_addrlen, sizeof(sockaddr_in));
  open(request.get(), &server);
  ASSERT_EQ(fi_accept(server, nullptr, 0), 0);
  for (int i = 0; i < 2; ++i)
    ASSERT_GT(fi_eq_sread(eq, &event, &entry, sizeof entry, 20'000, 0), 0);
  ASSERT_EQ(fi_getpeer(client, &peer, &length), 0);
  EXPECT_EQ(peer.sin_port, at.sin_port);
  ASSERT_EQ(fi_getname(&client->fid, &own, &length), 0);
  ASSERT_EQ(fi_getpeer(server, &peer, &length), 0);
  EXPECT_EQ(peer.sin_port, own.sin_port);
  EXPECT_EQ(std::memcmp(request->dest_addr, &peer, sizeof peer), 0);
  for (fid* one :
       {&client->fid, &server->fid, &pep->fid, &cq->fid, &eq->fid, &domain->fid, &fabric->fid})
    EXPECT_EQ(fi_close(one), 0);
}

}  // namespace
}  // namespace turnout::testing
