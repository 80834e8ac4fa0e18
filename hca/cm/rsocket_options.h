// SPDX-License-Identifier: BSD-3-Clause
// The options of an rsocket: sizes of its queues and buffers, and flags that rsetsockopt() and
// rgetsockopt() keep. rsocket(7), socket(7), tcp(7).
//
// Plain values; those of one socket under its mutex. Defaults come from the files in
// /etc/rdma/rsocket that rsocket(7) names, where they exist. Errors are errno values.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <vector>

namespace turnout::cm {

struct RsocketOptions {
  std::uint32_t send_queue = 384, receive_queue = 384, inline_data = 64, iomaps = 0;
  std::uint32_t send_buffer = 128U << 10, receive_buffer = 128U << 10;
  bool reuse_address = false, keep_alive = false, oob_inline = false, no_delay = false,
       v6_only = false;
  linger lingering{};
  int keep_idle = 7200, keep_interval = 75, keep_count = 9;  // seconds, seconds, probes: tcp(7)
  std::vector<std::uint8_t> route;                           // ibv_path_data: one path is as good
};

// Read once for the process.
[[nodiscard]] const RsocketOptions& default_options();
// How long a call looks for data before it sleeps, in microseconds.
[[nodiscard]] std::uint32_t polling_time();

// Sizes are clamped, as a kernel does; once a socket has its queues they are accepted and change
// nothing. ENOPROTOOPT for an option that is not known.
[[nodiscard]] int set_option(RsocketOptions& options, bool has_queues, int level, int name,
                             const void* value, socklen_t length);
[[nodiscard]] int get_option(const RsocketOptions& options, int level, int name, void* value,
                             socklen_t* length);

// For the options that are answered elsewhere.
[[nodiscard]] int give_option(const void* from, std::size_t size, void* value, socklen_t* length);

}  // namespace turnout::cm
