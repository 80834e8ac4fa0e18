// SPDX-License-Identifier: BSD-3-Clause
// next_function(): what a function of ours stands in front of.
//
// A library that is preloaded is found before all others, but what it stands in front of may be out
// of its own sight: MPI libraries load their transports with dlopen, privately. The caller sees it:
// it is looked up as the caller would [dlsym(3), dlopen(3)].
//
// Any thread. No errors: null, there is none.
#pragma once

#include <dlfcn.h>

#include <cstring>

namespace turnout::record {

struct NextFunction {
  void* address = nullptr;
  bool own = false;  // the caller is the library that has it: an internal call
};

[[nodiscard]] inline NextFunction next_function(const char* name, const void* caller) {
  NextFunction next;
  Dl_info calling{}, found{};
  if (::dladdr(caller, &calling) != 0 && calling.dli_fname != nullptr) {
    void* object = ::dlopen(calling.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (object == nullptr) object = ::dlopen(nullptr, RTLD_LAZY);  // the program itself
    if (object != nullptr) {
      next.address = ::dlsym(object, name);
      ::dlclose(object);
    }
  }
  Dl_info us{};
  const auto ours = [&] {
    return next.address != nullptr && ::dladdr(next.address, &found) != 0 &&
           ::dladdr(reinterpret_cast<const void*>(&next_function), &us) != 0 &&
           found.dli_fbase == us.dli_fbase;
  };
  if (next.address == nullptr || ours()) next.address = ::dlsym(RTLD_NEXT, name);
  if (next.address != nullptr && ::dladdr(next.address, &found) != 0) {
    next.own = found.dli_fbase == calling.dli_fbase;
  }
  return next;
}

}  // namespace turnout::record
