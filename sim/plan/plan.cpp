// SPDX-License-Identifier: BSD-3-Clause
#include "sim/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "base/settings.h"
#include "base/value.h"
#include "sim/study/kept_results.h"
#include "sim/study/result_writer.h"
#include "sim/workloads/replay.h"

namespace turnout::sim::plan {
namespace {

constexpr Picoseconds kTimeLimit = Picoseconds{3600} * hca::kSecond;
constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

Run run_of(std::uint64_t budget, const Result<Study>& study) {
  Run run;
  run.budget = budget;
  if (!study) {
    run.failure = study.status().text();
    return run;
  }
  const Outcome& outcome = study.value().results.front().outcome;
  run.time = static_cast<double>(outcome.time);
  run.memory = outcome.memory_peak;
  for (const MemoryByKind& kind : outcome.memory) run.kinds.emplace_back(kind.kind, kind.largest);
  run.queue_pairs = outcome.rc_peak;
  run.connections = outcome.connections.made;
  run.switches = outcome.switches;
  run.messages = outcome.messages;
  run.misses = outcome.world.second_misses;
  for (const Channels& channel : outcome.channels) {
    run.channels.emplace_back(channel.channel,
                              static_cast<double>(channel.messages) /
                                  std::max(static_cast<double>(outcome.messages), 1.0));
  }
  return run;
}

// Most programs that are slower with less memory are so from some budget on: the search goes down
// until one is outside, and stops there.
class Search {
 public:
  Search(const Subject& subject, const PlanOptions& options, const Runner& runner)
      : subject_(subject), options_(options), runner_(runner) {}

  Result<std::vector<Choice>> run() {
    std::vector<Choice> choices;
    for (const std::string& policy : options_.policies) {
      for (const std::uint32_t per_node : options_.ranks_per_node) {
        choices.push_back({policy, per_node, {}, 0, {}});
      }
    }
    std::vector<std::uint64_t> budgets =
        options_.budgets.empty() ? usual_budgets() : options_.budgets;
    std::sort(budgets.rbegin(), budgets.rend());
    std::vector<Choice*> going;
    for (Choice& choice : choices) going.push_back(&choice);
    if (Status s = round(going, kNoBudget); !s.ok()) return s;
    for (Choice* const choice : going) {
      if (!choice->free().ended()) {
        return Status{Code::system, fmt::format("{}, {} per node: {}", choice->policy,
                                                choice->ranks_per_node, choice->free().failure)};
      }
    }
    for (const std::uint64_t budget : budgets) {
      std::vector<Choice*> now;
      for (Choice* const choice : going) {
        // More than twice what is used without a limit: no other result is to be expected.
        if (options_.budgets.empty() && budget > 2 * choice->free().memory) continue;
        now.push_back(choice);
      }
      if (Status s = round(now, budget); !s.ok()) return s;
      for (Choice* const choice : now) {
        if (choice->slowdown(choice->runs.back()) <= options_.within) {
          choice->advised = choice->runs.size() - 1;
        } else {
          std::erase(going, choice);
        }
      }
    }
    return choices;
  }

 private:
  Status round(const std::vector<Choice*>& choices, std::uint64_t budget) {
    std::vector<StudyOptions> studies;
    for (const Choice* const choice : choices) {
      StudyOptions study;
      study.title =
          fmt::format("{}, {}, {} per node", subject_.name,
                      budget == kNoBudget ? std::string("no limit") : value::print_bytes(budget),
                      choice->ranks_per_node);
      study.workload = "plan";
      study.options = {{"program", subject_.identity}};
      study.make = subject_.make;
      study.options_say_all = true;
      study.settings = options_.settings;
      study.settings.emplace_back("memory_budget", value::print_bytes(budget));
      study.place = {subject_.ranks, choice->ranks_per_node, options_.seed};
      study.check_content = false;
      study.time_limit = kTimeLimit;
      study.profile = options_.profile;
      study.policies = {choice->policy};
      study.kept = options_.kept;
      studies.push_back(std::move(study));
    }
    const Result<std::vector<Result<Study>>> results =
        run_studies(studies, {options_.jobs, options_.told}, runner_);
    if (!results) return results.status();
    for (std::size_t i = 0; i < choices.size(); ++i) {
      const Result<Study>& result = results.value()[i];
      if (!result &&
          (result.status().code() == Code::invalid || result.status().code() == Code::no_device) &&
          budget == kNoBudget) {
        return result.status();
      }
      choices[i]->runs.push_back(run_of(budget, result));
    }
    return {};
  }

  const Subject& subject_;
  const PlanOptions& options_;
  const Runner& runner_;
};

// The kind of memory that lost most where the budget was too small.
std::string lost_most(const Run& good, const Run& bad) {
  std::string most;
  std::uint64_t lost = 0;
  for (const auto& [kind, bytes] : good.kinds) {
    const auto there = std::find_if(bad.kinds.begin(), bad.kinds.end(),
                                    [&name = kind](const auto& one) { return one.first == name; });
    const std::uint64_t left = there == bad.kinds.end() ? 0 : there->second;
    if (bytes <= left || bytes - left <= lost) continue;
    lost = bytes - left;
    most = fmt::format("{}, {} instead of {}", kind, value::human_bytes(left),
                       value::human_bytes(bytes));
  }
  return most;
}

std::string limit_of(const Choice& choice, const NamedValues& settings) {
  const Run& best = choice.best();
  if (choice.advised + 1 < choice.runs.size()) {
    const Run& next = choice.runs[choice.advised + 1];
    const std::string budget = value::human_bytes(next.budget);
    if (!next.ended()) return fmt::format("memory: within {} it fails: {}", budget, next.failure);
    const std::string lost = lost_most(best, next);
    return fmt::format("memory: within {} it is {:.1f} % slower{}{}", budget,
                       100 * choice.slowdown(next), lost.empty() ? "" : ", with less of ", lost);
  }
  const Settings defaults = Settings::defaults();
  std::uint64_t most = defaults.max_active_rc;
  for (const auto& [name, text] : settings) {
    if (name != "max_active_rc") continue;
    if (const Result<std::uint64_t> given = value::parse_count(text); given) most = given.value();
  }
  if (choice.policy != "turnout" && best.queue_pairs >= most && most > 0) {
    return fmt::format("connections: {} RC queue pairs, as many as max_active_rc allows",
                       best.queue_pairs);
  }
  constexpr double kManyMisses = 0.2;
  const double misses =
      static_cast<double>(best.misses) / std::max(static_cast<double>(best.messages), 1.0);
  if (misses > kManyMisses) {
    return fmt::format("the adapter's cache of connection state: {:.2f} misses per message",
                       misses);
  }
  return "nothing of Turnout: the smallest budget tried is within";
}

struct Prediction {
  std::vector<Choice> choices;
  double played = 1;
};

// Plays a pattern at a number of ranks; a long one in part.
Result<Prediction> predict(std::shared_ptr<const Pattern> pattern, std::uint32_t ranks,
                           const PlanOptions& options, const Runner& runner) {
  std::uint64_t repeats = 0;
  auto program = scale(pattern, ranks);
  if (!program) return program.status();
  constexpr std::uint64_t kFewest = 4;
  for (std::uint64_t most = 4096;
       program.value()->messages > options.most_messages && most >= kFewest; most /= 2) {
    auto shorter = scale(pattern, ranks, most);
    if (!shorter) return shorter.status();
    if (shorter.value()->played < 1) {
      program = std::move(shorter);
      repeats = most;
    }
  }
  const auto subject_of = [&](const std::shared_ptr<const ScaledProgram>& one,
                              const std::string& name) {
    return Subject{fmt::format("pattern at {} ranks{}", ranks, name), fingerprint(*one),
                   [one, seed = options.seed](const Place&) -> Result<Instance> {
                     return make_scaled(one, seed);
                   },
                   ranks};
  };
  Result<std::vector<Choice>> choices = search(subject_of(program.value(), ""), options, runner);
  if (!choices) return choices.status();
  Prediction prediction{std::move(choices).value(), program.value()->played};
  if (repeats == 0 || prediction.played >= 1) return prediction;
  // What a repetition takes once all is set up: the second half of a longer run.
  const auto half = scale(pattern, ranks, repeats / 2);
  if (!half) return half.status();
  const double part = half.value()->played;
  for (Choice& choice : prediction.choices) {
    for (Run& run : choice.runs) {
      if (!run.ended()) continue;
      PlanOptions one = options;
      one.policies = {choice.policy};
      one.ranks_per_node = {choice.ranks_per_node};
      one.budgets = {run.budget};
      one.within = kInfinite;
      const Result<std::vector<Choice>> shorter =
          search(subject_of(half.value(), ", half"), one, runner);
      if (!shorter) return shorter.status();
      const Run& other = shorter.value().front().runs.back();
      if (!other.ended() || prediction.played <= part) continue;
      const double each = (run.time - other.time) / (prediction.played - part);
      run.time += each * (1 - prediction.played);
    }
    choice.advised = 0;
    for (std::size_t i = 1; i < choice.runs.size(); ++i) {
      if (choice.slowdown(choice.runs[i]) > options.within) break;
      choice.advised = i;
    }
  }
  return prediction;
}

void finish(std::vector<Choice>* choices, const PlanOptions& options) {
  for (Choice& choice : *choices) choice.limit = limit_of(choice, options.settings);
}

// The advised budget again, with costs that are off by their errors.
Result<Uncertainty> vary_costs(const Plan& plan, std::shared_ptr<const Pattern> pattern,
                               const PlanOptions& options, const Runner& runner) {
  Uncertainty uncertainty;
  std::vector<double> times;
  PlanOptions advised = options;
  advised.policies = {plan.choice().policy};
  advised.ranks_per_node = {plan.choice().ranks_per_node};
  advised.budgets = {plan.choice().best().budget};
  if (plan.choice().advised == 0) advised.budgets = {kNoBudget};
  advised.within = kInfinite;
  for (std::uint32_t sample = 0; sample < options.samples; ++sample) {
    SplitMix64 random(options.seed * 1000 + sample);
    PlanOptions one = advised;
    vary(&one.profile, [&](const ProfileValue& value) {
      // Half of them are within the error: 0.6745 standard deviations.
      constexpr double kHalf = 0.6745, kTurn = 6.283185307179586;
      const auto uniform = [&] {
        return (static_cast<double>(random.next() >> 11) + 0.5) / static_cast<double>(1ULL << 53);
      };
      const double normal = std::sqrt(-2 * std::log(uniform())) * std::cos(kTurn * uniform());
      return std::exp(stated_error(value) / kHalf * normal);
    });
    one.profile.name += fmt::format(" varied {}", sample);
    Result<Prediction> predicted = predict(pattern, options.ranks, one, runner);
    if (!predicted) return predicted.status();
    const Choice& choice = predicted.value().choices.front();
    ++uncertainty.samples;
    if (!choice.runs.back().ended()) continue;
    times.push_back(choice.runs.back().time);
    if (choice.slowdown(choice.runs.back()) <= options.within) ++uncertainty.within;
  }
  if (options.samples > 0 && !assumptions_at(*pattern, options.ranks).empty()) {
    auto other = std::make_shared<Pattern>(*pattern);
    other->as_recorded = true;
    const Result<Prediction> predicted = predict(std::move(other), options.ranks, advised, runner);
    if (!predicted) return predicted.status();
    const Run& run = predicted.value().choices.front().runs.back();
    if (run.ended()) times.push_back(uncertainty.as_recorded = run.time);
  }
  if (times.empty()) return uncertainty;
  std::sort(times.begin(), times.end());
  uncertainty.least = times.front();
  uncertainty.median = times[times.size() / 2];
  uncertainty.most = times.back();
  return uncertainty;
}

const Trace& largest_of(std::span<const Trace> traces) {
  return *std::max_element(traces.begin(), traces.end(),
                           [](const Trace& a, const Trace& b) { return a.ranks() < b.ranks(); });
}

Result<Subject> subject_of(const Trace& trace) {
  Result<std::shared_ptr<const Trace>> ready = prepare_replay(trace, trace.ranks());
  if (!ready) return ready.status();
  return Subject{
      fmt::format("recording of {} ranks", trace.ranks()), fingerprint(trace),
      [ready = ready.value()](const Place&) -> Result<Instance> { return make_replay(ready); },
      trace.ranks()};
}

bool has_spread(const std::vector<Node>& program) {
  return std::any_of(program.begin(), program.end(), [](const Node& node) {
    return node.compute_spread >= 0.01 || has_spread(node.body);
  });
}

// Ranks that compute for different times wait for each other. How much of that is chance, drawn
// anew in each step, and how much is the same ranks or the same steps each time, no law says: the
// part is chosen with which the pattern takes as long as the largest recording.
Status choose_imbalance(const Trace& largest, const PlanOptions& options, const Runner& runner,
                        Pattern* pattern) {
  if (!has_spread(pattern->program)) return {};
  PlanOptions one = options;
  one.policies = {options.policies.front()};
  one.ranks_per_node = {options.ranks_per_node.front()};
  one.budgets = {kNoBudget};
  one.within = kInfinite;
  const Result<Subject> recording = subject_of(largest);
  if (!recording) return recording.status();
  const Result<std::vector<Choice>> recorded = search(recording.value(), one, runner);
  if (!recorded) return {};  // its own error says so
  const double wanted = recorded.value().front().free().time;
  double low = 0, high = 1, nearest = kInfinite, best = 1;
  constexpr int kHalvings = 6;
  for (int i = 0; i < kHalvings; ++i) {
    const double part = (low + high) / 2;
    pattern->imbalance = part;
    const auto program = scale(std::make_shared<const Pattern>(*pattern), largest.ranks());
    if (!program) return {};
    const Subject subject{
        fmt::format("imbalance {}", part), fingerprint(*program.value()),
        [program = program.value(), seed = options.seed](const Place&) -> Result<Instance> {
          return make_scaled(program, seed);
        },
        largest.ranks()};
    const Result<std::vector<Choice>> played = search(subject, one, runner);
    if (!played) return played.status();
    const double off = played.value().front().free().time - wanted;
    (off > 0 ? high : low) = part;
    if (std::abs(off) >= nearest) continue;
    nearest = std::abs(off);
    best = part;
  }
  pattern->imbalance = best;
  return {};
}

// Predicts the largest recording from the others.
Result<OwnError> own_error(std::span<const Trace> traces, const Plan& plan,
                           const PlanOptions& options, const Runner& runner) {
  OwnError error;
  if (traces.size() < 2) {
    error.missing = "one recording: none is left to predict another from";
    return error;
  }
  const Trace& largest = largest_of(traces);
  std::vector<Trace> others;
  for (const Trace& trace : traces) {
    if (&trace != &largest) others.push_back(trace);
  }
  error.ranks = largest.ranks();
  PlanOptions one = options;
  one.ranks = largest.ranks();
  one.policies = {plan.choice().policy};
  one.ranks_per_node = {plan.choice().ranks_per_node};
  Result<Pattern> pattern = find_pattern(others);
  if (!pattern) return pattern.status();
  if (Status s = choose_imbalance(largest_of(others), one, runner, &pattern.value()); !s.ok()) {
    return s;
  }
  const Result<Prediction> predicted = predict(
      std::make_shared<const Pattern>(std::move(pattern).value()), largest.ranks(), one, runner);
  if (!predicted) {
    error.missing = predicted.status().text();
    return error;
  }
  const Result<Subject> recording = subject_of(largest);
  if (!recording) return recording.status();
  const Result<std::vector<Choice>> recorded = search(recording.value(), one, runner);
  if (!recorded) {
    error.missing = recorded.status().text();
    return error;
  }
  const Choice &p = predicted.value().choices.front(), &r = recorded.value().front();
  error.predicted = p.free();
  error.recorded = r.free();
  if (p.advised > 0) error.predicted_budget = p.best().budget;
  if (r.advised > 0) error.recorded_budget = r.best().budget;
  return error;
}

void warn(Plan* plan) {
  auto& warnings = plan->warnings;
  warnings.insert(warnings.end(), plan->pattern.notes.begin(), plan->pattern.notes.end());
  for (std::string& text : assumptions_at(plan->pattern, plan->asked.ranks)) {
    warnings.push_back(std::move(text));
  }
  if (plan->pattern.irregular > 0.01) {
    warnings.push_back(fmt::format(
        "{:.0f} % of the messages follow no known relation: at {} ranks their senders and "
        "receivers repeat in blocks of {} ranks, with the same numbers of partners",
        100 * plan->pattern.irregular, plan->asked.ranks, plan->pattern.sizes.back()));
  }
  if (plan->pattern.fit_error > 0.1) {
    warnings.push_back(
        fmt::format("some sizes or repetitions follow no law well: up to {:.0f} % off "
                    "at a recorded size",
                    100 * plan->pattern.fit_error));
  }
  Settings settings = Settings::defaults();
  for (const auto& [name, text] : plan->asked.settings) {
    if (name == "interval") (void)settings.set(name, text);
  }
  const double interval = static_cast<double>(settings.interval) * 1e3;
  const double time = plan->choice().free().time * plan->played;
  // The policy `turnout` decides when messages pay for it.
  if (plan->choice().policy == "aqps" && time < interval) {
    warnings.push_back(fmt::format(
        "what was played takes {}, less than the interval between two decisions ({}): a longer run "
        "may use more channels and memory; record more repetitions, or set --set interval=1ms here "
        "and TURNOUT_INTERVAL in the job",
        print_time(static_cast<Picoseconds>(time)), value::print_duration(settings.interval)));
  }
  if (plan->played < 1) {
    warnings.push_back(fmt::format(
        "{:.2g} % of the repetitions were played; the time of the others follows from the second "
        "half of them",
        100 * plan->played));
  }
}

}  // namespace

std::vector<std::uint64_t> usual_budgets() {
  std::vector<std::uint64_t> budgets;
  for (std::uint64_t power = 256; power >= 4; power /= 2) {
    budgets.push_back(power * kMiB);
    if (power > 4) budgets.push_back(power * 3 / 4 * kMiB);
  }
  return budgets;
}

double Choice::slowdown(const Run& run) const {
  if (!run.ended()) return kInfinite;
  return free().time > 0 ? run.time / free().time - 1 : 0;
}

NamedValues Plan::variables() const {
  NamedValues list;
  const Choice& best = choice();
  if (best.advised > 0) {
    list.emplace_back("TURNOUT_MEMORY_BUDGET", value::print_bytes(best.best().budget));
  }
  list.emplace_back("TURNOUT_POLICY", best.policy);
  for (const auto& [name, text] : asked.settings) {
    std::string variable = "TURNOUT_" + name;
    std::transform(variable.begin(), variable.end(), variable.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    list.emplace_back(std::move(variable), text);
  }
  return list;
}

Result<std::vector<Choice>> search(const Subject& subject, const PlanOptions& options,
                                   const Runner& runner) {
  Result<std::vector<Choice>> choices = Search(subject, options, runner).run();
  if (choices) finish(&choices.value(), options);
  return choices;
}

std::size_t best_of(std::span<const Choice> choices, double within) {
  double fastest = kInfinite;
  for (const Choice& choice : choices) fastest = std::min(fastest, choice.free().time);
  std::size_t best = 0;
  const auto key = [&](const Choice& choice) {
    const Run& run = choice.best();
    const bool slow = run.time > fastest * (1 + within);
    return std::tuple{slow, slow ? run.time : 0.0, choice.advised == 0, run.budget, run.time};
  };
  for (std::size_t i = 1; i < choices.size(); ++i) {
    if (key(choices[i]) < key(choices[best])) best = i;
  }
  return best;
}

Result<Plan> make_plan(std::span<const Trace> traces, const PlanOptions& options,
                       const Runner& runner) {
  const auto begun = std::chrono::steady_clock::now();
  Result<Pattern> found = find_pattern(traces);
  if (!found) return found.status();
  if (Status s = choose_imbalance(largest_of(traces), options, runner, &found.value()); !s.ok()) {
    return s;
  }
  Plan plan;
  plan.asked = options;
  plan.pattern = std::move(found).value();
  const auto pattern = std::make_shared<const Pattern>(plan.pattern);
  for (const std::uint32_t ranks : plan.pattern.sizes) {
    plan.traffic.push_back({ranks, traffic_at(plan.pattern, ranks)});
  }
  plan.traffic.push_back({options.ranks, traffic_at(plan.pattern, options.ranks)});
  Result<Prediction> predicted = predict(pattern, options.ranks, options, runner);
  if (!predicted) return predicted.status();
  plan.choices = std::move(predicted.value().choices);
  plan.played = predicted.value().played;
  finish(&plan.choices, options);
  plan.best = best_of(plan.choices, options.within);
  const Result<Uncertainty> uncertainty = vary_costs(plan, pattern, options, runner);
  if (!uncertainty) return uncertainty.status();
  plan.uncertainty = uncertainty.value();
  const Result<OwnError> error = own_error(traces, plan, options, runner);
  if (!error) return error.status();
  plan.own_error = error.value();
  warn(&plan);
  plan.real_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  return plan;
}

}  // namespace turnout::sim::plan
