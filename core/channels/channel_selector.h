// SPDX-License-Identifier: BSD-3-Clause
// ChannelSelector: runs the selection of the policy: counts messages, decides at the end of an
// interval or at a peer's message, carries the plan out, and records what became of each decision.
// It reports feedback to senders.
//
// The endpoint owns it; the thread that drives the endpoint calls it.
#pragma once

#include <span>

#include "core/channels/connection_recovery.h"
#include "core/selection/prediction.h"
#include "core/selection/windows.h"

namespace turnout {

// What the latest selection was made of, for the report.
struct LatestSelection {
  Nanoseconds time = 0;  // of the selection; 0: there was none
  selection::TimeWindow window;
  std::uint64_t messages = 0;  // received in the window
  double gain_current = 0, gain_best = 0, threshold = 0;
  selection::Limits limits;
  selection::TurnoutTerms terms;  // of the policy `turnout`
};

class ChannelSelector : MessagingUser {
 public:
  ChannelSelector(EndpointState& state, Messaging& messaging, DecisionOutcomes& outcomes,
                  RcPool& rc, ConnectionSlots& slots, XrcConnections& xrc_nodes,
                  ChannelNegotiator& negotiator, ConnectionRecovery& recovery)
      : MessagingUser(state, messaging),
        outcomes_(outcomes),
        rc_(rc),
        slots_(slots),
        xrc_nodes_(xrc_nodes),
        negotiator_(negotiator),
        recovery_(recovery) {}

  void on_feedback(Peer& peer, const wire::ControlMessage& message) noexcept;
  void begin(Nanoseconds now) noexcept;
  // What the last run counted, with the policy `turnout`; before begin(). Errors: over_budget.
  [[nodiscard]] Status predict(LastRun last);
  // Whether run() has something to do: at next_decision(), when the account of a source is full, or
  // when enough was sent to tell receivers more.
  [[nodiscard]] bool is_due(Nanoseconds now) const noexcept {
    return account_full_ || now >= next_decision_ || context_.feedback.sent() >= report_after_;
  }
  // Reports feedback; decides, and says when the next decision is due.
  void run(Nanoseconds now);
  void on_message_counted(Peer& peer);
  [[nodiscard]] bool predicts() const noexcept { return predicts_; }
  // The program knows these addresses; those with magic 0 are none.
  void learn(std::span<const Address> addresses);
  // The peer and this process know each other's index: messages may follow.
  void on_wired_up(Peer& peer) {
    if (predicts_) [[unlikely]]
      ask_if_predicted(peer);
  }
  [[nodiscard]] ChannelKind first_channel(const Peer& peer);
  void request_failed(Peer& peer, const Status& status);
  void change_channel(Peer& peer, ChannelKind to, ChannelKind fallback, const std::string& reason,
                      double gain);
  [[nodiscard]] Nanoseconds next_decision() const noexcept { return next_decision_; }
  [[nodiscard]] Nanoseconds interval_began() const noexcept { return interval_began_; }
  [[nodiscard]] const LatestSelection& latest() const noexcept { return latest_; }

 private:
  void report_feedback(Nanoseconds now);
  [[nodiscard]] bool keep_counts(Nanoseconds now);
  void close_account(Peer& peer, std::uint32_t messages, bool at_message);
  void decide(Nanoseconds now, bool at_message);
  void carry_out(const selection::WindowSelection& selected, Nanoseconds now);
  void set_account() noexcept;
  [[nodiscard]] selection::Limits limits(std::uint64_t given_back) const noexcept;
  void change_in_steps(Peer& peer, ChannelKind to, ChannelKind fallback, const std::string& reason,
                       double gain);
  void learn(const Address& address);
  void ask_if_predicted(Peer& peer);
  void plan_predicted();
  void ask_predicted();
  void count_predicted();
  [[nodiscard]] Nanoseconds first_interval() const noexcept;

  DecisionOutcomes& outcomes_;
  RcPool& rc_;
  ConnectionSlots& slots_;
  XrcConnections& xrc_nodes_;
  ChannelNegotiator& negotiator_;
  ConnectionRecovery& recovery_;

  Nanoseconds next_decision_ = 0;
  selection::WindowState window_;
  LatestSelection latest_;
  Nanoseconds interval_ = 0;  // until the next decision
  Nanoseconds interval_began_ = 0;
  // Policy `turnout`. Messages on a channel that is not the best until what they forwent pays for a
  // better one; never, with other policies.
  std::uint32_t account_ = UINT32_MAX;
  bool account_full_ = false;
  // Messages sent until receivers are told again.
  std::uint64_t report_after_ = UINT64_MAX;
  std::uint64_t reported_at_ = 0;  // messages delivered then
  Nanoseconds reported_ = 0;       // when
  // The last run until a peer is heard, then what it predicts.
  bool predicts_ = false;
  bool asks_predicted_ = false;
  LastRun last_run_;
  selection::Prediction prediction_;
  Reservation prediction_bytes_;
};

}  // namespace turnout
