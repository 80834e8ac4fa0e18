// publish(): where the report of an endpoint that ends goes.

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <set>
#include <system_error>

#include "core/report.h"

namespace turnout {

namespace {

// A report of 4096 decisions and as many peers has some MiB.
constexpr std::size_t kMaxFile = 64u << 20;
// The holder of the lock writes a file or prints the tables; who waits longer meets a stopped
// process.
constexpr int kLockTries = 500;
constexpr long kLockPause = 10'000'000;  // ns
// What is printed at the end of a job has to be read on a terminal; `turnout report` shows
// everything.
constexpr TableLimits kPrinted{.peers = 16, .decisions = 24};

constexpr std::string_view kLockName = ".lock";
constexpr std::string_view kSuffix = ".json";

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

Status failed(std::string_view what, const std::string& path, int error) {
  return {error == EACCES || error == EPERM ? Code::permission : Code::system,
          fmt::format("cannot {} {} for the report: {}", what, path,
                      std::generic_category().message(error)),
          error};
}

std::string plain(std::string_view name) {
  std::string out;
  for (const char c : name.substr(0, 128)) {
    const bool good = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' ||
                      (c == '.' && !out.empty());
    out += good ? c : '_';
  }
  return out;
}

std::string temporary_folder(const std::string& job) {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  std::string base = runtime != nullptr && *runtime == '/' ? runtime : "/tmp";
  // Launchers hand the variable on to hosts and containers where the folder does not exist.
  if (::access(base.c_str(), W_OK | X_OK) != 0) base = "/tmp";
  return fmt::format("{}/turnout-{}-report-{}", base, ::geteuid(), plain(job));
}

// The folder of a job: ours, private, and no link that somebody put in its place. Without `make` an
// empty Fd says that it is not there.
Result<Fd> open_private(const std::string& path, bool make) {
  if (make && ::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return failed("make", path, errno);
  }
  Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd && errno == ENOENT && !make) return fd;
  if (!fd) return failed("open", path, errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return failed("look at", path, errno);
  if (info.st_uid != ::geteuid() || (info.st_mode & 077) != 0) {
    return Status{Code::permission,
                  fmt::format("{} belongs to another user or is open to others; no report is "
                              "written there. Remove it or set TURNOUT_REPORT to a folder of yours",
                              path)};
  }
  return fd;
}

Result<Fd> open_chosen(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return failed("make", path, error.value());
  Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return failed("open", path, errno);
  return fd;
}

Status write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return {Code::system, std::generic_category().message(errno), errno};
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

// Whole or not at all: written beside its place, then renamed.
Status write_file(const Fd& folder, const std::string& path, const std::string& file_name,
                  std::string_view text) {
  const std::string temporary = fmt::format(".{}.{}", file_name, ::getpid());
  ::unlinkat(folder.get(), temporary.c_str(), 0);
  const Fd file(::openat(folder.get(), temporary.c_str(),
                         O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return failed("write into", path, errno);
  Status status = write_all(file.get(), text);
  if (status.ok() &&
      ::renameat(folder.get(), temporary.c_str(), folder.get(), file_name.c_str()) != 0) {
    status = {Code::system, "", errno};
  }
  if (status.ok()) return status;
  ::unlinkat(folder.get(), temporary.c_str(), 0);
  return failed("write into", path, status.sys_errno());
}

Result<std::string> read_file(const Fd& folder, const std::string& file_name) {
  const Fd file(
      ::openat(folder.get(), file_name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file) return failed("read", file_name, errno);
  std::string text;
  std::array<char, 65536> part{};
  while (text.size() <= kMaxFile) {
    const ssize_t n = ::read(file.get(), part.data(), part.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed("read", file_name, errno);
    if (n == 0) return text;
    text.append(part.data(), static_cast<std::size_t>(n));
  }
  return Status{Code::invalid, fmt::format("{} is no report: too long", file_name)};
}

std::vector<std::string> entries(const Fd& folder) {
  std::vector<std::string> names;
  const int copy = ::openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return names;
  DIR* const directory = ::fdopendir(copy);
  if (directory == nullptr) {
    ::close(copy);
    return names;
  }
  while (const dirent* entry = ::readdir(directory)) {
    const std::string_view name(entry->d_name);
    if (name != "." && name != "..") names.emplace_back(name);
  }
  ::closedir(directory);
  return names;
}

Result<Fd> lock_file(const Fd& folder, const std::string& path) {
  Fd file(::openat(folder.get(), std::string(kLockName).c_str(),
                   O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return failed("lock", path, errno);
  for (int attempt = 0; ::flock(file.get(), LOCK_EX | LOCK_NB) != 0; ++attempt) {
    if (errno != EWOULDBLOCK && errno != EINTR) return failed("lock", path, errno);
    if (attempt == kLockTries) {
      return Status{Code::again,
                    fmt::format("{} stays locked by another process; its report is lost", path)};
    }
    const timespec pause{0, kLockPause};
    ::nanosleep(&pause, nullptr);
  }
  return file;
}

bool same_place(const Fd& folder, const std::string& path) {
  struct stat opened {
  }, named{};
  return ::fstat(folder.get(), &opened) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

void print(const std::string& text) {
  static_cast<void>(write_all(STDERR_FILENO, text).ok());  // nobody else could be told
}

bool carried_anything(const EndpointReport& report) {
  for (const PeerReport& peer : report.peers) {
    for (const auto* direction : {&peer.send, &peer.receive}) {
      for (const ChannelSpan& span : direction->spans) {
        if (span.messages > 0) return true;
      }
    }
  }
  return false;
}

// rank-3.4711.0123456789abcdef.json: a process may have several endpoints.
std::string file_name(const EndpointReport& report) {
  return fmt::format("rank-{}.{}.{:016x}{}", report.rank, report.pid, report.endpoint, kSuffix);
}

// The reports that wait in the folder.
std::vector<EndpointReport> collect(const Fd& folder) {
  std::vector<EndpointReport> reports;
  for (const std::string& name : entries(folder)) {
    if (!name.ends_with(kSuffix) || name.front() == '.') continue;
    const Result<std::string> text = read_file(folder, name);
    if (!text) continue;
    Result<EndpointReport> report = report_from_json(text.value());
    if (!report) continue;
    reports.push_back(std::move(report).value());
  }
  // An endpoint that was only opened to be looked at says nothing beside one that worked.
  std::set<std::pair<int, std::uint32_t>> working;
  for (const EndpointReport& report : reports) {
    if (carried_anything(report)) working.emplace(report.rank, report.pid);
  }
  std::erase_if(reports, [&](const EndpointReport& report) {
    return !carried_anything(report) && working.contains({report.rank, report.pid});
  });
  return reports;
}

std::size_t count_processes(const Fd& folder) {
  std::set<std::string> seen;
  for (const std::string& name : entries(folder)) {
    if (!name.ends_with(kSuffix) || name.front() == '.') continue;
    // rank-3.4711 of rank-3.4711.0123456789abcdef.json
    seen.insert(name.substr(0, name.rfind('.', name.size() - kSuffix.size() - 1)));
  }
  return seen.size();
}

// Whether an endpoint of this process (not of one it was forked from) handed in a report under this
// name before: then the job's table may be printed already.
bool handed_in_before(const std::string& name, bool now) {
  static std::mutex mutex;
  static pid_t owner = 0;
  static std::set<std::string> names;
  const std::scoped_lock guard(mutex);
  if (owner != ::getpid()) names.clear();
  owner = ::getpid();
  return now ? !names.insert(name).second : names.contains(name);
}

Status publish_with_job(const EndpointReport& report, std::size_t expected) {
  const std::string path = temporary_folder(report.job);
  // The process's former endpoint may have been the last one that the table waited for.
  const bool again = handed_in_before(path, false);
  // The last process of the job removes the folder; who opened it before then starts again.
  for (int attempt = 0; attempt < 8; ++attempt) {
    Result<Fd> folder = open_private(path, !again);
    if (!folder) return folder.status();
    if (!folder.value()) {
      if (carried_anything(report)) print(format_reports({&report, 1}, kPrinted));
      return {};
    }
    const Result<Fd> locked = lock_file(*folder, path);
    if (!locked) return locked.status();
    if (!same_place(*folder, path)) continue;
    if (Status s = write_file(*folder, path, file_name(report), to_json(report)); !s.ok()) return s;
    static_cast<void>(handed_in_before(path, true));
    if (count_processes(*folder) < expected) return {};
    print(format_reports(collect(*folder), kPrinted));
    for (const std::string& name : entries(*folder)) ::unlinkat(folder->get(), name.c_str(), 0);
    if (::rmdir(path.c_str()) != 0) return failed("remove", path, errno);
    return {};
  }
  return {Code::again, fmt::format("{} vanishes whenever it is opened", path)};
}

}  // namespace

Status publish(const EndpointReport& original, const std::string& report_setting,
               const std::string& job) {
  if (report_setting.empty() || report_setting == "0") return {};
  EndpointReport report = original;
  const LauncherIdentity launcher = launcher_identity();
  if (report.rank < 0) report.rank = launcher.rank;
  if (report.ranks < 0) report.ranks = launcher.ranks;
  if (report.job.empty()) report.job = job.empty() ? launcher.job : job;

  if (report_setting != "1") {
    const Result<Fd> folder = open_chosen(report_setting);
    if (!folder) return folder.status();
    std::string name = file_name(report);
    if (!report.job.empty()) name = plain(report.job) + "." + name;
    return write_file(folder.value(), report_setting, name, to_json(report));
  }
  const int expected = launcher.local_ranks > 0 ? launcher.local_ranks : launcher.ranks;
  if (report.job.empty() || report.rank < 0 || expected <= 1) {
    if (!handed_in_before("", true) || carried_anything(report)) {
      print(format_reports({&report, 1}, kPrinted));
    }
    return {};
  }
  return publish_with_job(report, static_cast<std::size_t>(expected));
}

}  // namespace turnout
