// SPDX-License-Identifier: BSD-3-Clause
#include "provider/info.h"

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/launcher.h"
#include "base/log.h"
#include "core/memory/node_share.h"
#include "core/report/report.h"
#include "provider/address_format.h"
#include "provider/compat.h"
#include "provider/library.h"
#include "provider/service_address.h"

namespace turnout::provider {

const std::uint32_t kProviderVersion = FI_VERSION(TURNOUT_VERSION_MAJOR, TURNOUT_VERSION_MINOR);

namespace {

// libfabric's name for "any layout of the 64 tag bits": alternating bits, one field each
// (fi_endpoint(3)).
constexpr std::uint64_t kAnyTagFormat = 0xaaaaaaaaaaaaaaaaull;
constexpr std::uint64_t kOneSided = FI_RMA | FI_ATOMIC;
constexpr std::uint64_t kOrder = FI_ORDER_SAS | kAtomicOrder;
constexpr std::uint64_t kAccess = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
// OFI_CORE_PROV_ONLY of libfabric's include/ofi.h: a provider asks that would be layered over this.
constexpr std::uint64_t kForLayer = 1ULL << 59;
// What libfabric's lnx can hand on; it refuses an endpoint whose receives may have more.
constexpr std::size_t kPeerIovLimit = 4;
constexpr std::uint32_t kHighestThreading = FI_THREAD_ENDPOINT;

struct Wanted {  // the hints; zeros ask for nothing
  std::uint32_t api = 0;
  fi_info hints{};
  fi_tx_attr tx{};
  fi_rx_attr rx{};
  fi_ep_attr ep{};
  bool has_domain = false;
  fi_domain_attr domain{};
  fi_fabric_attr fabric{};
};

// fi_info's src_addr and dest_addr, in this format; empty: none.
struct Ends {
  AddressFormat format;
  std::vector<std::byte> source, destination;
};

struct Offer {
  fi_ep_type type = FI_EP_RDM;
  std::string fabric, domain;  // names
  std::uint64_t caps = 0;
  std::size_t context_size = 0, most_context_size = 0;
};

// RDMA needs DC or a connection, which this policy rules out. A program that can do without then
// emulates it over messages. Atomics are messages.
std::uint64_t offered_by(const Settings& settings, fi_ep_type type) noexcept {
  const std::uint64_t all = capabilities_of(type);
  return settings.policy == "static:ud-sendrecv" ? all & ~(FI_RMA | FI_RMA_EVENT) : all;
}

std::size_t largest_message(fi_ep_type type) noexcept {
  return type == FI_EP_DGRAM ? kMaxDatagram : kMaxMessage;
}

std::uint64_t granted(std::uint64_t asked, std::uint64_t offered) noexcept {
  if (asked == 0) return offered & ~kOnlyIfAsked;
  std::uint64_t caps = asked | FI_LOCAL_COMM | FI_REMOTE_COMM;
  // No direction named means all directions (fi_getinfo(3), primary modifiers).
  if ((caps & (FI_MSG | FI_TAGGED)) != 0 && (caps & (FI_SEND | FI_RECV)) == 0) {
    caps |= FI_SEND | FI_RECV;
  }
  if ((caps & kOneSided) != 0 && (caps & kAccess) == 0) caps |= kAccess;
  return caps;
}

// Bytes of one atomic that the order is true of: all it may have.
std::size_t ordered_size(std::uint64_t caps) noexcept {
  return (caps & FI_ATOMIC) != 0 ? kAtomicLimit : 0;
}

// The registration mode for `caps`; -1 when the program does not offer what keys need. Who is no
// target of one-sided operations has no keys.
int registration_mode(const Wanted& w, std::uint64_t caps) noexcept {
  const bool target = (caps & kOneSided) != 0 && (caps & (FI_REMOTE_READ | FI_REMOTE_WRITE)) != 0;
  if (!target) return w.api < kApi15 ? FI_MR_UNSPEC : 0;
  if (!w.has_domain) return w.api < kApi15 ? FI_MR_BASIC : kMrMode;
  const int offered = w.domain.mr_mode;
  if (w.api < kApi15) return offered == FI_MR_UNSPEC || offered == FI_MR_BASIC ? FI_MR_BASIC : -1;
  if ((offered & kMrMode) == kMrMode) return kMrMode;
  return (offered & FI_MR_BASIC) != 0 ? FI_MR_BASIC : -1;
}

using Refusal = const char*;  // null: fits

// What follows agrees with the checks of libfabric's own providers (prov/util/src/util_attr.c,
// ofi_check_info) where fi_getinfo(3) leaves a question open.

// Of either direction; the field, without the name of its structure.
template <class Attr>
Refusal check_context(const Attr& a, std::uint64_t op_flags, const Offer& offer,
                      std::uint64_t caps) noexcept {
  if ((a.caps & ~(caps | kDomainCapabilities)) != 0) return "caps beyond caps";
  if ((a.op_flags & ~op_flags) != 0) return "op_flags";
  if ((a.msg_order & ~kOrder) != 0) return "msg_order other than SAS and ATOMIC_*";
  if (a.comp_order != FI_ORDER_NONE) return "comp_order";
  if constexpr (requires { a.inject_size; }) {
    if (a.inject_size > kInjectLimit) return "inject_size";
    if (a.rma_iov_limit > kRmaIovLimit) return "rma_iov_limit";
  }
  if (a.iov_limit > kIovLimit) return "iov_limit";
  if (a.size > offer.most_context_size) return "size exceeds what TURNOUT_MEMORY_BUDGET allows";
  return nullptr;
}

Refusal check_endpoint(const Wanted& w, fi_ep_type type, std::uint64_t caps) noexcept {
  const fi_ep_attr& a = w.ep;
  if (a.protocol != FI_PROTO_UNSPEC && a.protocol != kProtocol) return "protocol";
  if (a.protocol != FI_PROTO_UNSPEC && a.protocol_version > Address::kVersion) {
    return "protocol_version";
  }
  if (a.max_msg_size > largest_message(type)) return "max_msg_size";
  const std::size_t ordered = ordered_size(caps);
  if ((caps & kOneSided) != 0 &&
      (a.max_order_raw_size > ordered || a.max_order_war_size > ordered ||
       a.max_order_waw_size > ordered)) {
    return "max_order_*_size of RMA data";
  }
  if (a.tx_ctx_cnt > 1) return "more than one transmit context, or a shared one";
  if (a.rx_ctx_cnt > 1 && a.rx_ctx_cnt != FI_SHARED_CONTEXT) return "more than one receive context";
  if (a.auth_key_size != 0) return "auth_key";
  return nullptr;
}

Refusal check_domain(const Wanted& w, const Offer& offer) noexcept {
  const fi_domain_attr& a = w.domain;
  if (a.name != nullptr && offer.domain != a.name) return "domain name";
  if (static_cast<std::uint32_t>(a.threading) > kHighestThreading) return "threading";
  if (a.av_type != FI_AV_UNSPEC && a.av_type != FI_AV_MAP && a.av_type != FI_AV_TABLE) {
    return "av_type";
  }
  // The least that the program needs: Sandia OpenSHMEM asks for 1.
  if (a.mr_key_size > sizeof(MemoryKey::remote)) return "mr_key_size";
  if (a.cq_data_size > kRemoteDataSize) return "cq_data_size";
  if (a.mr_iov_limit > 1) return "mr_iov_limit";
  if ((a.caps & ~kDomainCapabilities) != 0) return "domain_attr->caps";
  if (a.auth_key_size != 0) return "auth_key";
  // max_ep_tx_ctx and its like are no demands: the contexts that the program uses are in ep_attr.
  if (w.api < kApi15) return nullptr;
  if (a.max_err_data > kMaxErrorText) return "max_err_data";
  if (a.mr_cnt > kMaxRegions) return "mr_cnt";
  return nullptr;
}

// Empty: fits.
std::string check(const Wanted& w, const Offer& offer, std::uint64_t caps) {
  const fi_info& h = w.hints;
  const std::uint64_t missing = h.caps & ~offer.caps;
  if ((missing & ~(FI_RMA | FI_RMA_EVENT)) != 0 || (missing != 0 && offer.type == FI_EP_DGRAM)) {
    return "capabilities";
  }
  if (missing != 0) {
    return "FI_RMA needs DC or connections; the policy static:ud-sendrecv has neither";
  }
  if (!AddressFormat::is_offered(h.addr_format)) return "address format";
  if (w.fabric.name != nullptr && offer.fabric != w.fabric.name) return "fabric name";
  if (w.fabric.prov_version > kProviderVersion) return "prov_version";
  if (Refusal r = check_context(w.tx, kTxOpFlags, offer, caps))
    return fmt::format("tx_attr->{}", r);
  if (Refusal r = check_context(w.rx, kRxOpFlags, offer, caps))
    return fmt::format("rx_attr->{}", r);
  if (Refusal r = check_endpoint(w, offer.type, caps)) return r;
  const Refusal r = check_domain(w, offer);
  return r != nullptr ? r : "";
}

template <class Attr>
void fill_context(const Attr& asked, const Offer& offer, std::uint64_t caps, Attr& out) noexcept {
  out.caps = caps;
  out.op_flags = asked.op_flags;
  out.msg_order = kOrder;
  out.comp_order = FI_ORDER_NONE;
  out.size = std::max(asked.size, offer.context_size);
  out.iov_limit = kIovLimit;
}

void fill_endpoint(const Wanted& w, fi_ep_type type, std::uint64_t caps, fi_ep_attr& ep) noexcept {
  ep.type = type;
  ep.protocol = kProtocol;
  // libfabric's lnx takes the version for one of its own protocol, and refuses what is not.
  ep.protocol_version = (caps & FI_PEER) != 0 ? 1 : Address::kVersion;
  ep.max_msg_size = largest_message(type);
  ep.max_order_raw_size = ep.max_order_war_size = ep.max_order_waw_size = ordered_size(caps);
  ep.mem_tag_format = w.ep.mem_tag_format != 0 ? w.ep.mem_tag_format : kAnyTagFormat;
  ep.tx_ctx_cnt = 1;
  ep.rx_ctx_cnt = w.ep.rx_ctx_cnt == FI_SHARED_CONTEXT ? FI_SHARED_CONTEXT : 1;
}

void fill_domain(const Wanted& w, int mr_mode, fi_domain_attr& domain) noexcept {
  const fi_domain_attr& asked = w.domain;
  domain.domain = asked.domain;
  // An MPI library refuses a provider that answers another threading than it asked for.
  domain.threading = asked.threading != FI_THREAD_UNSPEC ? asked.threading : FI_THREAD_SAFE;
  domain.control_progress =
      asked.control_progress != FI_PROGRESS_UNSPEC ? asked.control_progress : FI_PROGRESS_MANUAL;
  domain.data_progress =
      asked.data_progress == FI_PROGRESS_AUTO ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
  domain.resource_mgmt = asked.resource_mgmt != FI_RM_UNSPEC ? asked.resource_mgmt : FI_RM_ENABLED;
  domain.av_type = asked.av_type;
  domain.mr_mode = mr_mode;
  domain.mr_key_size = sizeof(MemoryKey::remote);
  domain.cq_data_size = kRemoteDataSize;
  domain.cq_cnt = domain.cntr_cnt = domain.ep_cnt = kContextSize;
  domain.tx_ctx_cnt = domain.rx_ctx_cnt = kContextSize;
  domain.max_ep_tx_ctx = domain.max_ep_rx_ctx = 1;
  domain.max_ep_srx_ctx = kContextSize;
  domain.mr_iov_limit = 1;
  domain.caps = kDomainCapabilities;
  domain.max_err_data = kMaxErrorText;
  domain.mr_cnt = kMaxRegions;
  if (library().version >= kApi25) {
    auto& grown = reinterpret_cast<DomainAttr25&>(domain);
    grown.max_cntr_value = grown.max_err_cntr_value = std::numeric_limits<std::uint64_t>::max();
  }
}

// libfabric releases these with free(). False when there is no memory.
bool set_text(char*& place, const std::string& text) noexcept {
  place = ::strdup(text.c_str());
  return place != nullptr;
}

// libfabric releases it.
bool set_address(void*& place, std::size_t& length, const std::vector<std::byte>& bytes) noexcept {
  if (bytes.empty()) return true;
  place = std::malloc(bytes.size());
  if (place == nullptr) return false;
  std::memcpy(place, bytes.data(), bytes.size());
  length = bytes.size();
  return true;
}

// FI_SOCKADDR leaves the family open: that of an address which the program gives, else IPv4, or
// IPv6 of a node that has no other.
bool is_family_open(const fi_info& hints) noexcept {
  return hints.addr_format == FI_SOCKADDR && hints.src_addr == nullptr &&
         hints.dest_addr == nullptr;
}
AddressFormat format_of(const fi_info& hints) noexcept {
  if (hints.addr_format != FI_SOCKADDR) return AddressFormat(hints.addr_format);
  const void* const given = hints.src_addr != nullptr ? hints.src_addr : hints.dest_addr;
  const std::size_t length = hints.src_addr != nullptr ? hints.src_addrlen : hints.dest_addrlen;
  const bool six = given != nullptr && length >= sizeof(sockaddr_in6) &&
                   static_cast<const sockaddr*>(given)->sa_family == AF_INET6;
  return AddressFormat(six ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN);
}

// Node and service go before the hints (fi_getinfo(3)). Empty: fine.
std::string find_ends(const Question& question, const fi_info& hints, Ends& ends) {
  const bool source = (question.flags & FI_SOURCE) != 0;
  const bool asked = question.node != nullptr || question.service != nullptr;
  ends = Ends{format_of(hints), {}, {}};
  const AddressFormat& format = ends.format;
  if (question.node != nullptr && is_address_text(question.node)) {
    if (source) return "a source address (endpoints choose their own)";
    const Result<Address> named = address_of(question.node);
    if (!named.ok()) return named.status().text();
    ends.destination = format.encode(named.value());
    if (ends.destination.empty()) return "the text of an address, as an internet address";
  } else if (asked) {
    const ServiceAddress::Lookup how{.source = source,
                                     .numeric = (question.flags & FI_NUMERICHOST) != 0,
                                     .family = format.family()};
    auto found = ServiceAddress::look_up(question.node, question.service, how);
    if (!found.ok() && is_family_open(hints)) {
      ServiceAddress::Lookup six = how;
      six.family = AF_INET6;
      auto other = ServiceAddress::look_up(question.node, question.service, six);
      if (other.ok()) {
        found = std::move(other);
        ends.format = AddressFormat(FI_SOCKADDR_IN6);
      }
    }
    if (!found.ok()) return found.status().text();
    (source ? ends.source : ends.destination) = format.encode(found.value());
  }
  if (hints.src_addr != nullptr && ends.source.empty()) {
    const auto given = format.decode(hints.src_addr, hints.src_addrlen);
    if (!given.ok()) return "src_addr: " + given.status().text();
    if (!std::holds_alternative<ServiceAddress>(given.value()))
      return "src_addr: not the address of a service";
    ends.source = format.encode(given.value());
  }
  if (hints.dest_addr != nullptr && ends.destination.empty()) {
    if (format.is_own()) {
      if (hints.dest_addrlen != sizeof(Address)) return "destination address";
      const auto* const bytes = static_cast<const std::byte*>(hints.dest_addr);
      ends.destination.assign(bytes, bytes + sizeof(Address));
    } else {
      const auto given = format.decode(hints.dest_addr, hints.dest_addrlen);
      if (!given.ok()) return "dest_addr: " + given.status().text();
      ends.destination = format.encode(given.value());
    }
  }
  return "";
}

int build(const Wanted& w, const Offer& offer, std::uint64_t caps, int mr_mode, const Ends& ends,
          fi_info** result) {
  assert(library().dupinfo != nullptr);  // fi_prov_ini found the library
  InfoPtr info(library().dupinfo(nullptr));
  if (info == nullptr || info->tx_attr == nullptr || info->rx_attr == nullptr ||
      info->ep_attr == nullptr || info->domain_attr == nullptr || info->fabric_attr == nullptr) {
    return -FI_ENOMEM;
  }
  info->caps = caps;
  info->mode = 0;
  info->addr_format = ends.format.number();
  fill_context(w.tx, offer, caps & kTxCapabilities, *info->tx_attr);
  info->tx_attr->inject_size = kInjectLimit;
  info->tx_attr->rma_iov_limit = (caps & kOneSided) != 0 ? kRmaIovLimit : 0;
  info->tx_attr->tclass = FI_TC_UNSPEC;
  fill_context(w.rx, offer, caps & kRxCapabilities, *info->rx_attr);
  if ((caps & FI_PEER) != 0) info->tx_attr->iov_limit = info->rx_attr->iov_limit = kPeerIovLimit;
  fill_endpoint(w, offer.type, caps, *info->ep_attr);
  fill_domain(w, mr_mode, *info->domain_attr);
  info->fabric_attr->fabric = w.fabric.fabric;
  // prov_name stays null: libfabric fills it in.
  info->fabric_attr->prov_version = kProviderVersion;
  info->fabric_attr->api_version = w.api;
  if (!set_text(info->fabric_attr->name, offer.fabric)) return -FI_ENOMEM;
  if (!set_text(info->domain_attr->name, offer.domain)) return -FI_ENOMEM;
  if (!set_address(info->src_addr, info->src_addrlen, ends.source)) return -FI_ENOMEM;
  if (!set_address(info->dest_addr, info->dest_addrlen, ends.destination)) return -FI_ENOMEM;
  *result = info.release();
  return 0;
}

}  // namespace

const Result<Settings>& process_settings() {
  static const Result<Settings> settings = [] {
    // One warning for a job, not one for each of its processes.
    const bool first = launcher_identity().rank <= 0;
    Result<Settings> loaded = Settings::load(first ? UnknownNames::warn : UnknownNames::ignore);
    if (!loaded.ok()) {
      TURNOUT_LOG(provider, error, "loading the settings failed: {}; the provider is disabled",
                  loaded.status().text());
    }
    return loaded;
  }();
  return settings;
}

int answer(const Settings& settings, const Question& question, fi_info** result) {
  const std::uint32_t api = question.api;
  const fi_info* const hints = question.hints;
  const bool only_provider = (question.flags & FI_PROV_ATTR_ONLY) != 0;
  *result = nullptr;
  Wanted w;
  w.api = api;
  // With FI_PROV_ATTR_ONLY the hints say no more than which provider is meant (fi_getinfo(3)).
  if (!only_provider && hints != nullptr) {
    w.hints = *hints;
    if (hints->tx_attr != nullptr) w.tx = *hints->tx_attr;
    if (hints->rx_attr != nullptr) w.rx = *hints->rx_attr;
    if (hints->ep_attr != nullptr) w.ep = *hints->ep_attr;
    w.has_domain = hints->domain_attr != nullptr;
    if (w.has_domain) w.domain = *hints->domain_attr;
    if (hints->fabric_attr != nullptr) w.fabric = *hints->fabric_attr;
  }
  const std::uint64_t budget = budget_of_process(settings).bytes;
  const bool any = w.ep.type == FI_EP_UNSPEC;
  Ends ends;
  bool ends_known = only_provider;
  std::string refusal;  // the first
  fi_info** next = result;
  for (const fi_ep_type type : {FI_EP_RDM, FI_EP_MSG, FI_EP_DGRAM}) {
    if (!any && w.ep.type != type) continue;
    // libfabric's ofi_rxm and ofi_rxd would build reliable datagrams over these, and be listed
    // before the ones that are here already.
    if (type != FI_EP_RDM && (question.flags & kForLayer) != 0) continue;
    const Offer offer{type,
                      "turnout-" + settings.fabric,
                      "turnout-" + settings.device,
                      offered_by(settings, type),
                      operation_limits(budget).promised,
                      operation_limits(budget, SIZE_MAX).promised};
    std::uint64_t caps = granted(w.hints.caps, offer.caps);
    std::string why = check(w, offer, caps);
    int mr_mode = registration_mode(w, caps);
    if (mr_mode < 0 && w.hints.caps == 0) {  // neither was asked for: offer the rest
      caps &= ~(kOneSided | kAccess);
      mr_mode = registration_mode(w, caps);
    }
    if (why.empty() && mr_mode < 0) {
      why = "mr_mode without FI_MR_VIRT_ADDR, FI_MR_ALLOCATED and FI_MR_PROV_KEY";
    }
    if (why.empty() && !ends_known) {
      why = find_ends(question, w.hints, ends);
      ends_known = why.empty();
    }
    if (!why.empty()) {
      if (refusal.empty()) refusal = why;
      continue;
    }
    if (const int error = build(w, offer, caps, mr_mode, ends, next); error != 0) {
      const InfoPtr incomplete(std::exchange(*result, nullptr));
      return error;
    }
    if (only_provider) break;
    next = &(*next)->next;
  }
  if (*result != nullptr) return 0;
  if (refusal.empty()) refusal = "endpoint type";
  TURNOUT_LOG(provider, info,
              "fi_getinfo failed: hints (API {}.{}): {}; ask for no more than fi_info -v lists",
              FI_MAJOR(api), FI_MINOR(api), refusal);
  return -FI_ENODATA;
}

}  // namespace turnout::provider
