// SPDX-License-Identifier: BSD-3-Clause
// What the files below /sys/class/infiniband/turnout0/ports/1 say that `turnout verbs` shows: the
// command asks for the names, and the shim for the value whenever one is opened.
#include "hca/live/port_counters.h"

#include <cstring>

#include "base/settings.h"
#include "hca/device/export.h"

// Null: there are no more.
TURNOUT_EXPORT const char* turnout_counter_name(unsigned index) {
  const auto all = turnout::hca::port_counters();
  return index < all.size() ? all[index].name : nullptr;
}

// Of the fabric that the environment names. False: there is no such counter.
TURNOUT_EXPORT bool turnout_counter(const char* name, std::uint64_t* value) {
  for (const auto& counter : turnout::hca::port_counters()) {
    if (std::strcmp(counter.name, name) != 0) continue;
    const auto settings = turnout::Settings::load(turnout::UnknownNames::ignore);
    *value = settings ? counter.value(turnout::hca::read_traffic(settings.value().fabric)) : 0;
    return true;
  }
  return false;
}
