// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/settings.h"
#include "base/value.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/port_text.h"
#include "core/memory/node_share.h"
#include "core/report/report_text.h"
#include "core/selection/device_costs.h"
#include "core/verbs/device.h"
#include "core/verbs/library.h"

namespace turnout::cli {
namespace {

struct InfoOptions {
  const CLI::Option* config = nullptr;  // asks for settings
  std::string word;      // only settings with it in name or text; empty: all but tuning parameters
  bool changed = false;  // only settings that differ from their default
  bool costs = false;
  bool markdown = false;  // a page of the documentation instead (defaults)
};

int fail(const Status& status) {
  complain("turnout", status);
  return kFailed;
}

constexpr std::string_view link_layer(std::uint8_t layer) {
  return layer == IBV_LINK_LAYER_INFINIBAND ? "InfiniBand"
         : layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet (RoCE)"
                                            : "unspecified link layer";
}

template <class... Args>
void line(std::string_view what, fmt::format_string<Args...> format, Args&&... args) {
  fmt::print("  {:<26} {}\n", what, fmt::format(format, std::forward<Args>(args)...));
}

// Every device that the library loaded now can see.
void list_devices(std::string_view origin) {
  int count = 0;
  const std::unique_ptr<ibv_device*, decltype(&ibv_free_device_list)> devices(
      ibv_get_device_list(&count), &ibv_free_device_list);
  if (!devices || count == 0) {
    line(origin, "none");
    return;
  }
  for (int i = 0; i < count; ++i) {
    ibv_device* const device = devices.get()[i];
    std::string text = ibv_get_device_name(device);
    if (!mlx5dv_is_supported(device)) text += ", no DC: the default transport is UD";
    line(i == 0 ? origin : "", "{}", text);
  }
}

void show_devices(const Settings& settings) {
  fmt::print("adapters found\n");
  for (const auto& [library, name] : {std::pair{verbs::Library::system, "the system's"},
                                      std::pair{verbs::Library::virtual_adapter, "virtual"}}) {
    if (const Status loaded = verbs::load(library, settings); loaded.ok()) {
      list_devices(name);
    } else {
      line(name, "{}", loaded.text());
    }
  }
}

int show_chosen(const Settings& settings) {
  fmt::print("adapter chosen (TURNOUT_DEVICE={})\n", settings.device);
  const Result<std::unique_ptr<verbs::Device>> opened = verbs::Device::open(settings);
  if (!opened) {
    line("none", "{}", opened.status().text());
    return 1;
  }
  const verbs::Device& device = *opened.value();
  const ibv_device_attr& a = device.attributes();
  const ibv_port_attr& port = device.port();
  line("name", "{}", device.name());
  line("because", "{}", device.why());
  if (device.is_virtual()) {
    line("fabric", "{}, up to {}", settings.fabric, value::print_bytes(settings.fabric_size));
    line("libraries", "{}", verbs::virtual_folder(settings));
  }
  line("firmware", "{}", std::string_view(a.fw_ver, strnlen(a.fw_ver, sizeof a.fw_ver)));
  line("port", "{} of {}, {}, {}, LID {}", device.port_number(), a.phys_port_cnt,
       link_layer(port.link_layer), port_state(port.state), port.lid);
  line("GID", "{} (index {})", gid_text(device.gid()), device.gid_index());
  const auto count = [](int n) { return value::human_count(static_cast<std::uint64_t>(n)); };
  const auto limits = [&](std::string_view what, int number, int entries, std::string_view kind) {
    line(what, "{}, with up to {} {}", count(number), count(entries), kind);
  };
  limits("queue pairs", a.max_qp, a.max_qp_wr, "work requests");
  limits("shared receive queues", a.max_srq, a.max_srq_wr, "entries");
  limits("completion queues", a.max_cq, a.max_cqe, "entries");
  line("memory regions", "{}, of up to {}", count(a.max_mr), value::human_bytes(a.max_mr_size));
  line("reads in flight per QP", "{}", a.max_qp_rd_atom);
  return 0;
}

int show_selection(const Settings& s) {
  int code = 0;
  const auto time = [](std::int64_t t) { return value::print_duration(t); };
  fmt::print("selection\n");
  line("policy", "{}, every {}", s.policy, time(s.interval));
  if (auto costs = selection::load_costs(s)) {
    const selection::DeviceCosts& c = costs->costs;
    const auto cost = [](double nanoseconds) {
      return value::human_duration(std::llround(nanoseconds));
    };
    const selection::CostModel model =
        selection::cost_model(c, static_cast<std::uint32_t>(s.ring_entries));
    line("costs of", "{} ({}); sources: turnout info --costs", costs->device,
         s.costs.empty() ? "built in" : s.costs);
    line("saved per message", "{} on DC-RDMA, {} on RC-RDMA", cost(model.saving_dc_rdma),
         cost(model.saving_rc_rdma));
    line("paid", "{} per failed poll, {} per credit message, {} or {} to set up DC-RDMA or RC-RDMA",
         cost(c.receiver_poll.value), cost(c.receiver_credit.value),
         cost(c.setup_dc_processor.value), cost(c.setup_rc_processor.value));
  } else {
    line("costs", "{}", costs.status().text());
    code = kFailed;  // a job would not start
  }
  line("gain threshold", "{} per message", time(s.gain_threshold));
  fmt::print("limits\n");
  line("memory per process", "{}", value::print_bytes(budget_of_process(s).bytes));
  line("RDMA channels", "{}, up to {} of them with an active RC queue pair", s.max_channels,
       std::min(s.max_active_rc, s.max_channels));
  line("ring", "{} entries of {} = {} per channel", s.ring_entries,
       value::print_bytes(s.ring_entry_size),
       value::human_bytes(s.ring_entries * s.ring_entry_size));
  line("receives posted", "{} of {}, {} for control messages", s.receive_buffers,
       value::print_bytes(s.ring_entry_size), s.control_buffers);
  line("unexpected messages", "{}", value::print_bytes(s.unexpected_memory));
  fmt::print("\nAll settings: turnout info --config\n");
  return code;
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
                       row.kind, code(row.default_value), value::markdown_cell(row.help));
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

// Prints the table of settings and their values in force.
int config_table(const InfoOptions& options) {
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

// What the selection knows of the device: values in force and their sources, or for
// docs/device-costs.md (built in).
int costs_table(bool markdown) {
  if (markdown) {
    fmt::print("{}", selection::costs_page());
    return 0;
  }
  const Result<Settings> settings = Settings::load();
  if (!settings) return fail(settings.status());
  const Result<selection::CostsFile> costs = selection::load_costs(settings.value());
  if (!costs) return fail(costs.status());
  fmt::print("{}", selection::print_costs(costs.value()));
  return 0;
}

int run_info(const InfoOptions& options) {
  const bool config = options.config->count() > 0;
  if ((options.markdown && !config && !options.costs) || (config && options.costs) ||
      (options.changed && !config)) {
    fmt::print(stderr,
               "turnout info: --markdown needs one of --config and --costs; --changed needs "
               "--config\n");
    return kWrongUse;
  }
  if (config) return config_table(options);
  if (options.costs) return costs_table(options.markdown);
  const Result<Settings> settings = Settings::load();
  if (!settings) return fail(settings.status());
  fmt::print("turnout {}\n", TURNOUT_VERSION);
  show_devices(settings.value());
  const int code = show_chosen(settings.value());
  return std::max(code, show_selection(settings.value()));
}

}  // namespace

void add_info(CLI::App& app) {
  const auto [info, o] = add_command<InfoOptions>(
      app, "info", "the adapter in use and why, adapters found, costs, limits, settings", run_info);
  o->config = info->add_option("-c,--config", o->word,
                               "settings: value, default, meaning; =WORD: those that match")
                  ->expected(0, 1)
                  ->type_name("[=WORD]");
  info->add_flag("--changed", o->changed,
                 "with --config: only settings that differ from their default");
  info->add_flag("--costs", o->costs, "device costs that the selection uses, with sources");
  info->add_flag("--markdown", o->markdown,
                 "with --config or --costs: docs/configuration.md or device-costs.md");
}

}  // namespace turnout::cli
