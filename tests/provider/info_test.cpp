// SPDX-License-Identifier: BSD-3-Clause
// What the provider answers to the hints of MPI libraries and of programs that ask for too much.
#include "provider/info.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "provider/compat.h"
#include "provider/library.h"
#include "provider/service_address.h"
#include "tests/provider/node.h"

namespace turnout::testing {
namespace {

using provider::kMrMode;

TEST(Provider, DeclaresTheVersionOfTheLibraryThatLoadsIt) {
  EXPECT_STREQ(testing::provider().name, "turnout");
  EXPECT_EQ(testing::provider().fi_version, fi_version());
  EXPECT_EQ(provider::library().version, fi_version());
}

TEST(Info, NoHintsOfferEverything) {
  constexpr std::uint32_t versions[] = {FI_VERSION(0, 0), FI_VERSION(1, 4), FI_VERSION(1, 5),
                                        FI_VERSION(1, 17), FI_VERSION(2, 5)};
  for (const std::uint32_t api : versions) {
    InfoPtr info;
    ASSERT_EQ(ask(api, nullptr, info), 0);
    EXPECT_EQ(info->caps, provider::kCapabilities & ~provider::kOnlyIfAsked);
    EXPECT_EQ(info->mode, 0u);
    EXPECT_EQ(info->ep_attr->type, FI_EP_RDM);
    EXPECT_EQ(info->domain_attr->mr_mode, api < FI_VERSION(1, 5) ? FI_MR_BASIC : kMrMode);
    EXPECT_EQ(info->domain_attr->threading, FI_THREAD_SAFE);
    EXPECT_EQ(info->domain_attr->data_progress, FI_PROGRESS_MANUAL);
    EXPECT_GE(info->tx_attr->inject_size, 128u);
    EXPECT_GT(info->ep_attr->max_msg_size, std::size_t{1} << 40);
    EXPECT_EQ(info->fabric_attr->prov_name, nullptr);
    EXPECT_EQ(info->fabric_attr->api_version, api);
    ASSERT_NE(info->next, nullptr);  // connected endpoints, and then those of datagrams
    EXPECT_EQ(info->next->ep_attr->type, FI_EP_MSG);
  }
}

// Hints as MPI libraries were seen to give them.
struct Case {
  const char* name;
  std::uint32_t api;
  std::uint64_t caps;
  std::function<void(fi_info&)> set;
  bool offered;
};

void mpich(fi_info& h) {
  h.mode = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA | FI_ASYNC_IOV;
  h.ep_attr->type = FI_EP_RDM;
  h.ep_attr->mem_tag_format = 0x00c000007fffffff;
  h.domain_attr->threading = FI_THREAD_DOMAIN;
  h.domain_attr->control_progress = FI_PROGRESS_MANUAL;
  h.domain_attr->data_progress = FI_PROGRESS_MANUAL;
  h.domain_attr->av_type = FI_AV_TABLE;
  h.domain_attr->resource_mgmt = FI_RM_ENABLED;
  h.domain_attr->cq_data_size = 4;
  h.domain_attr->mr_mode = FI_MR_ENDPOINT | kMrMode;
  h.tx_attr->op_flags = FI_COMPLETION;
  h.tx_attr->msg_order = FI_ORDER_SAS;
  h.rx_attr->msg_order = FI_ORDER_SAS;
  h.tx_attr->comp_order = FI_ORDER_NONE;
  h.rx_attr->op_flags = FI_COMPLETION;
}

void open_mpi(fi_info& h) {
  h.mode = FI_CONTEXT | FI_CONTEXT2;
  h.ep_attr->type = FI_EP_RDM;
  h.domain_attr->threading = FI_THREAD_DOMAIN;
  h.domain_attr->resource_mgmt = FI_RM_ENABLED;
  h.domain_attr->av_type = FI_AV_MAP;
  h.domain_attr->cq_data_size = 4;
  h.tx_attr->op_flags = FI_COMPLETION;
  h.tx_attr->msg_order = FI_ORDER_SAS;
  h.rx_attr->msg_order = FI_ORDER_SAS;
}

void intel_mpi(fi_info& h) {
  mpich(h);
  h.domain_attr->av_type = FI_AV_MAP;
  h.domain_attr->mr_mode = kMrMode;
  h.domain_attr->cq_data_size = 0;
  h.tx_attr->op_flags = 0;
  h.tx_attr->msg_order = 0;
  h.rx_attr->msg_order = 0;
}

constexpr std::uint64_t kMpichCaps = FI_MSG | FI_TAGGED | FI_RMA | FI_READ | FI_WRITE |
                                     FI_REMOTE_READ | FI_REMOTE_WRITE | FI_SEND | FI_RECV |
                                     FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE;
constexpr std::uint64_t kOpenMpiCaps =
    FI_MSG | FI_TAGGED | FI_DIRECTED_RECV | FI_LOCAL_COMM | FI_REMOTE_COMM;

const Case kCases[] = {
    {"MPICH", FI_VERSION(2, 5), kMpichCaps, mpich, true},
    {"MPICH delivery complete", FI_VERSION(2, 5), kMpichCaps,
     [](fi_info& h) { mpich(h), h.tx_attr->op_flags = FI_DELIVERY_COMPLETE | FI_COMPLETION; },
     true},
    {"MPICH without tags", FI_VERSION(2, 5), kMpichCaps & ~FI_TAGGED, mpich, true},
    {"MPICH own keys", FI_VERSION(2, 5), kMpichCaps,
     [](fi_info& h) { mpich(h), h.domain_attr->mr_mode = FI_MR_ENDPOINT; }, false},
    {"MPICH own keys no RMA", FI_VERSION(2, 5), FI_MSG | FI_TAGGED | FI_MULTI_RECV,
     [](fi_info& h) { mpich(h), h.domain_attr->mr_mode = FI_MR_ENDPOINT; }, true},
    {"MPICH atomics", FI_VERSION(2, 5), kMpichCaps | FI_ATOMIC,
     [](fi_info& h) { mpich(h), h.tx_attr->msg_order |= provider::kAtomicOrder; }, true},
    {"order of atomics without them", FI_VERSION(1, 17), FI_MSG,
     [](fi_info& h) { h.tx_attr->msg_order = provider::kAtomicOrder; }, true},
    {"ordered bytes without one-sided operations", FI_VERSION(1, 17), FI_MSG,
     [](fi_info& h) { h.ep_attr->max_order_raw_size = 4096; }, true},
    {"Sandia OpenSHMEM", FI_VERSION(1, 5), FI_RMA | FI_ATOMIC,
     [](fi_info& h) {
       h.ep_attr->type = FI_EP_RDM;
       h.ep_attr->tx_ctx_cnt = 0;
       h.domain_attr->mr_mode = FI_MR_BASIC;
       h.domain_attr->mr_key_size = 1;
       h.domain_attr->data_progress = FI_PROGRESS_MANUAL;
       h.domain_attr->resource_mgmt = FI_RM_ENABLED;
       h.domain_attr->threading = FI_THREAD_DOMAIN;
       h.tx_attr->inject_size = 16;
     },
     true},
    {"keys of 16 bytes", FI_VERSION(1, 17), FI_MSG,
     [](fi_info& h) { h.domain_attr->mr_key_size = 16; }, false},
    {"initiator of RMA without keys of its own", FI_VERSION(1, 17), FI_RMA | FI_READ | FI_WRITE,
     [](fi_info& h) { h.ep_attr->type = FI_EP_RDM; }, true},
    {"contexts that it does not use", FI_VERSION(1, 17), FI_MSG,
     [](fi_info& h) {
       h.domain_attr->max_ep_tx_ctx = h.domain_attr->max_ep_rx_ctx = 8;
       h.domain_attr->max_ep_stx_ctx = h.domain_attr->max_ep_srx_ctx = 1;
     },
     true},
    {"4096 operations at a time", FI_VERSION(1, 17), FI_MSG,
     [](fi_info& h) { h.tx_attr->size = h.rx_attr->size = 4096; }, true},
    {"more operations at a time than the budget has", FI_VERSION(1, 17), FI_MSG,
     [](fi_info& h) { h.tx_attr->size = std::size_t{1} << 30; }, false},
    {"more receives at a time than the budget has", FI_VERSION(1, 17), FI_MSG,
     [](fi_info& h) { h.rx_attr->size = std::size_t{1} << 30; }, false},
    {"error data of a megabyte", FI_VERSION(1, 17), FI_MSG,
     [](fi_info& h) { h.domain_attr->max_err_data = 1 << 20; }, false},
    {"more regions than keys", FI_VERSION(1, 17), FI_MSG,
     [](fi_info& h) { h.domain_attr->mr_cnt = SIZE_MAX; }, false},
    {"a later provider", FI_VERSION(1, 17), FI_MSG,
     [](fi_info& h) { h.fabric_attr->prov_version = FI_VERSION(99, 0); }, false},
    {"atomics and own keys", FI_VERSION(1, 17), FI_ATOMIC,
     [](fi_info& h) { h.domain_attr->mr_mode = FI_MR_ENDPOINT; }, false},
    {"atomics ordered with RMA", FI_VERSION(1, 17), FI_ATOMIC | FI_RMA,
     [](fi_info& h) {
       h.domain_attr->mr_mode = kMrMode;
       h.tx_attr->msg_order = FI_ORDER_RAW;
     },
     false},
    {"long ordered atomics", FI_VERSION(1, 17), FI_ATOMIC,
     [](fi_info& h) {
       h.domain_attr->mr_mode = kMrMode;
       h.ep_attr->max_order_waw_size = kAtomicLimit + 1;
     },
     false},
    {"MPICH device memory", FI_VERSION(2, 5), kMpichCaps | FI_HMEM, mpich, false},
    {"Open MPI 5", FI_VERSION(1, 18), kOpenMpiCaps, open_mpi, true},
    {"Open MPI 5 device memory", FI_VERSION(1, 18), kOpenMpiCaps | FI_HMEM, open_mpi, false},
    {"Open MPI 4", FI_VERSION(1, 5), kOpenMpiCaps, open_mpi, true},
    {"Open MPI btl", FI_VERSION(1, 18), FI_RMA | FI_ATOMIC, open_mpi, false},
    {"Intel MPI", FI_VERSION(1, 8), kMpichCaps, intel_mpi, true},
    {"Intel MPI early", FI_VERSION(0, 0), kMpichCaps,
     [](fi_info& h) { intel_mpi(h), h.domain_attr->mr_mode = FI_MR_BASIC; }, true},
    {"scalable keys, old API", FI_VERSION(1, 4), FI_RMA,
     [](fi_info& h) { h.domain_attr->mr_mode = FI_MR_SCALABLE; }, false},
    {"any keys, old API", FI_VERSION(1, 4), FI_RMA, [](fi_info&) {}, true},
    {"basic as a bit", FI_VERSION(1, 17), FI_RMA,
     [](fi_info& h) { h.domain_attr->mr_mode = FI_MR_BASIC; }, true},
    {"datagrams", FI_VERSION(1, 17), FI_MSG, [](fi_info& h) { h.ep_attr->type = FI_EP_DGRAM; },
     true},
    {"tagged datagrams", FI_VERSION(1, 17), FI_TAGGED,
     [](fi_info& h) { h.ep_attr->type = FI_EP_DGRAM; }, false},
    {"long datagrams", FI_VERSION(1, 17), FI_MSG,
     [](fi_info& h) {
       h.ep_attr->type = FI_EP_DGRAM;
       h.ep_attr->max_msg_size = provider::kMaxDatagram + 1;
     },
     false},
    {"connections", FI_VERSION(1, 17), FI_MSG, [](fi_info& h) { h.ep_attr->type = FI_EP_MSG; },
     true},
    {"remote events", FI_VERSION(1, 17), FI_RMA | FI_RMA_EVENT,
     [](fi_info& h) { h.domain_attr->mr_mode = kMrMode; }, true},
    {"automatic progress", FI_VERSION(1, 17), FI_MSG,
     [](fi_info& h) { h.domain_attr->data_progress = FI_PROGRESS_AUTO; }, true},
    {"scalable endpoint", FI_VERSION(1, 17), FI_MSG, [](fi_info& h) { h.ep_attr->tx_ctx_cnt = 2; },
     false},
    {"shared receive context", FI_VERSION(1, 17), FI_MSG,
     [](fi_info& h) { h.ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT; }, true},
    {"long inject", FI_VERSION(1, 17), FI_MSG,
     [](fi_info& h) { h.tx_attr->inject_size = kInjectLimit + 1; }, false},
    {"long vectors", FI_VERSION(1, 17), FI_MSG, [](fi_info& h) { h.rx_attr->iov_limit = 9; },
     false},
    {"remote vectors", FI_VERSION(1, 17), FI_RMA,
     [](fi_info& h) {
       h.domain_attr->mr_mode = kMrMode;
       h.tx_attr->rma_iov_limit = 2;
     },
     false},
    {"write order", FI_VERSION(1, 17), FI_MSG,
     [](fi_info& h) { h.tx_attr->msg_order = FI_ORDER_SAS | FI_ORDER_WAW; }, false},
    {"completion order", FI_VERSION(1, 17), FI_MSG,
     [](fi_info& h) { h.tx_attr->comp_order = FI_ORDER_STRICT; }, false},
    {"remote data of 16 bytes", FI_VERSION(1, 17), FI_MSG,
     [](fi_info& h) { h.domain_attr->cq_data_size = 16; }, false},
    {"addresses of sockets", FI_VERSION(1, 17), FI_MSG,
     [](fi_info& h) { h.addr_format = FI_SOCKADDR_IB; }, false},
    {"internet addresses", FI_VERSION(1, 17), FI_MSG,
     [](fi_info& h) { h.addr_format = FI_SOCKADDR_IN; }, true},
    {"receive caps beyond caps", FI_VERSION(1, 17), FI_MSG,
     [](fi_info& h) { h.rx_attr->caps = FI_TAGGED; }, false},
    {"another domain", FI_VERSION(1, 17), FI_MSG,
     [](fi_info& h) { h.domain_attr->name = strdup("eth0"); }, false},
    {"another fabric", FI_VERSION(1, 17), FI_MSG,
     [](fi_info& h) { h.fabric_attr->name = strdup("10.0.0.0/8"); }, false},
    {"authorization keys", FI_VERSION(1, 17), FI_MSG,
     [](fi_info& h) { h.ep_attr->auth_key_size = 4; }, false},
};

class Hints : public ::testing::TestWithParam<Case> {};

TEST_P(Hints, AreNegotiated) {
  const Case& c = GetParam();
  InfoPtr hints(fi_allocinfo());
  hints->caps = c.caps;
  c.set(*hints);
  InfoPtr info;
  const int error = ask(c.api, hints.get(), info);
  hints->ep_attr->auth_key_size = 0;  // there is no key for fi_freeinfo
  if (!c.offered) {
    EXPECT_EQ(error, -FI_ENODATA);
    EXPECT_EQ(info, nullptr);
    return;
  }
  ASSERT_EQ(error, 0);
  EXPECT_EQ(info->caps & c.caps, c.caps);
  EXPECT_NE(info->caps & FI_LOCAL_COMM, 0u);
  EXPECT_NE(info->caps & FI_REMOTE_COMM, 0u);
  EXPECT_EQ(info->caps & ~(c.caps | provider::kModifiers | FI_LOCAL_COMM | FI_REMOTE_COMM), 0u)
      << "no capability that was not asked for";
  EXPECT_EQ(info->mode, 0u);
  if (hints->domain_attr->threading != FI_THREAD_UNSPEC) {
    EXPECT_EQ(info->domain_attr->threading, hints->domain_attr->threading);
  }
  EXPECT_EQ(info->domain_attr->av_type, hints->domain_attr->av_type);
  EXPECT_EQ(info->domain_attr->mr_mode & FI_MR_LOCAL, 0);
  if (c.api >= FI_VERSION(1, 5)) {
    EXPECT_EQ(info->domain_attr->mr_mode & ~hints->domain_attr->mr_mode, 0)
        << "nothing is required that was not offered";
  }
  EXPECT_EQ(info->tx_attr->op_flags, hints->tx_attr->op_flags);
  EXPECT_GE(info->tx_attr->size, std::max<std::size_t>(hints->tx_attr->size, 1024));
  EXPECT_GE(info->rx_attr->size, std::max<std::size_t>(hints->rx_attr->size, 1024));
  EXPECT_GE(info->domain_attr->mr_key_size, hints->domain_attr->mr_key_size);
  const bool atomic = (c.caps & FI_ATOMIC) != 0;
  EXPECT_EQ(info->tx_attr->msg_order, FI_ORDER_SAS | provider::kAtomicOrder);
  EXPECT_EQ(info->rx_attr->msg_order, info->tx_attr->msg_order);
  EXPECT_EQ(info->ep_attr->max_order_raw_size, atomic ? kAtomicLimit : 0);
  EXPECT_EQ(info->tx_attr->caps & FI_ATOMIC, c.caps & FI_ATOMIC);
  EXPECT_EQ(info->rx_attr->caps & FI_ATOMIC, c.caps & FI_ATOMIC);
  if (hints->ep_attr->mem_tag_format != 0) {
    EXPECT_EQ(info->ep_attr->mem_tag_format, hints->ep_attr->mem_tag_format);
  }
  // libfabric can print and copy what it got.
  EXPECT_NE(fi_tostr(info.get(), FI_TYPE_INFO), nullptr);
  InfoPtr copy(fi_dupinfo(info.get()));
  ASSERT_NE(copy, nullptr);
  EXPECT_STREQ(copy->domain_attr->name, info->domain_attr->name);
}

INSTANTIATE_TEST_SUITE_P(Libraries, Hints, ::testing::ValuesIn(kCases), [](const auto& c) {
  std::string name = c.param.name;
  for (char& letter : name) {
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  }
  return name;
});

TEST(Info, WithoutKeysOfTheAdapterTheRestIsOfferedWhenNothingWasAsked) {
  InfoPtr hints(fi_allocinfo()), info;
  ASSERT_EQ(ask(FI_VERSION(1, 17), hints.get(), info), 0);
  EXPECT_EQ(info->caps & FI_RMA, 0u);
  EXPECT_NE(info->caps & FI_TAGGED, 0u);
  EXPECT_EQ(info->domain_attr->mr_mode, 0);
}

// RDMA needs DC or a connection; atomics are messages.
TEST(Info, WithDatagramsOnlyNoRmaIsOffered) {
  (void)testing::provider();  // binds libfabric
  Settings settings = Settings::defaults();
  ASSERT_TRUE(settings.set("policy", "static:ud-sendrecv").ok());
  fi_info* raw = nullptr;
  ASSERT_EQ(provider::answer(settings, {.api = FI_VERSION(1, 17)}, &raw), 0);
  const InfoPtr info(raw);
  EXPECT_EQ(info->caps & FI_RMA, 0u);
  EXPECT_EQ(info->caps & (FI_ATOMIC | FI_READ | FI_REMOTE_WRITE),
            FI_ATOMIC | FI_READ | FI_REMOTE_WRITE);
  EXPECT_NE(info->caps & FI_TAGGED, 0u);
  const InfoPtr hints = hints_for_all();
  hints->caps = FI_TAGGED | FI_RMA;
  EXPECT_EQ(provider::answer(settings, {.api = FI_VERSION(1, 17), .hints = hints.get()}, &raw),
            -FI_ENODATA);
  hints->caps = FI_TAGGED;
  ASSERT_EQ(provider::answer(settings, {.api = FI_VERSION(1, 17), .hints = hints.get()}, &raw), 0);
  const InfoPtr plain(raw);
  EXPECT_EQ(plain->caps & FI_RMA, 0u);
  hints->caps = FI_TAGGED | FI_ATOMIC;
  ASSERT_EQ(provider::answer(settings, {.api = FI_VERSION(1, 17), .hints = hints.get()}, &raw), 0);
  const InfoPtr atomic(raw);
  EXPECT_EQ(atomic->tx_attr->rma_iov_limit, 1u);
}

// What is told is promised: an endpoint of such an answer is made with room for as many.
TEST(Info, TheSizeOfContextsIsWhatTheBudgetPromises) {
  (void)testing::provider();  // binds libfabric
  Settings settings = Settings::defaults();
  ASSERT_TRUE(settings.set("memory_budget", "2MiB").ok());
  fi_info* raw = nullptr;
  ASSERT_EQ(provider::answer(settings, {.api = FI_VERSION(1, 17)}, &raw), 0);
  const InfoPtr info(raw);
  const std::size_t promised = operation_limits(2 << 20).promised;
  EXPECT_LT(promised, kContextSize);
  EXPECT_EQ(info->tx_attr->size, promised);
  EXPECT_EQ(info->rx_attr->size, promised);
  Node node;
  EXPECT_EQ(node.core->context_size(), kContextSize);
  node.info->tx_attr->size = 5000;
  fid_ep* ep = nullptr;
  ASSERT_EQ(fi_endpoint(node.domain, node.info.get(), &ep, nullptr), 0);
  EXPECT_EQ(LoopbackEndpoint::alive().back()->context_size(), 5000u);
  EXPECT_EQ(fi_close(&ep->fid), 0);
}

TEST(Info, OneDirectionStaysOneDirection) {
  InfoPtr hints = hints_for_all(), info;
  hints->caps = FI_TAGGED | FI_SEND | FI_RMA | FI_WRITE;
  ASSERT_EQ(ask(FI_VERSION(1, 17), hints.get(), info), 0);
  EXPECT_EQ(info->caps & provider::kModifiers, FI_SEND | FI_WRITE);
}

// What fi_getinfo says of a node and a service.
int ask_for(const char* node, const char* service, std::uint64_t flags, const fi_info* hints,
            InfoPtr& out) {
  fi_info* info = nullptr;
  const int error =
      testing::provider().getinfo(FI_VERSION(1, 17), node, service, flags, hints, &info);
  out.reset(info);
  return error;
}

TEST(Info, HostAndPortNameThePeer) {
  InfoPtr info;
  ASSERT_EQ(ask_for("127.0.0.1", "7471", 0, nullptr, info), 0);
  EXPECT_EQ(info->src_addr, nullptr);
  ASSERT_EQ(info->dest_addrlen, sizeof(Address));
  const auto peer = provider::ServiceAddress::decode(info->dest_addr, info->dest_addrlen);
  ASSERT_TRUE(peer.ok());
  EXPECT_EQ(peer.value().to_string(), "turnout://127.0.0.1:7471");
  ASSERT_EQ(ask_for(nullptr, "7471", 0, nullptr, info), 0);
  EXPECT_NE(info->dest_addr, nullptr) << "on this host";
}

TEST(Info, HostAndPortNameTheSource) {
  InfoPtr info;
  ASSERT_EQ(ask_for(nullptr, "7471", FI_SOURCE, nullptr, info), 0);
  EXPECT_EQ(info->dest_addr, nullptr);
  ASSERT_EQ(info->src_addrlen, sizeof(Address));
  const auto own = provider::ServiceAddress::decode(info->src_addr, info->src_addrlen);
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(own.value().port(), 7471u);
}

TEST(Info, AddressesOfTheHintsComeBack) {
  InfoPtr both, info;
  ASSERT_EQ(ask_for("127.0.0.1", "7471", FI_SOURCE, nullptr, both), 0);
  InfoPtr hints = hints_for_all();
  hints->src_addr = std::exchange(both->src_addr, nullptr);
  hints->src_addrlen = std::exchange(both->src_addrlen, 0);
  ASSERT_EQ(ask_for("127.0.0.1", "7472", 0, hints.get(), info), 0);
  ASSERT_NE(info->src_addr, nullptr);
  ASSERT_NE(info->dest_addr, nullptr);
  EXPECT_EQ(std::memcmp(info->src_addr, hints->src_addr, sizeof(Address)), 0);
  // The node goes before the hints.
  ASSERT_EQ(ask_for("127.0.0.1", "7473", FI_SOURCE, hints.get(), info), 0);
  EXPECT_NE(std::memcmp(info->src_addr, hints->src_addr, sizeof(Address)), 0);
}

TEST(Info, TheTextOfAnAddressIsANode) {
  Node node;
  const Address address = node.name();
  const std::string text = provider::text_of(address);
  InfoPtr info;
  ASSERT_EQ(ask_for(text.c_str(), nullptr, 0, nullptr, info), 0);
  ASSERT_EQ(info->dest_addrlen, sizeof(Address));
  EXPECT_EQ(std::memcmp(info->dest_addr, &address, sizeof address), 0);
  EXPECT_EQ(ask_for(text.c_str(), nullptr, FI_SOURCE, nullptr, info), -FI_ENODATA);
  std::string damaged = text;
  damaged.back() = damaged.back() == '0' ? '1' : '0';
  EXPECT_EQ(ask_for(damaged.c_str(), nullptr, 0, nullptr, info), -FI_ENODATA);
}

TEST(Info, NamesThatNobodyHasAreRefused) {
  InfoPtr info;
  EXPECT_EQ(ask_for("localhost", "7471", FI_NUMERICHOST, nullptr, info), -FI_ENODATA);
  EXPECT_EQ(ask_for("127.0.0.1", "no such service", 0, nullptr, info), -FI_ENODATA);
  EXPECT_EQ(info, nullptr);
  InfoPtr hints = hints_for_all();
  hints->src_addr = std::calloc(1, sizeof(Address));
  hints->src_addrlen = sizeof(Address);
  EXPECT_EQ(ask_for(nullptr, nullptr, 0, hints.get(), info), -FI_ENODATA) << "an endpoint's own";
}

TEST(Info, DestinationAddressIsHandedThrough) {
  Node node;
  const Address name = node.name();
  InfoPtr hints = hints_for_all(), info;
  hints->dest_addr = std::malloc(sizeof(name));
  std::memcpy(hints->dest_addr, &name, sizeof(name));
  hints->dest_addrlen = sizeof(name);
  ASSERT_EQ(ask(FI_VERSION(1, 17), hints.get(), info), 0);
  ASSERT_EQ(info->dest_addrlen, sizeof(name));
  EXPECT_EQ(std::memcmp(info->dest_addr, &name, sizeof(name)), 0);
  hints->dest_addrlen = 16;
  EXPECT_EQ(ask(FI_VERSION(1, 17), hints.get(), info), -FI_ENODATA);
}

TEST(Info, AttributeQueryAnswersOnce) {
  InfoPtr hints(fi_allocinfo()), info;
  hints->caps = FI_ATOMIC;  // is not looked at
  ASSERT_EQ(ask(FI_VERSION(1, 17), hints.get(), info, FI_PROV_ATTR_ONLY), 0);
  EXPECT_EQ(info->next, nullptr);
}

TEST(Info, CountersOfNewerLibrariesAreFullWidth) {
  if (fi_version() < FI_VERSION(2, 5)) {
    // The layout of this library ends before: what lies behind it must not be written.
    EXPECT_EQ(sizeof(fi_domain_attr), 192u);
  } else {
    InfoPtr info;
    ASSERT_EQ(ask(FI_VERSION(2, 5), nullptr, info), 0);
    const auto* grown = reinterpret_cast<provider::DomainAttr25*>(info->domain_attr);
    EXPECT_EQ(grown->max_cntr_value, ~std::uint64_t{0});
  }
}

TEST(Fabric, RefusesNamesThatAreNotOurs) {
  InfoPtr info;
  ASSERT_EQ(ask(FI_VERSION(1, 17), nullptr, info), 0);
  char other[] = "another";
  fi_fabric_attr attr = *info->fabric_attr;
  attr.name = other;
  fid_fabric* fabric = nullptr;
  EXPECT_EQ(testing::provider().fabric(&attr, &fabric, nullptr), -FI_ENODATA);
}

TEST(Fabric, ClosesAfterItsChildren) {
  Node node;
  EXPECT_EQ(fi_close(&node.fabric->fid), -FI_EBUSY);
  EXPECT_EQ(fi_close(&node.domain->fid), -FI_EBUSY);
  EXPECT_EQ(fi_close(&node.av->fid), -FI_EBUSY);
  EXPECT_EQ(fi_close(&node.cq->fid), -FI_EBUSY);
}

}  // namespace
}  // namespace turnout::testing
