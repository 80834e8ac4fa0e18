// SPDX-License-Identifier: BSD-3-Clause
#include "sim/workloads/workload.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "base/value.h"
#include "sim/workloads/families.h"

namespace turnout::sim {
namespace {

Result<std::uint64_t> parse(const Parameter& parameter, std::string_view text) {
  switch (parameter.unit) {
    case Parameter::Unit::bytes:
      return value::parse_bytes(text);
    case Parameter::Unit::duration: {
      const Result<std::int64_t> time = value::parse_duration(text);
      if (!time) return time.status();
      if (time.value() < 0) return Status{Code::invalid, "a duration must not be negative"};
      return static_cast<std::uint64_t>(time.value());
    }
    case Parameter::Unit::count:
      break;
  }
  return value::parse_count(text);
}

}  // namespace

std::string Parameter::print(std::uint64_t v) const {
  switch (unit) {
    case Unit::bytes:
      return value::print_bytes(v);
    case Unit::duration:
      return value::print_duration(static_cast<std::int64_t>(
          std::min<std::uint64_t>(v, std::numeric_limits<std::int64_t>::max())));
    case Unit::count:
      break;
  }
  return fmt::format("{}", v);
}

std::uint64_t Values::operator[](std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) throw std::out_of_range(fmt::format("no parameter {}", name));
  return found->second;
}

const Parameter* Workload::parameter(std::string_view wanted) const noexcept {
  for (const Parameter& p : parameters) {
    if (p.name == wanted) return &p;
  }
  return nullptr;
}

std::span<const Workload> workloads() {
  static const std::vector<Workload> all = [] {
    std::vector<Workload> list;
    for (auto family : {hot_rank_family, pair_family, exchange_family, stencil_family, steal_family,
                        changing_family, nas_family, pressure_family, nwchem_family}) {
      std::vector<Workload> members = family();
      std::move(members.begin(), members.end(), std::back_inserter(list));
    }
    std::sort(list.begin(), list.end(),
              [](const Workload& a, const Workload& b) { return a.name < b.name; });
    return list;
  }();
  return all;
}

Status unknown(std::string_view what, std::string_view name,
               std::span<const std::string_view> known) {
  const std::string_view near = value::nearest_name(name, known);
  return {Code::invalid, fmt::format("{} \"{}\"{} Available: {}", what, name,
                                     near.empty() ? "." : fmt::format("; did you mean {}?", near),
                                     fmt::join(known, ", "))};
}

Result<const Workload*> find_workload(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Workload& workload : workloads()) {
    if (workload.name == name) return &workload;
    names.push_back(workload.name);
  }
  return unknown("unknown workload", name, names);
}

Result<Values> parse_values(const Workload& workload, const NamedValues& given) {
  std::map<std::string, std::uint64_t, std::less<>> values;
  for (const Parameter& p : workload.parameters) values.emplace(p.name, p.default_value);
  for (const auto& [name, text] : given) {
    const Parameter* const p = workload.parameter(name);
    if (p == nullptr) {
      std::vector<std::string_view> names;
      for (const Parameter& known : workload.parameters) names.push_back(known.name);
      return unknown(fmt::format("workload {} has no option", workload.name), name, names);
    }
    const Result<std::uint64_t> value = parse(*p, text);
    if (!value) {
      return Status{Code::invalid, fmt::format("{}, {} = \"{}\": {}", workload.name, name, text,
                                               value.status().text())};
    }
    if (value.value() < p->least || value.value() > p->most) {
      return Status{Code::invalid, fmt::format("{}, {} = \"{}\": expected {} to {}", workload.name,
                                               name, text, p->print(p->least), p->print(p->most))};
    }
    values[name] = value.value();
  }
  return Values(std::move(values));
}

Result<Instance> make_instance(const Workload& workload, const Values& values, const Place& place) {
  constexpr std::uint32_t kLeastRanks = 2;
  if (place.ranks < kLeastRanks) {
    return Status{Code::invalid, fmt::format("{} needs {} ranks or more, not {}", workload.name,
                                             kLeastRanks, place.ranks)};
  }
  const auto phases = std::make_shared<Phases>();
  Result<Program> program = workload.make(values, place, phases);
  if (!program) return program.status();
  return Instance{std::move(program).value(), phases};
}

Task play_timed(Rank rank, TimedRounds timed, std::function<Task(Rank, std::uint64_t rounds)> body,
                SharedPhases phases) {
  const bool tells = rank.id() == 0;
  if (timed.warmup > 0) {
    if (tells) phases->begin("warmup", rank.now());
    co_await body(rank, timed.warmup);
    co_await rank.barrier();
    if (tells) phases->end(rank.now(), timed.warmup * timed.messages);
  }
  if (tells) phases->begin(timed.name, rank.now());
  co_await body(rank, timed.rounds);
  co_await rank.barrier();
  if (tells) phases->end(rank.now(), timed.rounds * timed.messages);
}

}  // namespace turnout::sim
