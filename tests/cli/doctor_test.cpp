// SPDX-License-Identifier: BSD-3-Clause
// What `turnout doctor` says of machines that are not at hand: the facts are made up.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include "cli/doctor.h"

namespace turnout::cli {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

// A machine with one InfiniBand adapter where all is as it should be.
Facts healthy() {
  DeviceFacts device;
  device.name = "mlx5_0";
  device.driver = "mlx5_core";
  device.firmware = "16.35.1012";
  device.max_qp = 262144;
  device.dc = device.xrc = device.pci = true;
  device.relaxed_ordering = true;
  device.registered = 256 * kMiB;
  device.ports = {{1, true, false, "active", 17, 4096, 1}};
  Facts f;
  f.kernel = "6.1.0";
  f.rdma_core = "44.0";
  f.libfabric = "1.17";
  f.kernel_rdma = f.has_files = true;
  f.devices = {device};
  f.adapter.wanted = "auto";
  f.budget = 256 * kMiB;
  f.available = 64ULL << 30;
  f.adapter.name = "mlx5_0";
  f.adapter.why = "first real adapter with DC and an active port";
  f.limits.memlock = f.limits.memlock_hard = UINT64_MAX;
  f.limits.files = f.limits.files_hard = 65536;
  f.fork = ForkSafety::not_needed;
  f.provider.file = "/opt/turnout/lib/libturnout-fi.so";
  f.provider.path = "/usr/lib/other:/opt/turnout/lib/";
  f.costs = "/etc/turnout/costs.toml";
  f.launcher = "/usr/bin/mpirun";
  f.mpi = "Open MPI 4.1.4";
  f.autogroup = false;
  f.limits.maps = 65530;
  return f;
}

// The finding of this check; level good and no text when there is none.
Finding of(const Facts& facts, std::string_view what) {
  const std::vector<Finding> all = judge(facts);
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Finding& one) { return one.what == what; });
  return found != all.end() ? *found : Finding{};
}

// All that is worse than a note, by name.
std::vector<std::string> bad(const Facts& facts) {
  std::vector<std::string> names;
  for (const Finding& one : judge(facts)) {
    if (one.level < Level::warning) continue;
    names.push_back(one.what);
    EXPECT_FALSE(one.found.empty()) << one.what;
  }
  return names;
}

using Names = std::vector<std::string>;

TEST(Doctor, NothingIsWrongWithAHealthyMachine) {
  for (const Finding& one : judge(healthy())) {
    EXPECT_EQ(one.level, Level::good) << one.what << ": " << one.found;
    EXPECT_EQ(one.fix, "");
  }
  EXPECT_EQ(bad(healthy()), Names{});
}

TEST(Doctor, NoAdapterAtAll) {
  Facts f = healthy();
  f.kernel_rdma = f.has_files = false;
  f.devices.clear();
  f.adapter.name = "turnout0";
  f.adapter.is_virtual = true;
  f.limits.memlock = f.limits.memlock_hard = 65536;
  EXPECT_EQ(bad(f), Names{});  // the virtual adapter pins nothing
  EXPECT_NE(of(f, "kernel").fix.find("rdma_rxe"), std::string::npos);
  EXPECT_EQ(of(f, "locked memory").level, Level::note);
}

TEST(Doctor, LittleLockedMemory) {
  Facts f = healthy();
  f.limits.memlock = 65536;
  f.limits.memlock_hard = UINT64_MAX;
  f.devices[0].register_error = ENOMEM;
  EXPECT_EQ(bad(f), (Names{"mlx5_0 registration", "locked memory"}));
  EXPECT_NE(of(f, "mlx5_0 registration").fix.find("locked memory"), std::string::npos);
  EXPECT_NE(of(f, "locked memory").fix.find("ulimit -l unlimited"), std::string::npos);
  // The hard limit is in the way: root must raise it.
  f.limits.memlock_hard = 65536;
  EXPECT_NE(of(f, "locked memory").fix.find("limits.d"), std::string::npos);
  // It does not bind who may lock.
  f.limits.may_lock = true;
  EXPECT_EQ(bad(f), Names{"mlx5_0 registration"});
  EXPECT_NE(of(f, "mlx5_0 registration").fix.find("TURNOUT_MEMORY_BUDGET"), std::string::npos);
  // Nor is it in the way of a budget that is smaller.
  f = healthy();
  f.limits.memlock = f.limits.memlock_hard = 256 * kMiB;
  EXPECT_EQ(bad(f), Names{});
}

TEST(Doctor, Ports) {
  Facts f = healthy();
  f.devices[0].ports = {{1, false, false, "down", 0, 4096, 0}};
  EXPECT_EQ(bad(f), Names{"mlx5_0 port 1"});
  f.devices[0].ports.push_back({2, true, false, "active", 3, 4096, 1});
  EXPECT_EQ(bad(f), Names{});  // one is enough
  EXPECT_EQ(of(f, "mlx5_0 port 1").level, Level::note);
  f.devices[0].ports = {{1, true, false, "active", 0, 4096, 1}};
  EXPECT_NE(of(f, "mlx5_0 port 1").fix.find("subnet manager"), std::string::npos);
  f.devices[0].ports = {{1, true, true, "active", 0, 1024, 0}};
  EXPECT_NE(of(f, "mlx5_0 port 1").fix.find("address"), std::string::npos);
  f.devices[0].ports[0].gids = 2;
  EXPECT_EQ(bad(f), Names{});
}

TEST(Doctor, FilesOfTheKernel) {
  Facts f = healthy();
  f.has_files = false;
  f.devices.clear();
  EXPECT_EQ(bad(f), Names{"device files"});
  f.has_files = true;
  f.closed_files = {"/dev/infiniband/uverbs0"};
  EXPECT_NE(of(f, "device files").found.find("uverbs0"), std::string::npos);
  f.closed_files.clear();
  EXPECT_EQ(bad(f), Names{"devices"});  // no driver in user space
  f.library_error = "libibverbs.so.1: cannot open shared object file";
  EXPECT_EQ(bad(f), Names{"verbs library"});
}

TEST(Doctor, AnAdapterThatIsNotUsed) {
  Facts f = healthy();
  f.devices[0].open_error = "Permission denied";
  EXPECT_NE(of(f, "mlx5_0").found.find("Permission denied"), std::string::npos);
  f = healthy();
  f.adapter.name = "turnout0";
  f.adapter.is_virtual = true;
  EXPECT_EQ(bad(f), Names{"adapter"});
  f.adapter.wanted = "virtual";
  EXPECT_EQ(bad(f), Names{});  // as asked for
  f.adapter.error = "TURNOUT_DEVICE=mlx5_7: not usable";
  EXPECT_EQ(of(f, "adapter").level, Level::problem);
}

TEST(Doctor, WithoutDcUdServes) {
  Facts f = healthy();
  f.devices[0].dc = false;
  EXPECT_EQ(bad(f), Names{});
  EXPECT_NE(of(f, "mlx5_0 DC").found.find("UD"), std::string::npos);
}

TEST(Doctor, RelaxedOrdering) {
  Facts f = healthy();
  f.devices[0].relaxed_ordering = std::nullopt;
  EXPECT_NE(of(f, "mlx5_0 relaxed ordering").fix.find("root"), std::string::npos);
  f.devices[0].pci = false;
  EXPECT_EQ(of(f, "mlx5_0 relaxed ordering").what, "");
}

TEST(Doctor, MemoryFilesAndForks) {
  Facts f = healthy();
  f.processes = 512;
  EXPECT_EQ(bad(f), Names{"memory budget"});
  EXPECT_NE(of(f, "memory budget").fix.find("TURNOUT_NODE_BUDGET"), std::string::npos);
  f = healthy();
  f.limits.files = 256;
  EXPECT_NE(of(f, "open files").fix.find("ulimit -n 65536"), std::string::npos);
  f.limits.files_hard = 256;
  EXPECT_NE(of(f, "open files").fix.find("limits.d"), std::string::npos);
  f = healthy();
  f.fork = ForkSafety::off;
  EXPECT_EQ(bad(f), Names{"fork"});
  f.fork = ForkSafety::on;
  EXPECT_EQ(bad(f), Names{});
  f.fork = ForkSafety::unknown;
  EXPECT_NE(of(f, "fork").fix.find("IBV_FORK_SAFE"), std::string::npos);
}

TEST(Doctor, TheProvider) {
  Facts f = healthy();
  f.provider.path = "/opt/turnout/lib64:/opt/turnout";
  EXPECT_NE(of(f, "libfabric provider").fix.find("FI_PROVIDER_PATH=/opt/turnout/lib "),
            std::string::npos);
  f.provider.file.clear();
  EXPECT_EQ(bad(f), Names{"libfabric provider"});
}

TEST(Doctor, BrokenSettings) {
  Facts f = healthy();
  f.settings_error = "TURNOUT_INTERVAL = \"banana\"";
  f.adapter.name.clear();
  EXPECT_EQ(bad(f), Names{"settings"});
}

TEST(Doctor, LooksAtTheSoftware) {
  Facts f = healthy();
  EXPECT_EQ(of(f, "MPI").level, Level::good);
  EXPECT_EQ(of(f, "costs file").level, Level::good);
  f.costs_error = "/nonexistent (TURNOUT_COSTS): No such file or directory";
  f.provider.missing_paths = {"/nonexistent"};
  f.limits.maps = 1000;
  EXPECT_EQ(bad(f),
            (std::vector<std::string>{"memory mappings", "costs file", "FI_PROVIDER_PATH"}));
  EXPECT_EQ(of(f, "costs file").level, Level::problem) << "jobs would abort";
  EXPECT_NE(of(f, "FI_PROVIDER_PATH").found.find("/nonexistent"), std::string::npos);
  f = healthy();
  f.mpi.clear();
  f.autogroup = true;
  f.costs.clear();
  EXPECT_EQ(of(f, "MPI").level, Level::note);
  EXPECT_EQ(of(f, "autogroups").level, Level::note);
  EXPECT_EQ(of(f, "costs file").level, Level::note);
  EXPECT_TRUE(bad(f).empty());
  f.launcher.clear();
  EXPECT_NE(of(f, "MPI").found.find("PATH"), std::string::npos);
}

}  // namespace
}  // namespace turnout::cli
