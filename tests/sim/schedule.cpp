// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <utility>

#include "base/settings.h"
#include "base/value.h"
#include "core/protocol/atomics.h"
#include "sim/runtime/simulation.h"
#include "tests/sim/permuted_reports.h"
#include "tests/sim/schedule_program.h"

namespace turnout::sim {
namespace {

// About the eager limit, where entries have so many bytes.
std::uint64_t about(Random& random, std::uint64_t entry) {
  return entry - 196 + random.below(250);
}

std::uint64_t random_bytes(Random& random, std::uint64_t entry) {
  switch (random.below(8)) {
    case 0:
      return 0;
    case 1:
      return about(random, entry);
    case 2:
      return random.below(70'000);
    default:
      return random.below(400);
  }
}

// Every threshold of large messages, and eager ones among them.
std::uint64_t random_large_bytes(Random& random, std::uint64_t entry = 4096) {
  switch (random.below(5)) {
    case 0:
      return random.below(400);
    case 1:
      return about(random, entry);
    case 2:
      return 8192 - 2 + random.below(5);  // a segment or two
    default:
      return 4000 + random.below(60'000);
  }
}

// The least budget an endpoint of these options begins with: what it takes at its start and, as it
// demands, an eighth of the whole beside. 0: it does not start.
std::uint64_t least_budget(Options options) {
  options.ranks = 1;
  const auto idle = run(options, [](Rank rank) -> Task { co_await rank.compute(0); });
  return idle ? idle.value().reports.front().used * 8 / 7 + 1 : 0;
}

// An account at its end: a peak is kept at each reservation, so it tells of all events. Empty: it
// holds. `budget`: what was set; 0: the default.
std::string over_budget(const EndpointReport& report, std::uint64_t budget) {
  std::uint64_t used = 0;
  for (const MemoryLine& line : report.memory) used += line.now;
  if (report.peak > report.budget || report.peak == 0) {
    return fmt::format("{} bytes are over the budget of {}", report.peak, report.budget);
  }
  if (budget != 0 && report.budget != budget) {
    return fmt::format("a budget of {} bytes, {} were set", report.budget, budget);
  }
  if (used != report.used) return fmt::format("{} bytes by kind, {} in all", used, report.used);
  return {};
}

struct Circumstances {
  bool datagrams = false;  // UD in DC's place, with faults that only datagrams know
  bool scarce = false;     // little more memory than an endpoint needs to begin
  bool large = false;      // messages, most of them
  bool deaths = false;
  bool failures = false;       // of connections
  bool one_sided = false;      // operations, too
  std::uint32_t per_node = 0;  // ranks; 0: one or two
  std::uint32_t times = 1;     // as many messages
};

std::string pick(Random& random, std::initializer_list<const char*> values) {
  return *(values.begin() + random.below(values.size()));
}

ScheduleOutcome play(std::uint64_t seed, const Circumstances& given, const More& more) {
  const auto [datagrams, scarce, large, deaths, failures, one_sided, per_node, times] = given;
  Random random(seed);
  Options options;
  options.seed = seed;
  options.ranks = 2 + static_cast<std::uint32_t>(random.below(5));
  if (deaths) options.ranks = std::max(options.ranks, 3u);
  options.ranks_per_node = 1 + static_cast<std::uint32_t>(random.below(2));
  if (per_node > 0) options.ranks_per_node = per_node;
  options.keep_latencies = false;
  options.time_limit = 600 * hca::kSecond;
  hca::Profile& profile = options.profile;
  profile.processor_post = 40 * hca::kNanosecond;
  profile.processor_entry = 20 * hca::kNanosecond;
  profile.pcie_doorbell = static_cast<Picoseconds>(random.below(400'000));
  profile.pcie_write = static_cast<Picoseconds>(random.below(400'000));
  profile.wire_hop = 1 + static_cast<Picoseconds>(random.below(3'000'000));
  profile.adapter_receive_dc = static_cast<Picoseconds>(random.below(200'000));
  profile.dc_serial = static_cast<std::int64_t>(random.below(2));
  profile.dc_connect = static_cast<Picoseconds>(random.below(2'000'000));
  profile.dc_nack_wait = hca::kMicrosecond;
  profile.cache_first_entries = static_cast<std::int64_t>(random.below(6));
  profile.cache_second_miss = hca::kMicrosecond;
  if (random.below(2) == 0) {
    profile.fault_delay = static_cast<std::int64_t>(random.below(100'000));
    profile.fault_delay_most = static_cast<Picoseconds>(random.below(100'000'000)) + 1;
  }
  if (random.below(4) == 0) profile.fault_loss = static_cast<std::int64_t>(random.below(50'000));
  if (random.below(4) == 0) {
    profile.fault_reorder = static_cast<std::int64_t>(random.below(500'000));
  }
  if (random.below(4) == 0) {
    profile.fault_slow = static_cast<std::int64_t>(random.below(50'000));
    profile.fault_slow_most = static_cast<Picoseconds>(random.below(1'000'000'000)) + 1;
  }
  if (random.below(4) == 0) profile.fault_nack = static_cast<std::int64_t>(random.below(50'000));
  if (datagrams) {
    Random faults(seed ^ 0x5544);
    profile.fault_loss = static_cast<std::int64_t>(faults.below(100'000));
    profile.fault_duplicate = static_cast<std::int64_t>(faults.below(100'000));
    if (faults.below(4) == 0) profile.fault_loss = profile.fault_duplicate = 0;
  }
  if (failures) {
    Random faults(seed ^ 0x6661696c);
    profile.fault_rc_error = static_cast<std::int64_t>(faults.below(2) * faults.below(20'000));
  }
  options.settings = {{"credits", pick(random, {"2", "4", "16"})},
                      {"ring_entries", pick(random, {"2", "4", "16"})},
                      {"receive_buffers", pick(random, {"32", "64", "256"})},
                      {"receive_first", pick(random, {"8", "16", "64"})},
                      {"receive_growth", pick(random, {"0", "1", "16", "64"})},
                      {"receive_idle", pick(random, {"1ms", "10s"})},
                      {"credits_first", pick(random, {"1", "4", "16"})},
                      {"send_buffers", pick(random, {"8", "16", "128"})},
                      {"unexpected_memory", pick(random, {"4KiB", "64KiB", "32MiB"})},
                      {"rc_pool", pick(random, {"1", "128"})},
                      {"max_active_rc", pick(random, {"1", "26"})},
                      {"data_qps", pick(random, {"1", "4", "28"})},
                      {"interval", pick(random, {"20us", "1ms"})}};
  if (random.below(2) == 0) {
    options.settings.emplace_back("test_switch_every", pick(random, {"1", "3", "7", "20"}));
  } else {
    const std::string policy =
        datagrams ? pick(random, {"aqps", "static:ud-sendrecv", "rc-rdma-od"})
                  : pick(random, {"aqps", "dc-rdma-od", "rc-rdma-od", "srq", "ardma-srq"});
    options.settings.emplace_back("policy", policy);
    if (policy == "ardma-srq") {
      options.settings.emplace_back("ring_threshold", pick(random, {"1", "5", "20"}));
    }
  }
  if (datagrams) options.settings.emplace_back("default_transport", "ud");
  // Mostly no powers of two; unexpected_memory is one entry at least.
  Random entry(seed ^ 0x656e74);
  if (entry.below(2) == 0) {
    options.settings.emplace_back("ring_entry_size",
                                  pick(entry, {"512", "576", "640", "3KiB", "4032"}));
  } else if (entry.below(2) == 0) {
    options.settings.emplace_back("ring_entry_size", pick(entry, {"6KiB", "20032", "63KiB"}));
    options.settings.emplace_back("unexpected_memory", pick(entry, {"63KiB", "32MiB"}));
  }
  Random own(seed ^ 0x6f776e);
  if (!datagrams && own.below(4) == 0) {
    options.settings.emplace_back("policy", "ardma-sr");  // instead of what was drawn
    options.settings.emplace_back("ring_threshold", pick(own, {"1", "5", "20", "1000"}));
  }
  options.settings.emplace_back("private_receive_first", pick(own, {"2", "3", "8"}));
  options.settings.emplace_back("private_receive_buffers", pick(own, {"2", "5", "64"}));
  options.settings.emplace_back("private_receive_threshold", pick(own, {"1", "4", "16"}));
  options.settings.insert(options.settings.end(), more.settings.begin(), more.settings.end());
  Random keeping(seed ^ 0x726567);
  profile.setup_register = static_cast<Picoseconds>(keeping.below(20'000'000));
  constexpr const char* kKept[] = {"0", "2", "1024", "1024"};
  options.settings.emplace_back("registration_cache_entries", kKept[keeping.below(4)]);
  if (large) {
    Random drawn(seed ^ 0x72647a);
    options.settings.emplace_back("rendezvous_segment", drawn.below(2) == 0 ? "4KiB" : "1MiB");
    options.settings.emplace_back("rtr_sentinel", drawn.below(2) == 0 ? "keep" : "set");
  }
  std::uint64_t budget = 0;
  bool adds = true;
  if (scarce) {
    // A small endpoint: what it takes at its start is more than what messages take.
    Random room(seed ^ 0x6d656d);
    for (const auto& [name, value] : {std::pair{"ring_entry_size", "512"},
                                      {"receive_buffers", "32"},
                                      {"control_buffers", "64"},
                                      {"send_buffers", "8"},
                                      {"data_qps", "1"},
                                      {"unexpected_memory", "32MiB"}}) {
      if (room.below(8) != 0) options.settings.emplace_back(name, value);
    }
    const std::uint64_t least = least_budget(options);
    budget = least + room.below(least / 8 + 1) * room.below(4) / 3;
    adds = room.below(8) == 0;
    // Messages may fill this first; then their senders' operations end, see docs/decisions/014.
    if (adds) {
      budget += options.ranks * (sizeof(PeerAtomics) + kAtomicWindow * sizeof(AtomicAnswer));
    }
    options.settings.emplace_back("memory_budget", fmt::format("{}", budget));
  }

  auto plan = std::make_shared<Plan>();
  plan->sends.resize(options.ranks);
  plan->receives.resize(options.ranks);
  plan->pace = random.below(5'000'000);
  for (std::uint32_t r = 0; r < options.ranks; ++r) {
    plan->wild.push_back(random.below(8) == 0 && !deaths);
    plan->any_wild = plan->any_wild || plan->wild.back();
  }
  std::uint64_t entry_size = 4096;
  for (const auto& [name, value] : options.settings) {
    if (name == "ring_entry_size") entry_size = value::parse_bytes(value).value();
  }
  Random ending(seed ^ 0x656e64);
  constexpr SendEnds kEnds[] = {SendEnds::when_copied, SendEnds::when_delivered,
                                SendEnds::when_matched};
  const std::uint64_t count = (50 + random.below(250)) * times;
  for (std::uint64_t i = 0; i < count; ++i) {
    Planned p{};
    p.from = static_cast<std::uint32_t>(random.below(options.ranks));
    p.to = static_cast<std::uint32_t>(random.below(options.ranks));
    p.bytes = large ? random_large_bytes(random, entry_size) : random_bytes(random, entry_size);
    p.tag = random.below(3);
    if (more.completions) p.ends = kEnds[ending.below(3)];
    plan->sends[p.from].push_back(p);
    plan->receives[p.to].push_back(p);
  }

  std::uint64_t reached = 0;
  // Nobody's endpoint ends before the barrier.
  plan->seed = seed ^ 0x616464;
  plan->adds.resize(options.ranks);
  plan->fetched = std::make_shared<std::vector<std::vector<std::uint64_t>>>(options.ranks);
  Random adding(plan->seed);
  for (std::uint64_t n = plan->any_wild || !adds || deaths ? 0 : adding.below(300); n > 0; --n) {
    const std::uint64_t from = adding.below(options.ranks);
    plan->adds[from].push_back(static_cast<std::uint32_t>(adding.below(options.ranks)));
  }

  // The memory of who has ended is not there any more.
  plan->reaches.resize(options.ranks);
  Random reaching(seed ^ 0x6e656172);
  for (std::uint64_t n = one_sided && !plan->any_wild ? reaching.below(300) : 0; n > 0; --n) {
    const auto from = static_cast<std::uint32_t>(reaching.below(options.ranks));
    const auto to = static_cast<std::uint32_t>(reaching.below(options.ranks));
    plan->reaches[from].push_back({to, random_large_bytes(reaching) + 1, reaching.below(2) == 0});
    ++reached;
  }

  plan->deaths = deaths;
  plan->doomed.resize(options.ranks);
  if (deaths) {
    Random dying(seed ^ 0x64696564);
    // While connections are first made, or torn down and made anew.
    const std::uint64_t within = dying.below(2) == 0 ? 1'000 : 20'000;
    for (std::uint64_t n = 1 + dying.below(options.ranks > 3 ? 2 : 1); n > 0; --n) {
      const auto who = static_cast<std::uint32_t>(dying.below(options.ranks));
      plan->doomed[who] = true;
      options.kills.emplace_back(who,
                                 static_cast<Picoseconds>(dying.below(within)) * hca::kMicrosecond);
    }
    *plan->at_work =
        static_cast<std::uint32_t>(std::count(plan->doomed.begin(), plan->doomed.end(), false));
  }

  ScheduleOutcome outcome;
  outcome.messages = count;
  outcome.reached = reached;
  outcome.told = fmt::format("seed {}: {} ranks, {} on a node, {} messages;", seed, options.ranks,
                             options.ranks_per_node, count);
  for (const auto& [name, value] : options.settings) {
    outcome.told += fmt::format(" {}={}", name, value);
  }
  std::string over;
  std::uint64_t max_conn = 0;
  for (const auto& [name, value] : options.settings) {
    if (name == "max_conn") max_conn = std::stoull(value);
  }
  options.examine = [&](std::uint32_t rank, const EndpointReport& report) {
    const std::string what = over_budget(report, budget);
    if (!what.empty() && over.empty()) over = fmt::format("rank {}: {}", rank, what);
    outcome.rtrs += report.operations.rtrs;
    outcome.puts += report.operations.puts;
    outcome.put_completions += report.operations.put_completions;
    outcome.connections.add(report.connections);
    if (max_conn > 0 && report.rc_queue_pairs_peak > max_conn && over.empty()) {
      over = fmt::format("rank {}: {} RC queue pairs at one time, {} are allowed", rank,
                         report.rc_queue_pairs_peak, max_conn);
    }
    outcome.fullest = std::max(
        outcome.fullest, static_cast<double>(report.peak) / static_cast<double>(report.budget));
  };
  auto result = run(options, [plan](Rank rank) { return take_part(rank, plan); });
  if (!over.empty()) {
    outcome.broken = over;
    return outcome;
  }
  if (!result) {
    // A program that needs more than there is ends with an error that says so.
    outcome.gave_up =
        scarce && result.status().text().find("TURNOUT_MEMORY_BUDGET=") != std::string::npos;
    if (!outcome.gave_up) outcome.broken = result.status().text();
    return outcome;
  }
  const Outcome& o = result.value();
  outcome.hash = o.world.hash;
  outcome.switches = o.switches;
  outcome.faults = o.world.faults;
  for (std::vector<std::uint64_t>& counter : *plan->fetched) {
    outcome.adds += counter.size();
    std::sort(counter.begin(), counter.end());
    for (std::size_t i = 0; i < counter.size(); ++i) {
      if (counter[i] == i) continue;
      outcome.broken = fmt::format("a counter's {} additions fetched {} where {} is due",
                                   counter.size(), counter[i], i);
      return outcome;
    }
  }
  std::uint64_t carried = 0;
  for (const Channels& channel : o.channels) carried += channel.messages;
  outcome.refused = *plan->refused;
  for (const Channels& channel : o.channels) {
    if (channel.channel == name(ChannelKind::xrc_rdma)) outcome.over_xrc += channel.messages;
  }
  if (carried != o.messages && !deaths) {
    outcome.broken = fmt::format("{} messages on channels, {} were sent", carried, o.messages);
  } else if (o.world.qps_alive != 0 || o.world.regions_alive != 0) {
    outcome.broken = fmt::format("{} queue pairs and {} regions are left at the end",
                                 o.world.qps_alive, o.world.regions_alive);
  }
  return outcome;
}

// Those of `more` come later, so they win.
More with(std::vector<Setting> settings, const More& more) {
  settings.insert(settings.end(), more.settings.begin(), more.settings.end());
  return {std::move(settings), more.completions};
}

ScheduleOutcome play_at_limit(std::uint64_t seed, Circumstances given, const More& more) {
  Random drawn(seed ^ 0x6c656176);
  given.datagrams = seed % 3 == 0;
  given.scarce = drawn.below(4) == 0;
  given.large = drawn.below(3) == 0;
  // Over UD they need a connection, for which there may be no memory.
  given.one_sided = !given.datagrams || !given.scarce;
  std::vector<Setting> settings = {
      {"test_switch_every", "0"},
      {"eviction", pick(drawn, {"lru", "lru-m", "cost"})},
      {"policy", given.datagrams ? std::string("rc-rdma-od")
                                 : pick(drawn, {"rc-rdma-od", "srq", "ardma-srq", "ardma-sr"})},
      {"ring_threshold", pick(drawn, {"1", "5", "20"})},
      {"max_active_rc", "26"},
      {"rc_pool", pick(drawn, {"1", "128"})}};
  // The others look for who died all the time until then.
  if (given.deaths) settings.emplace_back("ud_timeout", "3s");
  if (!given.scarce || drawn.below(2) == 0) {
    settings.emplace_back("max_conn", pick(drawn, {"1", "2", "3", "4"}));
  }
  // A connection may go a set-up time after it was made: where that is thought to be short, they
  // are torn down all the time.
  if (drawn.below(4) != 0) {
    settings.emplace_back("costs", TURNOUT_SOURCE_DIR "/tests/sim/quick_setup.toml");
  }
  return play(seed, given, with(std::move(settings), more));
}

}  // namespace

void ScheduleOutcome::add(const ScheduleOutcome& other) noexcept {
  switches += other.switches;
  faults += other.faults;
  messages += other.messages;
  adds += other.adds;
  rtrs += other.rtrs;
  puts += other.puts;
  put_completions += other.put_completions;
  connections.add(other.connections);
  reached += other.reached;
  refused += other.refused;
  over_xrc += other.over_xrc;
}

ScheduleOutcome play_schedule(std::uint64_t seed, const More& more) {
  return play(seed, {}, more);
}

ScheduleOutcome play_large_schedule(std::uint64_t seed, const More& more) {
  return play(seed, {.large = true}, more);
}

ScheduleOutcome play_datagram_schedule(std::uint64_t seed, const More& more) {
  return play(seed, {.datagrams = true}, more);
}

ScheduleOutcome play_teardown_schedule(std::uint64_t seed, const More& more) {
  return play_at_limit(seed, {}, more);
}

ScheduleOutcome play_death_schedule(std::uint64_t seed, const More& more) {
  return play_at_limit(seed, {.deaths = true}, more);
}

ScheduleOutcome play_failure_schedule(std::uint64_t seed, const More& more) {
  Random drawn(seed ^ 0x62726b);
  constexpr const char* kEvery[] = {"0", "1", "3", "10", "50"};
  std::vector<Setting> settings = {Setting{"test_break_every", kEvery[drawn.below(5)]}};
  // Else a connection that hardly served is not asked for again soon.
  if (drawn.below(4) != 0) {
    settings.emplace_back("costs", TURNOUT_SOURCE_DIR "/tests/sim/quick_setup.toml");
  }
  const More all = with(std::move(settings), more);
  if (drawn.below(2) == 0) {
    return play_at_limit(seed, {.deaths = drawn.below(4) == 0, .failures = true}, all);
  }
  Circumstances given{.failures = true};
  given.datagrams = seed % 3 == 0;
  given.scarce = drawn.below(4) == 0;
  given.large = drawn.below(2) == 0;
  given.one_sided = !given.datagrams;
  return play(seed, given, all);
}

ScheduleOutcome play_scarce_schedule(std::uint64_t seed, const More& more) {
  const bool needs = std::any_of(
      more.settings.begin(), more.settings.end(),
      [](const auto& setting) { return setting.first == "policy" && needs_dc(setting.second); });
  return play(seed, {.datagrams = seed % 2 == 1 && !needs, .scarce = true}, more);
}

ScheduleOutcome play_xrc_schedule(std::uint64_t seed, const More& more) {
  Random drawn(seed ^ 0x787263);
  Circumstances given;
  given.per_node = 1 + static_cast<std::uint32_t>(drawn.below(4));
  given.scarce = drawn.below(4) == 0;
  given.large = drawn.below(3) == 0;
  given.deaths = drawn.below(4) == 0;
  given.failures = drawn.below(2) == 0;
  given.one_sided = true;
  std::vector<Setting> settings = {
      {"policy", "xrc-rdma-od"},
      {"test_switch_every", pick(drawn, {"0", "0", "1", "3", "7", "20"})},
      {"max_active_rc", pick(drawn, {"1", "2", "26"})},
      {"rc_pool", pick(drawn, {"1", "128"})}};
  if (given.failures) settings.emplace_back("test_break_every", pick(drawn, {"0", "2", "5", "20"}));
  if (drawn.below(4) != 0) {
    settings.emplace_back("costs", TURNOUT_SOURCE_DIR "/tests/sim/quick_setup.toml");
  }
  // Pairs have one kind or the other, as the selection of each end says.
  if (drawn.below(4) == 0) {
    given.times = 4;  // it decides after so many
    settings.insert(settings.end(), {{"policy", "turnout"},
                                     {"test_switch_every", "0"},
                                     {"max_active_rc", pick(drawn, {"1", "2"})},
                                     {"cost_poll", "0s"},
                                     {"cost_setup_dc", "0s"},
                                     {"cost_setup_rc", "0s"},
                                     {"interval", pick(drawn, {"20us", "100us"})}});
  }
  return play(seed, given, with(std::move(settings), more));
}

ScheduleOutcome play_predicted_schedule(std::uint64_t seed, const More& more) {
  Random drawn(seed ^ 0x707265);
  Circumstances given;
  given.datagrams = seed % 3 == 0;
  given.scarce = drawn.below(4) == 0;
  given.failures = drawn.below(4) == 0;
  given.large = drawn.below(4) == 0;
  given.times = 2;
  // A few messages pay for a channel.
  const std::vector<Setting> settings = {{"policy", "turnout"},
                                         {"test_switch_every", "0"},
                                         {"saving_dc_rdma", "5us"},
                                         {"saving_rc_rdma", "10us"},
                                         {"cost_setup_dc", "1us"},
                                         {"cost_setup_rc", "1us"},
                                         {"interval", pick(drawn, {"20us", "100us", "1s"})}};
  const ReportFolder own, of_others;
  More first = with(settings, more);
  first.settings.emplace_back("report", own.path());
  ScheduleOutcome outcome = play(seed, given, first);
  if (!outcome.broken.empty() || outcome.gave_up) return outcome;
  const bool wrong = drawn.below(2) == 0;
  if (wrong && !own.write_permuted(of_others, 1, 1)) {
    outcome.broken = "the reports of the first run cannot be read";
    return outcome;
  }
  More second = with(settings, more);
  second.settings.emplace_back("prediction", wrong ? of_others.path() : own.path());
  ScheduleOutcome predicted = play(seed, given, second);
  predicted.add(outcome);
  return predicted;
}

}  // namespace turnout::sim
