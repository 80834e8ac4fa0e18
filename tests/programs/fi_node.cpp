// SPDX-License-Identifier: BSD-3-Clause
#include "tests/programs/fi_node.h"

#include <algorithm>
#include <cstring>

namespace turnout::programs {
namespace {

void check(int code, const char* call) {
  if (code != 0) throw FiError(call, code);
}

}  // namespace

FiError::FiError(const std::string& call, int code)
    : std::runtime_error(call + ": " + fi_strerror(-code) + " (" + std::to_string(code) + ")") {}

FiNode::FiNode(const FiNodeOptions& options) : is_lnx_(options.provider == "lnx") {
  std::unique_ptr<fi_info, FreeInfo> hints(fi_allocinfo());
  if (!hints) throw FiError("fi_allocinfo", -FI_ENOMEM);
  // libfabric 1.17 has reliable datagrams over tcp as a layer of its own.
  const std::string name = options.provider == "tcp" ? "tcp;ofi_rxm" : options.provider;
  hints->fabric_attr->prov_name = strdup(name.c_str());
  hints->ep_attr->type = FI_EP_RDM;
  hints->caps = FI_MSG | FI_TAGGED;
  if (options.source) hints->caps |= FI_SOURCE | FI_DIRECTED_RECV;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  if (options.manual_progress) {
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  }
  hints->domain_attr->av_type = FI_AV_TABLE;
  hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->tx_attr->msg_order = FI_ORDER_SAS;
  hints->rx_attr->msg_order = FI_ORDER_SAS;
  fi_info* info = nullptr;
  // Providers that name themselves by an internet address stay on this host.
  const bool internet = options.provider == "tcp" && options.service.empty();
  const char* const node = internet               ? "127.0.0.1"
                           : options.node.empty() ? nullptr
                                                  : options.node.c_str();
  const char* const service = options.service.empty() ? nullptr : options.service.c_str();
  const bool source = node == nullptr ? service != nullptr : internet;
  check(fi_getinfo(FI_VERSION(1, 17), node, service, source ? FI_SOURCE : 0, hints.get(), &info),
        ("fi_getinfo for provider " + options.provider).c_str());
  info_.reset(info);

  fid_fabric* fabric = nullptr;
  check(fi_fabric(info_->fabric_attr, &fabric, nullptr), "fi_fabric");
  fabric_.reset(fabric);
  fid_domain* domain = nullptr;
  check(fi_domain(fabric, info_.get(), &domain, nullptr), "fi_domain");
  domain_.reset(domain);
  fi_av_attr av_attr{};
  av_attr.type = FI_AV_TABLE;
  fid_av* av = nullptr;
  check(fi_av_open(domain, &av_attr, &av, nullptr), "fi_av_open");
  av_.reset(av);
  fi_cq_attr cq_attr{};
  cq_attr.size = options.queue_size;
  cq_attr.format = FI_CQ_FORMAT_TAGGED;
  cq_attr.wait_obj = FI_WAIT_NONE;
  fid_cq* cq = nullptr;
  check(fi_cq_open(domain, &cq_attr, &cq, nullptr), "fi_cq_open");
  cq_.reset(cq);
  fid_ep* ep = nullptr;
  check(fi_endpoint(domain, info_.get(), &ep, nullptr), "fi_endpoint");
  ep_.reset(ep);
  check(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind of the address vector");
  check(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind of the completion queue");
  check(fi_enable(ep), "fi_enable");
}

AddressBytes FiNode::address() const {
  AddressBytes bytes{};
  std::size_t length = bytes.size();
  check(fi_getname(&ep_->fid, bytes.data(), &length), "fi_getname");
  return bytes;
}

AddressBytes FiNode::destination() const {
  AddressBytes bytes{};
  std::memcpy(bytes.data(), info_->dest_addr, std::min(bytes.size(), info_->dest_addrlen));
  return bytes;
}

std::vector<fi_addr_t> FiNode::insert(const std::vector<AddressBytes>& addresses) {
  std::vector<fi_addr_t> result;
  for (const AddressBytes& address : addresses) {
    fi_addr_t entry = FI_ADDR_NOTAVAIL;
    const int done = fi_av_insert(av_.get(), address.data(), 1, &entry, 0, nullptr);
    if (done != 1) throw FiError("fi_av_insert", done < 0 ? done : -FI_EINVAL);
    result.push_back(entry);
  }
  return result;
}

std::string FiNode::describe(const fi_cq_err_entry& entry) const {
  std::array<char, 256> buffer{};
  const char* detail =
      fi_cq_strerror(cq_.get(), entry.prov_errno, entry.err_data, buffer.data(), buffer.size());
  return std::string(fi_strerror(entry.err)) + " (" + std::to_string(entry.err) +
         "), provider: " + (detail != nullptr ? detail : "") + " (" +
         std::to_string(entry.prov_errno) + ")";
}

}  // namespace turnout::programs
