// SPDX-License-Identifier: BSD-3-Clause
// EagerLimit: whether messages that are long for a ring use rendezvous, by what both took so far.
//
// Where the sender's processor carries out a post (the virtual adapter), an eager message takes two
// copies that overlap in part, a rendezvous one copy and a round trip. Which is faster depends on
// the machine's caches, on the size, and on what is under way: for a message alone, the time until
// the receiver has it counts, two copies one after the other; in a stream of them, what each adds,
// the longer one. For each size class, a power of two, this keeps a mean of either kind for both
// cases. The first messages try both, then the faster is chosen, and the other one is tried again
// now and then.
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
  // In a stream so many in a row: what one adds is seen from the one before it.
  static constexpr std::uint32_t kRun = 8;

  // For the next message of so many bytes. `alone`: the receiver has taken what was sent before.
  [[nodiscard]] bool takes_rendezvous(std::size_t bytes, bool alone) noexcept {
    Class& c = of(bytes);
    return alone ? c.alone.next(1, kFirst) : c.stream.next(kRun, kRun);
  }
  // An eager message in so many parts was posted within `time`. The receiver copies each part while
  // the next one is posted.
  void eager_took(std::size_t bytes, std::size_t parts, Nanoseconds time, bool alone) noexcept {
    assert(parts > 0);
    Class& c = of(bytes);
    if (!alone) return add(c.stream.eager, time);
    add(c.alone.eager, time + time / static_cast<Nanoseconds>(parts));
  }
  // Alone: from the send until the receiver had read the message.
  void rendezvous_took(std::size_t bytes, Nanoseconds time) noexcept {
    add(of(bytes).alone.rendezvous, time);
  }
  // In a stream: from when the receiver had read the message before it, until it had read this one.
  void rendezvous_added(std::size_t bytes, Nanoseconds time) noexcept {
    add(of(bytes).stream.rendezvous, time);
  }
  // The bytes above which messages alone use rendezvous, as far as is known; 0: nothing is.
  [[nodiscard]] std::size_t limit() const noexcept {
    std::size_t found = 0;
    for (std::size_t i = kClasses; i-- > 0;) {
      const Choice& alone = classes_[i].alone;
      if (alone.eager.samples + alone.rendezvous.samples == 0) continue;
      if (!alone.takes_rendezvous()) return kLeast << (i + 1);
      found = kLeast << i;
    }
    return found;
  }

 private:
  struct Kind {
    Nanoseconds mean = 0;  // 0: none yet
    std::uint32_t samples = 0;
  };
  struct Choice {
    Kind eager, rendezvous;
    std::uint32_t tried = 0;  // of the first attempts
    std::uint32_t since = 0;  // messages since the slower kind

    [[nodiscard]] bool takes_rendezvous() const noexcept {
      return rendezvous.mean != 0 && rendezvous.mean < eager.mean;
    }
    // `first` attempts of either, then the faster, now and then the other: `run` in a row.
    [[nodiscard]] bool next(std::uint32_t run, std::uint32_t first) noexcept {
      if (tried < 2 * first) return tried++ / run % 2 != 0;
      const bool rendezvous_is_faster = takes_rendezvous();
      const Nanoseconds less = rendezvous_is_faster ? rendezvous.mean : eager.mean;
      const Nanoseconds more = rendezvous_is_faster ? eager.mean : rendezvous.mean;
      const std::uint32_t apart = more / 2 < less ? kOften : kSeldom;
      if (++since < apart * run) return rendezvous_is_faster;
      if (since >= (apart + 1) * run - 1) since = 0;
      return !rendezvous_is_faster;
    }
  };
  struct Class {
    Choice alone, stream;
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
