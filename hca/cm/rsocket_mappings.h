// SPDX-License-Identifier: BSD-3-Clause
// Buffers of the program that riomap() has mapped to a stream rsocket. rsocket(7).
//
// Owns the registrations; the peer learns of what it may write through the channel. Under the mutex
// of the socket. Errors are errno values.
#pragma once

#include <infiniband/verbs.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "hca/cm/rsocket_channel.h"

namespace turnout::cm {

class RsocketMappings {
 public:
  RsocketMappings() = default;
  RsocketMappings(const RsocketMappings&) = delete;
  RsocketMappings& operator=(const RsocketMappings&) = delete;
  ~RsocketMappings();

  // `offset` -1: the buffer's address; the one chosen is written back. ENOMEM: the peer keeps no
  // more mappings.
  [[nodiscard]] int map(ibv_pd* pd, RsocketChannel& channel, void* buffer, std::size_t length,
                        int protection, off_t& offset);
  [[nodiscard]] int unmap(RsocketChannel& channel, const void* buffer, std::size_t length);

 private:
  struct Mapping {
    ibv_mr* mr = nullptr;
    std::uint64_t index = 0;
    bool remote = false;
  };
  std::list<Mapping> mappings_;
  std::vector<bool> used_;  // places in the peer's table
};

}  // namespace turnout::cm
