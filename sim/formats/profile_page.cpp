// SPDX-License-Identifier: BSD-3-Clause
// docs/profiles.md.

#include <fmt/format.h>

#include <array>

#include "base/value.h"
#include "sim/formats/profile_file.h"

namespace turnout::sim {
namespace {

constexpr std::array<std::string_view, 8> kShipped = {
    "connect-ib", "connect-ib-aqps", "connectx-3", "connectx-4",
    "connectx-5", "connectx-6",      "connectx-7", "ideal"};

}  // namespace

std::string profile_markdown(std::span<const ProfileFile> profiles) {
  std::string page =
      "# Profiles of the cost model\n"
      "\n"
      "<!-- Written from profiles/*.toml; a test compares the two. -->\n"
      "\n"
      "A profile gives the virtual-time costs of one adapter, its PCI Express slot, its network\n"
      "and its host. `turnout sim --profile NAME` selects one by name, or a file of your own by\n"
      "its path. A file that inherits from another lists only the differences:\n"
      "\n"
      "```toml\n"
      "[profile]\n"
      "name = \"slow-doorbell\"\n"
      "device = \"Connect-IB behind a slow doorbell\"\n"
      "inherits = \"connect-ib\"\n"
      "[pcie]\n"
      "doorbell = { value = 2, unit = \"us\", source = \"assumed for illustration\" }\n"
      "```\n"
      "\n"
      "Names are searched in the folders of `TURNOUT_PROFILES` and in `share/turnout/profiles`\n"
      "next to the folder of the command. Times are in ps, ns, us, ms or s, rates in MB/s or GB/s\n"
      "(powers of ten) or `\"unlimited\"`. Every value has a source, which begins with a tag:\n"
      "\n"
      "| tag | the value is |\n"
      "|---|---|\n"
      "| S | from a source paper |\n"
      "| V | from a public project's source code or notes |\n"
      "| A | from a paper's abstract |\n"
      "| R | recalled from literature, not checked again |\n"
      "| D | derived, as the text explains |\n"
      "| F | fitted |\n"
      "| assumed | a plausible guess; no figure is published |\n"
      "| - | not set: the operation costs nothing |\n";
  for (const ProfileFile& profile : profiles) {
    page += fmt::format("\n## {}\n{}.", value::markdown_cell(profile.name),
                        value::markdown_cell(profile.device));
    if (!profile.inherits.empty()) {
      page +=
          fmt::format(" The other values come from {}.", value::markdown_cell(profile.inherits));
    }
    page += "\n";
    if (!profile.note.empty()) page += fmt::format("\n{}\n", value::markdown_cell(profile.note));
    page +=
        "\n"
        "| parameter | value | tag | source | meaning |\n"
        "|---|---|---|---|---|\n";
    for (const ProfileValue& row : profile.values) {
      const bool bare = row.unit == "count" || row.value == "unlimited";
      const bool inherited = !row.from.empty() && row.from != profile.name;
      page += fmt::format("| `{}.{}` | {}{}{} | {} | {}{} | {} |\n", row.group, row.name, row.value,
                          bare ? "" : " ", bare ? "" : row.unit, row.provenance,
                          value::markdown_cell(row.source),
                          inherited ? fmt::format(" ({})", row.from) : std::string(),
                          value::markdown_cell(row.help));
    }
  }
  return page;
}

Result<std::string> profile_markdown() {
  std::vector<ProfileFile> profiles;
  for (const std::string_view name : kShipped) {
    Result<ProfileFile> profile = find_profile(std::string(name));
    if (!profile) return profile.status();
    profiles.push_back(std::move(profile).value());
  }
  return profile_markdown(profiles);
}

}  // namespace turnout::sim
