// SPDX-License-Identifier: BSD-3-Clause
#include "sim/calibration/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "sim/calibration/calibration_programs.h"
#include "sim/calibration/verbs_bench.h"

namespace turnout::sim {
namespace {

using calibration::Bursts;
using calibration::PingPong;
using calibration::Scatter;
using calibration::Streams;
using calibration::Trip;
using selection::Measurements;
using selection::Rounds;
using enum ChannelKind;

constexpr std::uint32_t kExtraRings = 48;
constexpr std::uint32_t kColdRounds = 3;
constexpr std::uint32_t kColdTrips = 4000;  // most of them after a queue pair was made
constexpr std::uint32_t kSenders = 16;      // of a node, to fill its adapter
constexpr double kFinest = 128;             // a knee is found to this part of its queue pairs
constexpr double kNoticed = 0.02;           // of the loss: above what rounds differ by

// Room for every channel that a benchmark wants.
const NamedValues kRoom = {{"memory_budget", "16GiB"}, {"max_active_rc", "4096"},
                           {"max_channels", "4096"},   {"rc_pool", "4096"},
                           {"ring_entries", "16"},     {"interval", "3600s"},
                           {"setup_thread", "0"}};

std::string policy_of(ChannelKind channel) {
  std::string policy = fmt::format("static:{}", name(channel));
  for (char& c : policy) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return policy;
}

class Calibration {
 public:
  Calibration(const CalibrationOptions& options, const Runner& runner)
      : options_(options), runner_(runner) {}

  Result<Measurements> measure() {
    measured_.datagrams = options_.datagrams;
    for (const auto step : {&Calibration::trips, &Calibration::polls, &Calibration::credits,
                            &Calibration::setups, &Calibration::posts, &Calibration::arrivals,
                            &Calibration::switches, &Calibration::contexts}) {
      if (Status s = (this->*step)(); !s.ok()) return s;
    }
    return measured_;
  }

 private:
  // Most messages must have taken `channel`, or another thing was measured.
  Status run(const std::string& benchmark, std::uint32_t ranks, ChannelKind channel,
             const NamedValues& settings, const Program& program, std::uint64_t seed = 0) {
    if (options_.progress) options_.progress(benchmark);
    Options run;
    run.ranks = ranks;
    run.seed = options_.seed + seed;
    run.profile = options_.profile.profile;
    run.settings = kRoom;
    run.settings.insert(run.settings.end(), settings.begin(), settings.end());
    run.settings.emplace_back("policy", policy_of(channel));
    if (options_.datagrams) run.settings.emplace_back("default_transport", "ud");
    run.prepares = run.flow_control = true;
    run.check_content = run.keep_reports = run.keep_latencies = false;
    const Result<Outcome> outcome = runner_(run, program);
    if (!outcome) {
      const Status s = outcome.status();
      return {s.code(), fmt::format("{}: {}", benchmark, s.text()), s.sys_errno()};
    }
    std::uint64_t all = 0, wanted = 0;
    for (const Channels& c : outcome.value().channels) {
      all += c.messages;
      if (c.channel == name(channel)) wanted += c.messages;
    }
    if (2 * wanted > all) return {};
    return {Code::internal,
            fmt::format("{}: only {} of {} messages used {}; the result is not valid", benchmark,
                        wanted, all, name(channel))};
  }

  Status trip_rounds(const std::string& benchmark, ChannelKind channel, const NamedValues& settings,
                     std::uint32_t targets, std::uint32_t extra, Rounds* out) {
    PingPong p;
    p.targets = targets;
    p.rounds = options_.rounds;
    return run(benchmark, 1 + targets + extra, channel, settings, calibration::ping_pong(p, out));
  }

  // The channel with rings that every pair can have.
  [[nodiscard]] ChannelKind ring_channel() const { return options_.datagrams ? rc_rdma : dc_rdma; }

  Status trips() {
    const auto over = [&](ChannelKind channel, Rounds* out) {
      return trip_rounds(fmt::format("pingpong, {}", name(channel)), channel, {}, 1, 0, out);
    };
    Status s = over(ud_sendrecv, &measured_.ud_sendrecv);
    if (s.ok()) s = over(rc_rdma, &measured_.rc_rdma);
    if (options_.datagrams || !s.ok()) return s;
    s = over(dc_sendrecv, &measured_.dc_sendrecv);
    if (s.ok()) s = over(dc_rdma, &measured_.dc_rdma);
    return s;
  }

  Status polls() {
    measured_.extra_rings = kExtraRings;
    // The rings speak, see ping_pong(). What waits in virtual time polls nothing: it is woken.
    measured_.polls_of_each = 1;
    return trip_rounds("pingpong beside idle rings", ring_channel(), {}, 1, kExtraRings,
                       &measured_.more_rings);
  }

  // A ring of 16 needs a credit message once 8 entries are free, if no message carries them before.
  Status credits() {
    Bursts p;
    p.lengths = {3, 7, 10};
    p.rounds = options_.rounds;
    std::vector<Rounds> times(p.lengths.size());
    Status s = run("bursts", 1 + p.senders, ring_channel(), {}, calibration::bursts(p, &times));
    if (!s.ok()) return s;
    for (std::size_t i = 0; i < times[0].size(); ++i) {
      const double each = (times[1][i] - times[0][i]) / 4;
      measured_.credit.push_back((times[2][i] - times[1][i] - 3 * each) / p.senders);
    }
    return {};
  }

  Status setups() {
    Rounds first_contact;
    // In virtual time the rounds differ by what is drawn only, and that is nearly nothing here.
    for (std::uint32_t round = 0; round < std::min(options_.rounds, kColdRounds); ++round) {
      slow_ = 0;
      Status s = cold(options_.datagrams ? ud_sendrecv : dc_sendrecv, round, 0, &first_contact);
      const double without = s.ok() ? first_contact.back() : 0;
      if (s.ok() && !options_.datagrams) {
        s = cold(dc_rdma, round, without, &measured_.setup_dc_lost);
      }
      if (s.ok()) {
        s = cold(rc_rdma, round, without, &measured_.setup_rc_lost, &measured_.setup_rc_time);
      }
      if (!s.ok()) return s;
    }
    return {};
  }

  // What the round trips up to the last slow one took above what they take over DC-sendrecv, which
  // serves them while the queue pair is made.
  Status cold(ChannelKind channel, std::uint32_t round, double without, Rounds* lost,
              Rounds* time = nullptr) {
    std::vector<Trip> trips;
    Status s = run("first messages, " + policy_of(channel), 2, channel, {{"setup_thread", "1"}},
                   calibration::cold_ping_pong(kColdTrips, &trips), round);
    if (!s.ok()) return s;
    Rounds later;
    for (std::size_t i = trips.size() / 2; i < trips.size(); ++i) later.push_back(trips[i].time);
    const double steady = selection::estimate(later).value;
    if (slow_ == 0) slow_ = steady;
    double sum = 0, before = 0, until = 0;
    for (std::size_t i = 0; i < trips.size() / 2; ++i) {
      before += trips[i].time - slow_;
      if (trips[i].time <= 1.02 * steady) continue;
      sum = before;
      until = trips[i].ended;
    }
    lost->push_back(sum - without);
    if (time != nullptr) time->push_back(until);
    return {};
  }

  Status stream(const std::string& benchmark, ChannelKind channel, const NamedValues& settings,
                std::uint32_t targets, Rounds* out) {
    Streams p;
    p.targets = p.each = targets;
    p.rounds = options_.rounds;
    return run(benchmark, p.ranks(), channel, settings, calibration::streams(p, out));
  }

  Status posts() {
    Status s = stream("sending, RC", rc_rdma, {}, 16, &measured_.post_rc);
    if (!s.ok()) return s;
    if (options_.datagrams) return stream("sending, UD", ud_sendrecv, {}, 16, &measured_.post_ud);
    // Ranks that follow one another have initiators of their own.
    s = stream("sending, DC", dc_rdma, {{"data_qps", "64"}}, 16, &measured_.post_dc);
    if (!s.ok()) return s;
    return stream("sending, DC, switching", dc_rdma, {{"data_qps", "28"}}, 56,
                  &measured_.post_dc_switch);
  }

  // Eight senders are more than one receiver takes; it has an initiator for each one's credits.
  Status arrivals() {
    const auto over = [&](ChannelKind channel, Rounds* out) {
      Streams p;
      p.senders = 8;
      p.targets = p.each = 1;
      p.per_target = 512;
      p.rounds = options_.rounds;
      return run(fmt::format("receiving, {}", name(channel)), p.ranks(), channel,
                 {{"data_qps", "64"}, {"credit_qps", "64"}}, calibration::streams(p, out));
    };
    Status s = over(rc_rdma, &measured_.busy_rc_rdma);
    if (s.ok() && options_.datagrams) return over(ud_sendrecv, &measured_.busy_ud);
    if (s.ok()) s = over(dc_sendrecv, &measured_.busy_dc_sendrecv);
    if (s.ok()) s = over(dc_rdma, &measured_.busy_dc_rdma);
    return s;
  }

  Status switches() {
    if (options_.datagrams) return {};  // no initiators
    const NamedValues one = {{"data_qps", "1"}};
    Scatter p;
    p.targets = {8, 24};
    p.rounds = options_.rounds;
    std::vector<Rounds> times(p.targets.size());
    Status s = run("one DCI, switching", 1 + p.targets.back(), dc_rdma, one,
                   calibration::scatter(p, &times));
    for (std::size_t i = 0; i < times[0].size(); ++i) {
      measured_.one_dci.push_back((times[1][i] - times[0][i]) / (p.targets[1] - p.targets[0]));
    }
    if (s.ok()) s = trip_rounds("pingpong, one DCI", dc_rdma, one, 1, 0, &measured_.same_target);
    if (!s.ok()) return s;
    return trip_rounds("pingpong, one DCI, two targets", dc_rdma, one, 2, 0,
                       &measured_.other_target);
  }

  // At the verbs level: the order of messages that a ring's credits make must not decide which
  // contexts are in the cache.
  Status contexts() {
    std::vector<selection::RatePoint>& points = measured_.contexts;
    for (std::uint32_t n = kSenders; n <= options_.most_queue_pairs; n *= 2) {
      selection::RatePoint point{static_cast<double>(n), {}};
      if (Status s = write_time(n, &point.second); !s.ok()) return s;
      points.push_back(std::move(point));
    }
    const selection::Knees knees = selection::find_knees(points);
    for (const selection::Knee& knee : {knees.first, knees.second}) {
      if (knee.beyond == 0) continue;
      if (Status s = refine(knee); !s.ok()) return s;
    }
    std::sort(points.begin(), points.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    return {};
  }

  // Finds the most queue pairs without the loss, and the fewest with all of it. What is between
  // belongs to neither level and is not kept.
  Status refine(const selection::Knee& knee) {
    selection::RatePoint below{knee.entries, {}}, above{knee.entries + 2 * knee.error, {}};
    selection::RatePoint unused = above;
    if (Status s = halve(knee, kNoticed, &below, &unused); !s.ok()) return s;
    unused = below;
    if (Status s = halve(knee, 1 - kNoticed, &unused, &above); !s.ok()) return s;
    for (selection::RatePoint* point : {&below, &above}) {
      if (!point->second.empty()) measured_.contexts.push_back(std::move(*point));
    }
    return {};
  }

  // Moves the two together, `part` of the loss between them.
  Status halve(const selection::Knee& knee, double part, selection::RatePoint* below,
               selection::RatePoint* above) {
    Rounds without;
    if (Status s = write_time(static_cast<std::uint32_t>(knee.entries), &without); !s.ok()) {
      return s;
    }
    const double limit = selection::estimate(without).value + knee.beyond * part;
    while (above->first - below->first > 1 + below->first / kFinest) {
      selection::RatePoint point{std::floor((below->first + above->first) / 2), {}};
      if (Status s = write_time(static_cast<std::uint32_t>(point.first), &point.second); !s.ok()) {
        return s;
      }
      *(selection::estimate(point.second).value < limit ? below : above) = std::move(point);
    }
    return {};
  }

  Status write_time(std::uint32_t queue_pairs, Rounds* out) {
    if (options_.progress) {
      options_.progress(fmt::format("{} RC queue pairs of one adapter", queue_pairs));
    }
    WriteStreams streams;
    streams.processes = kSenders;
    streams.queue_pairs = queue_pairs;
    Result<std::vector<double>> times = write_times(options_.profile.profile, streams);
    if (!times) return times.status();
    *out = std::move(times).value();
    return {};
  }

  const CalibrationOptions& options_;
  const Runner& runner_;
  Measurements measured_;
  double slow_ = 0;  // a round trip over the default transport; 0: not known
};

}  // namespace

Result<selection::CostsFile> calibrate(const CalibrationOptions& options, const Runner& runner) {
  Result<Measurements> measured = Calibration(options, runner).measure();
  if (!measured) return measured.status();
  return selection::costs_of(
      measured.value(), options.profile.name,
      fmt::format("measured by turnout calibrate in virtual time on the profile {}: modelled",
                  options.profile.name));
}

}  // namespace turnout::sim
