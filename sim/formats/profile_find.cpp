// SPDX-License-Identifier: BSD-3-Clause
// Where profile files are, by name or path.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/installation.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/text_file.h"
#include "base/value.h"
#include "sim/formats/profile_file.h"

namespace turnout::sim {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".toml";
// A profile has some ten KiB; what is larger is another file.
constexpr std::uint64_t kMaxFile = 1 << 20;

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

Status not_found(const std::string& name) {
  const std::vector<std::string> names = list_profiles();
  const std::vector<std::string_view> known(names.begin(), names.end());
  const std::string_view near = value::nearest_name(name, known);
  std::string hint;
  if (!near.empty()) {
    hint = fmt::format("; did you mean {}?", near);
  } else if (!names.empty()) {
    hint = fmt::format("; available: {}", fmt::join(names, ", "));
  } else {
    hint = "; no profiles found; set TURNOUT_PROFILES to their folder";
  }
  return {Code::invalid, fmt::format("unknown profile \"{}\"{}", name, hint)};
}

Result<std::string> read_named(const std::string& name, const std::vector<std::string>& folders) {
  // A name comes from a user or a file: it must not lead out of the folders.
  if (name.find('/') == std::string::npos && !name.empty()) {
    for (const std::string& folder : folders) {
      const fs::path path = fs::path(folder) / (name + std::string(kSuffix));
      if (is_file(path)) {
        return read_text_file(path.string(), path.string(), "profile file", kMaxFile);
      }
    }
  }
  return not_found(name);
}

}  // namespace

std::vector<std::string> profile_folders() {
  std::vector<std::string> folders;
  if (const Result<Settings> settings = Settings::load(UnknownNames::ignore); settings) {
    std::string_view rest(settings.value().profiles);
    while (!rest.empty()) {
      const std::string_view folder = rest.substr(0, rest.find(':'));
      rest.remove_prefix(std::min(folder.size() + 1, rest.size()));
      if (!folder.empty()) folders.emplace_back(folder);
    }
  } else {
    TURNOUT_LOG(cli, warn,
                "reading the settings failed: {}; only the profiles that are installed are found",
                settings.status().text());
  }
  folders.push_back(share_folder() + "/profiles");
  return folders;
}

std::vector<std::string> list_profiles() {
  std::vector<std::string> names;
  for (const std::string& folder : profile_folders()) {
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
      if (at->path().extension() == kSuffix && is_file(at->path())) {
        names.push_back(at->path().stem().string());
      }
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

Result<ProfileFile> find_profile(const std::string& name_or_path) {
  std::vector<std::string> folders = profile_folders();
  const bool path = name_or_path.find('/') != std::string::npos || name_or_path.ends_with(kSuffix);
  if (path) {
    const fs::path parent = fs::path(name_or_path).parent_path();
    folders.insert(folders.begin(), parent.empty() ? std::string(".") : parent.string());
  }
  const Result<std::string> text =
      path ? read_text_file(name_or_path, name_or_path, "profile file", kMaxFile)
           : read_named(name_or_path, folders);
  if (!text) return text.status();
  return parse_profile(text.value(), path ? name_or_path : fmt::format("profile {}", name_or_path),
                       [&](const std::string& name) { return read_named(name, folders); });
}

}  // namespace turnout::sim
