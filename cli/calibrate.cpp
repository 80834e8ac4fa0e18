// SPDX-License-Identifier: BSD-3-Clause
// `turnout calibrate`, on a profile in virtual time or on the adapter at hand: there all endpoints
// are in this process, driven by one thread, so that nothing depends on how processes are placed.
// What a message takes is therefore the work of both ends and the adapter between them, without
// waiting processes.
#include <fmt/format.h>

#include <array>
#include <memory>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/sim_progress.h"
#include "core/endpoint.h"
#include "core/selection/calibration.h"
#include "core/verbs/device.h"
#include "sim/calibration/calibration.h"
#include "sim/runtime/simulation.h"
#include "sim/study/result_writer.h"

namespace turnout::cli {
namespace {

struct CalibrateOptions {
  std::string device, profile, default_transport, output;
  std::uint32_t rounds = 9;
  std::uint32_t most_queue_pairs = 16384;
  std::uint64_t seed = 1;
};

using selection::Measurements;
using selection::Rounds;

constexpr std::size_t kBytes = 8;
constexpr double kPatience = 10e9;  // ns without a message that must come
constexpr std::uint32_t kExtraRings = 24;
constexpr std::uint32_t kColdTrips = 2000;
constexpr std::uint32_t kTargets = 16;

double now() {
  return static_cast<double>(live_clock().now());
}

// What a set-up costs under the policy that uses these costs.
const PolicyOverride kPrepares{
    .first_channel = {}, .waits_for_connections = false, .prepares = true};

using Own = std::vector<std::pair<std::string, std::string>>;  // settings

// Endpoints of this process; the first is the one that is measured. The first failure stays: from
// then on the calls do nothing.
class Ends {
 public:
  Ends(Settings settings, std::size_t count, const std::string& policy, const Own& own = {}) {
    Own all = {{"policy", policy},        {"memory_budget", "4GiB"}, {"max_active_rc", "4096"},
               {"max_channels", "4096"},  {"rc_pool", "4096"},       {"ring_entries", "16"},
               {"interval", "3600s"},     {"report", "0"},           {"receive_buffers", "64"},
               {"control_buffers", "64"}, {"setup_thread", "0"}};
    all.insert(all.end(), own.begin(), own.end());
    for (const auto& [name, value] : all) {
      if (status_.ok()) status_ = settings.set(name, value);
    }
    for (std::size_t i = 0; i < count && status_.ok(); ++i) {
      EndpointOptions options;
      options.simulation.policy = &kPrepares;
      auto endpoint = Endpoint::create(settings, live_clock(), std::move(options));
      status_ = endpoint.status();
      if (endpoint) {
        ends_.push_back({std::move(endpoint).value(), std::make_unique<CompletionQueue>(), {}});
      }
    }
  }
  Ends(const Ends&) = delete;
  Ends& operator=(const Ends&) = delete;
  // Together: one that closes waits for what it sent to the others.
  ~Ends() {
    for (bool all = false; !all;) {
      all = true;
      for (End& end : ends_) all &= end.endpoint->close();
    }
  }

  [[nodiscard]] const Status& status() const { return status_; }
  // Of the first; precondition: status() is ok.
  [[nodiscard]] EndpointReport report() const { return ends_.front().endpoint->report(); }
  [[nodiscard]] bool datagrams() const { return ends_.front().endpoint->address().datagrams(); }

  void send(std::size_t from, std::size_t to) {
    if (!status_.ok()) return;
    iovec piece{data_.data(), kBytes};
    SendRequest request;
    status_ = find(from, to, &request.peer);
    request.data = {&piece, 1};
    request.tagged = request.inject = true;
    for (const double begin = now(); status_.ok();) {
      status_ = ends_[from].endpoint->send(request);
      if (status_.code() != Code::again) return;
      status_ = now() - begin > kPatience ? late() : Status{};
      progress_all();
    }
  }
  // Waits at `at` for a message from anybody; makes progress there only, and at `also`.
  void receive(std::size_t at, std::size_t also) {
    if (!status_.ok()) return;
    End& end = ends_[at];
    iovec piece{data_.data(), kBytes};
    RecvRequest request;
    request.buffer = {&piece, 1};
    request.tagged = true;
    request.ignore = ~std::uint64_t{0};
    request.report.queue = request.report.errors = end.queue.get();
    status_ = end.endpoint->recv(request);
    const double begin = now();
    for (std::uint64_t spins = 1; status_.ok() && end.queue->size() == 0; ++spins) {
      if (end.queue->has_error()) {
        status_ = end.queue->pop_error().status;
        return;
      }
      end.endpoint->progress();
      if (also != at) ends_[also].endpoint->progress();
      // A peer that a channel is being made with may have to act.
      if (spins % 1024 == 0) progress_all();
      if (spins % 65536 == 0 && now() - begin > kPatience) status_ = late();
    }
    if (status_.ok()) end.queue->pop();
  }
  // `both`: the two make progress together, as a channel that is being made needs.
  void trip(std::size_t to, bool both = false) {
    send(0, to);
    receive(to, both ? 0 : to);
    send(to, 0);
    receive(0, both ? to : 0);
  }
  // Trips to ends 1..targets until their channels stand.
  void warm_up(std::size_t targets) {
    for (int i = 0; i < 50; ++i) {
      for (std::size_t t = 1; t <= targets; ++t) trip(t);
      for (int k = 0; k < 10; ++k) progress_all();
    }
  }
  void progress() { ends_.front().endpoint->progress(); }  // of the first

 private:
  struct End {
    std::unique_ptr<Endpoint> endpoint;
    std::unique_ptr<CompletionQueue> queue;
    std::vector<PeerId> peers;  // by end; kAnyPeer: not asked yet
  };
  void progress_all() {
    for (End& end : ends_) end.endpoint->progress();
  }
  Status find(std::size_t from, std::size_t to, PeerId* peer) {
    std::vector<PeerId>& peers = ends_[from].peers;
    peers.resize(ends_.size(), kAnyPeer);
    if (peers[to] == kAnyPeer) {
      auto made = ends_[from].endpoint->peer(ends_[to].endpoint->address());
      if (!made) return made.status();
      peers[to] = made.value();
    }
    *peer = peers[to];
    return {};
  }
  static Status late() { return {Code::system, "benchmark failed: a message did not arrive"}; }

  std::vector<End> ends_;
  std::array<std::byte, kBytes> data_{};
  Status status_;
};

class LiveBench {
 public:
  LiveBench(const Settings& settings, std::uint32_t rounds)
      : settings_(settings), rounds_(rounds) {}

  Status run(Measurements* m, std::string* device) {
    if (Status s = look(device); !s.ok()) return s;
    m->datagrams = datagrams_;
    m->extra_rings = kExtraRings;
    const std::string ring = datagrams_ ? "static:rc-rdma" : "static:dc-rdma";
    Status s = trips("static:ud-sendrecv", {{"default_transport", "ud"}}, 1, 0, &m->ud_sendrecv);
    if (s.ok()) s = trips("static:rc-rdma", {}, 1, 0, &m->rc_rdma);
    if (s.ok()) s = trips(ring, {}, 1, kExtraRings, &m->more_rings);
    if (s.ok()) s = credits(ring, &m->credit);
    if (s.ok()) s = setups(m);
    if (s.ok()) s = posts("static:rc-rdma", "4", &m->post_rc);
    if (s.ok() && datagrams_) s = posts("static:ud-sendrecv", "4", &m->post_ud);
    if (s.ok()) s = arrivals("static:rc-rdma", &m->busy_rc_rdma);
    if (s.ok() && datagrams_) s = arrivals("static:ud-sendrecv", &m->busy_ud);
    if (s.ok() && !datagrams_) s = over_dc(m);
    if (s.ok()) s = contexts(m);
    return s;
  }

 private:
  // Which adapter, and does every pair start on UD there?
  Status look(std::string* device) {
    const Ends ends(settings_, 1, "turnout");
    if (!ends.status().ok()) return ends.status();
    *device = ends.report().device;
    datagrams_ = ends.datagrams();
    return {};
  }

  Status over_dc(Measurements* m) {
    Status s = trips("static:dc-sendrecv", {}, 1, 0, &m->dc_sendrecv);
    if (s.ok()) s = trips("static:dc-rdma", {}, 1, 0, &m->dc_rdma);
    if (s.ok()) s = arrivals("static:dc-sendrecv", &m->busy_dc_sendrecv);
    if (s.ok()) s = arrivals("static:dc-rdma", &m->busy_dc_rdma);
    if (s.ok()) s = posts("static:dc-rdma", "64", &m->post_dc);
    if (s.ok()) s = posts("static:dc-rdma", "4", &m->post_dc_switch);
    if (s.ok()) s = one_dci(&m->one_dci);
    if (s.ok()) s = trips("static:dc-rdma", {{"data_qps", "1"}}, 1, 0, &m->same_target);
    if (s.ok()) s = trips("static:dc-rdma", {{"data_qps", "1"}}, 2, 0, &m->other_target);
    return s;
  }

  Status trips(const std::string& policy, const Own& own, std::size_t targets, std::size_t extra,
               Rounds* out) {
    Ends e(settings_, 1 + targets + extra, policy, own);
    for (std::size_t i = 0; i < extra; ++i) {
      e.send(1 + targets + i, 0);
      e.receive(0, 1 + targets + i);
    }
    e.warm_up(targets);
    constexpr std::size_t kBatch = 400;
    for (std::uint32_t r = 0; r < rounds_; ++r) {
      const double begin = now();
      for (std::size_t i = 0; i < kBatch; ++i) e.trip(1 + i % targets);
      out->push_back((now() - begin) / (2 * kBatch));
    }
    return e.status();
  }

  // As in virtual time: a burst of ten needs a credit message, one of seven does not.
  Status credits(const std::string& ring, Rounds* out) {
    Ends e(settings_, 2, ring);
    e.warm_up(1);
    constexpr int kBatch = 200;
    for (std::uint32_t r = 0; r < rounds_; ++r) {
      std::array<double, 3> times{};
      for (std::size_t k = 0; k < times.size(); ++k) {
        const int length = std::array{3, 7, 10}[k];
        const double begin = now();
        for (int i = 0; i < kBatch; ++i) {
          for (int n = 0; n < length; ++n) e.send(0, 1);
          for (int n = 0; n < length; ++n) e.receive(1, 0);
          e.send(1, 0);
          e.receive(0, 0);
        }
        times[k] = (now() - begin) / kBatch;
      }
      out->push_back(times[2] - times[1] - 3 * (times[1] - times[0]) / 4);
    }
    return e.status();
  }

  Status setups(Measurements* m) {
    // The first round finds memory that the process never touched before.
    Rounds contact;
    for (std::uint32_t r = 0; r <= rounds_; ++r) {
      if (r == 1) m->setup_dc_lost = m->setup_rc_lost = m->setup_rc_time = {};
      slow_ = 0;
      Status s = cold(datagrams_ ? "static:ud-sendrecv" : "static:dc-sendrecv", 0, &contact);
      const double without = s.ok() ? contact.back() : 0;
      if (s.ok() && !datagrams_) s = cold("static:dc-rdma", without, &m->setup_dc_lost);
      if (s.ok()) s = cold("static:rc-rdma", without, &m->setup_rc_lost, &m->setup_rc_time);
      if (!s.ok()) return s;
    }
    return {};
  }
  Status cold(const std::string& policy, double without, Rounds* lost, Rounds* time = nullptr) {
    Ends ends(settings_, 2, policy, {{"setup_thread", "1"}});
    std::vector<double> times;
    for (std::uint32_t i = 0; i < kColdTrips; ++i) {
      const double begin = now();
      ends.trip(1, true);
      times.push_back(now() - begin);
    }
    if (!ends.status().ok()) return ends.status();
    const double steady = selection::estimate({times.begin() + kColdTrips / 2, times.end()}).value;
    if (slow_ == 0) slow_ = steady;
    // Up to the last slow one they take what they do over DC-sendrecv; only those that took far
    // more lost something.
    double sum = 0;
    for (std::size_t i = 0; i < kColdTrips / 2; ++i) {
      if (times[i] > 2 * slow_) sum += times[i] - slow_;
    }
    lost->push_back(sum - without);
    if (time == nullptr) return {};
    const EndpointReport report = ends.report();
    for (const DecisionReport& decision : report.decisions) {
      for (const PeerReport& peer : report.peers) {
        const ChannelSpan& last = peer.receive.spans.back();
        if (peer.peer != decision.peer || last.channel != decision.to) continue;
        time->push_back(static_cast<double>(last.since - decision.time));
        return {};
      }
    }
    return {};
  }

  // Only the sender's calls are timed; the others make progress in between.
  Status posts(const std::string& policy, const std::string& dcis, Rounds* out) {
    constexpr std::size_t targets = kTargets;
    Ends e(settings_, 1 + targets, policy, {{"data_qps", dcis}});
    e.warm_up(targets);
    constexpr int kBatch = 200;
    for (std::uint32_t r = 0; r < rounds_; ++r) {
      double time = 0;
      for (int i = 0; i < kBatch; ++i) {
        const double begin = now();
        for (std::size_t t = 1; t <= targets; ++t) e.send(0, t);
        time += now() - begin;
        for (std::size_t t = 1; t <= targets; ++t) e.receive(t, 0);
      }
      out->push_back(time / (kBatch * static_cast<double>(targets)));
    }
    return e.status();
  }

  // Only the receiver's calls are timed, when the messages have arrived: half a ring of them, so
  // that their sender does not wait.
  Status arrivals(const std::string& policy, Rounds* out) {
    Ends e(settings_, 2, policy);
    e.warm_up(1);
    constexpr int kBatch = 400, kWindow = 8;
    constexpr double kArrive = 20'000;
    for (std::uint32_t r = 0; r < rounds_; ++r) {
      double time = 0;
      for (int i = 0; i < kBatch; ++i) {
        for (int n = 0; n < kWindow; ++n) e.send(0, 1);
        for (const double sent = now(); now() - sent < kArrive;) e.progress();
        const double begin = now();
        for (int n = 0; n < kWindow; ++n) e.receive(1, 1);
        time += now() - begin;
      }
      out->push_back(time / (kBatch * kWindow));
    }
    return e.status();
  }

  Status one_dci(Rounds* out) {
    constexpr std::size_t kFew = 8;
    Ends e(settings_, 1 + kFew, "static:dc-rdma", {{"data_qps", "1"}});
    e.warm_up(kFew);
    constexpr int kBatch = 50;
    for (std::uint32_t r = 0; r < rounds_; ++r) {
      const double begin = now();
      for (int i = 0; i < kBatch; ++i) {
        // Two for each target under way: the initiator always has work.
        for (std::size_t t = 0; t < 2 * kFew; ++t) e.send(0, 1 + t % kFew);
        for (std::size_t t = 0; t < 2 * kFew; ++t) e.receive(1 + t % kFew, 0);
      }
      out->push_back((now() - begin) / (kBatch * 2.0 * kFew));
    }
    return e.status();
  }

  // Trips over more and more queue pairs in turn; the adapter holds both ends of each.
  Status contexts(Measurements* m) {
    for (const std::size_t targets : {4U, 8U, 16U, 32U, 64U}) {
      Ends e(settings_, 1 + targets, "static:rc-rdma", {{"ring_entry_size", "512B"}});
      e.warm_up(targets);
      // One direction only: the first end's own rings, which grow in number, are not polled.
      selection::RatePoint point{2.0 * static_cast<double>(targets), {}};
      for (std::uint32_t r = 0; r < rounds_; ++r) {
        const std::size_t count = 1024 / targets * targets;
        double time = 0;
        for (std::size_t i = 0; i < count; ++i) {
          const std::size_t to = 1 + i % targets;
          const double begin = now();
          e.send(0, to);
          e.receive(to, to);
          time += now() - begin;
          if (!e.status().ok()) return e.status();
          e.progress();  // takes the credits that came back
        }
        point.second.push_back(time / static_cast<double>(count));
      }
      m->contexts.push_back(std::move(point));
    }
    return {};
  }

  const Settings& settings_;
  std::uint32_t rounds_;
  double slow_ = 0;         // a round trip over the default transport
  bool datagrams_ = false;  // UD in DC's place
};

Result<selection::CostsFile> on_profile(const CalibrateOptions& o) {
  Result<sim::ProfileFile> profile = sim::find_profile(o.profile);
  if (!profile) return profile.status();
  sim::CalibrationOptions options;
  options.most_queue_pairs = o.most_queue_pairs;
  options.profile = std::move(profile).value();
  options.seed = o.seed;
  options.datagrams = o.default_transport == "ud";
  options.rounds = o.rounds;
  Progress progress;
  options.progress = [&](const std::string& benchmark) { progress.show(benchmark, 0, 1, 0, 0); };
  return sim::calibrate(options, sim::run);
}

Result<selection::CostsFile> on_device(const CalibrateOptions& o) {
  Result<Settings> settings = Settings::load();
  if (!settings) return settings.status();
  if (!o.device.empty()) {
    if (Status s = settings->set("device", o.device); !s.ok()) return s;
  }
  if (!o.default_transport.empty()) {
    if (Status s = settings->set("default_transport", o.default_transport); !s.ok()) return s;
  }
  // The endpoints log a failure to open the device, so report it before there are any.
  if (auto opened = verbs::Device::open(settings.value()); !opened) return opened.status();
  std::string device;
  Measurements measured;
  if (Status s = LiveBench(settings.value(), o.rounds).run(&measured, &device); !s.ok()) return s;
  return selection::costs_of(
      measured, device,
      fmt::format("measured by turnout calibrate on {}, endpoints of one process", device));
}

int run_calibrate(const CalibrateOptions& o) {
  const Result<selection::CostsFile> costs = o.profile.empty() ? on_device(o) : on_profile(o);
  if (!costs) return complain("turnout calibrate", costs.status());
  const std::string text = selection::print_costs(costs.value());
  if (o.output.empty()) {
    fmt::print("{}", text);
    return 0;
  }
  if (Status s = sim::write_text_file(o.output, text); !s.ok())
    return complain("turnout calibrate", s);
  fmt::print("{}\n", o.output);
  return 0;
}

}  // namespace

void add_calibrate(CLI::App& app) {
  const auto [calibrate, o] = add_command<CalibrateOptions>(
      app, "calibrate", "measure an adapter's costs for TURNOUT_COSTS", run_calibrate);
  calibrate->add_option("-d,--device", o->device, "adapter, as in TURNOUT_DEVICE");
  calibrate
      ->add_option("--profile", o->profile, "modelled adapter to measure instead, in virtual time")
      ->excludes("--device");
  calibrate
      ->add_option("--default-transport", o->default_transport,
                   "as in TURNOUT_DEFAULT_TRANSPORT; ud: as on a device without DC")
      ->check(CLI::IsMember({"auto", "dc", "ud"}));
  calibrate->add_option("-o,--output", o->output, "output file (default: standard output)");
  calibrate->add_option("-n,--rounds", o->rounds, "rounds per benchmark")
      ->capture_default_str()
      ->check(CLI::Range(3, 1000));
  calibrate
      ->add_option("--most-queue-pairs", o->most_queue_pairs,
                   "with --profile: largest number of queue pairs to try when measuring the "
                   "adapter's QP context caches")
      ->capture_default_str()
      ->check(CLI::Range(8, 65536));
  calibrate->add_option("--seed", o->seed, "with --profile: random seed")->capture_default_str();
}

}  // namespace turnout::cli
