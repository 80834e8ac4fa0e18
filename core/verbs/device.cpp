#include "core/verbs/device.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>

#include "base/log.h"

namespace turnout::verbs {
namespace {

struct DeviceList {
  ibv_device** devices = nullptr;
  int count = 0;
  DeviceList() { devices = ibv_get_device_list(&count); }
  ~DeviceList() {
    if (devices != nullptr) ibv_free_device_list(devices);
  }
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;
};

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

struct Found {
  ibv_context* context = nullptr;
  ibv_device_attr attributes{};
  ibv_port_attr port{};
  std::uint8_t port_number = 0;
  std::string name;
  std::string seen;  // what was looked at, for the error
};

// Opens the device of that name, or the first usable one when `wanted` is empty.
Found find(const std::string& wanted) {
  Found found;
  const DeviceList list;
  for (int i = 0; i < list.count; ++i) {
    const std::string name = ibv_get_device_name(list.devices[i]);
    if (!wanted.empty() && name != wanted) {
      found.seen += fmt::format("{} ", name);
      continue;
    }
    if (!mlx5dv_is_supported(list.devices[i])) {
      found.seen += fmt::format("{} (no dynamically connected transport) ", name);
      continue;
    }
    errno = 0;
    ibv_context* const context = ibv_open_device(list.devices[i]);
    if (context == nullptr) {
      found.seen += fmt::format("{} (cannot be opened: {}) ", name, std::strerror(errno));
      continue;
    }
    ibv_device_attr attributes{};
    ibv_port_attr port{};
    std::uint8_t number = 0;
    if (ibv_query_device(context, &attributes) == 0) {
      number = active_port(context, attributes, &port);
    }
    if (number == 0) {
      found.seen += fmt::format("{} (no active port) ", name);
      ibv_close_device(context);
      continue;
    }
    found.context = context;
    found.attributes = attributes;
    found.port = port;
    found.port_number = number;
    found.name = name;
    return found;
  }
  return found;
}

}  // namespace

Result<std::unique_ptr<Device>> Device::open(const Settings& settings) {
  Found found;
  std::string why;
  bool is_virtual = settings.device == "virtual";
  std::string reasons;
  if (!is_virtual) {
    const bool automatic = settings.device == "auto";
    const Status loaded = load(Library::system, settings);
    if (loaded.ok()) {
      found = find(automatic ? std::string() : settings.device);
      why = automatic ? "first real adapter with DC and an active port" : "asked for by name";
      reasons = found.seen.empty() ? "no adapter at all" : found.seen;
    } else {
      reasons = loaded.text();
      if (loaded.code() == Code::invalid) reasons = "the virtual adapter is in use already";
    }
    if (found.context == nullptr) {
      if (!automatic) {
        return Status{Code::no_device,
                      fmt::format("TURNOUT_DEVICE={}: not usable; found: {}; use 'virtual', 'auto' "
                                  "or one of the devices of ibv_devices",
                                  settings.device, reasons)};
      }
      is_virtual = true;
      why = fmt::format("no real adapter: {}", reasons);
      if (!found.seen.empty()) {
        TURNOUT_LOG(verbs, warn,
                    "real adapters are there but not used ({}); the virtual adapter reaches this "
                    "host only",
                    found.seen);
      }
    }
  } else {
    why = "TURNOUT_DEVICE=virtual";
  }
  if (is_virtual) {
    if (Status loaded = load(Library::virtual_adapter, settings); !loaded.ok()) return loaded;
    // The adapter reads its fabric's name from the same settings when it is opened.
    found = find({});
    if (found.context == nullptr) {
      return Status{errno == EACCES || errno == EPERM ? Code::permission : Code::no_device,
                    fmt::format("the virtual adapter of fabric '{}' cannot be used: {}; see the "
                                "line logged above, or take another name with TURNOUT_FABRIC",
                                settings.fabric, found.seen.empty() ? "not listed" : found.seen)};
    }
  }

  std::unique_ptr<Device> device(new Device());
  device->context_ = found.context;
  retain();
  device->name_ = found.name;
  device->why_ = std::move(why);
  device->virtual_ = is_virtual;
  device->attributes_ = found.attributes;
  device->port_ = found.port;
  device->port_number_ = found.port_number;
  union ibv_gid gid {};
  for (int index = 0; index < found.port.gid_tbl_len; ++index) {
    union ibv_gid candidate {};
    if (ibv_query_gid(found.context, found.port_number, index, &candidate) != 0) continue;
    static constexpr union ibv_gid zero {};
    if (std::memcmp(&candidate, &zero, sizeof zero) == 0) continue;
    gid = candidate;
    device->gid_index_ = static_cast<std::uint8_t>(index);
    break;
  }
  std::memcpy(device->gid_.data(), gid.raw, sizeof gid.raw);
  device->pd_.reset(ibv_alloc_pd(found.context));
  if (!device->pd_) return failure("ibv_alloc_pd", device->name_, errno);
  return device;
}

Device::~Device() {
  pd_.reset();
  if (context_ != nullptr) {
    if (ibv_close_device(context_) != 0) log_destroy_failure("ibv_close_device", errno);
    release();
  }
}

}  // namespace turnout::verbs
