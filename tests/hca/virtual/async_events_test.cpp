// SPDX-License-Identifier: BSD-3-Clause
#include "hca/virtual/async_events.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "tests/hca/virtual/adapter_parts.h"

namespace turnout::hca::test {
namespace {

struct Raised : AdapterParts {
  Raised() { profile.processor_interrupt = 100; }
  void raise(Context& context, std::uint32_t& read) {
    ibv_async_event event{};
    event.event_type = IBV_EVENT_CQ_ERR;
    events.raise(context, event, &read);
  }
  std::uint32_t read = 0;
  ibv_async_event got{};
};

TEST(AsyncEvents, AProcessKnowsAfterAnInterrupt) {
  Raised parts;
  parts.raise(parts.contexts[1], parts.read);
  EXPECT_EQ(parts.events.take(parts.contexts[1], parts.got), EAGAIN);
  const Event notified = parts.next();
  EXPECT_EQ(notified.kind, EventKind::notify);
  EXPECT_EQ(notified.argument, 1U);
  EXPECT_EQ(parts.events.take(parts.contexts[0], parts.got), EAGAIN);
  EXPECT_EQ(parts.events.take(parts.contexts[1], parts.got), 0);
  EXPECT_EQ(parts.got.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(parts.read, 1U);
  EXPECT_EQ(parts.events.take(parts.contexts[1], parts.got), EAGAIN);
}

TEST(AsyncEvents, ForgetsThoseOfAnObjectAndOfAContext) {
  Raised parts;
  std::uint32_t other = 0;
  parts.raise(parts.contexts[0], parts.read);
  parts.raise(parts.contexts[0], other);
  parts.raise(parts.contexts[1], other);
  while (parts.next().kind == EventKind::notify) {
  }
  parts.events.forget(&parts.read);
  parts.events.forget(parts.contexts[1]);
  EXPECT_EQ(parts.events.take(parts.contexts[0], parts.got), 0);
  EXPECT_EQ(parts.read, 0U);
  EXPECT_EQ(other, 1U);
  EXPECT_EQ(parts.events.take(parts.contexts[0], parts.got), EAGAIN);
  EXPECT_EQ(parts.events.take(parts.contexts[1], parts.got), EAGAIN);
}

}  // namespace
}  // namespace turnout::hca::test
