// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/shared_pages.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "hca/device/layout.h"

namespace turnout::hca {
namespace {

// A line of /proc/self/maps.
struct MapLine {
  std::uint64_t start = 0, end = 0, offset = 0, inode = 0;
  unsigned major = 0, minor = 0;
  char rights[5] = {};
  const char* path = "";
  [[nodiscard]] bool is_shared() const noexcept {
    return rights[0] == 'r' && rights[1] == 'w' && rights[3] == 's' && inode != 0;
  }
  // Does `next` show what follows in the file, where this line and those after it end at `here`?
  [[nodiscard]] bool goes_on_in(const MapLine& next, std::uint64_t here) const noexcept {
    return next.start == here && next.offset == offset + (here - start) && next.inode == inode &&
           next.major == major && next.minor == minor && next.is_shared();
  }
};

bool parse(char* text, MapLine& line) noexcept {
  int path = 0;
  if (std::sscanf(text, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %n", &line.start,
                  &line.end, line.rights, &line.offset, &line.major, &line.minor, &line.inode,
                  &path) != 7) {
    return false;
  }
  line.path = text + path;
  return true;
}

// Is this page here, and no file's? Most registered memory is so, and its answer takes one read
// instead of a list of all mappings. False also when that cannot be told.
bool is_ordinary(const void* address) noexcept {
  constexpr std::uint64_t kPresent = std::uint64_t{1} << 63, kOfFile = std::uint64_t{1} << 61;
  const Descriptor fd(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  if (!fd) return false;
  std::uint64_t entry = 0;
  const auto page = reinterpret_cast<std::uintptr_t>(address) / kPage;
  const bool read =
      pread(fd.get(), &entry, sizeof entry, static_cast<off_t>(page * sizeof entry)) ==
      static_cast<ssize_t>(sizeof entry);
  return read && (entry & kPresent) != 0 && (entry & kOfFile) == 0;
}

bool is_file(const struct stat& st, const MapLine& line) noexcept {
  return S_ISREG(st.st_mode) && st.st_ino == line.inode && major(st.st_dev) == line.major &&
         minor(st.st_dev) == line.minor;
}

// `fd` if it is the file of this line; closes it otherwise.
int keep_if_file(int fd, const MapLine& line) noexcept {
  struct stat st {};
  if (fd < 0 || (fstat(fd, &st) == 0 && is_file(st, line))) return fd;
  close(fd);
  return -1;
}

// `path` if it is the file of this line, opened for writing.
int open_file(const char* path, const MapLine& line) noexcept {
  return keep_if_file(::open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), line);
}

// A memfd, or a file whose name is gone: perhaps the program still has it open. Other threads close
// descriptors meanwhile: they are looked at by name, and the copy is looked at once more.
int find_descriptor(const MapLine& line) noexcept {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  if (folder == nullptr) return -1;
  while (const dirent* entry = readdir(folder.get())) {
    struct stat st {};
    if (fstatat(dirfd(folder.get()), entry->d_name, &st, 0) != 0 || !is_file(st, line)) continue;
    const int fd = keep_if_file(fcntl(std::atoi(entry->d_name), F_DUPFD_CLOEXEC, 0), line);
    if (fd >= 0 && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR) return fd;
    if (fd >= 0) close(fd);
  }
  return -1;
}

int open_pages(const MapLine& line) noexcept {
  if (const int fd = line.path[0] == '/' ? open_file(line.path, line) : -1; fd >= 0) return fd;
  if (const int fd = find_descriptor(line); fd >= 0) return fd;
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/map_files/%" PRIx64 "-%" PRIx64, line.start,
                line.end);
  return open_file(path, line);
}

}  // namespace

SharedPages find_shared_pages(const void* address, std::uint64_t length) noexcept {
  const auto first = reinterpret_cast<std::uint64_t>(address);
  if (length == 0 || first > UINT64_MAX - length || is_ordinary(address)) return {};
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> maps(std::fopen("/proc/self/maps", "re"),
                                                             std::fclose);
  if (maps == nullptr) return {};
  char* text = nullptr;
  std::size_t room = 0;
  MapLine line, found;
  char path[4096] = {};
  std::uint64_t end = 0;  // of what was found up to now
  while (getline(&text, &room, maps.get()) > 0) {
    text[std::strcspn(text, "\n")] = '\0';
    if (!parse(text, line)) break;
    if (end == 0) {
      if (line.end <= first) continue;
      if (line.start > first || !line.is_shared() || std::strlen(line.path) >= sizeof path) break;
      std::strcpy(path, line.path);
      found = line;
    } else if (!found.goes_on_in(line, end)) {
      break;
    }
    end = line.end;
    if (end >= first + length) break;
  }
  std::free(text);
  if (end < first + length) return {};
  found.path = path;
  return {open_pages(found), found.offset + (first - found.start)};
}

int SharedFiles::keep(int fd, const struct stat& st) {
  const std::lock_guard lock(mutex_);
  for (File& file : files_) {
    if (file.device != st.st_dev || file.inode != st.st_ino) continue;
    ++file.users;
    close(fd);
    return file.fd.get();
  }
  return files_.emplace_back(File{Descriptor(fd), st.st_dev, st.st_ino, 1}).fd.get();
}

void SharedFiles::release(int fd) noexcept {
  const std::lock_guard lock(mutex_);
  const auto file =
      std::find_if(files_.begin(), files_.end(), [&](const File& f) { return f.fd.get() == fd; });
  if (file == files_.end() || --file->users != 0) return;
  files_.erase(file);
}

}  // namespace turnout::hca
