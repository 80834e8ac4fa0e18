// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <cstdio>

#include "cli/commands.h"

namespace turnout::cli {

namespace {

constexpr std::size_t kWidth = 100;

// Help texts in lines of kWidth, indented by four.
std::string wrapped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    std::size_t cut = text.size();
    if (cut > kWidth - 4) {
      cut = text.rfind(' ', kWidth - 4);
      if (cut == std::string_view::npos || cut == 0) cut = kWidth - 4;
    }
    out += fmt::format("    {}\n", text.substr(0, cut));
    text.remove_prefix(cut);
    while (text.starts_with(' ')) text.remove_prefix(1);
  }
  return out;
}

// '|' ends a cell, '<' begins a tag.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|' || c == '<') out += '\\';
    out += c;
  }
  return out;
}

std::string code(std::string_view text) {
  return text.empty() ? std::string("(empty)") : fmt::format("`{}`", text);
}

}  // namespace

std::string configuration_page() {
  std::string page =
      "# Configuration\n"
      "\n"
      "<!-- Written by `make docs` from base/settings.def; a test compares the two. -->\n"
      "\n"
      "Every setting is an environment variable and a key of a TOML file (lower case, without\n"
      "`TURNOUT_`), which `TURNOUT_CONFIG` names. The environment wins over the file, the file "
      "over the\n"
      "defaults. A variable that is set but empty counts as not set. Values out of range end the "
      "start\n"
      "of the program's communication with an error that names the variable; unknown names are "
      "warned\n"
      "about, with the nearest known one. `turnout info --config` prints the values in force.\n"
      "\n"
      "Each variable has a second name, as libfabric calls what its providers read: "
      "`FI_TURNOUT_CREDITS`\n"
      "is `TURNOUT_CREDITS`. `fi_info -g turnout` lists these. Where both are set and differ, "
      "`TURNOUT_`\n"
      "wins, with a warning.\n"
      "\n"
      "Log lines go where `TURNOUT_LOG` and `TURNOUT_LOG_FILE` say. In a program that uses "
      "libfabric,\n"
      "`FI_LOG_LEVEL` (with `FI_LOG_PROV=turnout` and `FI_LOG_SUBSYS`) takes them into libfabric's "
      "log as\n"
      "well: standard error then has a line once, from libfabric, and the file of "
      "`TURNOUT_LOG_FILE` has\n"
      "what `TURNOUT_LOG` asks for. Lines of the virtual adapter follow `TURNOUT_LOG` only.\n"
      "\n"
      "| kind | written as |\n"
      "|---|---|\n"
      "| text | as it is |\n"
      "| boolean | `1` `true` `yes` `on`, `0` `false` `no` `off` |\n"
      "| count | a whole number |\n"
      "| bytes | a number with `B`, `K` or `KiB`, `M` or `MiB`, `G` or `GiB`, `T` or `TiB`: powers "
      "of two |\n"
      "| duration | a number with `ns`, `us`, `ms`, `s` or `min` |\n"
      "| real | a number |\n"
      "\n"
      "[AQPS] is Takagi et al., *Adaptive queue pair selection*, ExaMPI 2015.\n"
      "\n"
      "| variable | kind | default | meaning |\n"
      "|---|---|---|---|\n";
  for (const SettingInfo& row : describe(Settings::defaults())) {
    page += fmt::format("| `{}` | {} | {} | {} |\n", row.variable, row.kind,
                        code(row.default_value), cell(row.help));
  }
  page +=
      "\n"
      "A file:\n"
      "\n"
      "```toml\n"
      "memory_budget = \"64MiB\"\n"
      "interval = \"500ms\"\n"
      "ring_entries = 32\n"
      "report = true\n"
      "```\n";
  return page;
}

int config_table(bool markdown) {
  if (markdown) {
    fmt::print("{}", configuration_page());
    return 0;
  }
  int code = 0;
  Settings settings = Settings::defaults();
  if (Result<Settings> loaded = Settings::load()) {
    settings = std::move(loaded).value();
  } else {
    fmt::print(stderr, "turnout: {}\nturnout: the table shows the defaults\n",
               loaded.status().text());
    code = 1;
  }
  for (const SettingInfo& row : describe(settings)) {
    const bool changed = row.value != row.default_value;
    fmt::print(
        "{} = {}  ({}{})\n{}", row.variable, row.value.empty() ? "(empty)" : row.value, row.kind,
        changed
            ? fmt::format(", default {}", row.default_value.empty() ? "(empty)" : row.default_value)
            : std::string(", the default"),
        wrapped(row.help));
  }
  return code;
}

}  // namespace turnout::cli
