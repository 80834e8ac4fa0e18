// SPDX-License-Identifier: BSD-3-Clause
#include "core/selection/windows.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/index_of.h"

namespace turnout::selection {

namespace {

struct Evaluation {
  Plan plan;
  WindowGain gain;
  double busy = 0;
};

bool is_bystander(const SourceView& source, ChannelKind default_channel) {
  return source.messages == 0 && source.current == default_channel;
}

// Of tens of thousands of known sources few spoke in the window. The others, without a ring, change
// nothing in the selection, so it is not given them.
Evaluation evaluate(const WindowCounts& counts, const WindowInput& input, double gain_threshold) {
  std::vector<SourceView> sources;
  auto at = counts.sources.begin();  // both mostly come in the order of peers
  std::uint32_t last = 0;
  for (SourceView source : input.sources) {
    if (source.peer < last) {
      source.messages = counts.of(source.peer);
    } else {
      last = source.peer;
      while (at != counts.sources.end() && at->peer < last) ++at;
      source.messages = at != counts.sources.end() && at->peer == last ? at->messages : 0;
    }
    // A long past must not end what began with a new pattern.
    if (source.since > counts.window.begin) {
      source.expected = source.rate * static_cast<double>(counts.window.length());
      source.expected_first = source.rate_first * static_cast<double>(counts.window.length());
    }
    if (!is_bystander(source, input.default_channel)) sources.push_back(source);
  }
  Evaluation result;
  if (input.turnout != nullptr) {
    TurnoutTerms terms = *input.turnout;
    terms.busy = result.busy = counts.busy();
    result.plan =
        select_turnout({sources, terms, input.limits, counts.messages, input.default_channel,
                        static_cast<double>(counts.window.length())});
  } else {
    result.plan = select_aqps({sources, input.costs, input.limits, gain_threshold, counts.messages,
                               input.default_channel});
  }
  result.gain = {counts.window, counts.messages, result.plan.gain_current, result.plan.gain_best,
                 0};
  if (counts.messages > 0) {
    result.gain.per_message =
        (result.plan.gain_best - result.plan.gain_current) / static_cast<double>(counts.messages);
  }
  return result;
}

// One line each for those that were left out, where select_aqps would have them: last, by peer.
void add_bystanders(const WindowInput& input, Plan* plan) {
  std::vector<std::uint32_t> present;
  for (const PlanLine& line : plan->lines) present.push_back(line.peer);
  std::sort(present.begin(), present.end());
  const std::size_t first = plan->lines.size();
  plan->lines.reserve(input.sources.size());
  for (const SourceView& source : input.sources) {
    if (source.current != input.default_channel) continue;
    if (std::binary_search(present.begin(), present.end(), source.peer)) continue;
    PlanLine& line = plan->lines.emplace_back();
    line.peer = source.peer;
    line.from = line.to = source.current;
    line.reason = source.refused ? Reason::refused_by_peer : Reason::too_few_messages;
  }
  const auto by_peer = [](const PlanLine& a, const PlanLine& b) { return a.peer < b.peer; };
  const auto begin = plan->lines.begin() + static_cast<std::ptrdiff_t>(first);
  if (!std::is_sorted(begin, plan->lines.end(), by_peer)) {
    std::sort(begin, plan->lines.end(), by_peer);
  }
}

}  // namespace

std::string_view name(WindowChoice choice) noexcept {
  constexpr std::array<std::string_view, 5> kNames = {"none", "first window", "extended window",
                                                      "shrunk window", "recent window"};
  return name_of(kNames, choice);
}

WindowSelection select_in_windows(const Statistics& statistics, const WindowState& state,
                                  const WindowInput& input) {
  WindowSelection result;
  result.next = state;
  const auto take = [&](Evaluation&& from) {
    result.window = from.gain.window;
    result.messages = from.gain.messages;
    result.busy = from.busy;
    result.plan = std::move(from.plan);
    add_bystanders(input, &result.plan);
  };
  const std::optional<TimeWindow> newest = statistics.newest();
  if (!newest || !state.current) {  // T1
    const WindowCounts counts = newest ? statistics.counts(*newest) : WindowCounts{};
    Evaluation first = evaluate(counts, input, 0);
    result.extended = result.shrunk = first.gain;
    if (counts.messages > 0) {
      result.next.current = counts.window;
      result.chosen = WindowChoice::first;
    }
    take(std::move(first));
    return result;
  }

  const TimeWindow current = *state.current;
  const Time now = newest->end;
  const Time half = (now - current.begin) / 2;
  Evaluation extended =
      evaluate(statistics.counts({current.begin, now}), input, input.gain_threshold);  // T2
  Evaluation shrunk = evaluate(statistics.counts({now - half, now}), input, input.gain_threshold);
  result.extended = extended.gain;
  result.shrunk = shrunk.gain;

  // At a message: the latest messages, and windows longer by this factor, up to the shrunk one.
  constexpr Time kLonger = 4;
  if (input.at_message && !extended.plan.changes && !shrunk.plan.changes) {
    std::vector<SourceView> stay(input.sources.begin(), input.sources.end());
    for (SourceView& source : stay) {
      source.stays = source.current == ChannelKind::rc_rdma;
      source.rate = 0;  // it is to get a better one
    }
    WindowInput recent = input;
    recent.sources = stay;
    for (Time length = newest->length(); length < half; length *= kLonger) {
      Evaluation one = evaluate(statistics.counts({now - length, now}), recent, 0);
      if (!one.plan.changes) continue;
      result.chosen = WindowChoice::recent;
      result.next.current = TimeWindow{current.begin, now};
      take(std::move(one));
      return result;
    }
  }

  // T4. Of equals the longer window: it says more.
  const bool shrunk_is_better = shrunk.gain.per_message > extended.gain.per_message;
  Evaluation& better = shrunk_is_better ? shrunk : extended;
  if (better.plan.changes) {
    result.chosen = shrunk_is_better ? WindowChoice::shrunk : WindowChoice::extended;
    result.next.current = better.gain.window;
  } else {
    result.next.current = TimeWindow{current.begin, now};
  }
  take(std::move(better));
  return result;
}

}  // namespace turnout::selection
