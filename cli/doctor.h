// SPDX-License-Identifier: BSD-3-Clause
// What `turnout doctor` looks at: the machine, its adapters, the limits of a process, the software;
// and its findings: the consequences for Turnout, and remedies. Gathering changes nothing that
// lasts; an adapter is opened, and memory of the budget's size is registered there for a moment.
// Findings are pure: equal facts give equal ones.
//
// Sources: getrlimit(2), capabilities(7), proc(5), ibv_query_device(3), ibv_query_port(3),
// ibv_is_fork_initialized(3); proc(5) (sched_autogroup_enabled, max_map_count), sched(7); PCI
// Express's capability structure (device control register).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/settings.h"

namespace turnout::cli {

struct PortFacts {
  unsigned number = 0;
  bool active = false;
  bool ethernet = false;  // RoCE
  std::string state;
  std::uint32_t lid = 0;
  std::uint32_t mtu = 0;   // bytes
  std::uint32_t gids = 0;  // that are set
};

struct DeviceFacts {
  std::string name, driver, firmware;
  std::string open_error;  // not empty: the rest is not known
  std::uint64_t max_qp = 0, max_qp_wr = 0, max_cqe = 0, max_srq = 0;
  bool dc = false, xrc = false;
  bool pci = false;  // not a device of software, as Soft-RoCE's
  // Of the PCI device; none: it is not told (other than root reads 64 bytes of its configuration).
  std::optional<bool> relaxed_ordering;
  // Memory of the budget's size, registered: 0 or errno, and how much it was.
  int register_error = 0;
  std::uint64_t registered = 0;
  std::vector<PortFacts> ports;
};

enum class ForkSafety : std::uint8_t { unknown, off, on, not_needed };

struct Limits {                                 // of a process; UINT64_MAX: none
  std::uint64_t memlock = 0, memlock_hard = 0;  // bytes
  bool may_lock = false;                        // CAP_IPC_LOCK: memlock does not apply
  std::uint64_t files = 0, files_hard = 0;      // open files
  std::uint64_t maps = 0;                       // memory mappings; 0: unknown
};

struct AdapterChoice {
  std::string wanted;            // the setting `device`
  std::string name, why, error;  // of what Turnout uses
  bool is_virtual = false;
};

struct ProviderFacts {
  std::string file;  // of the libfabric provider beside this program; empty: none
  std::string path;  // FI_PROVIDER_PATH
  std::vector<std::string> missing_paths;  // of its entries: that do not exist
};

struct Facts {
  std::string kernel, rdma_core, libfabric;  // versions; empty: not there
  std::string library_error;                 // the system's verbs cannot be used
  bool kernel_rdma = false;                  // /sys/class/infiniband
  std::vector<std::string> closed_files;     // of /dev/infiniband: that may not be opened
  bool has_files = false;                    // any uverbs there
  std::vector<DeviceFacts> devices;
  AdapterChoice adapter;
  ForkSafety fork = ForkSafety::unknown;

  std::string settings_error;
  std::uint64_t budget = 0, available = 0;  // bytes: of a process, of the machine
  std::uint64_t processes = 1;              // of this node
  Limits limits;
  std::optional<bool> autogroup;  // the scheduler groups processes by session

  ProviderFacts provider;
  std::string costs, costs_error;  // the setting `costs`; why it cannot be used
  std::string launcher, mpi;       // "/usr/bin/mpirun", "Open MPI 4.1.4"; empty: none on the PATH
};

[[nodiscard]] Facts gather_facts();

// problem: something will not work; warning: it works, worse than it could; note: good to know.
enum class Level : std::uint8_t { good, note, warning, problem };
[[nodiscard]] std::string_view level_name(Level level) noexcept;

struct Finding {
  Level level = Level::good;
  std::string what;   // a short name, the same for the same check
  std::string found;  // one line
  std::string fix;    // what to do; empty when there is nothing to do
};

[[nodiscard]] std::vector<Finding> judge(const Facts& facts);

}  // namespace turnout::cli
