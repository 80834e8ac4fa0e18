// SPDX-License-Identifier: BSD-3-Clause
// Optimum as a kept text: layout, writing, and reading with every field checked.
#include <fmt/format.h>

#include <utility>

#include "core/report/json_reader.h"
#include "sim/experiments/optimum.h"

namespace turnout::sim {
namespace {

// What the layout of a kept text is; a reader refuses what it does not know.
constexpr std::uint64_t kFormat = 1;
constexpr std::size_t kMostParts = 65536;
constexpr std::size_t kShares = static_cast<std::size_t>(ChannelKind::rc_rdma) + 1;

constexpr std::string_view kWhat = "kept maps";

// The members by name, for both ways.
template <class Of, class Each>
void each_member(Of& found, Each each) {
  each("part", found.part);
  each("start", found.start);
  each("initiators", found.initiators);
  each("simulations", found.simulations);
  each("time_ps", found.time);
  each("best_start_ps", found.best_start);
}

}  // namespace

std::string to_kept_json(const std::string& identity, const Optimum& optimum) {
  Json parts = Json::array();
  for (const Found& found : optimum.parts) {
    Json& part = parts.emplace_back();
    each_member(found, [&](const char* key, const auto& value) { part[key] = value; });
    part["shares"] = found.shares;
  }
  const Json all = {{"turnout_best_maps", kFormat}, {"of", identity},
                    {"time_ps", optimum.time},      {"paid_ps", optimum.paid},
                    {"changes", optimum.changes},   {"parts", std::move(parts)}};
  return all.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Optimum> optimum_from_kept_json(std::string_view text, const std::string& identity) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return Status{Code::invalid, "not valid JSON, or truncated"};
  Status status;
  const JsonReader reader(kWhat, json, "", &status);
  std::uint64_t format = 0;
  std::string of;
  reader.get("turnout_best_maps", &format);
  reader.get("of", &of);
  if (format != kFormat) reader.wrong("turnout_best_maps", fmt::format("{}", kFormat));
  if (of != identity) reader.wrong("of", "what the file's name says");
  Optimum optimum;
  reader.get("time_ps", &optimum.time);
  reader.get("paid_ps", &optimum.paid);
  reader.get("changes", &optimum.changes);
  if (optimum.time < 0) reader.wrong("time_ps", "a time");
  if (optimum.paid < 0) reader.wrong("paid_ps", "a time");
  const auto read_part = [&](const Json& element, const std::string& place) {
    const JsonReader at(kWhat, element, place, &status);
    Found found;
    each_member(found, [&](const char* key, auto& value) { at.get(key, &value); });
    if (found.time < 0) at.wrong("time_ps", "a time");
    if (found.best_start < 0) at.wrong("best_start_ps", "a time");
    const auto read_share = [&](const Json& share, const std::string&) {
      const double value = share.is_number() ? share.get<double>() : -1;
      if (!(value >= 0 && value <= 1)) at.wrong("shares", "a list of numbers from 0 to 1");
      found.shares.push_back(value);
    };
    at.each("shares", read_share, kShares);
    if (found.shares.size() != kShares) at.wrong("shares", "a share for each kind of channel");
    optimum.parts.push_back(std::move(found));
  };
  reader.each("parts", read_part, kMostParts);
  if (!status.ok()) return status;
  return optimum;
}

}  // namespace turnout::sim
