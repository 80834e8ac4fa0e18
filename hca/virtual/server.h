// SPDX-License-Identifier: BSD-3-Clause
// Server: a link, or one direction of PCI Express, which carries data at its bandwidth, first come
// first served; Stream: data on their way from server to server, packet by packet.
//
// A server forwards a packet when it has it whole, so that the transfers of one message on all
// servers overlap. It is busy for its own work only: where the data come slowly, others go between.
// Picoseconds; plain values, one thread.
#pragma once

#include <algorithm>

#include "hca/virtual/profile.h"

namespace turnout::hca {

// When a message's first packet and its last one are there, whole.
struct Stream {
  Picoseconds head = 0, tail = 0;

  void shift(Picoseconds by) noexcept {
    head += by;
    tail += by;
  }
};

// A server's work on the first packet of a message, on its last one, on all of them.
struct PacketTimes {
  Picoseconds first = 0, last = 0, all = 0;
};

class Server {
 public:
  [[nodiscard]] Stream pass(Stream in, const PacketTimes& work) noexcept {
    const Picoseconds begin = std::max(free_, in.head);
    free_ = begin + work.all;
    return {begin + work.first, std::max(free_, in.tail + work.last)};
  }
  // Of a link that the sender's link feeds through a switch: it forwards bits, not packets.
  [[nodiscard]] Stream cut_through(Stream in, const PacketTimes& work) noexcept {
    return pass({in.head - work.first, in.tail - work.last}, work);
  }

 private:
  Picoseconds free_ = 0;
};

}  // namespace turnout::hca
