// SPDX-License-Identifier: BSD-3-Clause
// What an endpoint did, as data: filled by the core at any moment, turned into JSON and tables
// here.
//
// One file per process; the last process of a job to end prints a summary, `turnout report DIR`
// that or, with --full, the per-rank tables and the sums. Plain values, no owner; any thread. Times
// are nanoseconds since the endpoint was created, sizes bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "core/report/profile.h"
#include "core/report/waits.h"
#include "core/types/channel_kind.h"

namespace turnout {

struct ChannelSpan {  // one period of one direction on one channel
  ChannelKind channel = ChannelKind::dc_sendrecv;
  std::int64_t since = 0;
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
};

struct DirectionReport {
  std::vector<ChannelSpan> spans;  // oldest first; at most kMaxSpans, then neighbours are merged
  std::uint64_t switches = 0;
  static constexpr std::size_t kMaxSpans = 64;
};

// What the latest selection knew of a peer as the source of messages.
struct SourceReport {
  std::uint64_t messages = 0;     // received in SelectionReport::window
  bool connected = false;         // an RC queue pair to it exists
  std::int64_t refused_for = 0;   // so long, from the report on, it is left as it is; 0: it is not
  double busy = 0, switched = 0;  // the sender's feedback: shares, 0 to 1
  std::uint32_t active_rc = 0;    // queue pairs that its adapter holds for it
  std::uint32_t here = 0;         // processes of our node that it sends to, where it has XRC
  bool full = false;              // its budget has no room for another queue pair
};

struct PeerReport {
  std::uint32_t peer = 0;      // id inside this process
  std::uint64_t endpoint = 0;  // Address::id of the peer
  std::uint32_t pid = 0;
  DirectionReport send, receive;
  std::string reason;         // of the latest decision, in words
  double predicted_gain = 0;  // ns per message, of the channel now in use for receiving
  // The same as measured: what a message over DC-sendrecv costs the processor here, less what one
  // over that channel does. Absent when one of the two was not measured.
  std::optional<double> observed_gain;
  std::uint64_t bytes = 0;  // memory this peer costs us now
  bool lost = false;
  std::uint64_t tear_downs = 0;  // of its connection
  // Absent: its policy does not select, the peer sent nothing in the window and has no channel of
  // its own, or a report of an older version.
  std::optional<SourceReport> source = {};
};

struct DecisionReport {  // every change asked for, and its outcome
  std::int64_t time = 0;
  std::uint32_t peer = 0;
  ChannelKind from = ChannelKind::dc_sendrecv, to = ChannelKind::dc_sendrecv;
  std::string reason;   // words, with the numbers that mattered
  std::string outcome;  // "done in 120 us", "refused by peer: its budget", ...
};

struct CostReport {  // of the device, as the selection used it
  std::string name;  // "receiver.dc_rdma", as in docs/device-costs.md
  double value = 0, uncertainty = 0;
};

// What the latest selection was made of, beside the peers (core/selection/policy.h).
struct SelectionReport {
  std::int64_t time = 0;       // of the selection
  std::int64_t window = 0;     // that the counts are of, ns
  std::uint64_t messages = 0;  // received in it, from all peers
  // ns in the window: of the channels as they were, of the best, and by how much the best had to
  // be better where the policy is `turnout`.
  double gain_current = 0, gain_best = 0, threshold = 0;
  double gain_threshold = 0;    // ns a message, policy aqps
  double busy = 0, repaid = 1;  // TurnoutTerms
  std::uint32_t under_way = 0, sending_rc = 0, ring_entries = 0;
  std::uint32_t max_active_rc = 0, max_channels = 0;
  bool dc_rdma = false;  // rings over DC are possible
  // Left for new rings and queue pairs, with what the present rings would give back.
  std::uint64_t bytes_available = 0;
  std::uint64_t bytes_per_ring = 0, bytes_per_rc = 0, bytes_per_target = 0;
  ChannelKind default_channel = ChannelKind::dc_sendrecv;
  std::vector<CostReport> costs;
  static constexpr std::size_t kMostCosts = 256;
};

struct MemoryLine {
  std::string kind;                             // "queue pairs", "rings", ...
  std::uint64_t now = 0, peak = 0;              // bytes
  std::uint64_t objects = 0, objects_peak = 0;  // buffers, ring entries, queue pairs, records
};

// What was held of each kind from `time` until the next one's.
struct MemoryPoint {
  std::int64_t time = 0;
  std::vector<std::uint64_t> bytes;  // as many as EndpointReport::memory has lines, in its order
};

// What messages received over one kind of channel cost the processor, from a sample of them: to
// find, match and copy them, and to make room for the next.
struct ReceiveCostLine {
  ChannelKind channel = ChannelKind::dc_sendrecv;
  std::uint64_t messages = 0;  // of the sample
  double mean = 0;             // ns per message
};

// Who sent how much in a while. Old ones are long: neighbours are merged as they age.
struct HistoryInterval {
  std::int64_t begin = 0, end = 0;
  std::uint64_t messages = 0;                                    // of all sources, listed or not
  std::vector<std::pair<std::uint32_t, std::uint64_t>> sources;  // PeerReport::peer, messages
};

// Registrations of the application's buffers that are kept (core/memory/registration_cache.h).
struct RegistrationReport {
  std::string off;  // why none are kept; empty: they are
  std::uint64_t hits = 0, misses = 0, evictions = 0, invalidations = 0;
  std::uint64_t bytes = 0, bytes_peak = 0;  // registered, in use or not
};

// What became of the shared data receive queue.
struct SharedReceivesReport {
  std::uint64_t limit_events = 0;  // fewer receives than the low watermark were left
  std::uint64_t growths = 0, shrinks = 0;
  std::uint64_t credit_waits = 0;  // peers that were left without a credit while all were lent
  // Messages that found no receive and were sent again by their sender's adapter; filled in by the
  // simulator: real adapters count them for a port, not for a process.
  std::uint64_t rnr_naks = 0;
};

// Private receive queues (policy ardma-sr).
struct PrivateReceivesReport {
  std::uint64_t buffers_peak = 0;
  std::uint64_t growths = 0, refused = 0;  // for much control traffic; for lack of memory
  std::uint64_t controls = 0;              // control messages of large messages that came into them
};

// RC connections made and torn down (channels/connection_slots.cpp).
struct ConnectionsReport {
  std::uint64_t made = 0;  // ever
  std::uint64_t tear_downs = 0, tear_downs_by_peers = 0;
  std::uint64_t waited = 0, gave_up = 0;  // peers that found no place; and those that had none soon
  std::uint64_t failed = 0;               // made good: what they lost was sent again
  // Tear-downs of ours that have ended, and their time from the choice to the free place, ns.
  std::uint64_t freed = 0, time = 0, time_most = 0;

  // Sums, and the largest of time_most.
  void add(const ConnectionsReport& other) noexcept {
    made += other.made;
    tear_downs += other.tear_downs;
    tear_downs_by_peers += other.tear_downs_by_peers;
    waited += other.waited;
    gave_up += other.gave_up;
    failed += other.failed;
    freed += other.freed;
    time += other.time;
    time_most = time_most > other.time_most ? time_most : other.time_most;
  }
};

struct OperationCounts {
  std::uint64_t unexpected = 0, rendezvous = 0, credit_messages = 0, refusals = 0;
  // RTRs sent; large messages written to RTRs of the peer, and those of
  // them that needed a put completion (operations/rtr_engine.cpp).
  std::uint64_t rtrs = 0, puts = 0, put_completions = 0;
  // Bytes above which messages used rendezvous at the end, where that is measured; 0: nothing was.
  std::uint64_t measured_limit = 0;
};

struct EndpointReport {
  std::uint64_t endpoint = 0;
  std::uint32_t pid = 0;
  int rank = -1, ranks = -1;  // from the launcher, -1 unknown
  std::string job;            // groups the reports of one job; publish() fills it in
  std::string host, device, policy;
  std::int64_t started = 0;  // by the host's clock, ns since 1970; 0: unknown
  std::int64_t lifetime = 0;
  std::vector<PeerReport> peers;
  std::vector<DecisionReport> decisions;
  std::uint64_t decisions_dropped = 0;  // beyond the last 4096
  std::vector<MemoryLine> memory;
  // Oldest first; empty in reports of older versions.
  std::vector<MemoryPoint> memory_over_time;
  static constexpr std::size_t kMaxMemoryPoints = 256;
  std::uint64_t budget = 0, used = 0, peak = 0;
  std::vector<ReceiveCostLine> receive_costs;  // of the kinds that were measured
  // As the selection's statistics keep it, oldest first; empty where the policy keeps none. At most
  // kMaxHistory sources in all: the oldest intervals are left out.
  std::vector<HistoryInterval> history;
  static constexpr std::size_t kMaxHistory = 65536;
  OperationCounts operations;
  RegistrationReport registrations;
  SharedReceivesReport shared_receives;
  PrivateReceivesReport private_receives;
  ConnectionsReport connections;
  std::uint64_t rc_queue_pairs_peak = 0;     // most that existed at one time, idle ones too
  std::optional<ProfileReport> profile;      // reports of older versions have none
  std::optional<SelectionReport> selection;  // absent: nothing was selected, or an older version
  std::optional<WaitsReport> waits;          // while somebody watches, or of a stuck endpoint
};

// Whether any message was counted, of either direction.
[[nodiscard]] bool carried_anything(const EndpointReport& report);
[[nodiscard]] std::string to_json(const EndpointReport& report);
// Untrusted text. Errors: invalid, naming the field.
[[nodiscard]] Result<EndpointReport> report_from_json(std::string_view text);

// How much the tables tell of each rank; the sums count everything.
struct TableLimits {
  std::size_t peers = SIZE_MAX;      // the busiest ones
  std::size_t decisions = SIZE_MAX;  // the latest ones
  bool findings = true;              // of a job that has ended (job_findings.h), at the end
};
// Tables for people, at most 110 columns: one per rank, then sums over all; sorted by rank.
[[nodiscard]] std::string format_reports(std::span<const EndpointReport> reports,
                                         const TableLimits& limits = {});

// Hands in the report of an endpoint that ends. `report_setting` and `job` as in Settings:
//   "0"  nothing;
//   "1"  the report goes into the job's folder, which is private to the user and below
//        XDG_RUNTIME_DIR or /tmp; the last process of the job on this host prints the summary of
//        all (job_summary.h) to standard output in one write and removes the folder. Without a
//        launcher that gives rank and size, each process prints its own at once;
//   path the report goes into that folder, which is made if need be; nothing is printed.
// Errors: permission (a folder of another user, a link in its place), system, again (the folder
// stays locked for seconds).
Status publish(const EndpointReport& report, const std::string& report_setting,
               const std::string& job);

}  // namespace turnout
