// SPDX-License-Identifier: BSD-3-Clause
// FiNode: one reliable-datagram endpoint of a libfabric provider, for test programs and benchmarks.
//
// Owns fabric, domain, address vector, completion queue and endpoint, and closes them in order. One
// thread. Failures of set-up are exceptions (FiError) that name the call; operations are called on
// ep() directly by the program, which handles their codes. Source: fi_endpoint(3), fi_tagged(3).
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <array>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace turnout::programs {

// A libfabric call that answered a negative code.
class FiError : public std::runtime_error {
 public:
  FiError(const std::string& call, int code);
};

template <class T>
struct FiClose {
  void operator()(T* object) const noexcept { fi_close(&object->fid); }
};
template <class T>
using FiHandle = std::unique_ptr<T, FiClose<T>>;

using AddressBytes = std::array<std::byte, 512>;  // large enough for every provider compared here

struct FiNodeOptions {
  std::string provider = "turnout";
  std::string service;            // the port of a server, or of the server at `node`
  std::string node;               // of a client: its server's host
  bool source = true;             // FI_SOURCE and FI_DIRECTED_RECV
  bool manual_progress = true;    // false: as the provider likes it best
  std::size_t queue_size = 1024;  // entries asked for: completions, sends, receives
};

class FiNode {
 public:
  explicit FiNode(const FiNodeOptions& options);

  [[nodiscard]] fid_ep* ep() const noexcept { return ep_.get(); }
  [[nodiscard]] fid_cq* cq() const noexcept { return cq_.get(); }
  [[nodiscard]] std::size_t inject_size() const noexcept { return info_->tx_attr->inject_size; }
  [[nodiscard]] std::size_t remote_data_size() const noexcept {
    return info_->domain_attr->cq_data_size;
  }
  // In the sources of completions: lnx of libfabric 2.5 passes on what it calls peers within.
  [[nodiscard]] int bits_beside_source() const noexcept { return is_lnx_ ? 8 : 0; }
  [[nodiscard]] AddressBytes address() const;
  [[nodiscard]] AddressBytes destination() const;  // of options.node and service
  // One address vector entry per address, in this order.
  [[nodiscard]] std::vector<fi_addr_t> insert(const std::vector<AddressBytes>& addresses);
  // What an error entry says, in words, with the provider's own text.
  [[nodiscard]] std::string describe(const fi_cq_err_entry& entry) const;

 private:
  struct FreeInfo {
    void operator()(fi_info* info) const noexcept { fi_freeinfo(info); }
  };
  const bool is_lnx_;
  std::unique_ptr<fi_info, FreeInfo> info_;
  FiHandle<fid_fabric> fabric_;
  FiHandle<fid_domain> domain_;
  FiHandle<fid_av> av_;
  FiHandle<fid_cq> cq_;
  FiHandle<fid_ep> ep_;
};

}  // namespace turnout::programs
