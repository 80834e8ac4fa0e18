// SPDX-License-Identifier: BSD-3-Clause
#include "cli/doctor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/value.h"
#include "cli/split.h"

namespace turnout::cli {
namespace {

constexpr std::uint64_t kNoLimit = UINT64_MAX;
// A process of a job of thousands opens a few for itself and, over the virtual adapter, a pipe for
// each peer that waits for events; below this, programs commonly run out.
constexpr std::uint64_t kFewFiles = 1024;

// Linux's default of vm.max_map_count. Every peer and many registrations need mappings.
constexpr std::uint64_t kUsualMaps = 65530;

class Judge {
 public:
  explicit Judge(const Facts& facts) : f_(facts) {}

  std::vector<Finding> all() {
    versions();
    if (!f_.settings_error.empty()) {
      add(Level::problem, "settings", f_.settings_error, "see turnout info --config");
    }
    verbs();
    for (const DeviceFacts& device : f_.devices) judge_device(device);
    chosen();
    locked_memory();
    budget();
    system_limits();
    fork();
    costs();
    provider();
    mpi();
    return std::move(findings_);
  }

 private:
  void add(Level level, std::string what, std::string found, std::string fix = {}) {
    findings_.push_back({level, std::move(what), std::move(found), std::move(fix)});
  }

  // `level` and a remedy if something is wrong, else good.
  void add_if(bool wrong, Level level, std::string what, std::string found, std::string fix) {
    add(wrong ? level : Level::good, std::move(what), std::move(found),
        wrong ? std::move(fix) : std::string());
  }

  static std::string or_none(const std::string& text) { return text.empty() ? "none" : text; }

  void versions() {
    add(Level::good, "versions",
        fmt::format("turnout {}, kernel {}, rdma-core {}, libfabric {}", TURNOUT_VERSION, f_.kernel,
                    or_none(f_.rdma_core), or_none(f_.libfabric)));
  }

  void verbs() {
    if (!f_.kernel_rdma) {
      add(Level::note, "kernel", "no RDMA device (/sys/class/infiniband is empty or missing)",
          "load the adapter's driver (mlx5_ib), or for Soft-RoCE run modprobe rdma_rxe and rdma "
          "link add rxe0 type rxe netdev NAME; without an RDMA device the virtual adapter reaches "
          "this host only");
      return;
    }
    if (!f_.library_error.empty()) {
      add(Level::problem, "verbs library", f_.library_error,
          "install libibverbs1 and ibverbs-providers");
    }
    if (!f_.has_files) {
      add(Level::problem, "device files",
          "the kernel has RDMA devices, but /dev/infiniband/uverbs* is missing",
          "modprobe ib_uverbs; in a container, pass /dev/infiniband through (docker --device)");
    } else if (!f_.closed_files.empty()) {
      add(Level::problem, "device files",
          fmt::format("no permission to open: {}", fmt::join(f_.closed_files, ", ")),
          "install rdma-core's udev rules, which set mode 0666");
    }
    if (f_.library_error.empty() && f_.has_files && f_.closed_files.empty() && f_.devices.empty()) {
      add(Level::problem, "devices", "the verbs library lists none of the kernel's devices",
          "install the adapter's user-space driver (ibverbs-providers)");
    }
  }

  void judge_device(const DeviceFacts& device) {
    if (!device.open_error.empty()) {
      add(Level::problem, device.name, fmt::format("open failed: {}", device.open_error));
      return;
    }
    add(Level::good, device.name,
        fmt::format("driver {}, firmware {}; {} queue pairs of {} work requests, {} SRQs, {} "
                    "entries per completion queue",
                    or_none(device.driver), or_none(device.firmware),
                    value::human_count(device.max_qp), value::human_count(device.max_qp_wr),
                    value::human_count(device.max_srq), value::human_count(device.max_cqe)));
    judge_ports(device);
    add(device.dc ? Level::good : Level::note, device.name + " DC",
        device.dc ? std::string("yes")
                  : fmt::format("not supported; the default transport is UD{}",
                                device.xrc ? "; XRC is supported" : ""));
    judge_ordering(device);
    judge_registration(device);
  }

  void judge_ordering(const DeviceFacts& device) {
    if (!device.pci) return;
    const std::string what = device.name + " relaxed ordering";
    if (!device.relaxed_ordering) {
      add(Level::note, what, "unknown", "run as root to read the PCI device's setting");
    } else {
      add(Level::good, what,
          *device.relaxed_ordering
              ? "on; it speeds up memory registered with IBV_ACCESS_RELAXED_ORDERING, which "
                "Turnout's rings do not use"
              : "off");
    }
  }

  void judge_ports(const DeviceFacts& device) {
    const bool any = std::any_of(device.ports.begin(), device.ports.end(),
                                 [](const PortFacts& port) { return port.active; });
    for (const PortFacts& port : device.ports) {
      const std::string what = fmt::format("{} port {}", device.name, port.number);
      const std::string text = fmt::format(
          "{}, {}, MTU {}, {}", port.state, port.ethernet ? "RoCE" : "InfiniBand", port.mtu,
          port.ethernet ? fmt::format("{} GIDs", port.gids) : fmt::format("LID {}", port.lid));
      if (port.active && port.ethernet && port.gids == 0) {
        add(Level::problem, what, text, "assign an address to its network interface");
      } else if (port.active && !port.ethernet && port.lid == 0) {
        add(Level::problem, what, text,
            "no subnet manager assigned a LID; start opensm, or check the switch's subnet manager");
      } else if (port.active) {
        add(Level::good, what, text);
      } else {
        add(any ? Level::note : Level::problem, what, text,
            port.ethernet ? "ip link set NETDEV up; check the cable"
                          : "check the cable and the subnet manager (ibstat)");
      }
    }
  }

  void judge_registration(const DeviceFacts& device) {
    if (device.registered == 0) return;
    const std::string what = device.name + " registration";
    if (device.register_error == 0) {
      add(Level::good, what, fmt::format("{} registered", value::human_bytes(device.registered)));
      return;
    }
    std::string fix;
    if (device.register_error == ENOMEM) {
      fix = limits_memlock() ? "see locked memory below"
                             : "free memory, or lower TURNOUT_MEMORY_BUDGET";
    }
    add(Level::problem, what,
        fmt::format("registering {} failed: {}", value::human_bytes(device.registered),
                    std::strerror(device.register_error)),
        std::move(fix));
  }

  // Is what may be locked less than what Turnout may register?
  [[nodiscard]] bool limits_memlock() const {
    return !f_.limits.may_lock && f_.limits.memlock != kNoLimit && f_.limits.memlock < f_.budget;
  }

  void chosen() {
    if (!f_.adapter.error.empty()) {
      add(Level::problem, "adapter", f_.adapter.error);
      return;
    }
    if (f_.adapter.name.empty()) return;
    const std::string text = fmt::format("selected: {} ({})", f_.adapter.name, f_.adapter.why);
    const bool real_ones =
        std::any_of(f_.devices.begin(), f_.devices.end(),
                    [](const DeviceFacts& device) { return device.open_error.empty(); });
    if (f_.adapter.is_virtual && f_.adapter.wanted == "auto" && real_ones) {
      add(Level::warning, "adapter", text, "programs reach this host only; see the adapters above");
    } else {
      add(f_.adapter.is_virtual ? Level::note : Level::good, "adapter", text);
    }
  }

  void locked_memory() {
    const auto bytes = [](std::uint64_t n) {
      return n == kNoLimit ? std::string("any amount") : value::human_bytes(n);
    };
    const std::string text =
        fmt::format("{} can be locked{}", bytes(f_.limits.memlock),
                    f_.limits.may_lock ? ", which does not apply to this user" : "");
    if (!limits_memlock()) {
      add(Level::good, "locked memory", text);
      return;
    }
    // The virtual adapter pins nothing.
    const std::string hard =
        f_.limits.memlock_hard == kNoLimit || f_.limits.memlock_hard >= f_.budget
            ? fmt::format("ulimit -l {}", f_.limits.memlock_hard == kNoLimit
                                              ? std::string("unlimited")
                                              : std::to_string(f_.limits.memlock_hard / 1024))
            : std::string("as root, add 'memlock unlimited' in /etc/security/limits.d/");
    add(f_.adapter.is_virtual || f_.devices.empty() ? Level::note : Level::problem, "locked memory",
        fmt::format("{}, less than the memory budget of {}", text, value::human_bytes(f_.budget)),
        fmt::format("{}; in batch systems, set LimitMEMLOCK=infinity in the daemon's unit, and for "
                    "Slurm PropagateResourceLimitsExcept=MEMLOCK; or lower TURNOUT_MEMORY_BUDGET",
                    hard));
  }

  void budget() {
    if (f_.budget == 0) return;
    const std::uint64_t all = f_.budget * f_.processes;
    const std::string text =
        fmt::format("{} per process{}, {} available on this machine", value::human_bytes(f_.budget),
                    f_.processes > 1 ? fmt::format(", {} processes", f_.processes) : "",
                    value::human_bytes(f_.available));
    add_if(f_.available != 0 && all > f_.available, Level::warning, "memory budget", text,
           "processes that use all of it would swap; set TURNOUT_NODE_BUDGET, or lower "
           "TURNOUT_MEMORY_BUDGET");
  }

  void system_limits() {
    const auto number = [](std::uint64_t n) {
      return n == kNoLimit ? std::string("unlimited") : std::to_string(n);
    };
    add_if(f_.limits.files < kFewFiles, Level::warning, "open files", number(f_.limits.files),
           f_.limits.files_hard >= kFewFiles
               ? fmt::format("ulimit -n {}", number(f_.limits.files_hard))
               : "as root, add 'nofile 65536' in /etc/security/limits.d/");
    if (f_.limits.maps != 0) {
      add_if(f_.limits.maps < kUsualMaps, Level::warning, "memory mappings",
             fmt::format("{} per process", value::human_count(f_.limits.maps)),
             fmt::format("as root, sysctl vm.max_map_count={}", kUsualMaps));
    }
    if (f_.autogroup) {
      add_if(*f_.autogroup, Level::note, "autogroups",
             *f_.autogroup
                 ? "on: the scheduler shares CPUs between sessions first, so with more ranks than "
                   "CPUs a rank that yields may not free its CPU for a rank of another session"
                 : "off",
             "as root, sysctl kernel.sched_autogroup_enabled=0, if ranks outnumber CPUs");
    }
  }

  void fork() {
    if (f_.devices.empty()) return;
    const std::array<Finding, 4> found = {{
        // by ForkSafety
        {Level::note, "fork", "unknown: rdma-core is older than version 35",
         "set IBV_FORK_SAFE=1 if programs fork"},
        {Level::warning, "fork",
         "not safe: after fork(), copy-on-write can separate the parent's memory from its "
         "registration",
         "use kernel 5.12 or later with rdma-core 35 or later, or set IBV_FORK_SAFE=1"},
        {Level::note, "fork",
         "registered pages are not mapped in child processes (RDMAV_FORK_SAFE or IBV_FORK_SAFE is "
         "set); a child that accesses them crashes",
         ""},
        {Level::good, "fork", "safe: the kernel copies registered pages for child processes", ""},
    }};
    findings_.push_back(found[static_cast<std::size_t>(f_.fork)]);
  }

  void costs() {
    if (!f_.costs_error.empty()) {
      add(Level::problem, "costs file", f_.costs_error,
          "write it with turnout calibrate --output FILE, or unset TURNOUT_COSTS");
    } else if (f_.costs.empty()) {
      add(Level::note, "costs file", "none: built-in costs of a Connect-IB are used",
          "turnout calibrate --output costs.toml, then export TURNOUT_COSTS=$PWD/costs.toml");
    } else {
      add(Level::good, "costs file", f_.costs);
    }
  }

  void mpi() {
    if (f_.launcher.empty()) {
      add(Level::note, "MPI", "no mpirun, mpiexec or srun on the PATH",
          "install an MPI library, or add its bin folder to the PATH");
    } else if (f_.mpi.empty()) {
      add(Level::note, "MPI", fmt::format("{}: unknown library", f_.launcher),
          "turnout run supports MPICH, Open MPI, Intel MPI and Slurm");
    } else {
      add(Level::good, "MPI",
          fmt::format("{} ({}); turnout run -- mpirun ... sets what it needs", f_.mpi,
                      f_.launcher));
    }
  }

  void provider() {
    if (!f_.provider.missing_paths.empty()) {
      add(Level::problem, "FI_PROVIDER_PATH",
          fmt::format("does not exist: {}", fmt::join(f_.provider.missing_paths, ", ")),
          "correct or unset it; turnout run sets it");
    }
    if (f_.provider.file.empty()) {
      add(Level::warning, "libfabric provider", "libturnout-fi.so not found next to this program",
          "build it (make build); it needs libfabric's headers");
      return;
    }
    const std::string folder = f_.provider.file.substr(0, f_.provider.file.rfind('/'));
    const std::vector<std::string> paths = split(f_.provider.path, ":");
    const bool named = std::any_of(paths.begin(), paths.end(), [&](std::string_view one) {
      while (one.size() > 1 && one.ends_with('/')) one.remove_suffix(1);
      return one == folder;
    });
    if (named) {
      add(Level::good, "libfabric provider", f_.provider.file);
    } else {
      add(Level::note, "libfabric provider",
          fmt::format("{}; FI_PROVIDER_PATH is {}", f_.provider.file,
                      f_.provider.path.empty() ? "not set" : f_.provider.path),
          fmt::format("export FI_PROVIDER_PATH={} FI_PROVIDER=turnout for MPI programs", folder));
    }
  }

  const Facts& f_;
  std::vector<Finding> findings_;
};

}  // namespace

std::string_view level_name(Level level) noexcept {
  constexpr std::array<std::string_view, 4> kNames = {"good", "note", "warning", "problem"};
  return kNames[static_cast<std::size_t>(level)];
}

std::vector<Finding> judge(const Facts& facts) {
  return Judge(facts).all();
}

}  // namespace turnout::cli
