// SPDX-License-Identifier: BSD-3-Clause
#include "cli/verbs_tree.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>

#include "base/private_folder.h"
#include "cli/port_text.h"
#include "cli/split.h"

namespace turnout::cli {
namespace {

namespace fs = std::filesystem;

// Connections are made over 127.0.0.1; programs take the interface's name and address from here.
constexpr std::string_view kInterface = "lo";

// Where the kernel would have the mlx5's PCI function: on a bus that no host has.
constexpr std::string_view kFunction = "devices/turnout/0000:ff:00.0";
constexpr unsigned kMellanoxOnPci = 0x15b3;
constexpr unsigned kConnectX5Card = 0x0020;  // subsystem

// As the kernel names them; the number is the place.
constexpr std::array<std::string_view, 6> kStates = {"NOP",   "DOWN",   "INIT",
                                                     "ARMED", "ACTIVE", "ACTIVE_DEFER"};
constexpr std::array<std::string_view, 8> kPhysicalStates = {
    "<unknown>",         "Sleep",   "Polling", "Disabled", "PortConfigurationTraining", "LinkUp",
    "LinkErrorRecovery", "Phy Test"};
struct Speed {
  int code;
  int tenths;  // of Gbit/s, one lane
  std::string_view name;
};
constexpr std::array<Speed, 9> kSpeeds = {{{1, 25, ""},
                                           {2, 50, " DDR"},
                                           {4, 100, " QDR"},
                                           {8, 100, " FDR10"},
                                           {16, 140, " FDR"},
                                           {32, 250, " EDR"},
                                           {64, 500, " HDR"},
                                           {128, 1000, " NDR"},
                                           {256, 2000, " XDR"}}};

std::string named(std::span<const std::string_view> names, unsigned number) {
  return fmt::format("{}: {}", number, number < names.size() ? names[number] : "<unknown>");
}

// Four groups of four digits.
std::string guid_text(std::uint64_t network_order) {
  const std::uint64_t guid = be64toh(network_order);
  return fmt::format("{:04x}:{:04x}:{:04x}:{:04x}", guid >> 48, guid >> 32 & 0xffff,
                     guid >> 16 & 0xffff, guid & 0xffff);
}

std::string rate_text(const ibv_port_attr& port) {
  // IBTA 14.2.5.6: LinkWidthActive.
  const int code = port.active_width;
  const int width = code == 1 ? 1 : code == 4 ? 8 : code == 8 ? 12 : code == 16 ? 2 : 4;
  const auto* const found = std::find_if(
      kSpeeds.begin(), kSpeeds.end(), [&](const Speed& s) { return s.code == port.active_speed; });
  const Speed& speed = found != kSpeeds.end() ? *found : kSpeeds.front();
  const int rate = speed.tenths * width;
  return fmt::format("{}{} Gb/sec ({}X{})", rate / 10, rate % 10 == 0 ? "" : ".5", width,
                     speed.name);
}

// Files below one folder; the first failure stays.
class Writer {
 public:
  explicit Writer(std::string root) : root_(std::move(root)) {}

  void folder(const std::string& name) {
    if (!status_.ok()) return;
    std::error_code error;
    fs::create_directories(path(name), error);
    if (error) status_ = folder_failure("create", path(name), error.value());
  }
  // A value of sysfs: a file with a line.
  void line(const std::string& name, std::string_view value) {
    file(name, fmt::format("{}\n", value), 0444);
  }
  void file(const std::string& name, std::string_view text, mode_t mode) {
    folder(fs::path(name).parent_path().string());
    if (!status_.ok()) return;
    const std::string whole = path(name), part = fmt::format("{}.{}", whole, ::getpid());
    const Descriptor fd(
        ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
    const Status written = fd ? write_all(fd.get(), text) : folder_failure("write", part, errno);
    if (!written.ok()) {
      status_ = folder_failure("write", part, written.sys_errno());
    } else if (::fchmod(fd.get(), mode) != 0 || ::rename(part.c_str(), whole.c_str()) != 0) {
      status_ = folder_failure("write", whole, errno);
    }
  }
  // UCX looks whether it is a character device. Nobody's commands go there: the libraries that
  // would send them are ours.
  void device(const std::string& name) {
    folder(fs::path(name).parent_path().string());
    link(name, "/dev/null");
  }
  void link(const std::string& name, const std::string& to) {
    if (!status_.ok()) return;
    if (::symlink(to.c_str(), path(name).c_str()) != 0 && errno != EEXIST) {
      status_ = folder_failure("link", path(name), errno);
    }
  }
  [[nodiscard]] const Status& status() const noexcept { return status_; }

 private:
  [[nodiscard]] std::string path(const std::string& name) const { return root_ + "/" + name; }

  std::string root_;
  Status status_;
};

// The type of a GID, where the library tells; else as on InfiniBand.
std::string_view gid_type(ibv_context* context, std::uint32_t port, std::uint32_t index) {
  using Query =
      int(ibv_context*, std::uint32_t, std::uint32_t, ibv_gid_entry*, std::uint32_t, std::size_t);
  auto* const query = reinterpret_cast<Query*>(verbs::symbol("_ibv_query_gid_ex"));
  ibv_gid_entry entry{};
  const bool v2 = query != nullptr && query(context, port, index, &entry, 0, sizeof entry) == 0 &&
                  entry.gid_type == IBV_GID_TYPE_ROCE_V2;
  return v2 ? "RoCE v2" : "IB/RoCE v1";
}

void write_port(Writer& writer, const std::string& folder, const verbs::Device& device) {
  const ibv_port_attr& port = device.port();
  writer.line(folder + "state", named(kStates, port.state));
  writer.line(folder + "phys_state", named(kPhysicalStates, port.phys_state));
  writer.line(folder + "lid", fmt::format("{:#x}", port.lid));
  writer.line(folder + "lid_mask_count", fmt::format("{}", port.lmc));
  writer.line(folder + "sm_lid", fmt::format("{:#x}", port.sm_lid));
  writer.line(folder + "sm_sl", fmt::format("{}", port.sm_sl));
  writer.line(folder + "rate", rate_text(port));
  writer.line(folder + "link_layer",
              port.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand");
  writer.line(folder + "cap_mask", fmt::format("{:#010x}", port.port_cap_flags));
  for (int i = 0; i < port.gid_tbl_len; ++i) {
    ibv_gid gid{};
    if (ibv_query_gid(device.context(), device.port_number(), i, &gid) != 0) break;
    writer.line(fmt::format("{}gids/{}", folder, i), gid_text(gid.raw));
    writer.line(fmt::format("{}gid_attrs/types/{}", folder, i),
                gid_type(device.context(), device.port_number(), static_cast<unsigned>(i)));
    writer.line(fmt::format("{}gid_attrs/ndevs/{}", folder, i), kInterface);
  }
  using Query = int(ibv_context*, std::uint8_t, int, std::uint16_t*);
  if (auto* const query = reinterpret_cast<Query*>(verbs::symbol("ibv_query_pkey"))) {
    for (int i = 0; i < port.pkey_tbl_len; ++i) {
      std::uint16_t key = 0;
      if (query(device.context(), device.port_number(), i, &key) != 0) break;
      writer.line(fmt::format("{}pkeys/{}", folder, i), fmt::format("{:#06x}", ntohs(key)));
    }
  }
  // The shim asks for their values.
  using Name = const char*(unsigned);
  auto* const name = reinterpret_cast<Name*>(verbs::symbol("turnout_counter_name"));
  for (unsigned i = 0; name != nullptr && name(i) != nullptr; ++i) {
    writer.line(folder + name(i), "0");
  }
}

// The PCI function; there is none, and all processors are as near.
void write_function(Writer& writer, const std::string& folder, const ibv_device_attr& attributes,
                    bool mlx5) {
  const unsigned part = attributes.vendor_part_id & 0xffff;
  // The adapter's attributes have Mellanox's number for network addresses.
  const unsigned vendor = mlx5 ? kMellanoxOnPci : attributes.vendor_id & 0xffff;
  writer.line(folder + "vendor", fmt::format("{:#06x}", vendor));
  writer.line(folder + "device", fmt::format("{:#06x}", part));
  if (mlx5) {
    writer.line(folder + "subsystem_vendor", fmt::format("{:#06x}", vendor));
    writer.line(folder + "subsystem_device", fmt::format("{:#06x}", kConnectX5Card));
    writer.line(folder + "class", "0x020700");  // an InfiniBand controller
    writer.line(folder + "current_link_speed", "16.0 GT/s PCIe");
    writer.line(folder + "current_link_width", "16");
    writer.line(folder + "modalias", fmt::format("pci:v{:08X}d{:08X}sv{:08X}sd{:08X}bc02sc07i00",
                                                 vendor, part, vendor, kConnectX5Card));
  }
  writer.line(folder + "numa_node", "-1");
  writer.folder(folder + "net");
  writer.link(fmt::format("{}net/{}", folder, kInterface),
              fmt::format("/sys/class/net/{}", kInterface));
}

}  // namespace

Status write_tree(const std::string& folder, const verbs::Device& device,
                  const TreeOptions& options) {
  Writer writer(folder);
  const ibv_device& names = *device.context()->device;
  const ibv_device_attr& attributes = device.attributes();
  const std::string name = options.mlx5 ? "mlx5_0" : names.name;
  const std::string shown = fmt::format("sys/class/infiniband/{}", name);
  // UCX takes the function's number from where the link leads.
  const std::string adapter =
      options.mlx5 ? fmt::format("sys/{}/infiniband/{}/", kFunction, name) : shown + "/";
  writer.line(adapter + "node_type", "1: CA");
  writer.line(adapter + "node_guid", guid_text(attributes.node_guid));
  writer.line(adapter + "sys_image_guid", guid_text(attributes.sys_image_guid));
  writer.line(adapter + "node_desc", "Turnout virtual adapter");
  writer.line(adapter + "fw_ver", attributes.fw_ver);
  writer.line(adapter + "hw_rev", fmt::format("{:x}", attributes.hw_ver));
  writer.line(adapter + "hca_type", options.mlx5 ? "MT4119" : "turnout");
  writer.line(adapter + "board_id", options.mlx5 ? "MT_0000000012" : "turnout");
  write_port(writer, fmt::format("{}ports/{}/", adapter, device.port_number()), device);
  if (options.mlx5) {
    write_function(writer, fmt::format("sys/{}/", kFunction), attributes, true);
    writer.link(adapter + "device", "../..");
    writer.folder("sys/class/infiniband");
    writer.link(shown, fmt::format("../../{}/infiniband/{}", kFunction, name));
  } else {
    write_function(writer, adapter + "device/", attributes, false);
  }

  // The kernel's device number of uverbs0 is 231:192; no device has the adapter's here.
  const int number = std::atoi(names.dev_name + std::string_view("uverbs").size());
  const std::string verbs = fmt::format("sys/class/infiniband_verbs/{}/", names.dev_name);
  writer.line("sys/class/infiniband_verbs/abi_version", "6");
  writer.line(verbs + "ibdev", name);
  writer.line(verbs + "abi_version", "1");
  writer.line(verbs + "dev", fmt::format("231:{}", 192 + number));
  writer.link(verbs + "device", fmt::format("../../infiniband/{}/device", name));

  const std::string command_file = fmt::format("dev/infiniband/{}", names.dev_name);
  if (options.mlx5) {
    writer.file(command_file, "", 0600);
  } else {
    writer.device(command_file);
  }
  if (options.connection_manager) writer.device("dev/infiniband/rdma_cm");
  return writer.status();
}

}  // namespace turnout::cli
