// SPDX-License-Identifier: BSD-3-Clause
#include "sim/experiments/claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/experiments/page.h"

namespace turnout::sim {

std::string_view name(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::met:
      return "met";
    case Verdict::tendency:
      return "tendency";
    case Verdict::missed:
      return "missed";
    case Verdict::contradicted:
      return "contradicted";
    case Verdict::not_run:
      break;
  }
  return "not run";
}

OfSeeds of_seeds(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  return {median, values.front(), values.back()};
}

std::string print_percent(const OfSeeds& percent) {
  const std::string median = print_percent(percent.median);
  if (percent.least == percent.most) return median;
  return fmt::format("{} ({:+.1f} to {:+.1f})", median, percent.least, percent.most);
}

Verdict of_change(double paper, const OfSeeds& ours) noexcept {
  if (std::abs(ours.median - paper) <= kPoints) return Verdict::met;
  if (paper == 0) return Verdict::missed;
  const double sign = paper < 0 ? -1 : 1;
  const double worst = std::min(sign * ours.least, sign * ours.most);
  const double best = std::max(sign * ours.least, sign * ours.most);
  if (worst > 0) return Verdict::tendency;
  return best < 0 ? Verdict::contradicted : Verdict::missed;
}

Verdict of_value(double paper, double ours) noexcept {
  return std::abs(ours - paper) <= kPart * std::abs(paper) ? Verdict::met : Verdict::missed;
}

std::string claims_table(const std::vector<Claim>& claims) {
  // tools/claims.py knows the table by its head.
  std::vector<std::vector<std::string>> rows = {
      {"claim", "what", "paper", "ours", "verdict", "cause"}};
  for (const Claim& claim : claims) {
    const bool met = claim.verdict == Verdict::met;
    rows.push_back({claim.id, claim.what, claim.paper, claim.ours,
                    met ? "met" : fmt::format("**{}**", name(claim.verdict)),
                    met || claim.cause.empty() ? "-" : claim.cause});
  }
  return markdown_table(rows);
}

}  // namespace turnout::sim
