// SPDX-License-Identifier: BSD-3-Clause
// What the values of settings must satisfy: Settings::validate().

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <iterator>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/settings.h"
#include "base/value.h"

namespace turnout {

namespace {

constexpr std::uint64_t kKi = 1024;
constexpr std::uint64_t kMi = kKi * kKi;
constexpr std::uint64_t kGi = kKi * kMi;
constexpr std::int64_t kSecond = 1'000'000'000;

// Collects the first violation; later checks then do nothing.
class Rules {
 public:
  explicit Rules(const Settings& settings) : settings_(settings) {}

  void count(std::string_view name, std::uint64_t v, std::uint64_t least, std::uint64_t most) {
    if (v < least || v > most) {
      fail(name, fmt::format("{}", v), fmt::format("expected {} to {}", least, most));
    }
  }
  void bytes(std::string_view name, std::uint64_t v, std::uint64_t least, std::uint64_t most) {
    if (v < least || v > most) {
      fail(name, value::print_bytes(v),
           fmt::format("expected {} to {}", value::print_bytes(least), value::print_bytes(most)));
    }
  }
  void duration(std::string_view name, std::int64_t v, std::int64_t least, std::int64_t most) {
    if (v < least || v > most) {
      fail(name, value::print_duration(v),
           fmt::format("expected {} to {}", value::print_duration(least),
                       value::print_duration(most)));
    }
  }
  template <std::size_t N>
  void one_of(std::string_view name, const std::string& v,
              const std::array<std::string_view, N>& known) {
    if (std::find(known.begin(), known.end(), v) == known.end()) {
      fail(name, v, fmt::format("expected {}", fmt::join(known, " or ")));
    }
  }
  void that(bool holds, std::string_view name, std::string_view v, std::string_view expected) {
    if (!holds) fail(name, v, expected);
  }
  [[nodiscard]] Status result() const { return status_; }

 private:
  void fail(std::string_view name, std::string_view v, std::string_view expected) {
    if (status_.ok()) {
      status_ = {Code::invalid,
                 fmt::format("{} = \"{}\": {}", settings_.variable(name), v, expected)};
    }
  }
  const Settings& settings_;
  Status status_;
};

// Letters, digits and . _ - : what becomes part of a file's name.
bool is_plain_name(std::string_view name, std::size_t longest) {
  return !name.empty() && name.size() <= longest && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' ||
                  c == '-';
         });
}

// Neither empty nor what somebody may have meant as on or off.
bool is_folder(std::string_view path) {
  constexpr std::string_view kWords[] = {"true", "false", "yes", "no", "on", "off", "y", "n"};
  std::string word(path);
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return !path.empty() && path.find('\0') == path.npos &&
         path.find_first_not_of("0123456789") != path.npos &&
         std::find(std::begin(kWords), std::end(kWords), word) == std::end(kWords);
}

// A path whose every % is one that recordings fill in.
bool is_trace_path(std::string_view path) {
  for (std::size_t at = path.find('%'); at != std::string_view::npos; at = path.find('%', at + 2)) {
    if (at + 1 == path.size() || std::string_view("pre").find(path[at + 1]) == path.npos) {
      return false;
    }
  }
  return path.find('/') != std::string_view::npos && path.find('\0') == std::string_view::npos;
}

}  // namespace

Status Settings::validate() const {
  Rules rules(*this);
  rules.that(log::well_formed(log), "log", log,
             "expected a level (trace debug info warn error off), then exceptions by subsystem: "
             "warn,connection=debug");

  rules.that(is_plain_name(device, 64), "device", device,
             "expected virtual, auto or an adapter's name");
  rules.that(is_plain_name(fabric, 64), "fabric", fabric,
             "expected 1 to 64 letters, digits and . _ - not beginning with a point");
  // The virtual fabric's headers and tables take some MiB; user space ends at 128 TiB.
  rules.bytes("fabric_size", fabric_size, 64 * kMi, 65536 * kGi);
  rules.bytes("memory_budget", memory_budget, 1, std::uint64_t{1} << 60);
  rules.bytes("node_budget", node_budget, 0, std::uint64_t{1} << 60);

  rules.duration("interval", interval, 1000, 3600 * kSecond);
  rules.one_of("policy", policy, kPolicyNames);
  rules.one_of("xrc", xrc, std::array<std::string_view, 2>{"auto", "no"});
  rules.one_of("default_transport", default_transport,
               std::array<std::string_view, 3>{"auto", "dc", "ud"});
  rules.that(!needs_dc(policy) || default_transport != "ud", "policy", policy,
             fmt::format("it needs DC, which {}=ud rules out", variable("default_transport")));
  rules.that(policy != "static:ud-sendrecv" || default_transport != "dc", "policy", policy,
             fmt::format("it needs UD, which {}=dc rules out", variable("default_transport")));
  rules.one_of(
      "break_rule", break_rule,
      std::array<std::string_view, 7>{"", "free-before-drain", "over-budget", "lend-freely",
                                      "lend-least", "stale-registrations", "drop-lost"});
  rules.one_of("rendezvous", rendezvous, kRendezvousNames);
  rules.one_of("rtr_sentinel", rtr_sentinel, kRtrSentinelNames);

  rules.count("data_qps", data_qps, 0, 64);
  rules.count("node_processes", node_processes, 0, 65536);
  rules.count("credit_qps", credit_qps, 1, 64);
  // The address (core/types/address.h) has room for this many DC targets.
  rules.count("establishment_qps", establishment_qps, 1, 2);

  rules.that(ring_entries >= 2 && ring_entries <= 128 && std::has_single_bit(ring_entries),
             "ring_entries", fmt::format("{}", ring_entries), "expected a power of two, 2 to 128");
  rules.bytes("ring_entry_size", ring_entry_size, 512, 64 * kKi);
  rules.that(ring_entry_size % 64 == 0, "ring_entry_size", value::print_bytes(ring_entry_size),
             "expected a multiple of 64 bytes");
  rules.bytes("large_ring_entry", large_ring_entry, 0, 64 * kKi);
  rules.that(large_ring_entry % 64 == 0, "large_ring_entry", value::print_bytes(large_ring_entry),
             "expected a multiple of 64 bytes");

  rules.one_of("ring_order", ring_order, std::array<std::string_view, 3>{"auto", "trust", "check"});

  // 32768 is the largest shared receive queue of mlx5 devices (max_srq_wr, rounded to a power of
  // two).
  rules.count("receive_buffers", receive_buffers, 2, 32768);
  rules.count("receive_first", receive_first, 2, 32768);
  rules.count("receive_growth", receive_growth, 0, 32768);
  rules.count("receive_watermark", receive_watermark, 0, 16384);
  rules.duration("receive_idle", receive_idle, 1'000'000, 3600 * kSecond);
  // With one, which control messages keep, no other message could be sent; a queue pair of mlx5
  // devices has at most 32768 (max_qp_wr).
  rules.count("private_receive_first", private_receive_first, 2, 32768);
  rules.count("private_receive_buffers", private_receive_buffers, 2, 32768);
  rules.count("private_receive_threshold", private_receive_threshold, 1, std::uint64_t{1} << 32);
  rules.count("control_buffers", control_buffers, 8, 32768);
  rules.count("send_buffers", send_buffers, 8, 32768);
  rules.count("credits", credits, 2, 32768);
  rules.count("credits_first", credits_first, 1, 32768);
  rules.that(credits <= receive_buffers, "credits", fmt::format("{}", credits),
             fmt::format("one source may not use more than all receives: at most "
                         "{}, which is {}",
                         variable("receive_buffers"), receive_buffers));
  rules.bytes("unexpected_memory", unexpected_memory, ring_entry_size, std::uint64_t{1} << 60);
  // IBTA: one message is at most 2^31 bytes.
  rules.bytes("rendezvous_threshold", rendezvous_threshold, 0, kGi);
  rules.duration("rtr_wait", rtr_wait, 0, 3600 * kSecond);
  rules.bytes("rendezvous_segment", rendezvous_segment, 4 * kKi, kGi);

  rules.count("registration_cache_entries", registration_cache_entries, 0, std::uint64_t{1} << 20);
  rules.bytes("registration_cache_bytes", registration_cache_bytes, 0, std::uint64_t{1} << 60);

  rules.count("max_conn", max_conn, 0, std::uint64_t{1} << 20);
  rules.one_of("eviction", eviction, kEvictionNames);
  rules.one_of("adapter", adapter, kAdapterNames);
  rules.count("max_active_rc", max_active_rc, 0, std::uint64_t{1} << 20);
  rules.count("ring_threshold", ring_threshold, 1, std::uint64_t{1} << 32);
  rules.count("max_channels", max_channels, 0, std::uint64_t{1} << 20);
  rules.count("rc_pool", rc_pool, 0, std::uint64_t{1} << 20);

  rules.duration("saving_dc_rdma", saving_dc_rdma, 1, kSecond);
  rules.duration("saving_rc_rdma", saving_rc_rdma, 1, kSecond);
  rules.duration("cost_poll", cost_poll, 0, kSecond);
  rules.duration("cost_credit", cost_credit, 0, kSecond);
  rules.duration("cost_setup_dc", cost_setup_dc, 0, 3600 * kSecond);
  rules.duration("cost_setup_rc", cost_setup_rc, 0, 3600 * kSecond);
  rules.duration("gain_threshold", gain_threshold, 0, kSecond);

  rules.duration("progress_thread", progress_thread, 0, kSecond);
  rules.duration("stuck", stuck, 0, 24 * 3600 * kSecond);
  rules.duration("keepalive", keepalive, 1'000'000, 3600 * kSecond);
  rules.count("ack_timeout", ack_timeout, 1, 31);
  rules.count("retry_count", retry_count, 0, 7);
  rules.duration("ud_timeout", ud_timeout, 0, 3600 * kSecond);

  rules.that(report == "0" || report == "1" || is_folder(report), "report", report,
             "expected 0, 1 or a folder (a name such as yes or 2 with a slash: ./yes)");
  rules.that(prediction.empty() || is_folder(prediction), "prediction", prediction,
             "expected a folder of reports (a name such as yes or 2 with a slash: ./yes)");
  rules.that(report_job.empty() || is_plain_name(report_job, 128), "report_job", report_job,
             "expected at most 128 letters, digits and . _ - not beginning with a point");
  rules.that(trace.empty() || is_trace_path(trace), "trace", trace,
             "expected a path, written with a slash (./recordings/), with %p, %r and %e only");
  return rules.result();
}

}  // namespace turnout
