// SPDX-License-Identifier: BSD-3-Clause
#include "cli/why_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "base/value.h"
#include "cli/why_model.h"
#include "core/report/report_text.h"

namespace turnout::cli {
namespace {

using selection::Reason;
using value::human_bytes;
using value::human_count;

constexpr std::size_t kMostHistory = 12, kMostNamed = 12;

void labelled_text(std::string* out, std::string_view label, const std::string& text) {
  *out += wrap(fmt::format("  {:<10} ", label), text, kWhyColumns);
}

std::string duration_text(double nanoseconds) {
  return value::human_duration(std::llround(std::clamp(nanoseconds, 0.0, 9e18)));
}

std::string saved_text(double nanoseconds) {
  return (nanoseconds < 0 ? "-" : "") + duration_text(std::abs(nanoseconds));
}

std::string percent_text(double share) {
  return fmt::format("{:.0f} %", 100 * std::clamp(share, 0.0, 1.0));
}

// "1 message", "2 messages"
std::string messages_text(std::uint64_t count) {
  return fmt::format("{} message{}", human_count(count), count == 1 ? "" : "s");
}

// Of an endpoint's life, to a millisecond.
std::string at_text(std::int64_t nanoseconds) {
  return fmt::format("{:.3f} s", static_cast<double>(nanoseconds) / 1e9);
}
std::string since_text(std::int64_t nanoseconds) {
  return nanoseconds <= 0 ? "the start" : at_text(nanoseconds);
}

// One direction, with all that is known of it.
class Direction {
 public:
  Direction(const JobTraffic& traffic, const JobTraffic::Pair& pair)
      : pair_(pair),
        from_(printable(traffic.processes[pair.from].name)),
        to_(printable(traffic.processes[pair.to].name)) {
    if (pair.receiver != nullptr && pair.at_receiver != nullptr)
      selection_ = PairSelection::of(*pair.receiver, *pair.at_receiver);
  }

  std::string text() const {
    std::string out = head();
    labelled_text(&out, "counted", counted());
    if (selection_) {
      labelled_text(&out, "window", window());
      if (selection_->source().messages > 0) labelled_text(&out, "sender", sender());
      table(&out);
    }
    labelled_text(&out, "why", why());
    if (selection_) labelled_text(&out, "changes it", what_changes_it());
    history(&out);
    return out;
  }

 private:
  std::string head() const {
    const ChannelSpan& now = pair_.direction().spans.back();
    std::string who =
        pair_.receiver != nullptr
            ? fmt::format("{} decides, by the policy {}", to_, printable(pair_.receiver->policy))
            : fmt::format("{}, which decides, left no report", to_);
    return wrap("",
                fmt::format("{} -> {}: over {} since {}, of {}; {}", from_, to_, name(now.channel),
                            since_text(now.since), at_text(pair_.teller().lifetime), who),
                kWhyColumns);
  }

  static void add_counts(const DirectionReport& direction, double* messages, double* bytes) {
    for (const ChannelSpan& span : direction.spans) {
      *messages += static_cast<double>(span.messages);
      *bytes += static_cast<double>(span.bytes);
    }
  }

  std::string counted() const {
    const DirectionReport& direction = pair_.direction();
    double messages = 0, bytes = 0;
    add_counts(direction, &messages, &bytes);
    std::string out =
        fmt::format("{} message{} and {} {}", count_text(messages), messages == 1 ? "" : "s",
                    bytes_text(bytes), pair_.reported_by_receiver() ? "received" : "sent");
    if (direction.spans.size() > 1) {
      out += fmt::format(", {} of them over {}", human_count(direction.spans.back().messages),
                         name(direction.spans.back().channel));
    }
    if (pair_.reported_by_receiver() && pair_.at_sender != nullptr) {
      double sent = 0, sent_bytes = 0;
      add_counts(pair_.at_sender->send, &sent, &sent_bytes);
      if (sent > messages) out += fmt::format("; {} sent {}", from_, count_text(sent));
    }
    if (const PeerReport* at = pair_.at_receiver; at != nullptr && at->observed_gain) {
      out += fmt::format("; a message takes the processor {:.0f} ns {} than over {}",
                         std::abs(*at->observed_gain), *at->observed_gain < 0 ? "more" : "less",
                         name(ChannelKind::dc_sendrecv));
    }
    return out;
  }

  std::string window() const {
    const SelectionReport& report = selection_->report();
    return fmt::format("{} of {} from all peers in {}, at the latest selection at {}",
                       messages_text(selection_->source().messages), human_count(report.messages),
                       value::human_duration(report.window), at_text(report.time));
  }

  std::string sender() const {
    const selection::SenderFeedback& f = selection_->source().feedback;
    std::string out = fmt::format(
        "{} spends {} of its time on messages; {} did not wait for {} of those that came; {} "
        "of its messages here switched a DCI; {} RC queue pair{} at its adapter",
        from_, percent_text(static_cast<double>(f.busy)), to_,
        percent_text(selection_->report().busy), percent_text(static_cast<double>(f.switched)),
        f.active_rc, f.active_rc == 1 ? "" : "s");
    if (f.here > 1) out += fmt::format("; it sends to {} processes of this node", f.here);
    if (f.full) out += "; its memory budget has no room for a queue pair";
    return out;
  }

  void table(std::string* out) const {
    *out += fmt::format("  {:<12} {:>11} {:>11} {:>11} {:>10} {:>16}\n", "channel", "saves/msg",
                        "set-up CPU", "set-up time", "memory", "pays from");
    for (const WhyChannel& channel : selection_->channels()) {
      if (!channel.possible) continue;
      const bool first = !over_ring(channel.kind);
      const ChannelKind now = pair_.direction().spans.back().channel;
      const auto or_dash = [&](bool dash, const std::string& text) {
        return dash ? std::string("-") : text;
      };
      *out +=
          fmt::format("{} {:<12} {:>11} {:>11} {:>11} {:>10} {:>16}\n",
                      channel.kind == now ? '*' : ' ', name(channel.kind),
                      or_dash(first || !channel.saved, saved_text(channel.saved.value_or(0))),
                      or_dash(first, channel.exists ? "exists" : duration_text(channel.processor)),
                      or_dash(channel.time <= 0 || channel.exists, duration_text(channel.time)),
                      or_dash(first, human_bytes(channel.bytes)),
                      or_dash(!channel.from, messages_text(channel.from.value_or(0))));
    }
  }

  // Why the direction is where it is, with the numbers that mattered.
  std::string why() const {
    if (pair_.at_receiver == nullptr) return fmt::format("only {} tells of this direction", from_);
    if (pair_.at_receiver->lost) return fmt::format("{} is lost", from_);
    const std::string told = printable(pair_.at_receiver->reason);
    if (!selection_) {
      if (!told.empty()) return told;
      return "the policy does not choose by traffic";
    }
    const std::string numbers = numbers_of(selection_->line().reason);
    const std::string words(selection::explain(selection_->line().reason));
    std::string out = told.empty() ? words : told;
    if (!told.starts_with(words)) out += fmt::format("; the latest selection: {}", words);
    if (!numbers.empty()) out += fmt::format(": {}", numbers);
    return out;
  }

  std::string budget_text(const EndpointReport& report) const {
    return fmt::format("{} of {} are used", human_bytes(report.used), human_bytes(report.budget));
  }

  std::string numbers_of(Reason reason) const {
    const SelectionReport& report = selection_->report();
    const selection::Plan& plan = selection_->plan();
    const selection::SourceView& source = selection_->source();
    switch (reason) {
      case Reason::limit_budget:
        return fmt::format("{} are left for channels, a ring takes {}, a queue pair {}",
                           human_bytes(report.bytes_available), human_bytes(report.bytes_per_ring),
                           human_bytes(report.bytes_per_rc));
      case Reason::budget_of_source:
        return pair_.sender == nullptr ? std::string() : budget_text(*pair_.sender);
      case Reason::limit_channels:
        return fmt::format("max_channels is {}", report.max_channels);
      case Reason::limit_active_rc:
        return fmt::format("max_active_rc is {}", report.max_active_rc);
      case Reason::below_threshold:
      case Reason::not_certain: {
        const double gain = plan.gain_best - plan.gain_current;
        const double needed = reason == Reason::not_certain
                                  ? plan.threshold
                                  : report.gain_threshold * static_cast<double>(report.messages);
        return fmt::format(
            "the better channels of all peers save {} in the window, and must save "
            "more than {}",
            duration_text(gain), duration_text(needed));
      }
      case Reason::contexts:
        return fmt::format("{} at the sender's adapter", source.feedback.active_rc);
      case Reason::refused_by_peer:
        return fmt::format("asked again after {}",
                           value::human_duration(pair_.at_receiver->source->refused_for));
      default:
        return {};
    }
  }

  std::string change_text(const WhyChange& change) const {
    using enum WhyChange::What;
    switch (change.what) {
      case messages:
        return fmt::format("{} more in the window", messages_text(change.amount));
      case budget:
        return fmt::format("{} more memory budget at {}", human_bytes(change.amount), to_);
      case budget_of_source:
        return fmt::format("room in the memory budget of {}", from_);
      case refusal:
        return fmt::format("no refusal by {}", from_);
      case contexts:
        return "adapters without a limit of RC contexts";
      case channel_limit:
        return fmt::format("max_channels above {}", selection_->report().max_channels);
      case queue_pair_limit:
        return fmt::format("max_active_rc above {}", selection_->report().max_active_rc);
      case waiting:
        return "processes that wait for messages, rather than being busy with them";
      case under_way:
        return fmt::format("the {} queue pairs ready that are being made",
                           selection_->report().under_way);
    }
    return {};
  }

  std::string what_changes_it() const {
    std::string out;
    for (const WhyChange& change : selection_->changes()) {
      out += fmt::format("{}{} would give {}", out.empty() ? "" : "; ", change_text(change),
                         name(change.to));
    }
    if (!out.empty()) return out;
    return over_connection(selection_->line().to)
               ? "nothing: it is the best channel"
               : "none of messages, budgets and limits would by itself";
  }

  void history(std::string* out) const {
    const DirectionReport& direction = pair_.direction();
    std::vector<const DecisionReport*> decisions;
    if (pair_.receiver != nullptr && pair_.at_receiver != nullptr) {
      for (const DecisionReport& one : pair_.receiver->decisions) {
        if (one.peer == pair_.at_receiver->peer) decisions.push_back(&one);
      }
    }
    if (decisions.empty()) {
      std::string text;
      for (const ChannelSpan& span : direction.spans) {
        text += fmt::format("{}{} from {} on", text.empty() ? "" : ", ", name(span.channel),
                            since_text(span.since));
        if (text.size() > 1000) break;
      }
      labelled_text(out, "history", text);
    }
    const std::size_t first = decisions.size() > kMostHistory ? decisions.size() - kMostHistory : 0;
    if (first > 0) {
      labelled_text(out, "history", fmt::format("{} earlier changes, and", human_count(first)));
    }
    for (std::size_t i = first; i < decisions.size(); ++i) {
      const DecisionReport& one = *decisions[i];
      labelled_text(out, i == 0 ? "history" : "",
                    fmt::format("{}: {} -> {}, {}: {}", at_text(one.time), name(one.from),
                                name(one.to), printable(one.outcome), printable(one.reason)));
    }
    if (pair_.receiver != nullptr && pair_.receiver->decisions_dropped > 0) {
      labelled_text(out, "",
                    fmt::format("the oldest {} decisions of {} were not kept",
                                human_count(pair_.receiver->decisions_dropped), to_));
    }
  }

  const JobTraffic::Pair& pair_;
  std::string from_, to_;
  std::optional<PairSelection> selection_;
};

std::optional<std::size_t> find_process(const JobTraffic& traffic, std::uint32_t number) {
  for (const std::string& name : {fmt::format("rank {}", number), fmt::format("pid {}", number)}) {
    const auto found = std::ranges::find(traffic.processes, name, &JobTraffic::Process::name);
    if (found != traffic.processes.end())
      return static_cast<std::size_t>(found - traffic.processes.begin());
  }
  return std::nullopt;
}

// "rank 0, rank 1 and 6 more"
std::string named(const std::vector<std::string>& names) {
  if (names.empty()) return "none";
  std::string out;
  for (std::size_t i = 0; i < names.size() && i < kMostNamed; ++i)
    out += (i == 0 ? "" : ", ") + printable(names[i]);
  if (names.size() > kMostNamed) out += fmt::format(" and {} more", names.size() - kMostNamed);
  return out;
}

}  // namespace

Result<std::string> why_text(std::span<const EndpointReport> reports, std::uint32_t rank,
                             std::uint32_t peer) {
  const JobTraffic traffic = job_traffic(reports);
  const auto unknown = [&](std::uint32_t number) {
    std::vector<std::string> names;
    for (const JobTraffic::Process& one : traffic.processes) names.push_back(one.name);
    return Status{
        Code::invalid,
        fmt::format("no rank or process {} in these reports; there are: {}", number, named(names))};
  };
  const std::optional<std::size_t> a = find_process(traffic, rank), b = find_process(traffic, peer);
  if (!a) return unknown(rank);
  if (!b) return unknown(peer);
  std::string out;
  std::vector<std::string> partners;
  for (const bool forth : {false, true}) {
    for (const JobTraffic::Pair& pair : traffic.pairs) {
      if ((forth ? pair.from : pair.to) != *a) continue;
      const std::size_t other = forth ? pair.to : pair.from;
      if (const std::string& name = traffic.processes[other].name;
          std::ranges::find(partners, name) == partners.end())
        partners.push_back(name);
      if (other != *b) continue;
      if (!out.empty()) out += '\n';
      out += Direction(traffic, pair).text();
    }
  }
  if (!out.empty()) return out;
  return Status{Code::invalid, fmt::format("{} and {} exchanged no message; {} did with: {}",
                                           printable(traffic.processes[*a].name),
                                           printable(traffic.processes[*b].name),
                                           printable(traffic.processes[*a].name), named(partners))};
}

}  // namespace turnout::cli
