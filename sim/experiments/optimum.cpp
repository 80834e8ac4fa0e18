// SPDX-License-Identifier: BSD-3-Clause
#include "sim/experiments/optimum.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "sim/experiments/map_search.h"
#include "sim/experiments/page.h"
#include "sim/study/children.h"
#include "sim/study/kept_results.h"
#include "sim/study/result_writer.h"

namespace turnout::sim {
namespace {

Result<Optimum> search(const ComparedLine& line, const ExperimentOptions& options,
                       std::uint32_t simulations, const Runner& runner) {
  Optimum optimum;
  SearchOptions search;
  search.place = {line.ranks, 1, options.seed};
  search.profile = options.profile;
  search.settings = settings_of(line, options);
  search.simulations = simulations;
  const auto failed = [&](const Status& status) {
    return Status{status.code(), fmt::format("{}, {}, {}: {}", line.scenario->title, line.budget,
                                             search.part.name, status.text())};
  };
  // Adds the time of the latest part with its set-up.
  const auto pay = [&](std::span<const FoundMap> found) {
    const Result<Picoseconds> paid = time_with_setup(search, found, runner);
    if (!paid) return failed(paid.status());
    optimum.paid += static_cast<double>(paid.value()) * static_cast<double>(search.part.times);
    return Status{};
  };
  const std::optional<Part> warm = warmed_up(*line.scenario, line.ranks);
  std::vector<FoundMap> maps;
  for (const Part& part : parts_of(*line.scenario, line.ranks)) {
    search.part = part;
    Result<FoundMap> searched = search_map(search, runner);
    if (!searched) return failed(searched.status());
    const FoundMap& map = maps.emplace_back(std::move(searched).value());
    optimum.time += static_cast<double>(map.time) * static_cast<double>(part.times);
    optimum.parts.push_back({part.name, map.start, static_cast<double>(map.time),
                             static_cast<double>(map.best_start), map.shares, map.initiators,
                             map.simulations});
    if (warm) continue;
    if (Status status = pay({&map, 1}); !status.ok()) return status;
    optimum.changes += part.times;
  }
  if (warm) {
    search.part = *warm;
    if (Status status = pay(maps); !status.ok()) return status;
  }
  optimum.paid = std::max(optimum.paid, optimum.time);
  return optimum;
}

// Empty: the optimum cannot be kept.
std::string identity_of(const ComparedLine& line, const ExperimentOptions& options,
                        std::uint32_t simulations) {
  constexpr std::string_view kPolicy = "turnout";  // whose costs the search begins with
  if (options.kept == nullptr) return {};
  const std::string of =
      options.kept->identity(study_of(line, std::string(kPolicy), options), std::string(kPolicy));
  return of.empty() ? of : fmt::format("best of {} maps: {}", simulations, of);
}

std::optional<Optimum> kept(const std::string& identity, const KeptResults* results) {
  if (identity.empty()) return std::nullopt;
  const std::optional<Result<std::string>> text = results->find_text(identity);
  if (!text) return std::nullopt;
  Result<Optimum> optimum =
      *text ? optimum_from_kept_json(text->value(), identity) : text->status();
  if (optimum) return std::move(optimum).value();
  results->warn_of(identity, optimum.status());
  return std::nullopt;
}

}  // namespace

Result<std::vector<Optimum>> optima_of(const std::vector<ComparedLine>& lines,
                                       const ExperimentOptions& options, std::uint32_t simulations,
                                       const Runner& runner) {
  std::vector<std::optional<Optimum>> optima(lines.size());
  std::vector<std::string> identities;
  std::vector<std::size_t> missing;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    identities.push_back(identity_of(lines[i], options, simulations));
    optima[i] = kept(identities[i], options.kept);
    if (!optima[i]) missing.push_back(i);
  }
  const auto tell = [&](const ComparedLine& line, std::uint32_t number, const std::string& what) {
    if (!options.told) return;
    options.told(fmt::format("[{}/{}] best maps, {}, {}, {} ranks: {}", number, missing.size(),
                             line.scenario->title, line.budget, line.ranks, what));
  };
  const auto make = [&](std::size_t at, Finished& finished) -> Status {
    const std::size_t i = missing[at];
    Result<Optimum> found = search(lines[i], options, simulations, runner);
    tell(lines[i], ++finished,
         found ? print_time(static_cast<Picoseconds>(found.value().time)) : found.status().text());
    if (!found) return found.status();
    if (!identities[i].empty()) {
      Status status =
          options.kept->keep_text(identities[i], to_kept_json(identities[i], found.value()));
      if (!status.ok()) return status;
    }
    optima[i] = std::move(found).value();  // a child's is read below
    return {};
  };
  // What cannot be kept cannot come from a child.
  const bool alone =
      std::any_of(missing.begin(), missing.end(), [&](auto i) { return identities[i].empty(); });
  if (Status status = in_children(missing.size(), alone ? 1 : options.jobs, make); !status.ok())
    return status;
  std::vector<Optimum> all;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!optima[i]) optima[i] = kept(identities[i], options.kept);
    if (!optima[i]) {
      return Status{Code::system, fmt::format("reading the saved maps failed: {}",
                                              options.kept->path_of(identities[i]))};
    }
    all.push_back(std::move(*optima[i]));
  }
  return all;
}

}  // namespace turnout::sim
