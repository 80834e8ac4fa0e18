// SPDX-License-Identifier: BSD-3-Clause
// The layouts of libfabric's public structures that grew after 1.17, whose headers this is built
// with.
//
// The provider is loaded by libfabric 1.17 (Debian 12) and by 2.5 (inside PyPI's wheels of MPICH
// and Open MPI). fi_info and what hangs on it is always in the layout of the running library,
// because fi_dupinfo of that library makes every one of them and its compatibility symbols convert
// what older programs pass. Entries that a program allocates itself (fi_cq_err_entry) have the
// layout of the API version which the program asked for. Plain data, any thread. Source:
// libfabric's man pages fi_domain(3), fi_cq(3), fi_mr(3), fi_av(3) and the sizes the compiler gives
// for both headers.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <cstddef>
#include <cstdint>

namespace turnout::provider {

// fi_domain(3), from libfabric 2.5 on: the members after tclass.
struct DomainAttr25 {
  fi_domain_attr base;
  std::size_t max_ep_auth_key;
  std::uint32_t max_group_id;
  std::uint64_t max_cntr_value;  // all ones: counters use their full 64 bits
  std::uint64_t max_err_cntr_value;
};

// fi_cq(3), from API 1.20 on: the source of a failed receive.
struct CqErrEntry120 {
  fi_cq_err_entry base;
  fi_addr_t src_addr;
};

// fi_mr_attr and fi_ops_av grew, too. What was added to the first is never read; callers look at
// fi_ops_av::size before they use more of the second, so a table of the old size is complete.

inline constexpr std::uint32_t kApi15 = FI_VERSION(1, 5);    // err_data_size; mr_mode as bits
inline constexpr std::uint32_t kApi120 = FI_VERSION(1, 20);  // src_addr in error entries
inline constexpr std::uint32_t kApi25 = FI_VERSION(2, 5);    // DomainAttr25

static_assert(sizeof(fi_domain_attr) == 192 && sizeof(DomainAttr25) == 224);
static_assert(offsetof(DomainAttr25, max_ep_auth_key) == 192);
static_assert(offsetof(DomainAttr25, max_cntr_value) == 208);
static_assert(sizeof(fi_cq_err_entry) == 80 && sizeof(CqErrEntry120) == 88);
static_assert(offsetof(fi_cq_err_entry, err_data_size) == 72);
static_assert(sizeof(fi_mr_attr) == 80 && sizeof(fi_ops_av) == 64);
static_assert(sizeof(fi_info) == 120 && sizeof(fi_tx_attr) == 80 && sizeof(fi_rx_attr) == 64);
static_assert(sizeof(fi_ep_attr) == 96 && sizeof(fi_fabric_attr) == 32);
static_assert(sizeof(fi_cq_tagged_entry) == 48 && sizeof(fid_ep) == 80);
static_assert(sizeof(fi_msg) == 48 && sizeof(fi_msg_tagged) == 64 && sizeof(fi_msg_rma) == 64);

}  // namespace turnout::provider
