// SPDX-License-Identifier: BSD-3-Clause
#include "sim/study/kept_results.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/log.h"
#include "base/text_file.h"
#include "sim/study/result_writer.h"

namespace turnout::sim {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kLargestFile = std::uint64_t{16} << 20;
constexpr std::uint64_t kLargestNamed = std::uint64_t{1} << 20;

// FNV-1a: names of files; that a file is of the run asked for is checked by its text.
std::uint64_t hash_of(std::string_view text, std::uint64_t hash) {
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return hash;
}

// Settings whose effect is a file that the run writes: a result read back would not.
bool writes(const std::pair<std::string, std::string>& setting) {
  const auto& [name, value] = setting;
  return (name == "report" && value != "0") ||
         ((name == "trace" || name == "log_file") && !value.empty());
}

}  // namespace

Result<KeptResults> KeptResults::open(const std::string& folder, std::string version) {
  if (Status s = make_folder(folder); !s.ok()) return s;
  return KeptResults(folder, std::move(version));
}

std::string KeptResults::identity(const StudyOptions& study, const std::string& policy) const {
  if ((study.make && !study.options_say_all) || study.keep_reports || study.trace) return {};
  NamedValues settings = settings_of(study, policy);
  if (std::any_of(settings.begin(), settings.end(), writes)) return {};
  Json values = Json::object();
  for (const ProfileValue& v : study.profile.values) {
    values[fmt::format("{}.{}", v.group, v.name)] = fmt::format("{} {}", v.value, v.unit);
  }
  Json given = Json::array();
  for (const auto& [name, value] : settings) {
    if (name != "costs" || value.empty()) {
      given.push_back({name, value});
      continue;
    }
    const Result<std::string> text = read_text_file(value, value, "costs", kLargestNamed);
    if (!text) return {};
    given.push_back({"text of costs", text.value()});
  }
  const Json all = {{"version", version_},
                    {"profile", study.profile.name},
                    {"values", std::move(values)},
                    {"workload", study.workload},
                    {"options", printed_options(study)},
                    {"ranks", study.place.ranks},
                    {"ranks_per_node", study.place.ranks_per_node},
                    {"seed", study.place.seed},
                    {"policy", policy},
                    {"settings", std::move(given)},
                    {"check_content", study.check_content},
                    {"data_servers", study.data_servers},
                    {"time_limit_ps", study.time_limit}};
  return all.dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::string KeptResults::path_of(const std::string& identity) const {
  return fmt::format("{}/{:016x}{:016x}.json", folder_, hash_of(identity, 0xcbf29ce484222325ULL),
                     hash_of(identity, 0x9e3779b97f4a7c15ULL));
}

std::optional<Result<std::string>> KeptResults::find_text(const std::string& identity) const {
  if (identity.empty()) return std::nullopt;
  const std::string path = path_of(identity);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  return read_text_file(path, path, "result", kLargestFile);
}

std::optional<Result<PolicyResult>> KeptResults::find(const std::string& identity) const {
  const std::optional<Result<std::string>> text = find_text(identity);
  if (!text) return std::nullopt;
  Result<Kept> kept = *text ? from_kept_json(text->value(), identity) : text->status();
  if (!kept) {
    warn_of(identity, kept.status());
    return std::nullopt;
  }
  return std::move(kept.value().result);
}

void KeptResults::warn_of(const std::string& identity, const Status& status) const {
  TURNOUT_LOG(cli, warn, "reading a saved result failed: {}: {}; repeating the run",
              path_of(identity), status.text());
}

Status KeptResults::keep(const std::string& identity, const Result<PolicyResult>& result) const {
  return identity.empty() ? Status{} : keep_text(identity, to_kept_json(identity, result));
}

Status KeptResults::keep_text(const std::string& identity, const std::string& text) const {
  if (identity.empty() || text.empty()) return {};
  // Another process may be at the same run: each writes a file of its own, the last name stays.
  const std::string path = path_of(identity), own = fmt::format("{}.{}", path, getpid());
  if (Status s = write_text_file(own, text); !s.ok()) return s;
  std::error_code error;
  std::filesystem::rename(own, path, error);
  if (error) {
    return {Code::system, fmt::format("writing {} failed: {}", path, error.message()),
            error.value()};
  }
  return {};
}

}  // namespace turnout::sim
