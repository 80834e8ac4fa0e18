// SPDX-License-Identifier: BSD-3-Clause
#include "hca/cm/rsocket_options.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <rdma/rsocket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

namespace turnout::cm {
namespace {

struct Limits {
  std::uint32_t least, most;
};
// The adapter has queues of 16,384 entries, of which a socket keeps some to itself.
constexpr Limits kQueue{16, 8192}, kInline{0, 512}, kBuffer{4096, 1U << 30}, kIomaps{0, 4096};

std::uint32_t clamp_to(Limits limits, std::int64_t value) {
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(value, limits.least, limits.most));
}

// One number in a file; `value` as it is where there is none.
void read_default(const char* name, Limits limits, std::uint32_t& value) {
  const std::string path = std::string("/etc/rdma/rsocket/") + name;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"),
                                                             std::fclose);
  long long number = 0;
  if (file != nullptr && std::fscanf(file.get(), "%lld", &number) == 1) {
    value = clamp_to(limits, number);
  }
}

RsocketOptions read_defaults() {
  RsocketOptions o;
  read_default("mem_default", kBuffer, o.receive_buffer);
  read_default("wmem_default", kBuffer, o.send_buffer);
  read_default("sqsize_default", kQueue, o.send_queue);
  read_default("rqsize_default", kQueue, o.receive_queue);
  read_default("inline_default", kInline, o.inline_data);
  read_default("iomap_size", kIomaps, o.iomaps);
  return o;
}

int number_in(const void* value, socklen_t length, int& number) {
  if (value == nullptr) return EFAULT;
  if (length < sizeof number) return EINVAL;
  std::memcpy(&number, value, sizeof number);
  return 0;
}

// Where an option keeps its number, for each kind of number there is.
struct Place {
  bool* flag = nullptr;
  int* number = nullptr;
  std::uint32_t* size = nullptr;
  Limits limits{};
};

Place socket_place(RsocketOptions& o, int name) {
  switch (name) {
    case SO_REUSEADDR:
      return {.flag = &o.reuse_address};
    case SO_KEEPALIVE:
      return {.flag = &o.keep_alive};
    case SO_OOBINLINE:
      return {.flag = &o.oob_inline};
    case SO_RCVBUF:
      return {.size = &o.receive_buffer, .limits = kBuffer};
    case SO_SNDBUF:
      return {.size = &o.send_buffer, .limits = kBuffer};
    default:
      return {};
  }
}

Place tcp_place(RsocketOptions& o, int name) {
  switch (name) {
    case TCP_NODELAY:
      return {.flag = &o.no_delay};
    case TCP_KEEPIDLE:
      return {.number = &o.keep_idle};
    case TCP_KEEPINTVL:
      return {.number = &o.keep_interval};
    case TCP_KEEPCNT:
      return {.number = &o.keep_count};
    default:
      return {};
  }
}

Place rdma_place(RsocketOptions& o, int name) {
  switch (name) {
    case RDMA_SQSIZE:
      return {.size = &o.send_queue, .limits = kQueue};
    case RDMA_RQSIZE:
      return {.size = &o.receive_queue, .limits = kQueue};
    case RDMA_INLINE:
      return {.size = &o.inline_data, .limits = kInline};
    case RDMA_IOMAPSIZE:
      return {.size = &o.iomaps, .limits = kIomaps};
    default:
      return {};
  }
}

Place place_of(RsocketOptions& o, int level, int name) {
  if (level == SOL_SOCKET) return socket_place(o, name);
  if (level == IPPROTO_TCP) return tcp_place(o, name);
  if (level == SOL_RDMA) return rdma_place(o, name);
  if (level == IPPROTO_IPV6 && name == IPV6_V6ONLY) return {.flag = &o.v6_only};
  return {};
}

int set_linger(RsocketOptions& o, const void* value, socklen_t length) {
  if (value == nullptr) return EFAULT;
  if (length < sizeof o.lingering) return EINVAL;
  std::memcpy(&o.lingering, value, sizeof o.lingering);
  return 0;
}

int set_route_option(RsocketOptions& o, const void* value, socklen_t length) {
  if (value == nullptr || length == 0 || length % sizeof(ibv_path_data) != 0) return EINVAL;
  const auto* bytes = static_cast<const std::uint8_t*>(value);
  o.route.assign(bytes, bytes + length);
  return 0;
}

}  // namespace

const RsocketOptions& default_options() {
  static const RsocketOptions* const defaults = new RsocketOptions(read_defaults());
  return *defaults;
}

std::uint32_t polling_time() {
  static const std::uint32_t microseconds = [] {
    std::uint32_t value = 10;
    read_default("polling_time", {0, 1'000'000}, value);
    return value;
  }();
  return microseconds;
}

int set_option(RsocketOptions& o, bool has_queues, int level, int name, const void* value,
               socklen_t length) {
  if (level == SOL_SOCKET && name == SO_LINGER) return set_linger(o, value, length);
  if (level == SOL_RDMA && name == RDMA_ROUTE) return set_route_option(o, value, length);
  const Place place = place_of(o, level, name);
  int number = 0;
  if (place.flag == nullptr && place.number == nullptr && place.size == nullptr) {
    return ENOPROTOOPT;
  }
  if (const int error = number_in(value, length, number); error != 0) return error;
  if (place.flag != nullptr) *place.flag = number != 0;
  if (place.number != nullptr) {
    if (number <= 0) return EINVAL;
    *place.number = number;
  }
  if (place.size != nullptr && !has_queues) *place.size = clamp_to(place.limits, number);
  return 0;
}

int get_option(const RsocketOptions& options, int level, int name, void* value, socklen_t* length) {
  RsocketOptions o = options;
  if (level == SOL_SOCKET && name == SO_LINGER) {
    return give_option(&o.lingering, sizeof o.lingering, value, length);
  }
  if (level == SOL_RDMA && name == RDMA_ROUTE) {
    return give_option(o.route.data(), o.route.size(), value, length);
  }
  const Place place = place_of(o, level, name);
  int number = 0;
  if (place.flag != nullptr) {
    number = *place.flag ? 1 : 0;
  } else if (place.number != nullptr) {
    number = *place.number;
  } else if (place.size != nullptr) {
    number = static_cast<int>(*place.size);
  } else {
    return ENOPROTOOPT;
  }
  return give_option(&number, sizeof number, value, length);
}

int give_option(const void* from, std::size_t size, void* value, socklen_t* length) {
  if (value == nullptr || length == nullptr) return EFAULT;
  const std::size_t given = std::min<std::size_t>(size, *length);
  if (given != 0) std::memcpy(value, from, given);
  *length = static_cast<socklen_t>(given);
  return 0;
}

}  // namespace turnout::cm
