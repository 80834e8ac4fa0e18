// SPDX-License-Identifier: BSD-3-Clause
// EagerLimit: whether messages that are long for a ring use rendezvous, by what both took so far.
//
// Where the sender's processor carries out a post (the virtual adapter), an eager message takes two
// copies that overlap in part, a rendezvous one copy and a round trip. Which is faster depends on
// the machine's caches, on the size, and on whether the receiver waits for the message. For each
// size class, a power of two, this keeps a mean of either; the first messages take turns, then the
// faster is chosen, and the other one is tried again now and then.
//
// The endpoint owns it; the thread that drives the endpoint calls it.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstdint>

#include "core/state/endpoint_context.h"

namespace turnout {

class EagerLimit {
 public:
  // Messages of more bytes are judged.
  static constexpr std::size_t kLeast = 8 << 10;
  // The last class has all that are longer, up to half of a ring.
  static constexpr std::size_t kClasses = 10;
  // Attempts of either before the means decide.
  static constexpr std::uint32_t kFirst = 4;
  // A message of the slower kind comes after so many of the faster: where it takes less than twice
  // as long, and where not. They find out when the other kind has become faster.
  static constexpr std::uint32_t kOften = 128, kSeldom = 1024;

  // For the next message of so many bytes. `alone`: the receiver has taken what was sent before, so
  // that what this one takes tells something.
  [[nodiscard]] bool takes_rendezvous(std::size_t bytes, bool alone) noexcept {
    Class& c = of(bytes);
    Kind& rarer = c.eager.attempts <= c.rendezvous.attempts ? c.eager : c.rendezvous;
    if (alone && rarer.attempts < kFirst) {
      ++rarer.attempts;
      return &rarer == &c.rendezvous;
    }
    const bool rendezvous = c.takes_rendezvous();
    const Nanoseconds less = rendezvous ? c.rendezvous.mean : c.eager.mean;
    const Nanoseconds more = rendezvous ? c.eager.mean : c.rendezvous.mean;
    if (++c.since < (more / 2 < less ? kOften : kSeldom) || !alone) return rendezvous;
    c.since = 0;
    return !rendezvous;
  }
  // An eager message in so many parts was posted within `time`. The receiver copies each part while
  // the next one is posted.
  void eager_took(std::size_t bytes, std::size_t parts, Nanoseconds time) noexcept {
    assert(parts > 0);
    add(of(bytes).eager, time + time / static_cast<Nanoseconds>(parts));
  }
  // From the send until the receiver had read the message.
  void rendezvous_took(std::size_t bytes, Nanoseconds time) noexcept {
    add(of(bytes).rendezvous, time);
  }
  // The bytes above which messages use rendezvous, as far as is known; 0: nothing is.
  [[nodiscard]] std::size_t limit() const noexcept {
    std::size_t found = 0;
    for (std::size_t i = kClasses; i-- > 0;) {
      if (classes_[i].eager.samples + classes_[i].rendezvous.samples == 0) continue;
      if (!classes_[i].takes_rendezvous()) return kLeast << (i + 1);
      found = kLeast << i;
    }
    return found;
  }

 private:
  struct Kind {
    Nanoseconds mean = 0;  // 0: none yet
    std::uint32_t attempts = 0, samples = 0;
  };
  struct Class {
    Kind eager, rendezvous;
    std::uint32_t since = 0;  // messages since the slower kind

    [[nodiscard]] bool takes_rendezvous() const noexcept {
      return rendezvous.mean != 0 && rendezvous.mean < eager.mean;
    }
  };

  [[nodiscard]] Class& of(std::size_t bytes) noexcept {
    assert(bytes > kLeast);
    const auto index = static_cast<std::size_t>(std::bit_width((bytes - 1) / kLeast)) - 1;
    return classes_[std::min(index, kClasses - 1)];
  }
  // The first ones may register memory, and touch it for the first time: the least of them counts.
  // Later, one that was interrupted counts as one that took four times as long as usual.
  static void add(Kind& kind, Nanoseconds time) noexcept {
    time = std::max<Nanoseconds>(time, 1);
    if (kind.samples < kFirst) {
      kind.mean = kind.samples == 0 ? time : std::min(kind.mean, time);
      ++kind.samples;
    } else {
      kind.mean += (std::min(time, 4 * kind.mean) - kind.mean) / 4;
    }
  }

  std::array<Class, kClasses> classes_;
};

}  // namespace turnout
