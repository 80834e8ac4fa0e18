// SPDX-License-Identifier: BSD-3-Clause
#include "cli/verbs_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>
#include <vector>

#include "base/private_folder.h"

namespace turnout::cli {
namespace {

namespace fs = std::filesystem;

std::string temporary_folder() {
  const char* const given = std::getenv("TMPDIR");
  std::string folder = given != nullptr && *given == '/' ? given : "/tmp";
  if (::access(folder.c_str(), W_OK | X_OK) != 0) folder = "/tmp";
  std::error_code error;
  // The shim tells its folder by name.
  const fs::path real = fs::canonical(folder, error);
  return error ? folder : real.string();
}

std::string beginning_of_names() {
  return fmt::format("turnout-verbs-{}-", ::geteuid());
}

// Processes of other namespaces have numbers of their own.
std::uint64_t pid_namespace() {
  struct stat info {};
  return ::stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

// When the process began, in ticks since the host did; 0: there is none, or it has ended.
std::uint64_t start_of(std::uint64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  // The name, in parentheses, may have anything in it; the state is the 3rd field, this the 22nd
  // (proc(5)).
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string state, skipped;
  fields >> state;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  std::uint64_t start = 0;
  if (!(fields >> start) || state == "Z" || state == "X") return 0;
  return start;
}

// The rest of a name: NAMESPACE-PID-START-XXXXXX.
bool is_left_over(std::string rest) {
  std::replace(rest.begin(), rest.end(), '-', ' ');
  std::istringstream fields(rest);
  std::uint64_t space = 0, pid = 0, start = 0;
  return fields >> space >> pid >> start && space == pid_namespace() && start_of(pid) != start;
}

}  // namespace

Result<PassingFolder> make_passing_folder() {
  std::string path =
      fmt::format("{}/{}{}-{}-{}-XXXXXX", temporary_folder(), beginning_of_names(), pid_namespace(),
                  ::getpid(), start_of(static_cast<std::uint64_t>(::getpid())));
  if (::mkdtemp(path.data()) == nullptr) return folder_failure("create", path, errno);
  return PassingFolder(new std::string(std::move(path)));
}

void RemoveFolder::operator()(const std::string* path) const {
  std::error_code error;
  fs::remove_all(*path, error);
  if (error) fmt::print(stderr, "turnout verbs: removing {} failed: {}\n", *path, error.message());
  delete path;
}

void sweep_folders() {
  const std::string folder = temporary_folder();
  const std::string beginning = beginning_of_names();
  std::vector<fs::path> left_over;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with(beginning) || !is_left_over(name.substr(beginning.size()))) continue;
    struct stat info {};
    if (::lstat(at->path().c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
        info.st_uid == ::geteuid()) {
      left_over.push_back(at->path());
    }
  }
  // Two that sweep at one time: what is gone is gone.
  for (const fs::path& path : left_over) fs::remove_all(path, error);
}

Result<std::string> keep_folder(std::uint64_t guid, std::string_view ending) {
  std::error_code error;
  std::string base = runtime_folder();
  if (const fs::path real = fs::canonical(base, error); !error) base = real.string();
  std::string path = fmt::format("{}/turnout-{}-verbs-{:016x}{}", base, ::geteuid(), guid, ending);
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return folder_failure("create", path, errno);
  }
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return folder_failure("stat", path, errno);
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & 077) != 0) {
    return Status{
        Code::permission,
        fmt::format(
            "{} belongs to another user, is accessible to others or is not a folder; remove it",
            path)};
  }
  return path;
}

}  // namespace turnout::cli
