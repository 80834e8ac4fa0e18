// SPDX-License-Identifier: BSD-3-Clause
#include "sim/experiments/published.h"

namespace turnout::sim {

const std::string_view kNotCompared =
    "- 150 million messages a second and 0.7 us of ConnectX-4 (press release of 2014): the text "
    "was not found at an address\n  that could be read.\n- DC send latency between two HDR "
    "adapters (https://github.com/openucx/ucx/issues/9590): the thread was found, its\n  table was "
    "not in the text that could be read.\n- 60 DC initiators reach 10 GB/s each way with 89 nodes "
    "and 17,600 connections a node (https://github.com/openucx/ucx/pull/7860):\n  neither the "
    "adapter nor the message size is named.\n- READ round trip of 2.5 us on ConnectX-4 and set-up "
    "in 10 us (KRCORE, arXiv 2201.11578): only the abstract could be\n  read, and its set-up is "
    "not that of verbs.\n";

namespace {

constexpr std::uint32_t kKiB = 1024, kMiB = 1024 * 1024;

std::vector<Source> make_sources() {
  using B = Benchmark;
  return {
      {"DC against RC and XRC",
       "Subramoni et al., ISC 2014, abstract",
       "https://link.springer.com/chapter/10.1007/978-3-319-07518-1_18",
       "not named in the abstract; Connect-IB is assumed, as in the DCT notes of the same time.",
       {{"one to all, small messages, DC against RC", "connect-ib", -20, "%", B::one_to_all, 8,
         false, false, false, "rc-rdma-od"},
        {"one to all, small messages, DC against XRC", "connect-ib", -8, "%", B::one_to_all, 8,
         false, false, false, "xrc-rdma-od"},
        {"all to one, large messages, DC against RC", "connect-ib", -43, "%", B::all_to_one,
         64 * kKiB, false, false, false, "rc-rdma-od"},
        {"all to one, large messages, DC against XRC", "connect-ib", -42, "%", B::all_to_one,
         64 * kKiB, false, false, false, "xrc-rdma-od"},
        {"all to all, DC against RC", "connect-ib", 0, "%", B::all_to_all, 8, false, false, false,
         "rc-rdma-od"}},
       "workloads `onetoall`, `alltoone` and `alltoall` with 64 processes on 64 nodes, 8 bytes or "
       "64 KiB, under `dc-rdma-od`,\n  `rc-rdma-od` and `xrc-rdma-od`. The abstract gives neither "
       "numbers of processes nor sizes; \"comparable\" is taken as 0 %.",
       "`cache.*` for RC, `adapter.send_dc_switch`, `dc.connect` and `dc.disconnect` for DC; "
       "`wire.rate` and `pcie.rate` for large messages.",
       "`connect-ib` is derived from the DCT notes, UCX and Table 2 of the AQPS paper; nothing is "
       "from this paper.",
       "the profile has the DCT notes, in which a queue pair beyond the first level of the cache "
       "costs 6 ns: hidden behind the\n  processor, so RC and XRC lose nothing with 63 peers, "
       "while DC waits for its switches. The AQPS paper, too, saw RC\n  lose; `connect-ib-aqps`, "
       "fitted to it, needs 668 ns a miss, and no one set of values meets both. Large messages all "
       "to\n  one: the receiver's port limits every transport in the model. What held RC back in "
       "the paper the abstract does not say."},
      {"Latency of SEND, ConnectX-4",
       "D. Potter, master's thesis, RWTH Aachen 2018, table mtu_performance, MTU 4096",
       "https://git.dennispotter.eu/Dennis/masters-thesis/raw/commit/"
       "1995c04f8af7a026550961b343ddaaf4cba4f893/tables/mtu_performance.tex",
       "ConnectX-4 MT27700, EDR, PCI Express 3.0 x16, two of them joined by a cable of 0.5 m "
       "(table benchmark_testsystem of the\nsame thesis).",
       {{"RC, 32 B, inline", "connectx-4", 0.83, "us", B::send_rc, 32, true, true},
        {"RC, 1 KiB", "connectx-4", 1.61, "us", B::send_rc, kKiB, false, true},
        {"RC, 4 KiB", "connectx-4", 2.28, "us", B::send_rc, 4 * kKiB, false, true},
        {"RC, 32 KiB", "connectx-4", 4.57, "us", B::send_rc, 32 * kKiB, false, true},
        {"UD, 32 B, inline", "connectx-4", 0.86, "us", B::send_ud, 32, true, true},
        {"UD, 1 KiB", "connectx-4", 1.45, "us", B::send_ud, kKiB, false, true},
        {"UD, 4 KiB", "connectx-4", 2.22, "us", B::send_ud, 4 * kKiB, false, true}},
       "half a round trip of SENDs at the verbs level, messages below 188 bytes inline; `wire.hop` "
       "is 2.5 ns, that of the cable.",
       "`processor.post`, `processor.doorbell`, `processor.entry`, `pcie.*`, `adapter.send_*`, "
       "`wire.rate`.",
       "`connectx-4` takes its base latency from UCX's estimate of 0.6 us and its processor times "
       "from UCX.",
       "the difference is nearly the same for all sizes, 0.2 to 0.4 us: a constant part. The base "
       "latency is UCX's estimate for\n  choosing a transport, not a measurement, and perftest "
       "posts through the plain verbs (75 ns for RC in UCX, 40 in the\n  profile). The increase "
       "with the size is met within 0.2 us."},
      {"READ and WRITE",
       "linux-rdma/perftest, issue 131",
       "https://github.com/linux-rdma/perftest/issues/131",
       "not named but for the device mlx5_0; compared with `connectx-5`.",
       {{"ib_write_lat, inline", "connectx-5", 0.93, "us", B::write, 2, true},
        {"ib_write_lat, not inline", "connectx-5", 1.32, "us", B::write, 2, false},
        {"ib_read_lat", "connectx-5", 1.91, "us", B::read, 2}},
       "half a round trip of WRITEs, one READ, at the verbs level, 2 bytes, which perftest takes "
       "where nothing else is asked for.",
       "`pcie.doorbell`, `pcie.write`, `pcie.read`, `wire.hop`, `processor.*`.",
       "`connectx-5` takes its base latency and `pcie.read` from UCX.",
       "the base latency, as for ConnectX-4. What a request that is not inline adds, 0.39 us, is "
       "met: 0.40 us. A READ is\n  0.98 us above a WRITE, in the model 0.48 us: what the model "
       "lacks there is not known."},
      {"MPI on ConnectX-6",
       "Azure HBv2, OSU benchmarks 5.6.2 with HPC-X",
       "https://techcommunity.microsoft.com/t5/azure-high-performance-computing/"
       "hpc-performance-and-scalability-results-with-azure-hbv2-vms/ba-p/1012813",
       "the source says \"200 Gbps HDR InfiniBand (SRIOV)\" only; ConnectX-6 is assumed. A virtual "
       "machine.",
       {{"osu_latency, 8 B", "connectx-6", 1.61, "us", B::mpi_latency, 8},
        {"osu_latency, 1 KiB", "connectx-6", 2.63, "us", B::mpi_latency, kKiB},
        {"osu_latency, 2 KiB", "connectx-6", 2.92, "us", B::mpi_latency, 2 * kKiB},
        {"osu_mbw_mr, 2 pairs, 8 KiB", "connectx-6", 23.046, "GB/s", B::mpi_bandwidth, 8 * kKiB},
        {"osu_mbw_mr, 2 pairs, 1 MiB", "connectx-6", 23.474, "GB/s", B::mpi_bandwidth, kMiB}},
       "ping-pong, and windows of 64 messages of two processes a node, on the messaging core under "
       "`srq`, as HPC-X sends over RC\n  into a shared receive queue.",
       "all of `processor.*`, `pcie.*` and `wire.*`; large messages: `wire.rate` and "
       "`wire.overhead`.",
       "`connectx-6` has UCX's 0.6 us, the rate of HDR and a benchmark of READs over many queue "
       "pairs.",
       "small messages: the base latency as above, a virtual machine, and an MPI library: the "
       "model has no software above the\n  messaging core. 8 KiB: not the adapter, whose link the "
       "messages of 1 MiB fill. They are above "
       "Turnout's entries of 4 KiB and go by rendezvous, HPC-X sends\n  them eagerly; with "
       "`ring_entry_size` 16 KiB it is 4.5 GB/s. Which part of the messaging core limits it was "
       "not\n  examined. 1 MiB: the link limits, and the profile's rate is right."},
      {"MPI on ConnectX-6, HBv3",
       "Azure HBv3, performance expectations",
       "https://docs.azure.cn/en-us/virtual-machines/hbv3-performance",
       "not named; ConnectX-6 is assumed, as HBv3 has HDR. The page prints 192 GB/s; the link has "
       "200 Gb/s, so Gb/s are taken: 24 GB/s.",
       {{"latency, 1 B", "connectx-6", 1.2, "us", B::mpi_latency, 1},
        {"bandwidth, one way", "connectx-6", 24, "GB/s", B::mpi_bandwidth, kMiB}},
       "as above.",
       "as above.",
       "as above.",
       "as above. HBv2 and HBv3 have the same link and differ by 0.4 us in what is published: the "
       "host counts as much."},
      {"MPI on ConnectX-7",
       "Azure HBv4, performance expectations",
       "https://github.com/MicrosoftDocs/azure-docs/blob/main/articles/virtual-machines/"
       "hbv4-performance.md",
       "not named; ConnectX-7 is assumed from 400 Gb/s.",
       {{"latency, 1 B", "connectx-7", 2, "us", B::mpi_latency, 1, false, false, true},
        {"bandwidth, one way", "connectx-7", 50, "GB/s", B::mpi_bandwidth, kMiB}},
       "as above; 400 Gb/s are 50 GB/s.",
       "as above.",
       "`connectx-7` has the rates of NDR and of PCI Express 5.0, the rest is ConnectX-6's.",
       "the bound says little. 50 GB/s is the nominal rate; the profile's, 48.4, is derived from "
       "HDR's, so this figure is hardly independent. The rest is the wait at the end of each "
       "window."},
      {"Message rate of ConnectX-6",
       "Mellanox, product brief ConnectX-6 EN",
       "https://studylib.net/doc/25573930/pb-connectx-6-en-card",
       "ConnectX-6; the brief is that of the Ethernet card.",
       {{"messages a second", "connectx-6", 215, "M/s", B::write_rate, 2},
        {"latency", "connectx-6", 0.8, "us", B::write, 2, true, false, true}},
       "16 processes that write 2 bytes inline over a queue pair each; half a round trip of "
       "WRITEs.",
       "`adapter.send_rc`; `pcie.*` and `wire.hop` for the latency.",
       "`adapter.send_rc` is derived from READs, 83 million a second (a public benchmark).",
       "the profile takes the occupancy of READs for WRITEs. One value for all operations cannot "
       "meet both rates."},
      {"Handshake of DC",
       "openucx/ucx, pull request 10415",
       "https://github.com/openucx/ucx/pull/10415",
       "not named; compared with `connectx-6`.",
       {{"latency that a full handshake adds", "connectx-6", 2.7, "us", B::dc_switch},
        {"peers from which on DC is the better choice", "connectx-6", 180, "peers", B::crossing}},
       "a READ of 8 bytes to two targets in turn less one to the same target, over one DC "
       "initiator; `onetoall` with 8 bytes under\n  `dc-rdma-od` and `rc-rdma-od` with 32 to 256 "
       "peers. The source gives 180 to 190 peers.",
       "`dc.connect`, `adapter.send_dc_switch`; `cache.*` for the number of peers.",
       "`dc.connect` is Connect-IB's, from the DCT notes; `dc.disconnect` is from a test on "
       "ConnectX-5.",
       "the profile's connect is the short handshake of Connect-IB; the full one has another round "
       "trip, which the model has\n  not. The number of peers: a queue pair beyond the first level "
       "costs 11.8 ns, hidden behind the processor, and the\n  second level holds 8,192, so that "
       "RC does not become slower than DC with so few."},
  };
}

}  // namespace

std::span<const Source> published_sources() {
  static const std::vector<Source> all = make_sources();
  return all;
}

}  // namespace turnout::sim
