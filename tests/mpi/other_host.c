// SPDX-License-Identifier: BSD-3-Clause
// Preloaded into a process: libfabric believes it to be on another host than processes whose rank
// divided by two is another. For lnx.py: what links shared memory with this provider then uses
// both.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int gethostname(char* name, size_t length) {
  int (*real)(char*, size_t);
  *(void**)&real = dlsym(RTLD_NEXT, "gethostname");
  const char* const rank = getenv("OMPI_COMM_WORLD_RANK");
  Dl_info caller;
  if (rank == NULL || dladdr(__builtin_return_address(0), &caller) == 0 ||
      caller.dli_fname == NULL || strstr(caller.dli_fname, "libfabric.so") == NULL) {
    return real(name, length);
  }
  snprintf(name, length, "host%d", atoi(rank) / 2);
  return 0;
}
