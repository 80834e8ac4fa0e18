// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <string_view>

#include "base/settings.h"
#include "cli/commands.h"
#include "core/report/report_text.h"

namespace turnout::cli {
namespace {

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

// Rows of the page's table.
std::string rows(bool tuning) {
  std::string out;
  for (const SettingInfo& row : describe(Settings::defaults())) {
    if (row.tuning != tuning) continue;
    out += fmt::format("| `{}` | {} | {} | {} |\n", tuning ? std::string(row.name) : row.variable,
                       row.kind, code(row.default_value), cell(row.help));
  }
  return out;
}

bool contains(std::string_view text, std::string_view word) {
  return std::search(text.begin(), text.end(), word.begin(), word.end(), [](char a, char b) {
           return std::tolower(static_cast<unsigned char>(a)) ==
                  std::tolower(static_cast<unsigned char>(b));
         }) != text.end();
}

constexpr std::string_view kPageBegin = R"(# Configuration

<!-- Written by `make docs` from base/settings.def; a test compares the two. -->

Each setting is an environment variable and a key of a TOML file (lower case, without `TURNOUT_`).
`TURNOUT_CONFIG` names the file. The environment overrides the file, and the file overrides the
defaults. An empty variable counts as unset. A value out of range is an error that names the
variable. Unknown names cause a warning with the nearest known name. Names of earlier versions still
work, with a warning. `turnout info --config` prints the values in force, `--config=WORD` those with
the word in their name or text, and `--changed` those that differ from the default.

Each variable has a second name that follows libfabric's convention: `FI_TURNOUT_CREDITS` is
`TURNOUT_CREDITS`. `fi_info -g turnout` lists them. If both are set and differ, `TURNOUT_` overrides,
with a warning.

`TURNOUT_LOG` and `TURNOUT_LOG_FILE` control the log. In a libfabric program, `FI_LOG_LEVEL` (with
`FI_LOG_PROV=turnout` and `FI_LOG_SUBSYS`) also sends log lines to libfabric's log: standard error
then shows each line once, printed by libfabric, while the file of `TURNOUT_LOG_FILE` holds what
`TURNOUT_LOG` selects. The virtual adapter's lines follow `TURNOUT_LOG` only.

| kind | written as |
|---|---|
| text | as it is |
| boolean | `1` `true` `yes` `on`, `0` `false` `no` `off` |
| count | a whole number |
| bytes | a number with `B`, `K` or `KiB`, `M` or `MiB`, `G` or `GiB`, `T` or `TiB`: powers of two |
| duration | a number with `ns`, `us`, `ms`, `s` or `min` |

Sources: [AQPS] is Takagi et al., *Adaptive queue pair selection*, ExaMPI 2015; [SC'06] Koop et al.,
SC 2006; [EuroMPI'13] and [ACTS] are in the [citation file](../CITATION.cff).

## Settings

| variable | kind | default | meaning |
|---|---|---|---|
)";

constexpr std::string_view kPageTuning = R"(
A file:

```toml
memory_budget = "64MiB"
interval = "500ms"
ring_entries = 32
report = true

[tuning]
receive_first = 128
```

## Tuning parameters
These are for experiments and tests: parameters of the papers, costs that a costs file normally
gives, sizes that the defaults fit. They have no variable of their own.
`TURNOUT_TUNING=receive_first=128,rtr_wait=0` sets some of them, as do the file's table `[tuning]` and
`turnout sim --set`.

| parameter | kind | default | meaning |
|---|---|---|---|
)";

}  // namespace

int config_table(const ConfigOptions& options) {
  if (options.markdown) {
    fmt::print("{}{}{}{}", kPageBegin, rows(false), kPageTuning, rows(true));
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
  std::size_t shown = 0;
  for (const SettingInfo& row : describe(settings)) {
    const bool changed = row.value != row.default_value;
    if (options.changed && !changed) continue;
    if (!options.word.empty() && !contains(row.variable, options.word) &&
        !contains(row.help, options.word)) {
      continue;
    }
    // Tuning parameters are shown when they are searched for, or set.
    if (row.tuning && options.word.empty() && !changed) continue;
    ++shown;
    fmt::print(
        "{} = {}  ({}{})\n{}", row.variable, row.value.empty() ? "(empty)" : row.value, row.kind,
        changed
            ? fmt::format(", default {}", row.default_value.empty() ? "(empty)" : row.default_value)
            : std::string(", the default"),
        wrap("    ", row.help, 100));
  }
  if (shown == 0) {
    fmt::print("{}\n", options.changed ? "every setting has its default"
                                       : fmt::format("no setting matches \"{}\"", options.word));
  }
  return code;
}

}  // namespace turnout::cli
