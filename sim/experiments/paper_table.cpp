// SPDX-License-Identifier: BSD-3-Clause
#include "sim/experiments/paper_table.h"

#include <fmt/format.h>

#include <charconv>

namespace turnout::sim {

using selection::SourceCount;
using selection::TimeWindow;
using selection::WindowCounts;

Result<std::unique_ptr<selection::Statistics>> PaperTable::create(std::uint32_t sigma,
                                                                  std::size_t max_bytes) {
  const std::size_t least =
      sizeof(PaperTable) + sigma * (sizeof(Interval) + sizeof(std::uint64_t)) + kIndexPerSource;
  if (sigma == 0 || max_bytes < least) {
    return Status(Code::invalid, fmt::format("{} bytes for a statistics table of {} intervals: "
                                             "expected at least one, and {} bytes",
                                             max_bytes, sigma, least));
  }
  return std::unique_ptr<selection::Statistics>(std::make_unique<PaperTable>(sigma, max_bytes));
}

PaperTable::PaperTable(std::uint32_t sigma, std::size_t max_bytes)
    : sigma_(sigma), max_bytes_(max_bytes), intervals_(sigma) {}

Status PaperTable::begin_interval(TimeWindow interval) {
  if (Status status = check_interval(interval, newest_); !status.ok()) return status;
  if (open_) end_interval(0);
  const std::size_t at = begun_++ % sigma_;
  intervals_[at] = {interval, 0, 0};
  for (auto& [peer, row] : rows_) row[at] = 0;
  open_ = true;
  return {};
}

void PaperTable::count(std::uint32_t peer, std::uint64_t messages, bool) {
  if (!open_ || messages == 0) return;
  const std::size_t at = (begun_ - 1) % sigma_;
  intervals_[at].messages += messages;
  auto row = rows_.find(peer);
  if (row == rows_.end()) {
    const std::size_t more = sigma_ * sizeof(std::uint64_t) + kIndexPerSource;
    if (peer > kMaxPeer || bytes() + index_bytes() + more > max_bytes_) {
      intervals_[at].missing = std::max(intervals_[at].missing, messages);
      return;
    }
    row = rows_.emplace(peer, std::make_unique<std::uint64_t[]>(sigma_)).first;
  }
  row->second[at] = messages;
}

void PaperTable::end_interval(std::uint64_t) {
  if (!open_) return;
  newest_ = intervals_[(begun_ - 1) % sigma_].window;
  open_ = false;
}

WindowCounts PaperTable::sum(std::size_t first, std::size_t last) const {
  WindowCounts result;
  result.window = {intervals_[column(first)].window.begin, intervals_[column(last)].window.end};
  for (std::size_t i = first; i <= last; ++i) {
    result.messages += intervals_[column(i)].messages;
    result.missing += intervals_[column(i)].missing;
  }
  for (const auto& [peer, row] : rows_) {
    std::uint64_t messages = 0;
    for (std::size_t i = first; i <= last; ++i) messages += row[column(i)];
    if (messages > 0) result.sources.push_back({peer, messages});
  }
  std::sort(result.sources.begin(), result.sources.end(),
            [](const SourceCount& a, const SourceCount& b) { return a.peer < b.peer; });
  return result;
}

WindowCounts PaperTable::counts(TimeWindow asked) const {
  std::vector<TimeWindow> all;
  for (std::size_t i = 0; i < kept(); ++i) all.push_back(intervals_[column(i)].window);
  if (all.empty()) return {};
  const selection::SlotRange range = nearest_range(all, asked);
  return sum(range.first, range.last);
}

void PaperTable::forget(std::uint32_t peer) {
  const auto row = rows_.find(peer);
  if (row == rows_.end()) return;
  for (std::size_t at = 0; at < sigma_; ++at) intervals_[at].messages -= row->second[at];
  rows_.erase(row);
}

std::vector<WindowCounts> PaperTable::slots() const {
  std::vector<WindowCounts> all;
  for (std::size_t i = 0; i < kept(); ++i) all.push_back(sum(i, i));
  return all;
}

std::size_t PaperTable::bytes_during_next(std::size_t heard) const {
  const std::size_t each = sigma_ * sizeof(std::uint64_t) + kIndexPerSource;
  return std::min(max_bytes_, bytes() + index_bytes() + heard * each);
}

Runner with_paper_table(Runner runner) {
  return [run = std::move(runner)](const Options& given, const Program& program) {
    Options options = given;
    std::uint32_t sigma = 0;
    std::erase_if(options.settings, [&](const auto& setting) {
      const std::string& text = setting.second;
      return setting.first == kStatisticsEntries &&
             std::from_chars(text.data(), text.data() + text.size(), sigma).ec == std::errc();
    });
    if (sigma > 0) {
      options.make_statistics = [sigma](std::uint64_t max_bytes) {
        return PaperTable::create(sigma, max_bytes);
      };
    }
    return run(options, program);
  };
}

}  // namespace turnout::sim
