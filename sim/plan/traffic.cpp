// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <map>
#include <set>

#include "sim/plan/pattern.h"
#include "sim/plan/scaled.h"

namespace turnout::sim::plan {
namespace {

constexpr std::uint32_t kMostRanks = 256;  // that are walked

// The steps of a collective say more than their relation.
std::string kind_of(const Instruction& one, std::uint64_t steps, std::uint32_t n) {
  using Kind = Relation::Kind;
  if (one.with_all) return "all to all";
  if (one.block != nullptr) return "irregular";
  if (!one.indexed) return one.relation.family();
  switch (one.relation.kind) {
    case Kind::shift:
    case Kind::shift_back:
    case Kind::exchange:
      return steps + 1 >= n ? "all to all" : "shifts";
    case Kind::row_shift:
    case Kind::row_shift_back:
    case Kind::column_shift:
    case Kind::column_shift_back:
      return "all to all in rows and columns";
    case Kind::exchange_bit:
      return "recursive doubling";
    default:
      return one.relation.family();
  }
}

}  // namespace

std::vector<Traffic> traffic_at(const Pattern& pattern, std::uint32_t n) {
  // Repetitions change amounts, but hardly shares.
  constexpr std::uint64_t kRepeats = 64;
  const auto shared = std::make_shared<const Pattern>(pattern);
  const auto program = scale(shared, n, kRepeats);
  if (!program) return {};
  struct Sum {
    double messages = 0, bytes = 0, partners = 0;
  };
  std::map<std::string, Sum> sums;
  const auto& list = program.value()->list;
  std::vector<std::string> names(list.size());
  std::uint64_t steps = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].kind == Instruction::Kind::steps) steps = list[i].count;
    names[i] = kind_of(list[i], steps, n);
  }
  const std::uint32_t step = std::max(n / kMostRanks, 1U);
  double walked = 0;
  for (std::uint32_t rank = 0; rank < n; rank += step, ++walked) {
    std::map<std::string, std::set<std::uint32_t>> partners;
    Walk walk(*program.value(), rank, 0);
    for (Walk::Step at = walk.next(); at.instruction != nullptr; at = walk.next()) {
      if (at.instruction->kind != Instruction::Kind::start ||
          at.instruction->operation == TraceEvent::Kind::receive) {
        continue;
      }
      const std::string& name = names[static_cast<std::size_t>(at.instruction - list.data())];
      Sum& sum = sums[name];
      ++sum.messages;
      sum.bytes += static_cast<double>(at.bytes);
      partners[name].insert(at.peer);
    }
    for (const auto& [name, all] : partners) {
      sums[name].partners += static_cast<double>(all.size());
    }
  }
  std::vector<Traffic> kinds;
  for (const auto& [name, sum] : sums) {
    kinds.push_back(
        {name, sum.messages * n / walked, sum.bytes * n / walked, sum.partners / walked});
  }
  std::stable_sort(kinds.begin(), kinds.end(),
                   [](const Traffic& a, const Traffic& b) { return a.messages > b.messages; });
  return kinds;
}

}  // namespace turnout::sim::plan
