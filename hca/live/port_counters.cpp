// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/port_counters.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>

#include "hca/live/directory.h"
#include "hca/live/tables.h"

namespace turnout::hca {
namespace {

// IBTA 16.1.3.5: words of 32 bits, all of a packet without its delimiters and variant CRC. What
// every packet has: local route header, base transport header, invariant CRC.
constexpr std::uint64_t kHeaderWords = (8 + 12 + 4) / 4;

std::uint64_t words(const PortTraffic& t) {
  return t.bytes / 4 + t.packets * kHeaderWords;
}
std::uint64_t packets(const PortTraffic& t) {
  return t.packets;
}
std::uint64_t unicasts(const PortTraffic& t) {
  return t.packets - std::min(t.packets, t.multicasts);
}
std::uint64_t multicasts(const PortTraffic& t) {
  return t.multicasts;
}
std::uint64_t sends(const PortTraffic& t) {
  return t.sends;
}
std::uint64_t rnr_naks(const PortTraffic& t) {
  return t.rnr_naks;
}
std::uint64_t links_downed(const PortTraffic& t) {
  return t.links_downed;
}
// What cannot happen here.
std::uint64_t none(const PortTraffic&) {
  return 0;
}

constexpr PortCounter kPortCounters[] = {
    {"counters/port_xmit_data", words},
    {"counters/port_rcv_data", words},
    {"counters/port_xmit_packets", packets},
    {"counters/port_rcv_packets", packets},
    {"counters/unicast_xmit_packets", unicasts},
    {"counters/unicast_rcv_packets", unicasts},
    {"counters/multicast_xmit_packets", multicasts},
    {"counters/multicast_rcv_packets", multicasts},
    {"counters/link_downed", links_downed},
    {"counters/symbol_error", none},
    {"counters/port_rcv_errors", none},
    {"counters/port_rcv_remote_physical_errors", none},
    {"counters/port_rcv_switch_relay_errors", none},
    {"counters/link_error_recovery", none},
    {"counters/port_xmit_constraint_errors", none},
    {"counters/port_rcv_constraint_errors", none},
    {"counters/local_link_integrity_errors", none},
    {"counters/excessive_buffer_overrun_errors", none},
    {"counters/port_xmit_discards", none},
    {"counters/VL15_dropped", none},
    {"counters/port_xmit_wait", none},
    {"hw_counters/sent_pkts", packets},
    {"hw_counters/rcvd_pkts", packets},
    {"hw_counters/duplicate_request", none},
    {"hw_counters/out_of_seq_request", none},
    {"hw_counters/rcvd_rnr_err", rnr_naks},
    {"hw_counters/send_rnr_err", rnr_naks},
    {"hw_counters/rcvd_seq_err", none},
    {"hw_counters/ack_deferred", none},
    {"hw_counters/retry_exceeded_err", [](const PortTraffic& t) { return t.retries_exceeded; }},
    {"hw_counters/retry_rnr_exceeded_err",
     [](const PortTraffic& t) { return t.rnr_retries_exceeded; }},
    {"hw_counters/completer_retry_err", [](const PortTraffic& t) { return t.retries; }},
    {"hw_counters/send_err", none},
    {"hw_counters/link_downed", links_downed},
    {"hw_counters/rdma_sends", sends},
    {"hw_counters/rdma_recvs", sends},
    // Milliseconds for which a value that was read may stand: none.
    {"hw_counters/lifespan", none},
};

// The records of a fabric, for reading only.
class RecordsView : public Tables {
 public:
  explicit RecordsView(int fd) {
    struct stat st {};
    if (fd < 0 || fstat(fd, &st) != 0 ||
        static_cast<std::uint64_t>(st.st_size) < Layout::minimum_size) {
      return;
    }
    void* const made = mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, fd, 0);
    if (made == MAP_FAILED) return;
    view(static_cast<std::byte*>(made), kBytes);
    const Header& h = header();
    valid_ = h.ready.load(std::memory_order_acquire) == 1 && h.magic == kMagic &&
             h.version == kLayoutVersion && h.layout == Layout::hash();
  }
  ~RecordsView() {
    if (base() != nullptr) munmap(base(), kBytes);
  }
  RecordsView(const RecordsView&) = delete;
  RecordsView& operator=(const RecordsView&) = delete;
  [[nodiscard]] bool valid() const noexcept { return valid_; }

 private:
  static constexpr std::uint64_t kBytes = Layout::cqs;  // processes and queue pairs
  bool valid_ = false;
};

}  // namespace

std::span<const PortCounter> port_counters() noexcept {
  return kPortCounters;
}

PortTraffic read_traffic(const std::string& fabric) {
  PortTraffic sum;
  const auto members = list_members(fabric);
  if (!members) return sum;
  for (const Member& member : members.value()) {
    const Descriptor fd = open_memory(fabric, member);
    const RecordsView records(fd.get());
    if (!records.valid()) continue;
    const std::uint32_t qps = std::min(records.header().qp_high.load(), kMaxQps);
    for (std::uint32_t i = kFirstQp; i < qps; ++i) {
      const volatile QpCounters& c = records.qp(i).counters;
      sum.packets += c.packets;
      sum.bytes += c.bytes;
      sum.sends += c.sends;
      sum.multicasts += c.multicasts;
      sum.rnr_naks += c.rnr_naks;
      sum.retries += c.retries;
      sum.retries_exceeded += c.retries_exceeded;
      sum.rnr_retries_exceeded += c.rnr_retries_exceeded;
    }
    const std::uint32_t processes = std::min(records.header().process_high.load(), kMaxProcesses);
    for (std::uint32_t i = 0; i < processes; ++i) {
      sum.links_downed += records.process(i).links_downed.load(std::memory_order_relaxed);
    }
    return sum;
  }
  return sum;
}

}  // namespace turnout::hca
