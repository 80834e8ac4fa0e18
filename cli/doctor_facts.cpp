// SPDX-License-Identifier: BSD-3-Clause
#include "cli/doctor.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "base/installation.h"
#include "cli/mpi_launch.h"
#include "cli/port_text.h"
#include "cli/run_program.h"
#include "cli/split.h"
#include "core/memory/node_share.h"
#include "core/selection/device_costs.h"
#include "core/verbs/device.h"
#include "core/verbs/library.h"

namespace turnout::cli {
namespace {

namespace fs = std::filesystem;

// The number behind "Name:" in a file like /proc/meminfo, in its own unit and base.
std::uint64_t field_of(const char* file, std::string_view name, int base) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(name) && line.size() > name.size() && line[name.size()] == ':') {
      return std::strtoull(line.c_str() + name.size() + 1, nullptr, base);
    }
  }
  return 0;
}

std::uint64_t limit_of(rlim_t limit) {
  return limit == RLIM_INFINITY ? UINT64_MAX : limit;
}

void gather_limits(Facts& facts) {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
    facts.limits.memlock = limit_of(limit.rlim_cur);
    facts.limits.memlock_hard = limit_of(limit.rlim_max);
  }
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    facts.limits.files = limit_of(limit.rlim_cur);
    facts.limits.files_hard = limit_of(limit.rlim_max);
  }
  constexpr int kIpcLock = 14;  // CAP_IPC_LOCK, linux/capability.h
  facts.limits.may_lock = (field_of("/proc/self/status", "CapEff", 16) >> kIpcLock & 1) != 0;
  facts.available = field_of("/proc/meminfo", "MemAvailable", 10) * 1024;
}

// rdma-core's, of the name of its library: libibverbs.so.1.14.44.0 is of 44.0.
std::string rdma_core_version() {
  Dl_info info{};
  const void* const function = verbs::symbol("ibv_get_device_list");
  if (function == nullptr || dladdr(function, &info) == 0) return {};
  std::error_code error;
  const std::string name = fs::canonical(info.dli_fname, error).filename().string();
  constexpr std::string_view kBefore = ".so.1.";
  const std::size_t at = name.find(kBefore);
  if (error || at == std::string::npos) return "unknown version";
  const std::string version = name.substr(at + kBefore.size());
  return version.substr(version.find('.') + 1);
}

std::string libfabric_version() {
  void* const library = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {};
  std::string text;
  if (auto* const version = reinterpret_cast<std::uint32_t (*)()>(dlsym(library, "fi_version"))) {
    text = fmt::format("{}.{}", version() >> 16, version() & 0xffff);
  }
  // It stays: libibverbs keeps the drivers that came with it (libefa), and would call what is gone.
  return text;
}

void gather_kernel(Facts& facts) {
  utsname name{};
  if (uname(&name) == 0) facts.kernel = name.release;
  std::error_code error;
  facts.kernel_rdma = !fs::is_empty("/sys/class/infiniband", error) && !error;
  for (const auto& file : fs::directory_iterator("/dev/infiniband", error)) {
    if (!file.path().filename().string().starts_with("uverbs")) continue;
    facts.has_files = true;
    if (access(file.path().c_str(), R_OK | W_OK) != 0) {
      facts.closed_files.push_back(file.path().string());
    }
  }
}

// Whether the PCI device's control register lets its writes pass each other.
std::optional<bool> relaxed_ordering(const std::string& device) {
  std::ifstream file(device + "/device/config", std::ios::binary);
  std::array<unsigned char, 256> config{};
  file.read(reinterpret_cast<char*>(config.data()), config.size());
  if (file.gcount() != static_cast<std::streamsize>(config.size())) return std::nullopt;
  constexpr unsigned kFirst = 0x34, kExpress = 0x10, kControl = 8, kRelaxed = 1U << 4;
  unsigned at = config[kFirst];
  for (int hops = 0; hops < 48 && at >= 0x40 && at + kControl + 1 < config.size(); ++hops) {
    if (config[at] == kExpress) return (config[at + kControl] & kRelaxed) != 0;
    at = config[at + 1];
  }
  return std::nullopt;
}

PortFacts gather_port(ibv_context* context, unsigned number) {
  PortFacts facts;
  facts.number = number;
  ibv_port_attr port{};
  if (const int error = ibv_query_port(context, static_cast<std::uint8_t>(number), &port);
      error != 0) {
    facts.state = fmt::format("query failed ({})", std::strerror(error));
    return facts;
  }
  facts.state = port_state(port.state);
  facts.active = port.state == IBV_PORT_ACTIVE;
  facts.ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
  facts.lid = port.lid;
  facts.mtu = 128U << static_cast<unsigned>(port.active_mtu);
  for (int i = 0; i < port.gid_tbl_len; ++i) {
    ibv_gid gid{};
    if (ibv_query_gid(context, static_cast<std::uint8_t>(number), i, &gid) != 0) continue;
    facts.gids += gid.global.interface_id != 0 ? 1U : 0U;
  }
  return facts;
}

void try_registration(ibv_context* context, std::uint64_t bytes, DeviceFacts& facts) {
  ibv_pd* const pd = ibv_alloc_pd(context);
  if (pd == nullptr) return;
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) {
    facts.registered = bytes;
    errno = 0;
    constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE;
    ibv_mr* const mr = ibv_reg_mr(pd, memory, bytes, kAccess);
    facts.register_error = mr != nullptr ? 0 : errno;
    if (mr != nullptr) ibv_dereg_mr(mr);
    munmap(memory, bytes);
  }
  ibv_dealloc_pd(pd);
}

DeviceFacts gather_device(ibv_device* device, std::uint64_t bytes) {
  DeviceFacts facts;
  facts.name = ibv_get_device_name(device);
  std::error_code error;
  facts.driver = fs::read_symlink(fs::path(device->ibdev_path) / "device" / "driver", error)
                     .filename()
                     .string();
  facts.pci = fs::exists(fs::path(device->ibdev_path) / "device" / "config", error);
  if (facts.pci) facts.relaxed_ordering = relaxed_ordering(device->ibdev_path);
  errno = 0;
  ibv_context* const context = ibv_open_device(device);
  if (context == nullptr) {
    facts.open_error = std::strerror(errno);
    return facts;
  }
  ibv_device_attr attributes{};
  if (ibv_query_device(context, &attributes) == 0) {
    const auto count = [](int n) { return static_cast<std::uint64_t>(std::max(n, 0)); };
    facts.firmware.assign(attributes.fw_ver, strnlen(attributes.fw_ver, sizeof attributes.fw_ver));
    facts.max_qp = count(attributes.max_qp);
    facts.max_qp_wr = count(attributes.max_qp_wr);
    facts.max_cqe = count(attributes.max_cqe);
    facts.max_srq = count(attributes.max_srq);
    facts.xrc = (attributes.device_cap_flags & IBV_DEVICE_XRC) != 0;
    for (unsigned p = 1; p <= attributes.phys_port_cnt; ++p) {
      facts.ports.push_back(gather_port(context, p));
    }
  }
  facts.dc = verbs::makes_dc(device, context);
  if (bytes > 0) try_registration(context, bytes, facts);
  ibv_close_device(context);
  return facts;
}

ForkSafety fork_safety() {
  auto* const told = verbs::functions().ibv_is_fork_initialized_fn;
  if (told == nullptr) return ForkSafety::unknown;
  const ibv_fork_status state = told();
  return state == IBV_FORK_DISABLED   ? ForkSafety::off
         : state == IBV_FORK_ENABLED  ? ForkSafety::on
         : state == IBV_FORK_UNNEEDED ? ForkSafety::not_needed
                                      : ForkSafety::unknown;
}

void gather_devices(Facts& facts, const Settings& settings) {
  if (const Status loaded = verbs::load(verbs::Library::system, settings); !loaded.ok()) {
    facts.library_error = loaded.text();
    return;
  }
  facts.rdma_core = rdma_core_version();
  int count = 0;
  const std::unique_ptr<ibv_device*, decltype(&ibv_free_device_list)> devices(
      ibv_get_device_list(&count), &ibv_free_device_list);
  // Pinned pages cannot be swapped: never most of the machine's memory for a look.
  const std::uint64_t bytes = std::min(facts.budget, facts.available / 4);
  for (int i = 0; devices && i < count; ++i) {
    facts.devices.push_back(gather_device(devices.get()[i], bytes));
  }
  facts.fork = fork_safety();
}

void gather_provider(Facts& facts) {
  if (const char* path = std::getenv("FI_PROVIDER_PATH")) facts.provider.path = path;
  facts.provider.file = provider_file();
  // libfabric 2: "+FILE" is one library besides the default folder.
  for (std::string& one : split(facts.provider.path, ":")) {
    if (one.starts_with('+')) one.erase(0, 1);
    std::error_code error;
    if (!one.empty() && !fs::exists(one, error))
      facts.provider.missing_paths.push_back(std::move(one));
  }
}

// As a shell finds it; empty: it is not on the PATH.
std::string on_path(std::string_view program) {
  const char* const path = std::getenv("PATH");
  for (const std::string& folder : split(path == nullptr ? "" : path, ":")) {
    std::string file = fmt::format("{}/{}", folder, program);
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  return {};
}

std::optional<std::uint64_t> number_in(const char* file) {
  std::ifstream in(file);
  std::uint64_t number = 0;
  return in >> number ? std::optional(number) : std::nullopt;
}

void gather_software(Facts& facts) {
  for (const char* launcher : {"mpirun", "mpiexec", "srun"}) {
    facts.launcher = on_path(launcher);
    if (facts.launcher.empty()) continue;
    facts.mpi = mpi_of(version_text(facts.launcher)).name;
    break;
  }
  if (const auto on = number_in("/proc/sys/kernel/sched_autogroup_enabled")) {
    facts.autogroup = *on != 0;
  }
  facts.limits.maps = number_in("/proc/sys/vm/max_map_count").value_or(0);
}

}  // namespace

Facts gather_facts() {
  Facts facts;
  gather_kernel(facts);
  gather_limits(facts);
  gather_provider(facts);
  gather_software(facts);
  facts.libfabric = libfabric_version();
  const Result<Settings> loaded = Settings::load();
  if (!loaded) {
    facts.settings_error = loaded.status().text();
    gather_devices(facts, Settings{});
    return facts;
  }
  const Settings& settings = loaded.value();
  facts.adapter.wanted = settings.device;
  facts.costs = settings.costs;
  if (const auto costs = selection::load_costs(settings); !costs) {
    facts.costs_error = costs.status().text();
  }
  facts.budget = budget_of_process(settings).bytes;
  facts.processes = node_processes(settings);
  gather_devices(facts, settings);
  const Result<std::unique_ptr<verbs::Device>> chosen = verbs::Device::open(settings);
  if (!chosen) {
    facts.adapter.error = chosen.status().text();
    return facts;
  }
  const verbs::Device& device = *chosen.value();
  facts.adapter.name = device.name();
  facts.adapter.why = device.why();
  facts.adapter.is_virtual = device.is_virtual();
  return facts;
}

}  // namespace turnout::cli
