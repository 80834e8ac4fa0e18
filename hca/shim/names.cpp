// SPDX-License-Identifier: BSD-3-Clause
// What turns paths into other paths: links, real paths, the working folder.
#include <fcntl.h>
#include <unistd.h>

#include <cstddef>

#include "hca/shim/real.h"

using namespace turnout::shim;

extern "C" {

ssize_t shim_readlink(const char* path, char* to, std::size_t space) TURNOUT_SHIM("readlink");
ssize_t shim_readlink(const char* path, char* to, std::size_t space) {
  return redirect(AT_FDCWD, path, [=](const char* p) {
    return call_real<ssize_t>(Function::readlink, p, to, space);
  });
}
ssize_t shim_readlink_chk(const char* path, char* to, std::size_t space, std::size_t there)
    TURNOUT_SHIM("__readlink_chk");
ssize_t shim_readlink_chk(const char* path, char* to, std::size_t space, std::size_t there) {
  return redirect(AT_FDCWD, path, [=](const char* p) {
    return call_real<ssize_t>(Function::__readlink_chk, p, to, space, there);
  });
}
ssize_t shim_readlinkat(int folder, const char* path, char* to, std::size_t space)
    TURNOUT_SHIM("readlinkat");
ssize_t shim_readlinkat(int folder, const char* path, char* to, std::size_t space) {
  return redirect(folder, path, [=](const char* p) {
    return call_real<ssize_t>(Function::readlinkat, folder, p, to, space);
  });
}
ssize_t shim_readlinkat_chk(int folder, const char* path, char* to, std::size_t space,
                            std::size_t there) TURNOUT_SHIM("__readlinkat_chk");
ssize_t shim_readlinkat_chk(int folder, const char* path, char* to, std::size_t space,
                            std::size_t there) {
  return redirect(folder, path, [=](const char* p) {
    return call_real<ssize_t>(Function::__readlinkat_chk, folder, p, to, space, there);
  });
}

char* shim_realpath(const char* path, char* to) TURNOUT_SHIM("realpath");
char* shim_realpath(const char* path, char* to) {
  return shown(redirect(
      AT_FDCWD, path, [=](const char* p) { return call_real<char*>(Function::realpath, p, to); }));
}
char* shim_realpath_chk(const char* path, char* to, std::size_t there)
    TURNOUT_SHIM("__realpath_chk");
char* shim_realpath_chk(const char* path, char* to, std::size_t there) {
  return shown(redirect(AT_FDCWD, path, [=](const char* p) {
    return call_real<char*>(Function::__realpath_chk, p, to, there);
  }));
}
char* shim_canonicalize_file_name(const char* path) TURNOUT_SHIM("canonicalize_file_name");
char* shim_canonicalize_file_name(const char* path) {
  return shown(redirect(AT_FDCWD, path, [](const char* p) {
    return call_real<char*>(Function::canonicalize_file_name, p);
  }));
}

int shim_chdir(const char* path) TURNOUT_SHIM("chdir");
int shim_chdir(const char* path) {
  return redirect(AT_FDCWD, path, [](const char* p) { return call_real<int>(Function::chdir, p); });
}

char* shim_getcwd(char* to, std::size_t space) TURNOUT_SHIM("getcwd");
char* shim_getcwd(char* to, std::size_t space) {
  return shown(call_real<char*>(Function::getcwd, to, space));
}
char* shim_getcwd_chk(char* to, std::size_t space, std::size_t there) TURNOUT_SHIM("__getcwd_chk");
char* shim_getcwd_chk(char* to, std::size_t space, std::size_t there) {
  return shown(call_real<char*>(Function::__getcwd_chk, to, space, there));
}

}  // extern "C"
