// SPDX-License-Identifier: BSD-3-Clause
// The account of one pair of processes, for `turnout why`: what each channel would have saved and
// cost, what bound the choice, and what would change it.
//
// Who decides is the receiver of a direction; its report holds what its latest selection was made
// of. A PairSelection is that selection again, by the functions of the policy itself
// (core/selection): the latest window, the channels as they were before it, and other numbers where
// a question is asked. Counts of a window come from a rate of eight digits, so a selection on a
// knife's edge may fall the other way.
//
// Points into the reports, which outlive it. Reports are untrusted: anything may be in them. Pure
// functions, any thread. Times are nanoseconds, sizes bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/report/job_traffic.h"
#include "core/selection/turnout_policy.h"

namespace turnout::cli {

// One channel of a direction.
struct WhyChannel {
  ChannelKind kind = ChannelKind::dc_sendrecv;
  bool possible = true;
  // Of a message, against the default transport, its polls, credits and contexts taken off; absent:
  // no message came in the window.
  std::optional<double> saved;
  double processor = 0, time = 0;  // to set up, where it does not exist
  std::uint64_t bytes = 0;
  bool exists = false;
  // Messages in such a window from which on it is chosen, if nothing else changes and memory is
  // there; absent: never.
  std::optional<std::uint64_t> from;
};

// Something that would have given the direction another channel.
struct WhyChange {
  enum class What : std::uint8_t {
    messages,  // so many more in the window
    budget,    // so many bytes more
    budget_of_source,
    refusal,           // without the refusal
    contexts,          // adapters with room for more queue pairs
    channel_limit,     // no limit of channels
    queue_pair_limit,  // no limit of RC queue pairs
    waiting,           // processes that wait for messages, rather than being busy with them
    under_way,         // no queue pairs being made
  } what;
  std::uint64_t amount = 0;
  ChannelKind to = ChannelKind::dc_sendrecv;
};

class PairSelection {
 public:
  // None: the receiver's report does not tell of a selection, or its policy does not select.
  [[nodiscard]] static std::optional<PairSelection> of(const EndpointReport& receiver,
                                                       const PeerReport& source);

  // The line of the direction in the selection.
  [[nodiscard]] const selection::PlanLine& line() const { return line_; }
  [[nodiscard]] const selection::SourceView& source() const { return at(case_); }
  // What the whole map would have gained, and had to.
  [[nodiscard]] const selection::Plan& plan() const { return plan_; }
  [[nodiscard]] const SelectionReport& report() const { return *report_; }
  // The default transport, DC-RDMA, RC-RDMA, XRC-RDMA.
  [[nodiscard]] std::vector<WhyChannel> channels() const;
  // Each by itself, only those that would help.
  [[nodiscard]] std::vector<WhyChange> changes() const;

 private:
  // What a selection is made of.
  struct Case {
    std::vector<selection::SourceView> sources;
    selection::TurnoutTerms terms;
    selection::Limits limits;
    std::uint64_t messages = 0;
  };
  PairSelection(const EndpointReport& receiver, const PeerReport& source);

  [[nodiscard]] selection::SourceView& at(Case& of) const { return of.sources[place_]; }
  [[nodiscard]] const selection::SourceView& at(const Case& of) const { return of.sources[place_]; }
  [[nodiscard]] selection::Plan select(const Case& of) const;
  [[nodiscard]] selection::PlanLine line_of(const Case& of) const;
  [[nodiscard]] Case with_messages(Case of, std::uint64_t messages) const;
  [[nodiscard]] Case without_limits(Case of) const;
  [[nodiscard]] double gain_on(ChannelKind kind) const;
  [[nodiscard]] std::optional<std::uint64_t> chosen_from(ChannelKind kind) const;
  [[nodiscard]] ChannelKind chosen(const Case& of) const;
  [[nodiscard]] bool better(ChannelKind kind) const;

  const SelectionReport* report_;
  bool turnout_;  // the policy; else aqps
  std::size_t place_ = 0;
  Case case_;
  selection::Plan plan_;
  selection::PlanLine line_;
};

}  // namespace turnout::cli
