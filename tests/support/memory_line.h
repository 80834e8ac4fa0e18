// SPDX-License-Identifier: BSD-3-Clause
// What a report says of one kind of memory.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "core/endpoint.h"
#include "core/memory/account.h"
#include "core/report/report.h"

namespace turnout {

inline MemoryLine memory_line(const EndpointReport& report, MemoryKind kind) {
  for (const MemoryLine& line : report.memory) {
    if (line.kind == name(kind)) return line;
  }
  ADD_FAILURE() << "no line of " << name(kind);
  return {};
}

// Of all receives that stand: shared ones and those of queue pairs' own.
inline std::uint64_t receive_bytes(const Endpoint& endpoint) {
  return memory_line(endpoint.report(), MemoryKind::receive_buffers).now;
}

}  // namespace turnout
