// SPDX-License-Identifier: BSD-3-Clause
#include "provider/shared_addresses.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <rdma/fi_errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/private_folder.h"

namespace turnout::provider {
namespace {

constexpr std::uint32_t kFileMagic = 0x56415354;  // "TSAV"
constexpr std::uint32_t kFileVersion = 1;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kNamesAt = kPage;
constexpr std::size_t kAddressesAt = kNamesAt + SharedAddresses::kMost * sizeof(fi_addr_t);
constexpr std::size_t kFileSize = kAddressesAt + SharedAddresses::kMost * sizeof(Address);
constexpr std::size_t kLongestName = 100;
constexpr int kOpenTries = 100;

// Bytes of the file that stand for something: to have it open, and to change it.
enum class Part : off_t { presence = 0, change = 1 };

// Of this open file description. False: another one has it, or errno.
bool set_lock(int fd, Part part, short kind, bool waits) noexcept {
  struct flock lock {};
  lock.l_type = kind;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(part);
  lock.l_len = 1;
  int result = 0;
  do {
    result = fcntl(fd, waits ? F_OFD_SETLKW : F_OFD_SETLK, &lock);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

// Of any bytes; no name of a file system is made of them.
std::string hexadecimal(const std::string& text) {
  std::string out;
  for (const char c : text) out += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return out;
}

// Names whose processes ended without closing them.
void remove_abandoned(const Descriptor& folder) {
  for (const std::string& name : entries(folder)) {
    const Descriptor file(::openat(folder.get(), name.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (file && set_lock(file.get(), Part::change, F_WRLCK, false) &&
        set_lock(file.get(), Part::presence, F_WRLCK, false)) {
      (void)::unlinkat(folder.get(), name.c_str(), 0);
    }
  }
}

}  // namespace

struct SharedAddresses::Header {
  std::uint32_t magic, version;
  std::atomic<std::uint64_t> count, removals;
};

Result<std::unique_ptr<SharedAddresses>> SharedAddresses::open(const std::string& scope,
                                                               const std::string& name,
                                                               bool read_only) {
  if (name.empty() || name.size() > kLongestName) {
    return Status{Code::invalid, fmt::format("opening an address vector failed: {}: a name has 1 "
                                             "to {} bytes",
                                             name, kLongestName)};
  }
  const std::string path = fmt::format("{}/turnout-av-{}", runtime_folder(), ::geteuid());
  auto folder = open_private(path, !read_only);
  if (!folder.ok()) return folder.status();
  const Status absent{Code::invalid,
                      fmt::format("opening an address vector failed: {}: no process has it open; "
                                  "open it without FI_READ first",
                                  name)};
  if (!folder.value()) return absent;
  remove_abandoned(folder.value());
  const std::string file_name = hexadecimal(scope + '/' + name);
  const auto failed = [&](const char* what) {
    return folder_failure(what, path + '/' + file_name, errno);
  };
  if (file_name.size() > NAME_MAX) {
    return Status{Code::invalid, "opening an address vector failed: names too long: " + name};
  }
  for (int attempt = 0; attempt < kOpenTries; ++attempt) {
    Descriptor file(::openat(folder.value().get(), file_name.c_str(),
                             O_RDWR | O_CLOEXEC | O_NOFOLLOW | (read_only ? 0 : O_CREAT), 0600));
    if (!file && errno == ENOENT && read_only) return absent;
    if (!file) return failed("open");
    if (!set_lock(file.get(), Part::change, F_WRLCK, true)) return failed("lock");
    struct stat info {};
    if (::fstat(file.get(), &info) != 0) return failed("stat");
    if (info.st_nlink == 0) continue;  // its last user has just gone
    const bool is_new = set_lock(file.get(), Part::presence, F_WRLCK, false);
    if (is_new && read_only) {
      (void)::unlinkat(folder.value().get(), file_name.c_str(), 0);
      return absent;
    }
    const auto allocate = [&] { return (errno = posix_fallocate(file.get(), 0, kPage)) == 0; };
    if (is_new && (!set_size(file.get(), 0) || !set_size(file.get(), kFileSize) || !allocate())) {
      return failed("size");
    }
    if (!is_new && static_cast<std::size_t>(info.st_size) != kFileSize) {
      return Status{Code::version, "opening an address vector failed: " + name +
                                       ": of another version of Turnout; let its processes end"};
    }
    void* const memory = ::mmap(nullptr, kFileSize, read_only ? PROT_READ : PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_NORESERVE, file.get(), 0);
    if (memory == MAP_FAILED) return failed("map");
    const int fd = file.get();
    std::unique_ptr<SharedAddresses> made(new SharedAddresses(
        std::move(folder).value(), std::move(file), file_name, memory, read_only));
    Header& header = made->header();
    if (is_new) {
      header.version = kFileVersion;
      header.magic = kFileMagic;
    } else if (header.magic != kFileMagic || header.version != kFileVersion) {
      return Status{Code::version, "opening an address vector failed: " + name +
                                       ": of another version of Turnout; let its processes end"};
    }
    if (!set_lock(fd, Part::presence, F_RDLCK, true)) return failed("lock");
    (void)set_lock(fd, Part::change, F_UNLCK, true);
    return made;
  }
  return Status{Code::system, "opening an address vector failed: " + name + ": it comes and goes"};
}

SharedAddresses::SharedAddresses(Descriptor folder, Descriptor file, std::string file_name,
                                 void* memory, bool readable_only) noexcept
    : read_only(readable_only),
      folder_(std::move(folder)),
      file_(std::move(file)),
      file_name_(std::move(file_name)),
      memory_(memory) {}

SharedAddresses::~SharedAddresses() {
  (void)::munmap(memory_, kFileSize);
  if (set_lock(file_.get(), Part::change, F_WRLCK, true) &&
      set_lock(file_.get(), Part::presence, F_WRLCK, false)) {
    (void)::unlinkat(folder_.get(), file_name_.c_str(), 0);
  }
}

std::uint64_t SharedAddresses::count() const noexcept {
  return std::min(header().count.load(std::memory_order_acquire), kMost);
}

std::uint64_t SharedAddresses::removals() const noexcept {
  return header().removals.load(std::memory_order_acquire);
}

std::byte* SharedAddresses::place(std::uint64_t index) const noexcept {
  assert(index < kMost);
  return static_cast<std::byte*>(memory_) + kAddressesAt + index * sizeof(Address);
}

Address SharedAddresses::at(std::uint64_t index) const noexcept {
  Address address;
  std::memcpy(static_cast<void*>(&address), place(index), sizeof address);
  return address;
}

void* SharedAddresses::names() const noexcept {
  return static_cast<std::byte*>(memory_) + kNamesAt;
}

SharedAddresses::Hold::Hold(const SharedAddresses& of) noexcept
    : fd_(of.file_.get()), error_(set_lock(fd_, Part::change, F_WRLCK, true) ? 0 : errno) {}

SharedAddresses::Hold::~Hold() {
  if (error_ == 0) (void)set_lock(fd_, Part::change, F_UNLCK, true);
}

// Pages are allocated before they are written, as there may be none left.
int SharedAddresses::append(const Address& address) noexcept {
  assert(!read_only);
  const std::uint64_t index = count();
  if (index == kMost) return FI_ENOMEM;
  constexpr std::uint64_t kNamesOfPage = kPage / sizeof(fi_addr_t);
  constexpr std::uint64_t kAddressesOfPage = kPage / sizeof(Address);
  const auto allocate = [&](std::size_t at) {
    return posix_fallocate(file_.get(), static_cast<off_t>(at), kPage) == 0;
  };
  if (index % kNamesOfPage == 0 && !allocate(kNamesAt + index * sizeof(fi_addr_t)))
    return FI_ENOMEM;
  if (index % kAddressesOfPage == 0 && !allocate(kAddressesAt + index * sizeof(Address)))
    return FI_ENOMEM;
  static_cast<fi_addr_t*>(names())[index] = index;
  std::memcpy(place(index), &address, sizeof address);
  header().count.store(index + 1, std::memory_order_release);
  return 0;
}

void SharedAddresses::remove(std::uint64_t index) noexcept {
  assert(!read_only);
  auto& address = *reinterpret_cast<Address*>(place(index));
  std::atomic_ref(address.magic).store(0, std::memory_order_relaxed);
  header().removals.fetch_add(1, std::memory_order_release);
}

}  // namespace turnout::provider
