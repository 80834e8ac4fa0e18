// SPDX-License-Identifier: BSD-3-Clause
// TopModel: what `turnout top` shows, from the reports of the last refreshes: jobs, their processes
// and peers, with rates.
//
// A process writes a report about once a second; a rate is taken between its last two different
// ones, by the process's own clock, so that it does not depend on when they were read. Owns the
// reports; what it returns points into them and is valid until the next add(). One thread; no
// terminal, no files, no clock. Reports are untrusted: their texts are as they came, counts that
// decrease give no rate. Rates are per second, ages seconds, sizes bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/watch.h"
#include "core/report/report.h"

namespace turnout::cli {

// A process that calls the library writes once a second.
constexpr double kStaleAge = 3;

// Counts of reports may be anything: doubles add without overflow. A rate's are per second.
struct TopTraffic {
  double messages = 0, bytes = 0;
  TopTraffic& operator+=(const TopTraffic& other) {
    messages += other.messages;
    bytes += other.bytes;
    return *this;
  }
};

struct TopMemory {
  std::uint64_t used = 0, peak = 0, budget = 0;
  TopMemory& operator+=(const TopMemory& other);  // at most UINT64_MAX
};

struct TopPeer {
  std::string name;  // "rank 3"
  const PeerReport* report = nullptr;
  std::optional<TopTraffic> sent, received;  // rates; absent before the second report
};

struct TopDecision {
  const DecisionReport* report = nullptr;
  std::string peer;  // its name
  double age = 0;
};

struct TopProcess {
  std::string name;                                // "rank 3", or "pid 4711"
  double lifetime = 0;                             // seconds, of its oldest endpoint
  std::vector<const Watched*> endpoints;           // at least one
  std::array<std::size_t, kChannelKinds> peers{};  // by the channel in use, see peer_channel()
  std::optional<TopTraffic> sent, received;        // rates; absent before the second report
  TopMemory memory;
  double age = 0;                       // of the latest report
  std::optional<TopDecision> decision;  // the last one

  // Of the first endpoint: for what all have in common.
  [[nodiscard]] const EndpointReport& report() const { return endpoints.front()->report; }
  [[nodiscard]] bool stale() const { return age > kStaleAge; }
  // Sent and received; 0 where unknown or stale.
  [[nodiscard]] TopTraffic rate() const {
    TopTraffic sum = sent.value_or(TopTraffic{});
    sum += received.value_or(TopTraffic{});
    return stale() ? TopTraffic{} : sum;
  }
};

// The most important thing to know of a job now.
struct TopNotice {
  bool warning = false;
  std::string text;
};

struct TopJob {
  std::string name;
  std::vector<TopProcess> processes;  // by rank, then process
  int ranks = -1;                     // of the whole job, on all hosts; -1: unknown
  std::set<std::string> hosts, policies;
  std::optional<TopTraffic> sent;                  // rate
  TopTraffic so_far;                               // sent
  std::array<std::size_t, kChannelKinds> pairs{};  // with messages, by the channel in use
  TopMemory memory;                                // sums
  double lifetime = 0;
  TopNotice notice;
};

[[nodiscard]] TopTraffic sum_of(const DirectionReport& direction);

// The channel that we receive from the peer over; of a peer that we only send to, that we send
// over. Absent: no message yet.
[[nodiscard]] std::optional<ChannelKind> peer_channel(const PeerReport& peer);

class TopModel {
 public:
  // The reports of a refresh; `problems`: what could not be read, and why.
  void add(std::vector<Watched> reports, std::vector<std::string> problems = {});

  [[nodiscard]] const std::vector<TopJob>& jobs() const { return jobs_; }  // by name
  [[nodiscard]] const std::vector<std::string>& problems() const { return problems_; }
  // Busiest first: by the rate, then by all messages.
  [[nodiscard]] std::vector<TopPeer> peers(const TopProcess& process) const;
  // Latest first.
  [[nodiscard]] std::vector<TopDecision> decisions(const TopProcess& process) const;

 private:
  void keep_earlier(const std::vector<Watched>& reports);
  [[nodiscard]] TopJob make_job(const std::string& name, std::vector<const Watched*> reports) const;
  [[nodiscard]] TopProcess make_process(std::vector<const Watched*> endpoints) const;
  [[nodiscard]] std::optional<TopDecision> last_decision(const TopProcess& process) const;
  [[nodiscard]] std::string peer_name(const PeerReport& peer) const;
  [[nodiscard]] const EndpointReport* earlier(const EndpointReport& report) const {
    const auto found = earlier_.find(report.endpoint);
    return found == earlier_.end() ? nullptr : &found->second;
  }

  std::vector<Watched> reports_;
  std::map<std::uint64_t, EndpointReport> earlier_;  // the report before the last, by endpoint
  std::map<std::uint64_t, std::string> names_;       // of processes, by endpoint
  std::vector<std::string> problems_;
  std::vector<TopJob> jobs_;
};

}  // namespace turnout::cli
