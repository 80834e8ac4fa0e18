// SPDX-License-Identifier: BSD-3-Clause
// Node: the libfabric objects of one process, made as a program makes them, for tests on the
// double.
#pragma once

#include <gtest/gtest.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/providers/fi_prov.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/types/address.h"
#include "tests/provider/loopback_endpoint.h"

extern "C" fi_provider* fi_prov_ini(void);

namespace turnout::testing {

inline fi_provider& provider() {
  static fi_provider* instance = fi_prov_ini();
  return *instance;
}

struct FreeInfo {
  void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using InfoPtr = std::unique_ptr<fi_info, FreeInfo>;

inline InfoPtr hints_for_all() {
  InfoPtr hints(fi_allocinfo());
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  return hints;
}

// 0 and an answer, or the error.
inline int ask(std::uint32_t api, const fi_info* hints, InfoPtr& out, std::uint64_t flags = 0) {
  fi_info* info = nullptr;
  const int error = provider().getinfo(api, nullptr, nullptr, flags, hints, &info);
  out.reset(info);
  return error;
}

struct NodeOptions {
  std::uint32_t api = FI_VERSION(1, 17);
  fi_cq_format format = FI_CQ_FORMAT_TAGGED;
  fi_wait_obj wait = FI_WAIT_NONE;
  fi_threading threading = FI_THREAD_DOMAIN;
  std::uint64_t caps = 0;
  std::uint64_t tx_op_flags = 0;
  std::uint64_t tx_bind = FI_TRANSMIT;
  std::uint64_t rx_bind = FI_RECV;
  const char* av_name = nullptr;
  fid_domain* domain = nullptr;  // share this one (and its fabric) instead of opening another
  std::function<void(fid_domain*, fid_ep*)> before_enable;
};

struct Node {
  explicit Node(const NodeOptions& options = {}) {
    InfoPtr hints = hints_for_all();
    hints->caps = options.caps;
    hints->tx_attr->op_flags = options.tx_op_flags;
    hints->domain_attr->threading = options.threading;
    EXPECT_EQ(ask(options.api, hints.get(), info), 0);
    if (options.domain == nullptr) {
      EXPECT_EQ(provider().fabric(info->fabric_attr, &fabric, nullptr), 0);
      fabric->api_version = options.api;  // as libfabric's fi_fabric does
      EXPECT_EQ(fi_domain(fabric, info.get(), &domain, nullptr), 0);
    } else {
      domain = options.domain;
    }
    fi_cq_attr cq_attr{};
    cq_attr.format = options.format;
    cq_attr.wait_obj = options.wait;
    EXPECT_EQ(fi_cq_open(domain, &cq_attr, &cq, nullptr), 0);
    fi_av_attr av_attr{};
    av_attr.type = FI_AV_TABLE;
    av_attr.name = options.av_name;
    EXPECT_EQ(fi_av_open(domain, &av_attr, &av, nullptr), 0);
    EXPECT_EQ(fi_endpoint(domain, info.get(), &ep, nullptr), 0);
    core = LoopbackEndpoint::alive().back();
    EXPECT_EQ(fi_ep_bind(ep, &av->fid, 0), 0);
    if (options.tx_bind != 0) {
      EXPECT_EQ(fi_ep_bind(ep, &cq->fid, options.tx_bind), 0);
    }
    if (options.rx_bind != 0) {
      EXPECT_EQ(fi_ep_bind(ep, &cq->fid, options.rx_bind), 0);
    }
    if (options.before_enable) options.before_enable(domain, ep);
    EXPECT_EQ(fi_enable(ep), 0);
  }
  ~Node() { close(); }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  void close() {
    if (ep != nullptr) {
      EXPECT_EQ(fi_close(&ep->fid), 0);
    }
    ep = nullptr;
    for (fid* other : others) EXPECT_EQ(fi_close(other), 0);
    others.clear();
    if (av != nullptr) {
      EXPECT_EQ(fi_close(&av->fid), 0);
    }
    if (cq != nullptr) {
      EXPECT_EQ(fi_close(&cq->fid), 0);
    }
    av = nullptr;
    cq = nullptr;
    if (fabric != nullptr) {
      EXPECT_EQ(fi_close(&domain->fid), 0);
      EXPECT_EQ(fi_close(&fabric->fid), 0);
    }
    fabric = nullptr;
  }

  [[nodiscard]] Address name() const {
    Address address;
    std::size_t length = sizeof(address);
    EXPECT_EQ(fi_getname(&ep->fid, &address, &length), 0);
    return address;
  }

  fi_addr_t insert(const Node& other) {
    const Address address = other.name();
    fi_addr_t result = FI_ADDR_NOTAVAIL;
    EXPECT_EQ(fi_av_insert(av, &address, 1, &result, 0, nullptr), 1);
    return result;
  }

  // The next entry, or none (nullptr) when the queue stays empty.
  std::unique_ptr<fi_cq_tagged_entry> next() {
    auto entry = std::make_unique<fi_cq_tagged_entry>();
    const ssize_t n = fi_cq_read(cq, entry.get(), 1);
    if (n == 1) return entry;
    EXPECT_EQ(n, -FI_EAGAIN);
    return nullptr;
  }

  fi_cq_err_entry next_error() {
    fi_cq_tagged_entry entry;
    EXPECT_EQ(fi_cq_read(cq, &entry, 1), -FI_EAVAIL);
    fi_cq_err_entry error{};
    EXPECT_EQ(fi_cq_readerr(cq, &error, 0), 1);
    return error;
  }

  InfoPtr info;
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_cq* cq = nullptr;
  fid_av* av = nullptr;
  fid_ep* ep = nullptr;
  std::vector<fid*> others;  // closed after the endpoint
  LoopbackEndpoint* core = nullptr;
};

// Two nodes that know each other: a.peer is b in a's vector.
struct PairOfNodes {
  explicit PairOfNodes(const NodeOptions& options = {}) : a(options), b(options) {
    to_b = a.insert(b);
    to_a = b.insert(a);
  }
  Node a, b;
  fi_addr_t to_b, to_a;
};

}  // namespace turnout::testing
