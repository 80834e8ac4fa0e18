// SPDX-License-Identifier: BSD-3-Clause
// One process asks a provider for objects and looks at what it gets: fi_getinfo, domains, address
// vectors, queues, counters, memory regions, options. Source: the man page of each call.
#include <netdb.h>
#include <netinet/in.h>
#include <sys/uio.h>

#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>

#include "tests/clients/rig.h"

namespace turnout::clients {
namespace {

constexpr std::uint32_t kApi = FI_VERSION(1, 17);

int ask(const fi_info* hints, InfoPtr& found, const char* node = nullptr,
        const char* service = nullptr, std::uint64_t flags = 0, std::uint32_t api = kApi) {
  fi_info* info = nullptr;
  const int code = fi_getinfo(api, node, service, flags, hints, &info);
  found.reset(info);
  return code;
}

void expect(int code, int wanted, const char* call) {
  require(code == wanted, std::string(call) + " answered " + std::to_string(code) + ", not " +
                              std::to_string(wanted));
}

// The fabric, domain, event queue and address vector of a test.
struct Local {
  InfoPtr info;
  FiHandle<fid_fabric> fabric;
  FiHandle<fid_domain> domain;

  explicit Local(const Run& run, const Ask& what = {}, const char* node = nullptr,
                 const char* service = nullptr, std::uint64_t flags = 0) {
    const InfoPtr hints = hints_of(run, what);
    check_offered(ask(hints.get(), info, node, service, flags), "fi_getinfo");
    fid_fabric* f = nullptr;
    check(fi_fabric(info->fabric_attr, &f, nullptr), "fi_fabric");
    fabric.reset(f);
    domain = open_domain();
  }
  [[nodiscard]] FiHandle<fid_domain> open_domain() const {
    fid_domain* d = nullptr;
    check(fi_domain(fabric.get(), info.get(), &d, nullptr), "fi_domain");
    return FiHandle<fid_domain>(d);
  }
  [[nodiscard]] FiHandle<fid_eq> eq(std::size_t size = 0, fi_wait_obj wait = FI_WAIT_UNSPEC,
                                    std::uint64_t flags = FI_WRITE) const {
    fi_eq_attr attr{};
    attr.size = size;
    attr.flags = flags;
    attr.wait_obj = wait;
    fid_eq* e = nullptr;
    check_offered(fi_eq_open(fabric.get(), &attr, &e, nullptr), "fi_eq_open");
    return FiHandle<fid_eq>(e);
  }
  [[nodiscard]] FiHandle<fid_av> av(fi_av_type type = FI_AV_UNSPEC, std::size_t count = 32,
                                    std::uint64_t flags = 0) const {
    fi_av_attr attr{};
    attr.type = type != FI_AV_UNSPEC ? type : info->domain_attr->av_type;
    attr.count = count;
    attr.flags = flags;
    fid_av* a = nullptr;
    int code = fi_av_open(domain.get(), &attr, &a, nullptr);
    // Later libfabrics have no insertion in the background, and say so in one of these ways.
    if (code == -FI_EINVAL && (flags & FI_EVENT) != 0) code = -FI_ENOSYS;
    check_offered(code, "fi_av_open");
    return FiHandle<fid_av>(a);
  }
  [[nodiscard]] FiHandle<fid_cq> cq(std::size_t size = 16, fi_wait_obj wait = FI_WAIT_NONE,
                                    fi_cq_format format = FI_CQ_FORMAT_CONTEXT) const {
    fi_cq_attr attr{};
    attr.size = size;
    attr.wait_obj = wait;
    attr.format = format;
    fid_cq* c = nullptr;
    check_offered(fi_cq_open(domain.get(), &attr, &c, nullptr), "fi_cq_open");
    return FiHandle<fid_cq>(c);
  }
  [[nodiscard]] FiHandle<fid_cntr> cntr(fi_wait_obj wait = FI_WAIT_UNSPEC) const {
    fi_cntr_attr attr{};
    attr.events = FI_CNTR_EVENTS_COMP;
    attr.wait_obj = wait;
    fid_cntr* c = nullptr;
    check_offered(fi_cntr_open(domain.get(), &attr, &c, nullptr), "fi_cntr_open");
    return FiHandle<fid_cntr>(c);
  }
};

// An enabled endpoint of that domain.
struct LocalEndpoint {
  FiHandle<fid_av> av;
  FiHandle<fid_cq> cq;
  FiHandle<fid_ep> ep;

  explicit LocalEndpoint(const Local& local) : av(local.av()), cq(local.cq()) {
    fid_ep* e = nullptr;
    check(fi_endpoint(local.domain.get(), local.info.get(), &e, nullptr), "fi_endpoint");
    ep.reset(e);
    check(fi_ep_bind(e, &av->fid, 0), "fi_ep_bind of the vector");
    check(fi_ep_bind(e, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind of the queue");
    check(fi_enable(e), "fi_enable");
  }
  [[nodiscard]] Bytes name() const {
    Bytes bytes(512);
    std::size_t size = bytes.size();
    check(fi_getname(&ep->fid, bytes.data(), &size), "fi_getname");
    bytes.resize(size);
    return bytes;
  }
};

// fi_getinfo

using Change = std::function<void(fi_info&)>;

// The hints get an answer, or -FI_ENODATA; each answer is a good one.
bool answered(const Run& run, const Change& change, const std::function<bool(const fi_info&)>& good,
              const std::string& what) {
  Ask question;
  question.more = change;
  const InfoPtr hints = hints_of(run, question);
  InfoPtr found;
  const int code = ask(hints.get(), found);
  if (code == -FI_ENODATA) return false;
  check(code, ("fi_getinfo with " + what).c_str());
  for (const fi_info* info = found.get(); info != nullptr; info = info->next) {
    require(good(*info), "the answer to " + what + " does not fit it");
  }
  return true;
}

// All sets of these bits.
void each_set(const Run& run, std::uint64_t bits, const char* what,
              const std::function<void(fi_info&, std::uint64_t)>& set,
              const std::function<bool(const fi_info&, std::uint64_t)>& good) {
  std::size_t count = 0;
  std::uint64_t some = 0;
  do {
    const std::uint64_t set_bits = some;
    count += answered(
        run, [&](fi_info& hints) { set(hints, set_bits); },
        [&](const fi_info& info) { return good(info, set_bits); },
        std::string(what) + " " + std::to_string(set_bits));
    some = (some - bits) & bits;
  } while (some != 0);
  require(count != 0, std::string("no ") + what + " is offered");
}

constexpr std::uint64_t kOrders = FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_RAS | FI_ORDER_WAR |
                                  FI_ORDER_WAW | FI_ORDER_WAS | FI_ORDER_SAR | FI_ORDER_SAW |
                                  FI_ORDER_SAS;
constexpr std::uint64_t kPrimary = FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC | FI_MULTICAST |
                                   FI_NAMED_RX_CTX | FI_DIRECTED_RECV | FI_VARIABLE_MSG | FI_HMEM |
                                   FI_COLLECTIVE;
constexpr std::uint64_t kModifiers =
    FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

bool has(std::uint64_t value, std::uint64_t bits) {
  return (value & bits) == bits;
}

void getinfo_orders(const Run& run, bool send) {
  each_set(
      run, kOrders, "message order",
      [send](fi_info& hints, std::uint64_t bits) {
        hints.caps = FI_MSG | FI_RMA;
        (send ? hints.tx_attr->msg_order : hints.rx_attr->msg_order) = bits;
      },
      [send](const fi_info& info, std::uint64_t bits) {
        return has(send ? info.tx_attr->msg_order : info.rx_attr->msg_order, bits);
      });
}

void getinfo_order_sizes(const Run& run) {
  struct Order {
    std::uint64_t bit;
    std::size_t fi_ep_attr::*size;
  };
  const Order orders[] = {{FI_ORDER_RAW, &fi_ep_attr::max_order_raw_size},
                          {FI_ORDER_WAR, &fi_ep_attr::max_order_war_size},
                          {FI_ORDER_WAW, &fi_ep_attr::max_order_waw_size}};
  for (const Order& order : orders) {
    std::size_t offered = 0;
    const auto change = [&](fi_info& hints) {
      hints.caps = FI_MSG | FI_RMA;
      hints.tx_attr->msg_order = hints.rx_attr->msg_order = order.bit;
    };
    const auto keep = [&](const fi_info& info) {
      offered = info.ep_attr->*order.size;
      return offered > 0;
    };
    if (!answered(run, change, keep, "an order")) continue;
    if (offered == SIZE_MAX) continue;
    const auto beyond = [&](fi_info& hints) {
      change(hints);
      hints.ep_attr->*order.size = offered + 1;
    };
    require(!answered(
                run, beyond, [](const fi_info&) { return true; }, "an ordered size"),
            "more ordered bytes than there are were offered");
  }
}

void getinfo_caps(const Run& run) {
  each_set(
      run, kPrimary, "capability", [](fi_info& hints, std::uint64_t bits) { hints.caps = bits; },
      [](const fi_info& info, std::uint64_t bits) {
        const std::uint64_t sender = FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC;
        return has(info.caps, bits) && (info.tx_attr->caps & ~info.caps) == 0 &&
               (info.rx_attr->caps & ~info.caps) == 0 && has(info.tx_attr->caps, bits & sender) &&
               has(info.rx_attr->caps, bits & (sender | FI_DIRECTED_RECV)) &&
               (bits == 0 || (info.caps & kPrimary & ~FI_DIRECTED_RECV & ~bits) == 0);
      });
}

void getinfo_modifiers(const Run& run) {
  each_set(
      run, kModifiers, "direction",
      [](fi_info& hints, std::uint64_t bits) { hints.caps = FI_MSG | FI_RMA | bits; },
      [](const fi_info& info, std::uint64_t bits) { return has(info.caps, bits); });
}

void getinfo_mr_modes(const Run& run) {
  const std::uint64_t bits = FI_MR_LOCAL | FI_MR_RAW | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED |
                             FI_MR_PROV_KEY | FI_MR_MMU_NOTIFY | FI_MR_RMA_EVENT | FI_MR_ENDPOINT |
                             FI_MR_HMEM | FI_MR_COLLECTIVE;
  for (const std::uint64_t caps : {std::uint64_t{FI_MSG}, std::uint64_t{FI_MSG | FI_RMA}}) {
    each_set(
        run, bits, "registration mode",
        [caps](fi_info& hints, std::uint64_t mode) {
          hints.caps = caps;
          hints.domain_attr->mr_mode = static_cast<int>(mode);
        },
        [](const fi_info& info, std::uint64_t mode) {
          return (static_cast<std::uint64_t>(info.domain_attr->mr_mode) & ~mode) == 0;
        });
  }
}

// FI_MR_BASIC, FI_MR_SCALABLE and FI_MR_UNSPEC, and what a program of the first API gets for them.
void getinfo_mr_old(const Run& run) {
  for (const std::uint32_t api :
       {std::uint32_t{FI_VERSION(1, 0)}, std::uint32_t{FI_VERSION(1, 4)}, kApi}) {
    for (const int mode : {FI_MR_BASIC, FI_MR_SCALABLE, FI_MR_UNSPEC}) {
      Ask question;
      question.caps = FI_MSG | FI_RMA;
      question.more = [mode](fi_info& hints) { hints.domain_attr->mr_mode = mode; };
      const InfoPtr hints = hints_of(run, question);
      InfoPtr found;
      const int code = ask(hints.get(), found, nullptr, nullptr, 0, api);
      if (code == -FI_ENODATA) continue;
      check(code, "fi_getinfo");
      for (const fi_info* info = found.get(); info != nullptr; info = info->next) {
        const int got = info->domain_attr->mr_mode;
        if (mode != FI_MR_UNSPEC && (api < FI_VERSION(1, 5) || mode != FI_MR_SCALABLE)) {
          require(got == mode || got == 0, "another registration mode was answered");
        }
        if (mode == FI_MR_UNSPEC && api < FI_VERSION(1, 5)) {
          require(got == FI_MR_BASIC || got == FI_MR_SCALABLE,
                  "the registration mode was left open");
        }
      }
    }
  }
}

void getinfo_progress(const Run& run) {
  for (const fi_progress control : {FI_PROGRESS_UNSPEC, FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL}) {
    for (const fi_progress data : {FI_PROGRESS_UNSPEC, FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL}) {
      answered(
          run,
          [=](fi_info& hints) {
            hints.domain_attr->control_progress = control;
            hints.domain_attr->data_progress = data;
          },
          [=](const fi_info& info) {  // who has a thread may be given to who can do without
            return (data != FI_PROGRESS_AUTO || info.domain_attr->data_progress == data) &&
                   (control != FI_PROGRESS_AUTO || info.domain_attr->control_progress == control) &&
                   info.domain_attr->data_progress != FI_PROGRESS_UNSPEC;
          },
          "progress");
    }
  }
}

template <class T, std::size_t kCount>
void getinfo_domain_value(const Run& run, T fi_domain_attr::*member,
                          const std::array<T, kCount>& values, bool only) {
  std::size_t count = 0;
  for (const T value : values) {
    count += answered(
        run, [=](fi_info& hints) { hints.domain_attr->*member = value; },
        [=](const fi_info& info) { return !only || info.domain_attr->*member == value; },
        "the value " + std::to_string(static_cast<int>(value)));
  }
  require(count != 0, "no value is offered");
}

void getinfo_ep_types(const Run& run) {
  std::size_t count = 0;
  for (const fi_ep_type type : {FI_EP_MSG, FI_EP_DGRAM, FI_EP_RDM}) {
    const InfoPtr hints = hints_of(run, {type, 0, {}});
    InfoPtr found;
    const int code = ask(hints.get(), found);
    if (code == -FI_ENODATA) continue;
    check(code, "fi_getinfo");
    ++count;
    for (const fi_info* info = found.get(); info != nullptr; info = info->next) {
      require(info->ep_attr->type == type, "an endpoint of another type was answered");
    }
  }
  require(count != 0, "no type is offered");
}

void getinfo_no_hints(const Run& run) {
  InfoPtr found;
  check(ask(nullptr, found), "fi_getinfo without hints");
  std::set<std::string> names;
  for (const fi_info* info = found.get(); info != nullptr; info = info->next) {
    require(info->fabric_attr != nullptr && info->fabric_attr->prov_name != nullptr &&
                info->domain_attr != nullptr && info->tx_attr != nullptr &&
                info->rx_attr != nullptr && info->ep_attr != nullptr,
            "an answer is incomplete");
    require((info->tx_attr->caps & ~info->caps) == 0 && (info->rx_attr->caps & ~info->caps) == 0,
            "a context has capabilities beyond those of the whole");
    names.insert(info->fabric_attr->prov_name);
  }
  require(names.contains(run.provider), "the provider is not among the answers");
}

void getinfo_name(const Run& run, bool fabric) {
  const bool offered = answered(
      run,
      [fabric](fi_info& hints) {
        (fabric ? hints.fabric_attr->name : hints.domain_attr->name) = strdup("no such name");
      },
      [](const fi_info&) { return true; }, "a made-up name");
  require(!offered, "an answer has a made-up name");
  // What it is called it is found by.
  Local local(run);
  require(
      answered(
          run,
          [&](fi_info& hints) {
            (fabric ? hints.fabric_attr->name : hints.domain_attr->name) =
                strdup(fabric ? local.info->fabric_attr->name : local.info->domain_attr->name);
          },
          [&](const fi_info& info) {
            return fabric ? std::strcmp(info.fabric_attr->name, local.info->fabric_attr->name) == 0
                          : std::strcmp(info.domain_attr->name, local.info->domain_attr->name) == 0;
          },
          "its name"),
      "it is not found by its own name");
}

void getinfo_ends(const Run& run, bool source, bool destination) {
  const InfoPtr hints = hints_of(run, {});
  InfoPtr found;
  const std::string other = std::to_string(std::stoi(run.port) + 1);
  if (source) {
    check_offered(ask(hints.get(), found, run.host.c_str(), run.port.c_str(), FI_SOURCE),
                  "fi_getinfo with FI_SOURCE");
    require(found->src_addr != nullptr && found->src_addrlen != 0, "no source address");
  }
  if (source && destination) {  // the source in the hints, the other end by name
    hints->src_addr = found->src_addr;
    hints->src_addrlen = found->src_addrlen;
    hints->addr_format = found->addr_format;
    InfoPtr both;
    const int code = ask(hints.get(), both, run.host.c_str(), other.c_str());
    hints->src_addr = nullptr;
    check_offered(code, "fi_getinfo with both ends");
    require(both->src_addrlen != 0 && both->dest_addrlen != 0, "an end is missing");
    require(both->src_addrlen == found->src_addrlen &&
                std::memcmp(both->src_addr, found->src_addr, both->src_addrlen) == 0,
            "the source address is another");
  } else if (destination) {
    check_offered(ask(hints.get(), found, run.host.c_str(), run.port.c_str()),
                  "fi_getinfo of host and port");
    require(found->dest_addr != nullptr && found->dest_addrlen != 0, "no destination address");
    // And the same as a hint.
    hints->dest_addr = found->dest_addr;
    hints->dest_addrlen = found->dest_addrlen;
    hints->addr_format = found->addr_format;
    InfoPtr again;
    const int code = ask(hints.get(), again);
    hints->dest_addr = nullptr;
    check(code, "fi_getinfo with dest_addr");
    require(again->dest_addrlen == found->dest_addrlen &&
                std::memcmp(again->dest_addr, found->dest_addr, again->dest_addrlen) == 0,
            "the destination address is another");
  }
}

// Only a service: any interface's; only a node: any port's.
void getinfo_half_end(const Run& run, bool node) {
  const InfoPtr hints = hints_of(run, {});
  InfoPtr found;
  check_offered(ask(hints.get(), found, node ? run.host.c_str() : nullptr,
                    node ? nullptr : run.port.c_str(), FI_SOURCE),
                "fi_getinfo with half a source");
  require(found->src_addrlen != 0, "no source address");
}

void getinfo_bad_node(const Run& run) {
  const InfoPtr hints = hints_of(run, {});
  InfoPtr found;
  const int known = ask(hints.get(), found, run.host.c_str(), run.port.c_str());
  check_offered(known, "fi_getinfo of host and port");
  const int code = ask(hints.get(), found, "no-such-host.invalid", run.port.c_str());
  require(code == -FI_ENODATA, "a host that does not exist was found");
  const int numeric = ask(hints.get(), found, "localhost", run.port.c_str(), FI_NUMERICHOST);
  require(numeric < 0, "with FI_NUMERICHOST a name was looked up");
  check(ask(hints.get(), found, "127.0.0.1", run.port.c_str(), FI_NUMERICHOST),
        "fi_getinfo of a numeric host");
}

void getinfo_versions(const Run& run) {
  for (unsigned minor = 0; minor <= FI_MINOR(kApi); ++minor) {
    const InfoPtr hints = hints_of(run, {FI_EP_RDM, FI_MSG, [minor](fi_info& h) {
                                           if (minor < 5) h.domain_attr->mr_mode = FI_MR_UNSPEC;
                                         }});
    InfoPtr found;
    const std::uint32_t api = FI_VERSION(1, minor);
    const int code = ask(hints.get(), found, nullptr, nullptr, 0, api);
    check(code, ("fi_getinfo of API 1." + std::to_string(minor)).c_str());
    require(found->fabric_attr->api_version == api, "another API version was answered");
  }
  InfoPtr found;
  require(ask(nullptr, found, nullptr, nullptr, 0, FI_VERSION(9, 0)) == -FI_ENOSYS,
          "an API of the future was answered");
}

// What was answered is a question with an answer.
void getinfo_again(const Run& run) {
  const InfoPtr hints = hints_of(run, {FI_EP_RDM, 0, {}});
  InfoPtr found, again;
  check(ask(hints.get(), found), "fi_getinfo");
  for (fi_info* info = found.get(); info != nullptr; info = info->next) {
    check(ask(info, again), "fi_getinfo with its own answer");
    require(has(again->caps, info->caps), "the second answer has fewer capabilities");
  }
}

void getinfo_only_provider(const Run& run) {
  const InfoPtr hints = hints_of(run, {});
  InfoPtr found;
  check(ask(hints.get(), found, nullptr, nullptr, FI_PROV_ATTR_ONLY), "fi_getinfo");
  require(found->fabric_attr->prov_name != nullptr, "no provider's name");
}

void getinfo_excluded(const Run& run) {
  Ask question;
  question.more = [&](fi_info& hints) {
    std::free(hints.fabric_attr->prov_name);
    hints.fabric_attr->prov_name = strdup(("^" + run.provider).c_str());
  };
  const InfoPtr hints = hints_of(run, question);
  InfoPtr found;
  const int code = ask(hints.get(), found);
  if (code == -FI_ENODATA) return;
  check(code, "fi_getinfo");
  for (const fi_info* info = found.get(); info != nullptr; info = info->next) {
    require(info->fabric_attr->prov_name != run.provider, "the excluded provider answered");
  }
}

void getinfo_modes(const Run& run) {
  each_set(
      run,
      FI_CONTEXT | FI_CONTEXT2 | FI_MSG_PREFIX | FI_ASYNC_IOV | FI_RX_CQ_DATA | FI_LOCAL_MR |
          FI_NOTIFY_FLAGS_ONLY | FI_RESTRICTED_COMP,
      "mode", [](fi_info& hints, std::uint64_t bits) { hints.mode = bits; },
      [](const fi_info& info, std::uint64_t bits) { return (info.mode & ~bits) == 0; });
}

// Sizes: as much as is told is offered, more is not.
void getinfo_limits(const Run& run) {
  Local local(run);
  const auto asked = [&](const Change& change) {
    return answered(
        run, change, [](const fi_info&) { return true; }, "a limit");
  };
  const fi_info& has_now = *local.info;
  const std::size_t inject = has_now.tx_attr->inject_size, parts = has_now.tx_attr->iov_limit;
  const std::size_t longest = has_now.ep_attr->max_msg_size;
  require(asked([=](fi_info& h) { h.tx_attr->inject_size = inject; }), "its inject size");
  require(asked([=](fi_info& h) { h.tx_attr->iov_limit = parts; }), "its limit of segments");
  require(asked([=](fi_info& h) { h.ep_attr->max_msg_size = longest; }), "its longest message");
  require(!asked([=](fi_info& h) { h.tx_attr->inject_size = inject + 1; }), "more to inject");
  require(!asked([=](fi_info& h) { h.tx_attr->iov_limit = parts + 1; }), "more segments");
  require(longest == SIZE_MAX || !asked([=](fi_info& h) { h.ep_attr->max_msg_size = longest + 1; }),
          "longer messages");
}

// Address vectors

struct Addresses {
  std::vector<LocalEndpoint> endpoints;  // who are named
  Bytes bytes;
  std::size_t size = 0;

  explicit Addresses(const Local& local, std::size_t good) {
    for (std::size_t i = 0; i < good; ++i) {
      endpoints.emplace_back(local);
      const Bytes name = endpoints.back().name();
      size = name.size();
      bytes.insert(bytes.end(), name.begin(), name.end());
    }
  }
  // Nobody has the name of zeros.
  void add_bad() { bytes.resize(bytes.size() + size); }
};

constexpr fi_addr_t kOpen = FI_ADDR_NOTAVAIL;

void av_open_close(const Run& run, fi_av_type type) {
  Local local(run);
  for (std::size_t count = 1; count <= 65536; count *= 2) {
    static_cast<void>(local.av(type, count));
  }
}

void av_insert(const Run& run, fi_av_type type, std::size_t good, bool bad, std::uint64_t flags) {
  Local local(run);
  Addresses names(local, good == 0 ? 1 : good);
  if (good == 0) names.bytes.clear();
  if (bad) names.add_bad();
  const std::size_t count = good + bad;
  std::vector<fi_addr_t> at(count, bad ? 0 : kOpen);
  std::vector<int> errors(count, 99);
  const auto av = local.av(type);
  const int done = fi_av_insert(av.get(), names.bytes.data(), count, at.data(), flags,
                                (flags & FI_SYNC_ERR) != 0 ? errors.data() : nullptr);
  expect(done, static_cast<int>(good), "fi_av_insert");
  for (std::size_t i = 0; i < count; ++i) {
    require((at[i] != kOpen) == (i < good),
            "the address " + std::to_string(i) + " is at a wrong place");
    if ((flags & FI_SYNC_ERR) != 0) require((errors[i] == 0) == (i < good), "a wrong error");
    if (i < good && type == FI_AV_TABLE) require(at[i] == i, "a table's index is another");
    if (i >= good) continue;
    Bytes back(names.size);
    std::size_t size = back.size();
    check(fi_av_lookup(av.get(), at[i], back.data(), &size), "fi_av_lookup");
    require(size == names.size, "fi_av_lookup told another size");
  }
}

void av_insert_async(const Run& run, std::size_t good, bool bad, std::size_t vectors) {
  Local local(run);
  const auto eq = local.eq();
  const auto av = local.av(FI_AV_UNSPEC, 32, FI_EVENT);
  check_offered(fi_av_bind(av.get(), &eq->fid, 0), "fi_av_bind");
  Addresses names(local, good == 0 ? 1 : good);
  if (bad) names.add_bad();
  const std::size_t count = good + bad;
  std::vector<fi_addr_t> at(count * vectors, kOpen);
  std::vector<int> contexts(vectors);
  for (std::size_t k = 0; k < vectors; ++k) {
    const int code =
        fi_av_insert(av.get(), names.bytes.data(), count, at.data() + k * count, 0, &contexts[k]);
    require(code >= 0, "fi_av_insert answered " + std::to_string(code));
  }
  // Errors are in front of other events.
  std::set<const void*> complete, failed;
  while (complete.size() < vectors || (bad && failed.size() < vectors)) {
    fi_eq_entry entry{};
    std::uint32_t event = 0;
    const ssize_t got = fi_eq_sread(eq.get(), &event, &entry, sizeof entry, 10'000, 0);
    if (bad && got == -FI_EAVAIL) {
      fi_eq_err_entry error{};
      check(fi_eq_readerr(eq.get(), &error, 0), "fi_eq_readerr");
      require(error.fid == &av->fid && error.data == good && error.err > 0,
              "the event of an address that is bad is another");
      require(failed.insert(error.context).second, "an address failed twice");
      continue;
    }
    check(got, "fi_eq_sread");
    require(event == FI_AV_COMPLETE && entry.fid == &av->fid && entry.data == good,
            "the event of an insertion is another");
    require(complete.insert(entry.context).second, "an insertion ended twice");
  }
  for (std::size_t i = 0; i < at.size(); ++i) {
    require((at[i] != kOpen) == (i % count < good), "an address is at a wrong place");
  }
}

void av_remove(const Run& run, fi_av_type type) {
  Local local(run);
  Addresses names(local, 3);
  const auto av = local.av(type);
  std::array<fi_addr_t, 3> at{};
  expect(fi_av_insert(av.get(), names.bytes.data(), 3, at.data(), 0, nullptr), 3, "fi_av_insert");
  check(fi_av_remove(av.get(), &at[1], 1, 0), "fi_av_remove");
  fi_addr_t again = kOpen;
  expect(fi_av_insert(av.get(), names.bytes.data() + names.size, 1, &again, 0, nullptr), 1,
         "fi_av_insert");
  Bytes back(names.size);
  std::size_t size = back.size();
  check(fi_av_lookup(av.get(), again, back.data(), &size), "fi_av_lookup");
  require(std::memcmp(back.data(), names.bytes.data() + names.size, size) == 0,
          "another address is there");
  check(fi_av_remove(av.get(), &at[0], 1, 0), "fi_av_remove");
  check(fi_av_remove(av.get(), &again, 1, 0), "fi_av_remove");
  check(fi_av_remove(av.get(), &at[2], 1, 0), "fi_av_remove");
}

void av_text(const Run& run) {
  Local local(run);
  Addresses names(local, 1);
  const auto av = local.av();
  std::array<char, 512> text{};
  std::size_t size = text.size();
  require(fi_av_straddr(av.get(), names.bytes.data(), text.data(), &size) != nullptr,
          "fi_av_straddr gave nothing");
  require(size > 1 && std::strlen(text.data()) + 1 == size, "the size of the text is another");
  std::array<char, 4> little{};
  std::size_t needed = little.size();
  fi_av_straddr(av.get(), names.bytes.data(), little.data(), &needed);
  require(needed == size, "the size that a text needs is another");
  require(little.back() == 0, "a text that was cut has no end");
}

void av_lookup_little(const Run& run) {
  Local local(run);
  Addresses names(local, 1);
  const auto av = local.av();
  fi_addr_t at = kOpen;
  expect(fi_av_insert(av.get(), names.bytes.data(), 1, &at, 0, nullptr), 1, "fi_av_insert");
  std::array<std::byte, 4> little{};
  std::size_t size = little.size();
  check(fi_av_lookup(av.get(), at, little.data(), &size), "fi_av_lookup");
  require(size == names.size, "the size that an address needs is another");
  require(std::memcmp(little.data(), names.bytes.data(), little.size()) == 0,
          "it begins otherwise");
}

// An endpoint by its host and port, as text.
void av_service(const Run& run, bool range) {
  Local there(run, {}, run.host.c_str(), run.port.c_str(), FI_SOURCE);
  LocalEndpoint server(there);
  Local local(run);
  const auto av = local.av();
  fi_addr_t at = kOpen;
  const int done =
      range ? fi_av_insertsym(av.get(), run.host.c_str(), 1, run.port.c_str(), 1, &at, 0, nullptr)
            : fi_av_insertsvc(av.get(), run.host.c_str(), run.port.c_str(), &at, 0, nullptr);
  check_offered(done, "fi_av_insertsvc");
  require(done == 1 && at != kOpen, "the address was not inserted");
}

// Domains

void domains(const Run& run, std::size_t count) {
  Local local(run);
  std::vector<FiHandle<fid_domain>> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(local.open_domain());
  // Each has objects of its own; they go in any order.
  for (const auto& domain : all) {
    fi_cq_attr attr{};
    fid_cq* cq = nullptr;
    check(fi_cq_open(domain.get(), &attr, &cq, nullptr), "fi_cq_open");
    check(fi_close(&cq->fid), "fi_close");
  }
  all.erase(all.begin());
}

void two_fabrics(const Run& run) {
  Local one(run), other(run);
  require(one.fabric.get() != nullptr && other.fabric.get() != nullptr, "no two fabrics");
}

// Event queues

void eq_open_close(const Run& run) {
  Local local(run);
  for (std::size_t size = 1; size <= 65536; size *= 2) static_cast<void>(local.eq(size));
}

void eq_write_read(const Run& run, fi_wait_obj wait) {
  Local local(run);
  const auto eq = local.eq(32, wait);
  fi_eq_entry entry{};
  std::uint32_t event = 0;
  expect(static_cast<int>(fi_eq_read(eq.get(), &event, &entry, sizeof entry, 0)), -FI_EAGAIN,
         "fi_eq_read of an empty queue");
  for (std::uint64_t i = 0; i < 5; ++i) {
    entry = {&eq->fid, &entry, i};
    const ssize_t written = fi_eq_write(eq.get(), FI_NOTIFY, &entry, sizeof entry, 0);
    check_offered(written, "fi_eq_write");
    expect(static_cast<int>(written), sizeof entry, "fi_eq_write");
  }
  for (std::uint64_t i = 0; i < 10; ++i) {  // each is looked at before it is taken
    const std::uint64_t flags = i % 2 == 0 ? FI_PEEK : 0;
    entry = {};
    const ssize_t got = wait == FI_WAIT_NONE
                            ? fi_eq_read(eq.get(), &event, &entry, sizeof entry, flags)
                            : fi_eq_sread(eq.get(), &event, &entry, sizeof entry, 2000, flags);
    expect(static_cast<int>(got), sizeof entry, "fi_eq_read");
    require(event == FI_NOTIFY && entry.data == i / 2 && entry.fid == &eq->fid,
            "an event is another");
  }
  expect(static_cast<int>(fi_eq_read(eq.get(), &event, &entry, sizeof entry, 0)), -FI_EAGAIN,
         "fi_eq_read of an empty queue");
}

void eq_little_room(const Run& run) {
  Local local(run);
  const auto eq = local.eq();
  fi_eq_entry entry{&eq->fid, nullptr, 7};
  check_offered(fi_eq_write(eq.get(), FI_NOTIFY, &entry, sizeof entry, 0), "fi_eq_write");
  std::array<std::byte, 4> little{};
  std::uint32_t event = 0;
  expect(static_cast<int>(fi_eq_read(eq.get(), &event, little.data(), little.size(), 0)),
         -FI_ETOOSMALL, "fi_eq_read with little room");
  expect(static_cast<int>(fi_eq_read(eq.get(), &event, &entry, sizeof entry, 0)), sizeof entry,
         "fi_eq_read");
}

void eq_errors(const Run& run) {
  Local local(run);
  const auto eq = local.eq();
  fi_eq_err_entry error{};
  expect(static_cast<int>(fi_eq_readerr(eq.get(), &error, 0)), -FI_EAGAIN,
         "fi_eq_readerr of an empty queue");
  // A failed insertion is an error event, if the vector has any.
  const auto av = local.av(FI_AV_UNSPEC, 4, FI_EVENT);
  check_offered(fi_av_bind(av.get(), &eq->fid, 0), "fi_av_bind");
  Addresses names(local, 1);
  names.bytes.clear();
  names.add_bad();
  fi_addr_t at = 0;
  int context = 0;
  fi_av_insert(av.get(), names.bytes.data(), 1, &at, 0, &context);
  fi_eq_entry entry{};
  std::uint32_t event = 0;
  expect(static_cast<int>(fi_eq_sread(eq.get(), &event, &entry, sizeof entry, 10'000, 0)),
         -FI_EAVAIL, "fi_eq_sread");
  // It stays in front until it is taken.
  expect(static_cast<int>(fi_eq_read(eq.get(), &event, &entry, sizeof entry, 0)), -FI_EAVAIL,
         "fi_eq_read");
  check(fi_eq_readerr(eq.get(), &error, 0), "fi_eq_readerr");
  require(fi_eq_strerror(eq.get(), error.prov_errno, error.err_data, nullptr, 0) != nullptr,
          "the error has no text");
}

void eq_sread_empty(const Run& run, fi_wait_obj wait) {
  Local local(run);
  const auto eq = local.eq(0, wait);
  fi_eq_entry entry{};
  std::uint32_t event = 0;
  expect(static_cast<int>(fi_eq_sread(eq.get(), &event, &entry, sizeof entry, 50, 0)), -FI_EAGAIN,
         "fi_eq_sread of an empty queue");
  if (wait == FI_WAIT_FD) {
    int fd = -1;
    check(fi_control(&eq->fid, FI_GETWAIT, &fd), "fi_control for FI_GETWAIT");
    require(fd >= 0, "no descriptor");
  }
}

// Completion queues

void cq_open_close(const Run& run, bool together) {
  Local local(run);
  std::vector<FiHandle<fid_cq>> all;
  for (std::size_t size = 1; size <= 65536; size *= 2) {
    auto cq = local.cq(size);
    if (together) all.push_back(std::move(cq));
  }
}

void cq_formats(const Run& run) {
  Local local(run);
  for (const fi_cq_format format : {FI_CQ_FORMAT_UNSPEC, FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_MSG,
                                    FI_CQ_FORMAT_DATA, FI_CQ_FORMAT_TAGGED}) {
    const auto cq = local.cq(16, FI_WAIT_NONE, format);
    std::array<fi_cq_tagged_entry, 4> entries{};
    expect(static_cast<int>(fi_cq_read(cq.get(), entries.data(), entries.size())), -FI_EAGAIN,
           "fi_cq_read of an empty queue");
    std::array<fi_addr_t, 4> from{};
    expect(static_cast<int>(fi_cq_readfrom(cq.get(), entries.data(), entries.size(), from.data())),
           -FI_EAGAIN, "fi_cq_readfrom of an empty queue");
    fi_cq_err_entry error{};
    expect(static_cast<int>(fi_cq_readerr(cq.get(), &error, 0)), -FI_EAGAIN,
           "fi_cq_readerr of an empty queue");
  }
}

void cq_sread_empty(const Run& run, fi_wait_obj wait) {
  Local local(run);
  const auto cq = local.cq(16, wait);
  fi_cq_entry entry{};
  expect(static_cast<int>(fi_cq_sread(cq.get(), &entry, 1, nullptr, 50)), -FI_EAGAIN,
         "fi_cq_sread of an empty queue");
  fi_addr_t from = 0;
  expect(static_cast<int>(fi_cq_sreadfrom(cq.get(), &entry, 1, &from, nullptr, 50)), -FI_EAGAIN,
         "fi_cq_sreadfrom of an empty queue");
}

// A signal ends the wait of another thread, and the next if nobody waits.
void cq_signal(const Run& run, fi_wait_obj wait) {
  Local local(run);
  const auto cq = local.cq(16, wait);
  fi_cq_entry entry{};
  check_offered(fi_cq_signal(cq.get()), "fi_cq_signal");
  stage("fi_cq_sread after a signal");
  const auto n = static_cast<int>(fi_cq_sread(cq.get(), &entry, 1, nullptr, 20'000));
  require(n == -FI_EAGAIN || n == -FI_ECANCELED, "fi_cq_sread answered " + std::to_string(n));
  std::jthread signaller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    fi_cq_signal(cq.get());
  });
  stage("fi_cq_sread until a signal");  // without one it would hang
  fi_cq_sread(cq.get(), &entry, 1, nullptr, -1);
}

// Counters

void cntr_open_close(const Run& run) {
  Local local(run);
  std::vector<FiHandle<fid_cntr>> all;
  for (int i = 0; i < 64; ++i) all.push_back(local.cntr());
}

void cntr_values(const Run& run) {
  Local local(run);
  const auto cntr = local.cntr();
  const auto await = [&](const char* what, auto read, std::uint64_t value) {
    stage(what);
    while (read(cntr.get()) != value) {
    }
  };
  require(fi_cntr_read(cntr.get()) == 0 && fi_cntr_readerr(cntr.get()) == 0, "it begins otherwise");
  check_offered(fi_cntr_set(cntr.get(), 10), "fi_cntr_set");
  await("the value that was set", fi_cntr_read, 10);
  check(fi_cntr_add(cntr.get(), 5), "fi_cntr_add");
  await("the value with what was added", fi_cntr_read, 15);
  check_offered(fi_cntr_seterr(cntr.get(), 3), "fi_cntr_seterr");
  await("the errors that were set", fi_cntr_readerr, 3);
  check(fi_cntr_adderr(cntr.get(), 4), "fi_cntr_adderr");
  await("the errors with what was added", fi_cntr_readerr, 7);
  require(fi_cntr_read(cntr.get()) == 15, "errors changed the value");
}

void cntr_wait(const Run& run) {
  Local local(run);
  const auto cntr = local.cntr();
  check_offered(fi_cntr_set(cntr.get(), 10), "fi_cntr_set");
  const int there = fi_cntr_wait(cntr.get(), 10, 1000);
  check_offered(there, "fi_cntr_wait");
  expect(there, 0, "fi_cntr_wait for what is there");
  expect(fi_cntr_wait(cntr.get(), 11, 50), -FI_ETIMEDOUT, "fi_cntr_wait for what does not come");
  std::jthread adder([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    fi_cntr_add(cntr.get(), 1);
  });
  expect(fi_cntr_wait(cntr.get(), 11, 20'000), 0, "fi_cntr_wait for what another thread adds");
}

void cntr_wait_error(const Run& run) {
  Local local(run);
  const auto cntr = local.cntr();
  std::jthread adder([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    fi_cntr_adderr(cntr.get(), 1);
  });
  const int code = fi_cntr_wait(cntr.get(), 5, 20'000);
  if (code != -FI_EAVAIL) check_offered(code, "fi_cntr_wait");
  expect(code, -FI_EAVAIL, "fi_cntr_wait where an error is counted");
}

// Memory regions

Ask with_rma() {
  return {FI_EP_RDM, FI_MSG | FI_RMA, {}};
}

constexpr std::uint64_t kAccess =
    FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

void mr_sizes(const Run& run) {
  Local local(run, with_rma());
  Bytes area(16 << 20);
  for (std::size_t size = 1; size <= area.size(); size *= 2) {
    fid_mr* mr = nullptr;
    check(fi_mr_reg(local.domain.get(), area.data(), size, kAccess, 0, size, 0, &mr, nullptr),
          "fi_mr_reg");
    check(fi_close(&mr->fid), "fi_close");
  }
}

void mr_access(const Run& run, int how) {
  Local local(run, with_rma());
  Bytes area(4096);
  std::uint64_t some = 0;
  std::uint64_t key = 1;
  do {  // all sets
    some = (some - kAccess) & kAccess;
    fid_mr* mr = nullptr;
    const iovec part{area.data(), area.size()};
    int context = 0;
    if (how == 0) {
      check(fi_mr_reg(local.domain.get(), area.data(), area.size(), some, 0, key, 0, &mr, &context),
            "fi_mr_reg");
    } else if (how == 1) {
      check_offered(fi_mr_regv(local.domain.get(), &part, 1, some, 0, key, 0, &mr, &context),
                    "fi_mr_regv");
    } else {
      fi_mr_attr attr{};
      attr.mr_iov = &part;
      attr.iov_count = 1;
      attr.access = some;
      attr.requested_key = key;
      attr.context = &context;
      check_offered(fi_mr_regattr(local.domain.get(), &attr, 0, &mr), "fi_mr_regattr");
    }
    ++key;
    const FiHandle<fid_mr> handle(mr);
    require(mr->fid.fclass == FI_CLASS_MR && mr->fid.context == &context, "it is another object");
    // Who is no target needs none.
    require((local.info->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0 ||
                (some & (FI_REMOTE_READ | FI_REMOTE_WRITE)) == 0 ||
                fi_mr_key(mr) != FI_KEY_NOTAVAIL,
            "it has no key");
  } while (some != 0 && some != kAccess);
}

// Two regions never have one key. Where the program chooses, a key that is taken is refused.
void mr_keys(const Run& run) {
  Local local(run, with_rma());
  const bool chosen = (local.info->domain_attr->mr_mode & (FI_MR_PROV_KEY | FI_MR_BASIC)) == 0;
  Bytes area(4096);
  std::set<std::uint64_t> keys;
  std::vector<FiHandle<fid_mr>> regions;
  for (std::uint64_t i = 0; i < 200; ++i) {
    fid_mr* mr = nullptr;
    check(fi_mr_reg(local.domain.get(), area.data(), area.size(), kAccess, 0, i, 0, &mr, nullptr),
          "fi_mr_reg");
    regions.emplace_back(mr);
    if ((local.info->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0) continue;
    require(keys.insert(fi_mr_key(mr)).second, "two regions have one key");
    require(!chosen || fi_mr_key(mr) == i, "the key is not the one that was chosen");
  }
  fid_mr* mr = nullptr;
  const int again =
      fi_mr_reg(local.domain.get(), area.data(), area.size(), kAccess, 0, 5, 0, &mr, nullptr);
  if (again == 0) check(fi_close(&mr->fid), "fi_close");
  if (chosen) expect(again, -FI_ENOKEY, "fi_mr_reg with a key that is taken");
}

void mr_bad(const Run& run) {
  Local local(run, with_rma());
  Bytes area(4096);
  fid_mr* mr = nullptr;
  const iovec part{area.data(), area.size()};
  require(fi_mr_regv(local.domain.get(), &part, local.info->domain_attr->mr_iov_limit + 1, kAccess,
                     0, 7, 0, &mr, nullptr) < 0,
          "more segments than the limit were registered");
}

// Objects that are used cannot go; after all have gone in order, everything can be had again.
void resource_freeing(const Run& run) {
  for (int i = 0; i < 20; ++i) {
    Local local(run);
    LocalEndpoint one(local), other(local);
    expect(fi_close(&local.domain->fid), -FI_EBUSY, "fi_close of a domain that is used");
    expect(fi_close(&one.av->fid), -FI_EBUSY, "fi_close of a vector that is used");
    expect(fi_close(&one.cq->fid), -FI_EBUSY, "fi_close of a queue that is used");
    other.ep.reset();
    other.av.reset();
  }
}

void fabric_busy(const Run& run) {
  Local local(run);
  expect(fi_close(&local.fabric->fid), -FI_EBUSY, "fi_close of a fabric that is used");
}

// Options

void options(const Run& run) {
  Local local(run, {FI_EP_RDM, FI_MSG | FI_MULTI_RECV, {}});
  LocalEndpoint endpoint(local);
  fid_t ep = &endpoint.ep->fid;
  std::size_t value = 0, size = sizeof value;
  check(fi_getopt(ep, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &size), "fi_getopt");
  const std::size_t wanted = 777;
  check(fi_setopt(ep, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &wanted, sizeof wanted), "fi_setopt");
  check(fi_getopt(ep, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &size), "fi_getopt");
  require(value == wanted, "the option has another value");
  size = 1;
  expect(fi_getopt(ep, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &size), -FI_ETOOSMALL,
         "fi_getopt with little room");
}

void options_unknown(const Run& run) {
  Local local(run);
  LocalEndpoint endpoint(local);
  std::size_t value = 0, size = sizeof value;
  const int get = fi_getopt(&endpoint.ep->fid, FI_OPT_ENDPOINT, 0x7fff, &value, &size);
  const int set = fi_setopt(&endpoint.ep->fid, FI_OPT_ENDPOINT, 0x7fff, &value, size);
  expect(get, -FI_ENOPROTOOPT, "fi_getopt of an unknown option");
  expect(set, -FI_ENOPROTOOPT, "fi_setopt of an unknown option");
  const int level = fi_getopt(&endpoint.ep->fid, 77, FI_OPT_MIN_MULTI_RECV, &value, &size);
  expect(level, -FI_ENOPROTOOPT, "fi_getopt of an unknown level");
}

}  // namespace

std::vector<Test> unit_tests() {
  std::vector<Test> tests;
  const auto add = [&](const char* name, auto body) { tests.push_back({name, 1, body}); };
  using R = const Run&;
  add("fi_getinfo_test no_hints", getinfo_no_hints);
  add("fi_getinfo_test src", [](R r) { getinfo_ends(r, true, false); });
  add("fi_getinfo_test dest", [](R r) { getinfo_ends(r, false, true); });
  add("fi_getinfo_test src_dest", [](R r) { getinfo_ends(r, true, true); });
  add("fi_getinfo_test service", [](R r) { getinfo_half_end(r, false); });
  add("fi_getinfo_test node", [](R r) { getinfo_half_end(r, true); });
  add("fi_getinfo_test bad_node", getinfo_bad_node);
  add("fi_getinfo_test invalid_domain", [](R r) { getinfo_name(r, false); });
  add("fi_getinfo_test invalid_fabric", [](R r) { getinfo_name(r, true); });
  add("fi_getinfo_test excluded_provider", getinfo_excluded);
  add("fi_getinfo_test prov_attr_only", getinfo_only_provider);
  add("fi_getinfo_test api_versions", getinfo_versions);
  add("fi_getinfo_test its_own_answer", getinfo_again);
  add("fi_getinfo_test tx_order", [](R r) { getinfo_orders(r, true); });
  add("fi_getinfo_test rx_order", [](R r) { getinfo_orders(r, false); });
  add("fi_getinfo_test order_sizes", getinfo_order_sizes);
  add("fi_getinfo_test primary_caps", getinfo_caps);
  add("fi_getinfo_test modifier_caps", getinfo_modifiers);
  add("fi_getinfo_test modes", getinfo_modes);
  add("fi_getinfo_test mr_modes", getinfo_mr_modes);
  add("fi_getinfo_test mr_basic_scalable", getinfo_mr_old);
  add("fi_getinfo_test progress", getinfo_progress);
  add("fi_getinfo_test threading", [](R r) {
    getinfo_domain_value(r, &fi_domain_attr::threading,
                         std::array{FI_THREAD_UNSPEC, FI_THREAD_SAFE, FI_THREAD_FID,
                                    FI_THREAD_DOMAIN, FI_THREAD_COMPLETION, FI_THREAD_ENDPOINT},
                         false);
  });
  add("fi_getinfo_test resource_mgmt", [](R r) {
    getinfo_domain_value(r, &fi_domain_attr::resource_mgmt,
                         std::array{FI_RM_UNSPEC, FI_RM_DISABLED, FI_RM_ENABLED}, false);
  });
  add("fi_getinfo_test av_type", [](R r) {
    getinfo_domain_value(r, &fi_domain_attr::av_type, std::array{FI_AV_MAP, FI_AV_TABLE}, true);
  });
  add("fi_getinfo_test ep_types", getinfo_ep_types);
  add("fi_getinfo_test limits", getinfo_limits);

  add("fi_av_test open_close table", [](R r) { av_open_close(r, FI_AV_TABLE); });
  add("fi_av_test open_close map", [](R r) { av_open_close(r, FI_AV_MAP); });
  add("fi_av_test good_sync", [](R r) { av_insert(r, FI_AV_TABLE, 1, false, 0); });
  add("fi_av_test good_vector_sync", [](R r) { av_insert(r, FI_AV_TABLE, 4, false, 0); });
  add("fi_av_test good_vector_sync map", [](R r) { av_insert(r, FI_AV_MAP, 4, false, 0); });
  add("fi_av_test bad_sync", [](R r) { av_insert(r, FI_AV_TABLE, 0, true, 0); });
  add("fi_av_test goodbad_vector_sync", [](R r) { av_insert(r, FI_AV_TABLE, 2, true, 0); });
  add("fi_av_test zero_sync", [](R r) { av_insert(r, FI_AV_TABLE, 0, false, 0); });
  add("fi_av_test sync_err", [](R r) { av_insert(r, FI_AV_TABLE, 2, true, FI_SYNC_ERR); });
  add("fi_av_test good_vector_async", [](R r) { av_insert_async(r, 3, false, 1); });
  add("fi_av_test zero_async", [](R r) { av_insert_async(r, 0, false, 1); });
  add("fi_av_test good_2vector_async", [](R r) { av_insert_async(r, 2, false, 2); });
  add("fi_av_test goodbad_vector_async", [](R r) { av_insert_async(r, 2, true, 1); });
  add("fi_av_test goodbad_2vector_async", [](R r) { av_insert_async(r, 2, true, 2); });
  add("fi_av_test remove table", [](R r) { av_remove(r, FI_AV_TABLE); });
  add("fi_av_test remove map", [](R r) { av_remove(r, FI_AV_MAP); });
  add("fi_av_test straddr", av_text);
  add("fi_av_test lookup", av_lookup_little);
  add("fi_av_test insertsvc", [](R r) { av_service(r, false); });
  add("fi_av_test insertsym", [](R r) { av_service(r, true); });

  add("fi_dom_test -n 2", [](R r) { domains(r, 2); });
  add("fi_dom_test -n 8", [](R r) { domains(r, 8); });
  add("fi_dom_test two_fabrics", two_fabrics);

  add("fi_eq_test open_close", eq_open_close);
  add("fi_eq_test write_read", [](R r) { eq_write_read(r, FI_WAIT_NONE); });
  add("fi_eq_test write_sread", [](R r) { eq_write_read(r, FI_WAIT_UNSPEC); });
  add("fi_eq_test write_sread fd", [](R r) { eq_write_read(r, FI_WAIT_FD); });
  add("fi_eq_test little_room", eq_little_room);
  add("fi_eq_test readerr", eq_errors);
  add("fi_eq_test sread_empty", [](R r) { eq_sread_empty(r, FI_WAIT_UNSPEC); });
  add("fi_eq_test sread_empty fd", [](R r) { eq_sread_empty(r, FI_WAIT_FD); });

  add("fi_cq_test open_close", [](R r) { cq_open_close(r, false); });
  add("fi_cq_test open_close_simultaneous -L", [](R r) { cq_open_close(r, true); });
  add("fi_cq_test formats", cq_formats);
  add("fi_cq_test sread_empty", [](R r) { cq_sread_empty(r, FI_WAIT_UNSPEC); });
  add("fi_cq_test sread_empty fd", [](R r) { cq_sread_empty(r, FI_WAIT_FD); });
  add("fi_cq_test signal", [](R r) { cq_signal(r, FI_WAIT_UNSPEC); });
  add("fi_cq_test signal fd", [](R r) { cq_signal(r, FI_WAIT_FD); });

  add("fi_cntr_test open_close", cntr_open_close);
  add("fi_cntr_test values", cntr_values);
  add("fi_cntr_test wait", cntr_wait);
  add("fi_cntr_test wait_error", cntr_wait_error);

  add("fi_mr_test sizes", mr_sizes);
  add("fi_mr_test reg", [](R r) { mr_access(r, 0); });
  add("fi_mr_test regv", [](R r) { mr_access(r, 1); });
  add("fi_mr_test regattr", [](R r) { mr_access(r, 2); });
  add("fi_mr_test keys", mr_keys);
  add("fi_mr_test bad", mr_bad);

  add("fi_resource_freeing", resource_freeing);
  add("fi_resource_freeing fabric", fabric_busy);
  add("fi_setopt_test", options);
  add("fi_setopt_test unknown", options_unknown);
  return tests;
}

}  // namespace turnout::clients
