// SPDX-License-Identifier: BSD-3-Clause
#include "core/selection/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace turnout::selection {

namespace {

// A benchmark is not the program: nothing is known better than this.
constexpr double kLeastUncertainty = 0.02;
// Steps of the context cache below this part are not told from noise.
constexpr double kLeastStep = 0.03;
constexpr double kSignificant = 3;  // standard errors

double quantile(const Rounds& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (at - static_cast<double>(below));
}

Estimate minus(const Estimate& a, const Estimate& b) {
  return {a.value - b.value, std::hypot(a.error, b.error)};
}
Estimate times(const Estimate& a, double factor) {
  return {a.value * factor, a.error * std::abs(factor)};
}
Estimate floored(const Estimate& a) {
  return {std::max(a.value, 0.0), a.error};
}

// Squared deviations of log time from the mean of points [first, last).
double squares(const std::vector<double>& logs, std::size_t first, std::size_t last) {
  double mean = 0, sum = 0;
  for (std::size_t i = first; i < last; ++i) mean += logs[i];
  mean /= static_cast<double>(last - first);
  for (std::size_t i = first; i < last; ++i) sum += (logs[i] - mean) * (logs[i] - mean);
  return sum;
}

// The estimate of several points together.
Estimate pooled(const std::vector<Estimate>& all, std::size_t first, std::size_t last) {
  Rounds values;
  double errors = 0;
  for (std::size_t i = first; i < last; ++i) {
    values.push_back(all[i].value);
    errors += all[i].error;
  }
  const Estimate spread = estimate(values);
  return {spread.value, std::hypot(spread.error, errors / static_cast<double>(last - first))};
}

bool significant(const Estimate& low, const Estimate& high) {
  const Estimate step = minus(high, low);
  return step.value > kSignificant * step.error && step.value > kLeastStep * low.value;
}

Knee knee_at(const std::vector<RatePoint>& points, std::size_t at, const Estimate& below,
             const Estimate& above) {
  const Estimate step = minus(above, below);
  return {points[at - 1].first, (points[at].first - points[at - 1].first) / 2, step.value,
          step.error};
}

class Writer {
 public:
  Writer(CostsFile* out, const Measurements& measured)
      : out_(*out), rounds_(measured.rc_rdma.size()) {}
  void put(CostValue DeviceCosts::*field, const Estimate& value, const std::string& how,
           double least = kLeastUncertainty) {
    const double part = value.value > 0 ? value.error / value.value : 1;
    out_.set(field, {value.value, std::clamp(part, least, 100.0)},
             fmt::format("M {}, median of {}", how, rounds_));
  }
  void set(CostValue DeviceCosts::*field, const CostValue& value, const std::string& source) {
    out_.set(field, value, source);
  }

 private:
  CostsFile& out_;
  const std::size_t rounds_;
};

void put_context(Writer* writer, const std::vector<RatePoint>& points) {
  if (points.empty()) return;
  const Knees knees = find_knees(points);
  const double most = points.back().first;
  const auto put = [&](const Knee& knee, CostValue DeviceCosts::*entries,
                       CostValue DeviceCosts::*beyond) {
    if (knee.beyond > 0) {
      writer->put(entries, {knee.entries, knee.error}, "rate over 8 and more queue pairs");
      writer->put(beyond, {knee.beyond, knee.beyond_error}, "rate over 8 and more queue pairs");
      return;
    }
    const std::string none = fmt::format("M no loss up to {:.0f} queue pairs", most);
    writer->set(entries, {most, 0.5}, none);
    writer->set(beyond, {0, 0}, none);
  };
  put(knees.first, &DeviceCosts::context_first_entries, &DeviceCosts::context_first_beyond);
  put(knees.second, &DeviceCosts::context_second_entries, &DeviceCosts::context_second_beyond);
}

// Half round trips. Only their differences count: what is not known better is a part of them.
void put_trips(Writer* writer, const Measurements& m) {
  using C = DeviceCosts;
  const Estimate slow = estimate(m.datagrams ? m.ud_sendrecv : m.dc_sendrecv),
                 fast = estimate(m.rc_rdma), ring = m.datagrams ? slow : estimate(m.dc_rdma);
  const double least = kLeastUncertainty * (std::max({slow.value, ring.value, fast.value}) -
                                            std::min({slow.value, ring.value, fast.value}));
  const auto put = [&](CostValue C::*field, const Estimate& value, const char* over) {
    writer->put(field, {value.value, std::max(value.error, least)},
                fmt::format("half a pingpong round trip{}", over), 0);
  };
  put(&C::receiver_dc_sendrecv, slow, m.datagrams ? " over UD-sendrecv, in place of DC" : "");
  put(&C::receiver_rc_rdma, fast, "");
  if (m.datagrams) {
    writer->set(&C::receiver_ud_below_dc, {0, 0},
                "assumed zero: no DC on this device, receiver.dc_sendrecv is for UD");
    writer->set(&C::receiver_dc_rdma, {slow.value, 1},
                "assumed equal to receiver.dc_sendrecv: no DC on this device, so no ring over it");
    return;
  }
  put(&C::receiver_dc_rdma, ring, "");
  if (!m.ud_sendrecv.empty()) {
    writer->put(&C::receiver_ud_below_dc, floored(minus(slow, estimate(m.ud_sendrecv))),
                "half a pingpong round trip over DC-sendrecv less one over UD-sendrecv");
  }
}

}  // namespace

Estimate estimate(Rounds rounds) {
  if (rounds.empty()) return {};
  std::sort(rounds.begin(), rounds.end());
  // Of a normal distribution the quartiles are 1.349 standard deviations apart, and the median's
  // error is 1.253 of the mean's.
  const double deviation = (quantile(rounds, 0.75) - quantile(rounds, 0.25)) / 1.349;
  return {quantile(rounds, 0.5), 1.253 * deviation / std::sqrt(static_cast<double>(rounds.size()))};
}

Knees find_knees(const std::vector<RatePoint>& points) {
  Knees knees;
  const std::size_t n = points.size();
  if (n < 2) return knees;
  std::vector<Estimate> all;
  std::vector<double> logs;
  for (const auto& [queue_pairs, rounds] : points) {
    all.push_back(estimate(rounds));
    logs.push_back(std::log(std::max(all.back().value, 1e-3)));
  }
  // Every place of two steps, the second perhaps at the end: none.
  double least = squares(logs, 0, n);
  std::size_t first = n, second = n;
  for (std::size_t a = 1; a < n; ++a) {
    for (std::size_t b = a + 1; b <= n; ++b) {
      const Estimate low = pooled(all, 0, a), middle = pooled(all, a, b);
      if (!significant(low, middle)) continue;
      if (b < n && !significant(middle, pooled(all, b, n))) continue;
      const double left =
          squares(logs, 0, a) + squares(logs, a, b) + (b < n ? squares(logs, b, n) : 0);
      if (left < least) {
        least = left;
        first = a;
        second = b;
      }
    }
  }
  if (first == n) return knees;
  const Estimate low = pooled(all, 0, first), middle = pooled(all, first, second);
  knees.first = knee_at(points, first, low, middle);
  if (second < n) knees.second = knee_at(points, second, middle, pooled(all, second, n));
  return knees;
}

CostsFile costs_of(const Measurements& m, const std::string& device, const std::string& note) {
  CostsFile out;
  out.device = device;
  out.note = note;
  for (std::string& source : out.sources) {
    source = fmt::format("assumed built-in value, not measured: {}", source);
  }
  Writer writer(&out, m);
  using C = DeviceCosts;
  if (!m.rc_rdma.empty()) put_trips(&writer, m);
  if (!m.more_rings.empty() && m.extra_rings > 0) {
    const Estimate more =
        minus(estimate(m.more_rings), estimate(m.datagrams ? m.rc_rdma : m.dc_rdma));
    writer.put(&C::receiver_poll, floored(times(more, 2 / (m.extra_rings * m.polls_of_each))),
               fmt::format("pingpong beside {:.0f} idle rings", m.extra_rings));
  }
  const auto put = [&](CostValue C::*field, const Rounds& rounds, double part, const char* how) {
    if (!rounds.empty()) writer.put(field, floored(times(estimate(rounds), part)), how);
  };
  put(&C::receiver_credit, m.credit, 1,
      "bursts that need a credit message less bursts that do not");
  put(&C::setup_dc_processor, m.setup_dc_lost, 0.5, "pingpong from its first message on");
  put(&C::setup_rc_processor, m.setup_rc_lost, 0.5, "pingpong from its first message on");
  put(&C::setup_rc_time, m.setup_rc_time, 1, "pingpong until its first message over RC");
  const char* const busy = "a receiver that never waits";
  put(&C::receiver_busy_dc_sendrecv, m.datagrams ? m.busy_ud : m.busy_dc_sendrecv, 1, busy);
  put(&C::receiver_busy_dc_rdma, m.datagrams ? m.busy_ud : m.busy_dc_rdma, 1, busy);
  put(&C::receiver_busy_rc_rdma, m.busy_rc_rdma, 1, busy);
  put(&C::sender_dci_switch, m.one_dci, 1, "one DCI, a new target for each message");
  if (!m.post_rc.empty()) {
    const std::string how = "a sender that never waits, many targets";
    writer.put(&C::sender_post_rc, estimate(m.post_rc), how + ", RC");
    if (m.datagrams) {
      for (CostValue C::*field : {&C::sender_post_dc, &C::sender_post_dc_switch}) {
        writer.put(field, estimate(m.post_ud), how + ", UD, in place of DC");
      }
    } else {
      writer.put(&C::sender_post_dc, estimate(m.post_dc), how + ", one DCI per target");
      writer.put(&C::sender_post_dc_switch, estimate(m.post_dc_switch), how + ", fewer DCIs");
    }
  }
  if (!m.other_target.empty()) {
    // Only the way out switches: half a round trip has half of it.
    writer.put(&C::sender_switch_latency,
               floored(times(minus(estimate(m.other_target), estimate(m.same_target)), 2)),
               "pingpong with two alternating targets less pingpong with one");
  }
  put_context(&writer, m.contexts);
  return out;
}

}  // namespace turnout::selection
