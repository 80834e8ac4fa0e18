// SPDX-License-Identifier: BSD-3-Clause
// What tests need of the world outside: a folder of their own, variables set for a while, what was
// written to a descriptor. One thread.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

namespace turnout::test {

// Removed with everything in it.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "turnout-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "no folder for the test";
    path_ = pattern;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  std::string file(const std::string& name, const std::string& content) const {
    const auto path = path_ / name;
    std::ofstream(path, std::ios::binary) << content;
    return path.string();
  }

 private:
  std::filesystem::path path_;
};

inline std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Sets (or with nullopt unsets) an environment variable, and restores it.
class Variable {
 public:
  Variable(std::string name, std::optional<std::string> value) : name_(std::move(name)) {
    if (const char* old = std::getenv(name_.c_str())) old_ = old;
    put(value);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { put(old_); }

 private:
  void put(const std::optional<std::string>& value) const {
    if (value) {
      ::setenv(name_.c_str(), value->c_str(), 1);
    } else {
      ::unsetenv(name_.c_str());
    }
  }
  std::string name_;
  std::optional<std::string> old_;
};

// Takes what is written to a standard stream until text() or the end.
class Captured {
 public:
  Captured(int fd, FILE* stream)
      : path_(folder_.path() / "captured"), fd_(fd), stream_(stream), saved_(::dup(fd)) {
    std::fflush(stream_);
    const int file = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND, 0600);
    ::dup2(file, fd_);
    ::close(file);
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;
  ~Captured() { restore(); }
  std::string text() {
    restore();
    return content_of(path_);
  }

 private:
  void restore() {
    if (saved_ < 0) return;
    std::fflush(stream_);
    ::dup2(saved_, fd_);
    ::close(saved_);
    saved_ = -1;
  }
  Folder folder_;
  std::filesystem::path path_;
  int fd_;
  FILE* stream_;
  int saved_;
};

class CapturedStderr : public Captured {
 public:
  CapturedStderr() : Captured(STDERR_FILENO, stderr) {}
};

class CapturedStdout : public Captured {
 public:
  CapturedStdout() : Captured(STDOUT_FILENO, stdout) {}
};

}  // namespace turnout::test
