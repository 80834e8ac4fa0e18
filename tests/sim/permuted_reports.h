// SPDX-License-Identifier: BSD-3-Clause
// Reports of a run as a wrong prediction of the next one: each rank gets another's.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "core/report/report.h"

namespace turnout::sim {

// A folder that goes with its owner.
class ReportFolder {
 public:
  ReportFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "turnout-run-XXXXXX").string();
    if (::mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ReportFolder(const ReportFolder&) = delete;
  ReportFolder& operator=(const ReportFolder&) = delete;
  ~ReportFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] std::string path() const { return path_.string(); }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path_),
                                                  std::filesystem::directory_iterator()));
  }

  // Its reports, with rank r's as that of (r * factor + shift) modulo their number. False: one
  // cannot be read.
  [[nodiscard]] bool write_permuted(const ReportFolder& to, int factor, int shift) const {
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string text{std::istreambuf_iterator<char>(file),
                             std::istreambuf_iterator<char>()};
      Result<EndpointReport> report = report_from_json(text);
      if (!report.ok() || report.value().ranks <= 0) return false;
      EndpointReport& one = report.value();
      one.rank = (one.rank * factor + shift) % one.ranks;
      std::ofstream(to.path_ /
                    fmt::format("rank-{}.{}.{:016x}.json", one.rank, one.pid, one.endpoint))
          << to_json(one);
    }
    return true;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace turnout::sim
