// SPDX-License-Identifier: BSD-3-Clause
// Makes the sentinels of the pages in docs/experiments again and compares them with what the pages
// say. A page without sentinels is a fault, unless kWithout says why it can have none.
//
// Worker processes take one study after the other, the longest first: the virtual adapter allows
// one world per process.
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <map>
#include <new>
#include <numeric>
#include <optional>

#include "base/text_file.h"
#include "sim/calibration/calibration.h"
#include "sim/experiments/paper_table.h"
#include "sim/experiments/sentinels.h"
#include "sim/study/result_writer.h"

namespace turnout::sim {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLargest = std::uint64_t{16} << 20;
constexpr double kAsGood = 0.005;  // a ratio that prints alike

struct Without {
  std::string_view page, why;
};
constexpr Without kWithout[] = {
    {"sources", "recordings of real programs, which no model makes again"},
    {"claims", "tables of the other pages, see docs.claims"},
    {"scale", "real time and real memory of the simulator"},
};

// A study to be made again.
struct Work {
  const std::string* page;
  const SentinelStudy* study;
  const ProfileFile* profile;
};

std::uint64_t events_of(const SentinelStudy& study) {
  return std::accumulate(study.runs.begin(), study.runs.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const SentinelRun& r) { return sum + r.events; });
}

// One line for each fault; written at once, as several processes do.
void tell(const std::string& page, const std::string& text) {
  const std::string line = fmt::format("docs/experiments/{}.md: {}\n", page, text);
  std::fputs(line.c_str(), stdout);
  std::fflush(stdout);
}

// What a file has to say for itself; false: a fault was told.
bool agrees(const Sentinels& sentinels, const std::string& page, const std::string& text) {
  if (sentinels.page != page) {
    tell(page, fmt::format("{}.sentinels.json is of another page, {}", page, sentinels.page));
    return false;
  }
  if (text.find(fmt::format("commit `{}`", sentinels.commit)) == std::string::npos) {
    tell(page, fmt::format("made at another commit than its sentinels, {}", sentinels.commit));
    return false;
  }
  if (sentinels.studies.empty()) {
    tell(page, "has no sentinels");
    return false;
  }
  return true;
}

// Nothing: a fault was told.
std::optional<Sentinels> read_page(const fs::path& folder, const std::string& page,
                                   const std::string& text) {
  const std::string file = (folder / (page + ".sentinels.json")).string();
  const Result<std::string> json = read_text_file(file, file, "sentinels", kLargest);
  Result<Sentinels> sentinels =
      json ? parse_sentinels(json.value()) : Result<Sentinels>(json.status());
  if (!sentinels) {
    tell(page, fmt::format("{}: {}", file, sentinels.status().text()));
    return std::nullopt;
  }
  if (!agrees(sentinels.value(), page, text)) return std::nullopt;
  return std::move(sentinels).value();
}

// All pages, or the one of that name. Counts faults.
std::vector<Sentinels> read_pages(const fs::path& folder, const std::string& only,
                                  std::uint32_t* faults) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".md") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  std::vector<Sentinels> pages;
  for (const std::string& name : names) {
    const bool without = std::any_of(std::begin(kWithout), std::end(kWithout),
                                     [&](const Without& one) { return one.page == name; });
    if (without || (!only.empty() && name != only)) continue;
    const std::string file = (folder / (name + ".md")).string();
    const Result<std::string> text = read_text_file(file, file, "page", kLargest);
    auto page = read_page(folder, name, text ? text.value() : std::string());
    if (page) {
      pages.push_back(std::move(*page));
    } else {
      ++*faults;
    }
  }
  if (names.empty() || (pages.empty() && *faults == 0)) {
    tell(only.empty() ? "*" : only, fmt::format("no such page in {}", folder.string()));
    ++*faults;
  }
  return pages;
}

// Costs as `turnout calibrate` finds them, in a file for each profile and seed.
class Costs {
 public:
  explicit Costs(fs::path folder) : folder_(std::move(folder)) {}
  Costs(const Costs&) = delete;
  Costs& operator=(const Costs&) = delete;
  ~Costs() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  Status make(const ProfileFile& profile, std::uint64_t seed) {
    const std::string file = path(profile, seed);
    if (fs::exists(file)) return {};
    CalibrationOptions options;
    options.profile = profile;
    options.seed = seed;
    const Result<selection::CostsFile> costs = calibrate(options, run);
    if (!costs) return costs.status();
    if (Status s = make_folder(folder_.string()); !s.ok()) return s;
    return write_text_file(file, selection::print_costs(costs.value()));
  }
  [[nodiscard]] std::string path(const ProfileFile& profile, std::uint64_t seed) const {
    return (folder_ / fmt::format("{}-{}.toml", profile.name, seed)).string();
  }

 private:
  fs::path folder_;
};

// "time 1.234 ms, now 1.300 ms": each value that differs.
std::string differences(const SentinelResult& then, const SentinelResult& now) {
  std::string text;
  const auto both = [&](const char* what, auto a, auto b, const std::string& as,
                        const std::string& bs) {
    if (a == b) return;
    text += fmt::format("{}{} {}, now {}", text.empty() ? "" : "; ", what,
                        as == bs ? fmt::format("{}", a) : as, as == bs ? fmt::format("{}", b) : bs);
  };
  both("time", then.time, now.time, print_time(then.time), print_time(now.time));
  both("timed part", then.timed, now.timed, print_time(then.timed), print_time(now.timed));
  both("messages", then.messages, now.messages, "", "");
  both("peak memory", then.memory_peak, now.memory_peak, "", "");
  both("connections", then.connections, now.connections, "", "");
  return text;
}

// Runs that are not as the page has them.
std::uint32_t check(const Work& work, const Costs& costs) {
  const std::string& page = *work.page;
  const ProfileFile& profile = *work.profile;
  SentinelStudy now = *work.study;
  std::uint32_t faults = 0;
  for (SentinelRun& one : now.runs) {
    const SentinelResult then = one.result;
    const std::string what =
        fmt::format("{}, {} processes, {}", now.title, now.place.ranks, one.policy);
    const Result<Study> made = run_study(
        again(now, one, profile, costs.path(profile, now.place.seed)), with_paper_table(run));
    if (!made) {
      tell(page, fmt::format("{}: {}", what, made.status().text()));
      ++faults;
      continue;
    }
    one.result = sentinel_result(made.value().results.front());
    if (one.result == then) continue;
    tell(page, fmt::format("{}: {}", what, differences(then, one.result)));
    ++faults;
  }
  const double before = lead_of_turnout(*work.study), after = lead_of_turnout(now);
  if (before > 0 && after > before + kAsGood) {
    tell(page,
         fmt::format("{}, {} processes: turnout falls behind: {:.2f} of the best other, now {:.2f}",
                     now.title, now.place.ranks, before, after));
  }
  return faults;
}

struct Counters {
  std::atomic<std::size_t> next{0};
  std::atomic<std::uint32_t> faults{0};
};

std::uint32_t check_all(const std::vector<Work>& work, const Costs& costs, std::uint32_t jobs) {
  void* const shared =
      mmap(nullptr, sizeof(Counters), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 1;
  auto* const counters = new (shared) Counters;
  std::fflush(nullptr);
  for (std::uint32_t i = 0; i < jobs; ++i) {
    const pid_t child = fork();
    if (child < 0) {
      ++counters->faults;
      break;
    }
    if (child > 0) continue;
    for (std::size_t at; (at = counters->next++) < work.size();) {
      counters->faults += check(work[at], costs);
    }
    _exit(0);
  }
  for (int how = 0; wait(&how) > 0;) {
    if (WIFEXITED(how) && WEXITSTATUS(how) == 0) continue;
    fmt::print("a worker process ended early\n");
    ++counters->faults;
  }
  const std::uint32_t faults = counters->faults;
  munmap(shared, sizeof(Counters));
  return faults;
}

int check_folder(const std::string& folder, const std::string& only, bool all, std::uint32_t jobs) {
  std::uint32_t faults = 0;
  const auto pages = read_pages(folder, only, &faults);
  Costs costs(fs::temp_directory_path() / fmt::format("turnout-sentinels-{}", getpid()));
  std::map<std::string, ProfileFile> profiles;
  std::vector<Work> work;
  std::size_t runs = 0;
  for (const Sentinels& page : pages) {
    for (const SentinelStudy& study : page.studies) {
      if (!all && !study.quick) continue;
      if (!profiles.contains(study.profile)) {
        Result<ProfileFile> found = find_profile(study.profile);
        if (!found) {
          tell(page.page, found.status().text());
          return 1;
        }
        profiles.emplace(study.profile, std::move(found).value());
      }
      const ProfileFile& profile = profiles.at(study.profile);
      work.push_back({&page.page, &study, &profile});
      runs += study.runs.size();
      if (std::none_of(study.runs.begin(), study.runs.end(),
                       [](const SentinelRun& r) { return r.calibrated; })) {
        continue;
      }
      if (Status s = costs.make(profile, study.place.seed); !s.ok()) {
        tell(page.page, fmt::format("calibrate: {}", s.text()));
        return 1;
      }
    }
  }
  std::stable_sort(work.begin(), work.end(), [](const Work& a, const Work& b) {
    return events_of(*a.study) > events_of(*b.study);
  });
  faults += check_all(work, costs, jobs);
  fmt::print("{} pages, {} runs, {} faults\n", pages.size(), runs, faults);
  if (faults > 0) {
    fmt::print(
        "A page that is not true any more: mend what slipped, or write it anew "
        "(PAGES=\"NAME\" make pages) and say in the commit why its results change.\n");
  }
  return faults == 0 ? 0 : 1;
}

}  // namespace

}  // namespace turnout::sim

int main(int argc, char** argv) {
  CLI::App app{"makes the sentinels of the pages of docs/experiments again"};
  std::string folder, page;
  bool all = false;
  std::uint32_t jobs = 2;
  app.add_option("folder", folder, "with pages and their NAME.sentinels.json")->required();
  app.add_option("--page", page, "only this one");
  app.add_flag("--all", all, "all sentinels, not the quick ones alone");
  app.add_option("--jobs", jobs, "processes")->check(CLI::Range(1, 256))->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return turnout::sim::check_folder(folder, page, all, jobs);
}
