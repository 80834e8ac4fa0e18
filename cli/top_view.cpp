// SPDX-License-Identifier: BSD-3-Clause
#include "cli/top_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace turnout::cli {
namespace {

constexpr std::array kSortNames = {"rank", "rate", "memory"};  // of TopSort
constexpr std::size_t kListLeast = 3;  // processes on the screen, if it is high enough

// Where a key moves to from `at` among `count` places.
std::size_t moved(TopKey key, std::size_t at, std::size_t count, std::size_t screen) {
  if (count == 0) return 0;
  const std::size_t last = count - 1;
  switch (key) {
    case TopKey::up:
      return at > 0 ? at - 1 : 0;
    case TopKey::down:
      return std::min(at + 1, last);
    case TopKey::page_up:
      return at > screen ? at - screen : 0;
    case TopKey::page_down:
      return std::min(at + screen, last);
    case TopKey::home:
      return 0;
    case TopKey::end:
      return last;
    default:
      return std::min(at, last);
  }
}

double fill(const TopProcess& process) {
  return share(process.memory.used, process.memory.budget);
}

void problem_line(const TopModel& model, std::size_t columns, Lines* lines) {
  if (model.problems().empty()) return;
  std::string text = model.problems().front();
  if (const std::size_t more = model.problems().size() - 1; more > 0) {
    text += fmt::format(" (and {} more)", more);
  }
  lines->emplace_back().left("Problem", kLabel, Style::bad).add(text, Style::bad).cut(columns);
}

}  // namespace

const TopJob* TopView::job(const TopModel& model) const {
  for (const TopJob& one : model.jobs()) {
    if (one.name == job_) return &one;
  }
  return model.jobs().empty() ? nullptr : &model.jobs().front();
}

std::vector<const TopProcess*> TopView::sorted(const TopJob& job) const {
  std::vector<const TopProcess*> order;
  for (const TopProcess& process : job.processes) order.push_back(&process);
  if (sort_ == TopSort::rank) return order;
  std::stable_sort(order.begin(), order.end(), [this](const TopProcess* a, const TopProcess* b) {
    return sort_ == TopSort::rate ? a->rate().messages > b->rate().messages : fill(*a) > fill(*b);
  });
  return order;
}

std::size_t TopView::selected(const std::vector<const TopProcess*>& order) const {
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (process_ == identity(*order[i])) return i;
  }
  return order.empty() ? 0 : std::min(index_, order.size() - 1);
}

bool TopView::press(TopKey key, const TopModel& model) {
  switch (key) {
    case TopKey::none:
      break;
    case TopKey::quit:
      return false;
    case TopKey::pause:
      paused_ = !paused_;
      break;
    case TopKey::sort:
      sort_ = static_cast<TopSort>((static_cast<int>(sort_) + 1) % 3);
      break;
    case TopKey::all:
      all_ = !all_;
      break;
    case TopKey::next_job:
      next_job(model);
      break;
    case TopKey::help:
      if (page_ != Page::help) before_help_ = page_;
      page_ = page_ == Page::help ? before_help_ : Page::help;
      offset_ = 0;
      break;
    case TopKey::open:
      if (page_ == Page::list && job(model) != nullptr) page_ = Page::process;
      offset_ = 0;
      break;
    case TopKey::back:
      page_ = page_ == Page::help ? before_help_ : Page::list;
      offset_ = 0;
      break;
    default:
      move(key, model);
  }
  return true;
}

void TopView::next_job(const TopModel& model) {
  const TopJob* const now = job(model);
  if (now == nullptr) return;
  const auto at = static_cast<std::size_t>(now - model.jobs().data());
  job_ = model.jobs()[(at + 1) % model.jobs().size()].name;
  process_ = {};
  index_ = top_ = offset_ = 0;
  page_ = Page::list;
}

void TopView::move(TopKey key, const TopModel& model) {
  if (page_ != Page::list) {
    scroll(key);
  } else if (const TopJob* const now = job(model)) {
    const auto order = sorted(*now);
    select(order, moved(key, selected(order), order.size(), screen_));
  }
}

// page() takes back what goes beyond the last line.
void TopView::scroll(TopKey key) {
  offset_ = moved(key, offset_, SIZE_MAX, screen_);
}

Lines TopView::draw(const TopModel& model, std::size_t rows, std::size_t columns) {
  Lines lines;
  if (rows == 0 || columns == 0) return lines;
  lines.push_back(title(model, columns));
  const std::size_t room = rows > 2 ? rows - 2 : 0;
  Lines body = page_ == Page::list ? list(model, room, columns) : page(model, room, columns);
  body.resize(room);
  std::move(body.begin(), body.end(), std::back_inserter(lines));
  if (rows > 1) lines.push_back(keys(columns));
  for (Line& line : lines) line.cut(columns);
  return lines;
}

Line TopView::title(const TopModel& model, std::size_t columns) const {
  std::string text = "turnout top";
  const TopJob* const now = job(model);
  if (now != nullptr && !now->name.empty()) text += fmt::format(" - job {}", now->name);
  if (page_ == Page::process) {
    if (const TopProcess* const shown = process(model)) {
      text += fmt::format(" - {}", shown->name);
      if (shown->report().ranks >= 0) text += fmt::format(" of {}", shown->report().ranks);
    }
  } else if (model.jobs().size() > 1) {
    text += fmt::format(" ({} of {}, n: next)", now - model.jobs().data() + 1, model.jobs().size());
  }
  std::string right = paused_ ? "paused" : "";
  if (page_ == Page::list && now != nullptr) {
    right += fmt::format("{}sorted by {}", paused_ ? ", " : "",
                         kSortNames[static_cast<std::size_t>(sort_)]);
  }
  Line line;
  const std::size_t room = columns > right.size() + 1 ? columns - right.size() - 1 : columns;
  line.left(text, room, Style::title);
  if (room < columns) line.add(" ", Style::title).add(right, Style::title);
  return line;
}

Line TopView::keys(std::size_t columns) const {
  const bool wide = columns >= 60;
  std::string text = "Up/Down scroll  Esc back  q quit";
  if (page_ == Page::list) {
    text = wide ? "Up/Down select  Enter open  s sort  Space pause  ? help  q quit"
                : "Enter open  s sort  ? help  q quit";
  } else if (page_ == Page::process) {
    text = wide ? fmt::format("Up/Down scroll  Esc back  a {}  Space pause  ? help  q quit",
                              all_ ? "first few" : "show all")
                : "Esc back  a all  ? help  q quit";
  }
  Line line;
  line.add(text, Style::label);
  return line;
}

Lines TopView::list(const TopModel& model, std::size_t rows, std::size_t columns) {
  Lines lines;
  const TopJob* const now = job(model);
  if (now == nullptr) {
    problem_line(model, columns, &lines);
    wrap(&lines, "",
         "No reports yet. A process that uses Turnout writes one a second while it calls the "
         "library; turnout top shows processes of the same user on the same host.",
         columns);
    return lines;
  }
  lines = job_summary(*now, columns);
  problem_line(model, columns, &lines);
  // A low screen keeps the table, and of the summary what comes first.
  const std::size_t most = rows > kListLeast + 2 ? rows - kListLeast - 2 : 0;
  if (lines.size() > most) lines.resize(most);
  if (!lines.empty()) lines.emplace_back();
  const ProcessTable table(*now, columns);
  const std::vector<const TopProcess*> order = sorted(*now);
  select(order, selected(order));
  lines.push_back(table.heading());
  const std::size_t room = std::max<std::size_t>(rows > lines.size() ? rows - lines.size() : 0, 1);
  screen_ = room;
  top_ = std::min(top_, index_);
  if (index_ >= top_ + room) top_ = index_ - room + 1;
  top_ = std::min(top_, order.size() > room ? order.size() - room : 0);
  for (std::size_t i = top_; i < std::min(top_ + room, order.size()); ++i) {
    Line& line = lines.emplace_back(table.row(*order[i]));
    if (i == index_) line.select();
  }
  return lines;
}

const TopProcess* TopView::process(const TopModel& model) const {
  const TopJob* const now = job(model);
  if (now == nullptr) return nullptr;
  for (const TopProcess& one : now->processes) {
    if (process_ == identity(one)) return &one;
  }
  return nullptr;
}

Lines TopView::page(const TopModel& model, std::size_t rows, std::size_t columns) {
  constexpr PageLimits unlimited{SIZE_MAX, SIZE_MAX};
  Lines all;
  if (page_ == Page::help) {
    all = help_page(columns);
  } else if (const TopProcess* const shown = process(model)) {
    all = process_page(model, *shown, all_ ? unlimited : limits_, columns);
  } else {
    wrap(&all, "", "This process has ended. Press Esc for the other ranks.", columns);
  }
  screen_ = std::max<std::size_t>(rows, 1);
  offset_ = std::min(offset_, all.size() > rows ? all.size() - rows : 0);
  all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(offset_));
  if (all.size() <= rows) return all;
  const std::size_t hidden = all.size() - rows + 1;
  all.resize(rows);
  if (rows > 1) {
    all.back() = Line();
    all.back().add(fmt::format("... {} more lines below", hidden), Style::label);
  }
  return all;
}

}  // namespace turnout::cli
