// SPDX-License-Identifier: BSD-3-Clause
// Profile files: the parameters of the cost model (hca/virtual/profile.def) of one adapter, as
// TOML, each value with its unit and where it comes from.
//
//   [profile]
//   name = "connect-ib"          # letters, digits, . _ -
//   device = "Mellanox Connect-IB, FDR"
//   inherits = "other"           # optional: what is not given here is taken from that profile
//   note = "..."                 # optional
//   [processor]                  # a table for each group of profile.def
//   post = { value = 40, unit = "ns", source = "V UCX rc_mlx5_common.h" }
//
// The first word of a source is its tag: S a source paper, V read in a public project, A a paper's
// abstract, R recalled from literature, D derived (the text says how), F fitted, assumed. Untrusted
// text: every value is checked for its range, an unknown key is an error. Plain values, any thread.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "hca/virtual/profile.h"

namespace turnout::sim {

// One parameter of a profile, for tables.
struct ProfileValue {
  std::string_view group, name;  // of profile.def
  std::string_view help;
  std::string value;       // as written: "43.7", "unlimited"
  std::string unit;        // as written: "ns", "us", "GB/s", "count", "bytes", "ppm"
  std::string provenance;  // the tag: "S", "V", "A", "R", "D", "F", "assumed"; "-": not given
  std::string source;      // the text behind the tag
  std::string from;        // the profile that says so; empty: profile.def
};

struct ProfileFile {
  std::string name, device, note, inherits;
  hca::Profile profile;
  std::vector<ProfileValue> values;  // every parameter, in the order of profile.def
};

// The text of another profile, by name: what `inherits` asks for.
using ReadProfile = std::function<Result<std::string>(const std::string& name)>;

// `file` is for messages. Errors: invalid, naming the file, the key and what is accepted; what
// `parent` answers.
[[nodiscard]] Result<ProfileFile> parse_profile(std::string_view text, const std::string& file,
                                                const ReadProfile& parent);

// How far a value of this provenance may be from the truth, as a part of it: half of the values are
// expected within. Times and rates only; 0 of all others.
[[nodiscard]] double stated_error(const ProfileValue& value) noexcept;
// Multiplies each time, and the time of each rate, by factor(value).
void vary(ProfileFile* profile, const std::function<double(const ProfileValue&)>& factor);

// By name, or by path when it holds a slash or ends in .toml (its parents are looked for beside it
// first). Errors: invalid (with the nearest known name), permission, system.
[[nodiscard]] Result<ProfileFile> find_profile(const std::string& name_or_path);
// Names of the profiles in profile_folders(), sorted.
[[nodiscard]] std::vector<std::string> list_profiles();
// Where names are looked for, the first that has the file wins: the setting `profiles` (folders
// with colons between), share/turnout/profiles beside the executable's folder, the source tree's.
[[nodiscard]] std::vector<std::string> profile_folders();

// docs/profiles.md: what the tags mean and a table for each profile.
[[nodiscard]] std::string profile_markdown(std::span<const ProfileFile> profiles);
// The same of the profiles that Turnout comes with. Errors: those of find_profile().
[[nodiscard]] Result<std::string> profile_markdown();

}  // namespace turnout::sim
