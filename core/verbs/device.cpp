// SPDX-License-Identifier: BSD-3-Clause
#include "core/verbs/device.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <vector>

#include "base/log.h"

namespace turnout::verbs {
namespace {

// A symbol of the virtual adapter's library, else the kernel's counter.
std::optional<std::uint64_t> read_rnr_retries(ibv_context* context, std::uint8_t port) {
  using Count = std::uint64_t(ibv_context*);
  if (auto* const count = reinterpret_cast<Count*>(symbol("turnout_rnr_retries"))) {
    return count(context);
  }
  std::ifstream file(
      fmt::format("{}/ports/{}/hw_counters/rnr_nak_retry_err", context->device->ibdev_path, port));
  std::uint64_t count = 0;
  if (!(file >> count)) return std::nullopt;
  return count;
}

// The first active port, 0 when there is none.
std::uint8_t active_port(ibv_context* context, const ibv_device_attr& attributes,
                         ibv_port_attr* port) {
  for (unsigned p = 1; p <= attributes.phys_port_cnt; ++p) {
    ibv_port_attr candidate{};
    if (ibv_query_port(context, static_cast<std::uint8_t>(p), &candidate) == 0 &&
        candidate.state == IBV_PORT_ACTIVE) {
      *port = candidate;
      return static_cast<std::uint8_t>(p);
    }
  }
  return 0;
}

struct Found : Adapter {
  std::string seen;  // what was looked at, for the error
};

enum class Dc : std::uint8_t { required, tried, ours };  // ours: the virtual adapter as itself

// Opens the device of that name, or the first usable one when `wanted` is empty.
Found find(const std::string& wanted, Dc dc) {
  std::string seen;
  int count = 0;
  const auto free_list = [](ibv_device** list) { ibv_free_device_list(list); };
  const std::unique_ptr<ibv_device*[], decltype(free_list)> list(ibv_get_device_list(&count));
  for (int i = 0; list != nullptr && i < count; ++i) {
    ibv_device* const device = list[static_cast<std::size_t>(i)];
    Adapter found;
    found.name = ibv_get_device_name(device);
    const auto pass = [&](std::string_view why) {
      seen += fmt::format("{}{} ", found.name, why);
      if (found.context != nullptr) ibv_close_device(found.context);
    };
    if (!wanted.empty() && found.name != wanted) {
      pass("");
      continue;
    }
    errno = 0;
    found.context = ibv_open_device(device);
    if (found.context == nullptr) {
      pass(fmt::format(" (open failed: {})", std::strerror(errno)));
      continue;
    }
    if (ibv_query_device(found.context, &found.attributes) == 0) {
      found.port_number = active_port(found.context, found.attributes, &found.port);
    }
    if (found.port_number == 0) {
      pass(" (no active port)");
      continue;
    }
    found.has_dc = dc == Dc::ours || makes_dc(device, found.context);
    if (found.has_dc || dc != Dc::required) return {std::move(found), std::move(seen)};
    pass(" (no DC)");
  }
  return {{}, std::move(seen)};
}

}  // namespace

bool makes_dc(ibv_device* device, ibv_context* context) {
  if (!mlx5dv_is_supported(device)) return false;
  const Pd pd(ibv_alloc_pd(context));
  const Cq cq(ibv_create_cq(context, 1, nullptr, nullptr, 0));
  if (!pd || !cq) return false;
  ibv_qp_init_attr_ex attr{};
  attr.send_cq = attr.recv_cq = cq.get();
  attr.cap.max_send_wr = attr.cap.max_send_sge = 1;
  attr.qp_type = IBV_QPT_DRIVER;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.pd = pd.get();
  attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
  mlx5dv_qp_init_attr mlx5{};
  mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
  mlx5.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
  return Qp(mlx5dv_create_qp(context, &attr, &mlx5)) != nullptr;
}

Result<std::unique_ptr<Device>> Device::open(const Settings& settings) {
  Found found;
  std::string why = "TURNOUT_DEVICE=virtual";
  bool is_virtual = settings.device == "virtual";
  if (!is_virtual) {
    std::string reasons = "no adapter";
    const bool automatic = settings.device == "auto";
    // Without this folder the kernel has no adapter to show, and rdma-core need not be loaded.
    const bool none = automatic && access("/sys/class/infiniband_verbs", F_OK) != 0;
    const Status loaded = none ? Status() : load(Library::system, settings);
    if (!loaded.ok()) {
      reasons =
          loaded.code() == Code::invalid ? "the virtual adapter is already in use" : loaded.text();
    } else if (!none) {
      // With several adapters one with DC is preferred.
      const std::string wanted = automatic ? std::string() : settings.device;
      const bool ud = settings.default_transport == "ud" || settings.policy == "static:ud-sendrecv";
      found = find(wanted, ud ? Dc::tried : Dc::required);
      if (found.context == nullptr && settings.default_transport == "auto") {
        const std::string seen = std::move(found.seen);
        found = find(wanted, Dc::tried);
        found.seen = seen;
      }
      why = !automatic     ? "selected by name"
            : found.has_dc ? "first real adapter with DC and an active port"
                           : "first real adapter with an active port";
      if (!found.seen.empty()) reasons = found.seen;
    }
    if (found.context == nullptr) {
      if (!automatic) {
        return Status{
            Code::no_device,
            fmt::format("opening the adapter failed: {}: not usable, found: {}; use "
                        "'virtual', 'auto' or a device that ibv_devices lists (TURNOUT_DEVICE)",
                        settings.device, reasons)};
      }
      is_virtual = true;
      why = fmt::format("no real adapter: {}", reasons);
      if (!found.seen.empty()) {
        TURNOUT_LOG(verbs, warn,
                    "real adapters found but not usable: {}; falling back to the virtual adapter, "
                    "which reaches this host only",
                    found.seen);
      }
    }
  }
  if (is_virtual) {
    if (Status loaded = load(Library::virtual_adapter, settings); !loaded.ok()) return loaded;
    // The adapter reads its fabric's name from the same settings when it is opened.
    found = find({}, settings.adapter == "rxe" ? Dc::tried : Dc::ours);
    if (found.context == nullptr) {
      return Status{errno == EACCES || errno == EPERM ? Code::permission : Code::no_device,
                    fmt::format("opening the virtual adapter failed: fabric '{}': {}; see the log "
                                "line above, or choose another fabric with TURNOUT_FABRIC",
                                settings.fabric, found.seen.empty() ? "not listed" : found.seen)};
    }
  }

  std::unique_ptr<Device> device(new Device());
  device->adapter_ = found;
  retain();
  // take_event() must not wait (ibv_get_async_event(3)). Under a virtual clock there is no
  // descriptor.
  if (const int fd = found.context->async_fd; fd >= 0) {
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
      return failure("fcntl of the asynchronous event descriptor", found.name, errno);
    }
  }
  device->why_ = std::move(why);
  device->virtual_ = is_virtual;
  device->simulated_ = is_virtual && std::string_view(found.attributes.fw_ver) == "virtual clock";
  device->choose_gid();
  device->pd_.reset(ibv_alloc_pd(found.context));
  if (!device->pd_) return failure("ibv_alloc_pd", device->adapter_.name, errno);
  device->rnr_at_open_ = read_rnr_retries(device->adapter_.context, device->adapter_.port_number);
  return device;
}

// On InfiniBand the first; on Ethernet the one of most merit, of those the first. Versions are
// asked of the whole table at once: a query for each of some hundred empty entries takes its time.
void Device::choose_gid() {
  constexpr std::uint32_t kIndices = 256;  // ibv_global_route has 8 bits for them
  unsigned best = 0;
  const auto consider = [&](const union ibv_gid& candidate, std::uint32_t index, bool v2) {
    Gid gid;
    std::memcpy(gid.data(), candidate.raw, gid.size());
    const unsigned merit = gid_merit(gid, v2);
    if (merit <= best || index >= kIndices) return;
    best = merit;
    gid_ = gid;
    gid_index_ = static_cast<std::uint8_t>(index);
  };
  const std::uint32_t length = static_cast<std::uint32_t>(std::max(adapter_.port.gid_tbl_len, 0));
  if (const auto query = functions()._ibv_query_gid_table_fn;
      query != nullptr && global_addressing()) {
    std::vector<ibv_gid_entry> entries(std::size_t{length} * adapter_.attributes.phys_port_cnt);
    const ssize_t count =
        query(adapter_.context, entries.data(), entries.size(), 0, sizeof(ibv_gid_entry));
    for (ssize_t i = 0; i < count; ++i) {
      const ibv_gid_entry& entry = entries[static_cast<std::size_t>(i)];
      if (entry.port_num != adapter_.port_number) continue;
      consider(entry.gid, entry.gid_index, entry.gid_type == IBV_GID_TYPE_ROCE_V2);
    }
  }
  for (std::uint32_t index = 0; best == 0 && index < std::min(length, kIndices); ++index) {
    union ibv_gid candidate {};
    if (ibv_query_gid(adapter_.context, adapter_.port_number, static_cast<int>(index),
                      &candidate) == 0) {
      consider(candidate, index, false);
    }
  }
}

bool Device::frees_pages_at_deregistration() const noexcept {
  if (virtual_) return false;
  const auto status = functions().ibv_is_fork_initialized_fn;
  if (status != nullptr) return status() == IBV_FORK_ENABLED;
  // Older libraries: these do what ibv_fork_init does.
  return std::getenv("RDMAV_FORK_SAFE") != nullptr || std::getenv("IBV_FORK_SAFE") != nullptr;
}

std::optional<std::uint64_t> Device::rnr_retries() const {
  const std::optional<std::uint64_t> now = read_rnr_retries(adapter_.context, adapter_.port_number);
  if (!now || !rnr_at_open_ || *now < *rnr_at_open_) return std::nullopt;
  return *now - *rnr_at_open_;
}

Device::~Device() {
  pd_.reset();
  if (adapter_.context != nullptr) {
    if (ibv_close_device(adapter_.context) != 0) log_destroy_failure("ibv_close_device", errno);
    release();
  }
}

}  // namespace turnout::verbs
