// SPDX-License-Identifier: BSD-3-Clause
// TopView: what `turnout top` has on the screen: which job, rank and page, in which order, and how
// keys change that.
//
// One thread; no terminal: keys come as TopKey, screens go as lines. Holds no reference to the
// model: a rank stays selected as the same process while ranks come, go and change places.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cli/top_model.h"
#include "cli/top_pages.h"
#include "cli/top_text.h"

namespace turnout::cli {

enum class TopKey : std::uint8_t {
  none,
  up,
  down,
  page_up,
  page_down,
  home,
  end,
  open,
  back,
  sort,
  all,
  next_job,
  pause,
  help,
  quit,
};

enum class TopSort : std::uint8_t { rank, rate, memory };

class TopView {
 public:
  // `limits`: how much of a rank's page is shown at first.
  explicit TopView(const PageLimits& limits) : limits_(limits) {}

  // False: the user wants to quit.
  [[nodiscard]] bool press(TopKey key, const TopModel& model);
  // A whole screen: `rows` lines, none wider than `columns`.
  [[nodiscard]] Lines draw(const TopModel& model, std::size_t rows, std::size_t columns);
  [[nodiscard]] bool paused() const { return paused_; }

 private:
  enum class Page : std::uint8_t { list, process, help };
  using Identity = std::pair<std::string, std::uint32_t>;  // of a process: host and pid
  static Identity identity(const TopProcess& process) {
    return {process.report().host, process.report().pid};
  }

  [[nodiscard]] const TopJob* job(const TopModel& model) const;
  [[nodiscard]] const TopProcess* process(const TopModel& model) const;  // selected; null: ended
  [[nodiscard]] std::vector<const TopProcess*> sorted(const TopJob& job) const;
  // Of the selected process in `order`; where it has ended, of that at its place.
  [[nodiscard]] std::size_t selected(const std::vector<const TopProcess*>& order) const;
  void select(const std::vector<const TopProcess*>& order, std::size_t index) {
    index_ = index;
    if (index < order.size()) process_ = identity(*order[index]);
  }
  void next_job(const TopModel& model);
  void move(TopKey key, const TopModel& model);
  void scroll(TopKey key);

  [[nodiscard]] Line title(const TopModel& model, std::size_t columns) const;
  [[nodiscard]] Line keys(std::size_t columns) const;
  [[nodiscard]] Lines list(const TopModel& model, std::size_t rows, std::size_t columns);
  [[nodiscard]] Lines page(const TopModel& model, std::size_t rows, std::size_t columns);

  PageLimits limits_;
  Page page_ = Page::list, before_help_ = Page::list;
  TopSort sort_ = TopSort::rank;
  bool paused_ = false, all_ = false;
  std::string job_;
  Identity process_;
  std::size_t index_ = 0;   // of the selected process when it was last drawn
  std::size_t top_ = 0;     // first process on the screen
  std::size_t offset_ = 0;  // first line of a page on the screen
  std::size_t screen_ = 1;  // lines that PgUp and PgDn move by
};

}  // namespace turnout::cli
