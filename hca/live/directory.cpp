// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <compare>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/abstract_name.h"
#include "base/file_descriptor.h"

namespace turnout::hca {
namespace {

// What all names of a fabric begin with. Names of fabrics have no slash.
std::string prefix(const std::string& fabric) {
  return fmt::format("turnout/{:x}/{}/", geteuid(), fabric);
}

// A socket that listens at this abstract name, so that who comes can ask whose it is; none and
// errno, EADDRINUSE when somebody has it.
Descriptor bind_name(const std::string& name) noexcept {
  errno = ENAMETOOLONG;
  if (name.size() > AbstractName::kLongest) return {};
  const AbstractName bound(name);
  Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool listens = fd && bind(fd.get(), bound.address(), bound.length()) == 0 &&
                       listen(fd.get(), SOMAXCONN) == 0;
  return listens ? std::move(fd) : Descriptor();
}

// A connection to the name, if a process of this user listens there, and that process.
Descriptor connect_to(const std::string& name, pid_t* pid = nullptr) noexcept {
  if (name.size() > AbstractName::kLongest) return {};
  const AbstractName bound(name);
  Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd || connect(fd.get(), bound.address(), bound.length()) != 0) return {};
  ucred owner{};
  socklen_t length = sizeof owner;
  if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &owner, &length) != 0 ||
      owner.uid != geteuid()) {
    return {};
  }
  if (pid != nullptr) *pid = owner.pid;
  return fd;
}

// What comes after `begins` in the names that begin so. Errors: system.
Result<std::set<std::string>> names_after(const std::string& begins) {
  std::set<std::string> found;
  // The kernel gives the list in pieces, and may leave out a name when another goes away between
  // two of them: what is missing the first time is there the second.
  for (int pass = 0; pass < 2; ++pass) {
    std::ifstream names("/proc/net/unix");
    if (!names) {
      return Status(Code::system,
                    "reading /proc/net/unix failed; it lists the processes of the fabric", errno);
    }
    const std::string wanted = " @" + begins;
    for (std::string line; std::getline(names, line);) {
      const std::size_t at = line.find(wanted);
      if (at != std::string::npos) found.insert(line.substr(at + wanted.size()));
    }
  }
  return found;
}

// Hexadecimal numbers with slashes between, as many as there are fields and nothing else.
bool numbers_of(std::string_view text, std::initializer_list<std::uint64_t*> fields) noexcept {
  const char* at = text.data();
  const char* const end = at + text.size();
  for (std::uint64_t* const field : fields) {
    if (field != *fields.begin() && (at == end || *at++ != '/')) return false;
    const auto [after, error] = std::from_chars(at, end, *field, 16);
    if (error != std::errc()) return false;
    at = after;
  }
  return at == end;
}

// Lamport's bakery, of names: a process that wants the lock binds prefix + "0/KEY" while it chooses
// its number, then prefix + "NUMBER/KEY" with a number above all that are there. The lowest number
// has the lock. KEY is drawn by lot, so that nobody can bind it before.
struct Ticket {
  std::uint32_t number = 0;  // 0: it is being chosen
  std::uint64_t key = 0;
  auto operator<=>(const Ticket&) const = default;
};

std::string name_of(const std::string& begins, const Ticket& ticket) {
  return fmt::format("{}{:x}/{:x}", begins, ticket.number, ticket.key);
}

// In order, those of other users among them. Errors: system.
Result<std::vector<Ticket>> list_tickets(const std::string& begins) {
  auto names = names_after(begins);
  if (!names) return names.status();
  std::vector<Ticket> tickets;
  for (const std::string& name : *names) {
    std::uint64_t number = 0, key = 0;
    if (numbers_of(name, {&number, &key}) && number <= UINT32_MAX) {
      tickets.push_back({static_cast<std::uint32_t>(number), key});
    }
  }
  std::sort(tickets.begin(), tickets.end());
  return tickets;
}

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kLockTimeout{10};

}  // namespace

std::uint64_t own_pid_namespace() noexcept {
  struct stat st {};
  return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

Result<std::vector<Member>> list_members(const std::string& fabric) {
  auto names = names_after(prefix(fabric));
  if (!names) return names.status();
  std::vector<Member> members;
  for (const std::string& name : *names) {
    Member member{};
    std::uint64_t pid = 0, fd = 0, copy = 0;
    if (!numbers_of(name, {&member.pid_namespace, &pid, &fd, &copy}) || pid > INT32_MAX ||
        fd > INT32_MAX) {
      continue;  // the lock's, or rubbish
    }
    member.pid = static_cast<pid_t>(pid);
    member.fd = static_cast<int>(fd);
    member.name = prefix(fabric) + name;
    members.push_back(std::move(member));
  }
  return members;
}

Descriptor open_memory(const std::string& fabric, const Member& member) noexcept {
  char path[64], target[128], wanted[128];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", member.pid, member.fd);
  std::snprintf(wanted, sizeof wanted, "/memfd:turnout-%s (deleted)", fabric.c_str());
  const ssize_t n = readlink(path, target, sizeof target - 1);
  if (n < 0) return {};
  target[n] = '\0';
  if (std::strcmp(target, wanted) == 0) {
    Descriptor fd(::open(path, O_RDWR | O_CLOEXEC | O_NOCTTY));
    if (!fd) return fd;
    struct stat st {};
    if (fstat(fd.get(), &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid()) return fd;
  }
  errno = ENOENT;
  return {};
}

Descriptor create_memory(const std::string& fabric, std::uint64_t size) noexcept {
  char name[128];
  std::snprintf(name, sizeof name, "turnout-%s", fabric.c_str());
  Descriptor fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const bool made = fd && set_size(fd.get(), size) &&
                    fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
  return made ? std::move(fd) : Descriptor();
}

Descriptor announce(const std::string& fabric, int fd) noexcept {
  // A fork's child may still have the name that its parent had for a descriptor of this number.
  constexpr unsigned kCopies = 256;
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    Descriptor socket = bind_name(fmt::format("{}{:x}/{:x}/{:x}/{:x}", prefix(fabric),
                                              own_pid_namespace(), getpid(), fd, copy));
    if (socket || errno != EADDRINUSE) return socket;
  }
  return {};
}

bool is_of_this_user(const std::string& name) noexcept {
  return static_cast<bool>(connect_to(name));
}

Result<Descriptor> lock_directory(const std::string& fabric) {
  const std::string begins = prefix(fabric) + "lock/";
  const auto failure = [&](const char* what) {
    return Status(Code::system, fmt::format("{} failed: lock of fabric {}", what, fabric), errno);
  };
  Ticket own;
  constexpr int kKeyBits = 48;
  if (getrandom(&own.key, sizeof own.key, 0) != sizeof own.key) return failure("getrandom");
  own.key >>= 64 - kKeyBits;
  Descriptor chooses = bind_name(name_of(begins, own));
  if (!chooses) return failure("binding the name");
  auto tickets = list_tickets(begins);
  if (!tickets) return tickets.status();
  own.number = 1;
  for (auto ticket = tickets->rbegin(); ticket != tickets->rend() && ticket->number > 0; ++ticket) {
    if (ticket->number == UINT32_MAX || !connect_to(name_of(begins, *ticket))) continue;
    own.number = ticket->number + 1;
    break;
  }
  Descriptor held = bind_name(name_of(begins, own));
  if (!held) return failure("binding the name");
  chooses.reset();

  const Clock::time_point deadline = Clock::now() + kLockTimeout;
  std::set<Ticket> gone_by;
  for (bool again = true; again;) {
    again = false;
    tickets = list_tickets(begins);
    if (!tickets) return tickets.status();
    for (const Ticket& ticket : *tickets) {
      // Who is choosing may take our number, and have the lower key.
      if (ticket.number != 0 && ticket >= own) break;
      pid_t holder = 0;
      const Descriptor other = connect_to(name_of(begins, ticket), &holder);
      if (!other) {
        // Gone, or another user's. Who chose when the names were read may have a number by now.
        if (ticket.number == 0 && gone_by.insert(ticket).second) again = true;
        continue;
      }
      pollfd gone{other.get(), POLLIN, 0};
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
      const int result = ::poll(
          &gone, 1,
          static_cast<int>(std::max(left, decltype(left){0})));  // it hangs up when the name goes
      if (result == 0) {
        return Status(
            Code::system,
            fmt::format("locking fabric {} failed: process {} of this user has held the lock for "
                        "10 s; end that process, or choose another fabric with TURNOUT_FABRIC",
                        fabric, holder),
            ETIMEDOUT);
      }
      again = again || ticket.number == 0 || result < 0;
    }
  }
  return held;
}

}  // namespace turnout::hca
