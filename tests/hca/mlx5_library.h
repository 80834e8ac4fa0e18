// SPDX-License-Identifier: BSD-3-Clause
// Mlx5Library: what rdma-core's libmlx5 does with the emulated device (hca/mlx5/), by hand:
// commands with every byte in the test's own hand, queues in the test's own memory, doorbells.
//
// The device is called in this process, without the shim: a handler of SIGBUS gives it the faults.
// An Mlx5Library owns its command file and its memory; the objects end with the file. One thread
// for each, except where a test has two threads post to two queue pairs. Helpers fail the running
// gtest. Sources: rdma/ib_user_verbs.h, rdma/mlx5-abi.h, infiniband/mlx5dv.h.
#pragma once

#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "hca/mlx5/device_calls.h"
#include "tests/hca/rig.h"

namespace turnout::hca::test {

// The device's functions; from the first call on this process has the handler.
[[nodiscard]] const Mlx5DeviceCalls& mlx5_device();
// Descriptors that the device has said to be its own.
[[nodiscard]] std::size_t mlx5_descriptors();

[[nodiscard]] inline std::uint64_t address_of(const void* at) noexcept {
  return reinterpret_cast<std::uint64_t>(at);
}

// Zeroed pages, and nothing behind them.
class Pages {
 public:
  explicit Pages(std::size_t bytes);
  ~Pages();
  Pages(Pages&& other) noexcept : at_(other.at_), bytes_(other.bytes_) { other.at_ = nullptr; }
  Pages(const Pages&) = delete;
  Pages& operator=(Pages&& other) noexcept {
    std::swap(at_, other.at_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  [[nodiscard]] std::byte* at(std::size_t offset = 0) const noexcept { return at_ + offset; }
  [[nodiscard]] std::uint64_t address(std::size_t offset = 0) const noexcept {
    return address_of(at_ + offset);
  }
  [[nodiscard]] std::string_view text(std::size_t offset, std::size_t bytes) const noexcept {
    return {reinterpret_cast<const char*>(at_ + offset), bytes};
  }
  void put(std::size_t offset, std::string_view text) const noexcept {
    std::memcpy(at_ + offset, text.data(), text.size());
  }

 private:
  std::byte* at_;
  std::size_t bytes_;
};

// A request of a send queue, segment by segment.
class Mlx5Wqe {
 public:
  explicit Mlx5Wqe(std::uint8_t opcode, std::uint32_t imm = 0,
                   std::uint8_t flags = MLX5_WQE_CTRL_CQ_UPDATE);
  template <class Segment>
  Mlx5Wqe& add(const Segment& segment) {
    const auto* const from = reinterpret_cast<const std::byte*>(&segment);
    bytes.insert(bytes.end(), from, from + sizeof segment);
    return *this;
  }
  Mlx5Wqe& remote(std::uint64_t address, std::uint32_t rkey);
  Mlx5Wqe& atomic(std::uint64_t swap_add, std::uint64_t compare = 0);
  Mlx5Wqe& data(std::uint64_t address, std::uint32_t length, std::uint32_t lkey);
  Mlx5Wqe& inline_data(std::string_view text);
  // UD: key is the Q key; DC: the access key.
  Mlx5Wqe& datagram(std::uint32_t number, std::uint64_t key, bool extended, bool dc);
  // UD to a GID: the port's, or a group's.
  Mlx5Wqe& global(std::uint32_t number, std::uint32_t qkey, const ibv_gid& gid);
  Mlx5Wqe& shared_queue(std::uint32_t srqn);
  // Segments of 16 bytes that the control segment tells; 0: as many as there are.
  Mlx5Wqe& says(std::uint8_t units) {
    units_ = units;
    says_ = true;
    return *this;
  }
  [[nodiscard]] std::uint8_t units() const noexcept;

  std::vector<std::byte> bytes;

 private:
  std::uint8_t units_ = 0;
  bool says_ = false;
};

struct Mlx5Mr {
  std::uint32_t handle = 0, lkey = 0, rkey = 0;
};

class Mlx5Library;

// A completion queue in memory of the test.
class Mlx5CompletionQueue {
 public:
  Mlx5CompletionQueue(Mlx5Library& library, std::uint32_t entries, std::uint32_t stride,
                      std::int32_t channel, bool unchecked);
  // The next entry; false: there is none.
  [[nodiscard]] bool poll(mlx5_cqe64& to);
  // Waits for it.
  [[nodiscard]] mlx5_cqe64 wait();
  // Tells the device how far it was polled.
  void tell() const noexcept;
  void arm(bool solicited = false);
  // In another buffer. 0 or errno. The entries that were there are still to be polled.
  [[nodiscard]] int resize(std::uint32_t entries, std::uint32_t stride = 64);
  [[nodiscard]] int destroy(ib_uverbs_destroy_cq_resp& answer);

  std::uint32_t handle = 0, number = 0, cqe = 0;
  std::uint32_t consumed = 0;

 private:
  [[nodiscard]] bool look(mlx5_cqe64& to) const;
  Mlx5Library& library_;
  struct Buffer {
    Pages* pages;
    std::uint32_t entries, stride;
  };
  std::vector<Buffer> buffers_;  // the one in use, and what it was resized to
  std::size_t current_ = 0;
  Pages& doorbell_;
  std::uint32_t armed_ = 0;
};

// A shared receive queue: a list of entries.
class Mlx5SharedQueue {
 public:
  Mlx5SharedQueue(Mlx5Library& library, std::uint32_t max_wr, std::uint32_t limit = 0,
                  const std::uint32_t* xrc = nullptr);
  // Takes the head of the free list. Returns its index.
  std::uint16_t post(std::uint64_t address, std::uint32_t length, std::uint32_t lkey);
  // Back into the list, behind its end.
  void release(std::uint16_t index);
  [[nodiscard]] int modify(std::uint32_t limit);
  [[nodiscard]] int destroy(std::uint32_t& events);

  std::uint32_t handle = 0, number = 0, entries;

 private:
  [[nodiscard]] mlx5_wqe_srq_next_seg& head_of(std::uint16_t index) const;
  Mlx5Library& library_;
  Pages &buffer_, &doorbell_;
  std::uint16_t head_ = 0, tail_, posted_ = 0;
};

struct Mlx5QpOptions {
  std::uint8_t type = IBV_QPT_RC;
  std::uint32_t flags = 0;  // MLX5_QP_FLAG_*
  std::uint32_t sends = 16, receives = 16, shift = 5;
  Mlx5CompletionQueue *send_cq = nullptr, *receive_cq = nullptr;  // null: the library's
  Mlx5SharedQueue* srq = nullptr;
  std::uint32_t xrcd = 0;
  std::uint64_t access_key = 0;
};

class Mlx5QueuePair {
 public:
  Mlx5QueuePair(Mlx5Library& library, const Mlx5QpOptions& options = {});
  // Into the send queue, not rung. Returns the block that it begins at.
  std::uint16_t put(const Mlx5Wqe& wqe);
  void ring() const;
  std::uint16_t post(const Mlx5Wqe& wqe) {
    const std::uint16_t at = put(wqe);
    ring();
    return at;
  }
  void receive(std::uint64_t address, std::uint32_t length, std::uint32_t lkey);
  // Counts of the doorbell record.
  void set_posted(std::uint32_t sends) noexcept;
  void set_received(std::uint32_t receives) noexcept;
  [[nodiscard]] std::byte* send_ring() const noexcept { return buffer_.at(receive_bytes_); }
  // Its program gives the memory back before it destroys the queue pair.
  void drop_memory() noexcept { buffer_ = Pages(64); }
  [[nodiscard]] std::uint32_t posted() const noexcept { return posted_; }

  void connect(std::uint32_t peer, const ConnectOptions& options = {});
  [[nodiscard]] int modify(std::uint8_t state);
  [[nodiscard]] ibv_qp_state state();
  [[nodiscard]] int destroy();

  std::uint32_t handle = 0, number = 0, events = 0;
  std::uint32_t user_index;

 private:
  [[nodiscard]] int modify(ib_uverbs_ex_modify_qp request, int mask);
  Mlx5Library& library_;
  Mlx5QpOptions options_;
  std::size_t receive_bytes_;
  Pages &buffer_, &doorbell_;
  std::uint16_t posted_ = 0, received_ = 0;
};

class Mlx5Library {
 public:
  // A context with a domain and a completion queue, unless `bare`: then only the file.
  // devx: it may speak to the firmware.
  explicit Mlx5Library(bool bare = false, bool devx = false);
  ~Mlx5Library();
  Mlx5Library(const Mlx5Library&) = delete;
  Mlx5Library& operator=(const Mlx5Library&) = delete;

  // Memory of queues: it is there until the library ends, as long as the device may look at it.
  Pages& keep(std::size_t bytes) {
    const std::lock_guard lock(kept_mutex_);
    return kept_.emplace_back(bytes);
  }
  // Closes the command file, or both descriptors, before the end.
  void close_commands();

  // A command as the library writes it. 0 or errno.
  template <class Request, class Answer, class Driver, class DriverAnswer>
  int call(std::uint32_t number, Request request, Answer* answer, const Driver* driver,
           DriverAnswer* driver_answer) {
    std::vector<std::byte> out(size_of(answer) + size_of(driver_answer));
    if constexpr (requires { request.response; }) request.response = address_of(out.data());
    std::vector<std::byte> bytes(sizeof(ib_uverbs_cmd_hdr));
    append(bytes, &request);
    append(bytes, driver);
    bytes.resize((bytes.size() + 3) / 4 * 4);
    const ib_uverbs_cmd_hdr head{number, static_cast<std::uint16_t>(bytes.size() / 4),
                                 static_cast<std::uint16_t>(out.size() / 4)};
    std::memcpy(bytes.data(), &head, sizeof head);
    return finish(bytes, out, answer, driver_answer);
  }
  template <class Request, class Answer = std::nullptr_t>
  int call(std::uint32_t number, const Request& request, Answer* answer = nullptr) {
    return call(number, request, answer, static_cast<std::nullptr_t*>(nullptr),
                static_cast<std::nullptr_t*>(nullptr));
  }
  template <class Request, class Answer, class Driver, class DriverAnswer>
  int call_extended(std::uint32_t number, const Request& request, Answer* answer,
                    const Driver* driver, DriverAnswer* driver_answer) {
    std::vector<std::byte> out(size_of(answer) + size_of(driver_answer));
    const ib_uverbs_cmd_hdr head{number | IB_USER_VERBS_CMD_FLAG_EXTENDED,
                                 static_cast<std::uint16_t>(sizeof request / 8),
                                 static_cast<std::uint16_t>(size_of(answer) / 8)};
    const ib_uverbs_ex_cmd_hdr more{address_of(out.data()),
                                    static_cast<std::uint16_t>(size_of(driver) / 8),
                                    static_cast<std::uint16_t>(size_of(driver_answer) / 8), 0};
    std::vector<std::byte> bytes;
    append(bytes, &head);
    append(bytes, &more);
    append(bytes, &request);
    append(bytes, driver);
    return finish(bytes, out, answer, driver_answer);
  }
  // Bytes as they are. 0 or errno.
  [[nodiscard]] int write(const void* bytes, std::size_t count) const;

  [[nodiscard]] Mlx5Mr register_memory(std::uint64_t address, std::uint64_t length,
                                       std::uint32_t access = kFullAccess);
  [[nodiscard]] std::int32_t create_channel();
  [[nodiscard]] std::uint32_t open_xrcd();
  // Waits for the next event of the device.
  [[nodiscard]] ib_uverbs_async_event_desc event() const;
  [[nodiscard]] bool has_event() const { return readable(async_fd, 0); }
  [[nodiscard]] bool has_completion_event(std::int32_t channel) const {
    return readable(channel, 0);
  }
  // The user handle that the event of a channel names.
  [[nodiscard]] std::uint64_t completion_event(std::int32_t channel) const;
  // Eight bytes to a register of the page: a fault that the device sees to.
  void store(std::size_t offset, std::uint32_t first, std::uint32_t second) const noexcept;

  // Four bytes: which queue is meant does not follow from them.
  void store_half(std::size_t offset, std::uint32_t value) const noexcept;

  int fd = -1, async_fd = -1;
  std::uint32_t pd = 0;
  std::atomic<std::uint32_t> next_user_index{1};
  Pages memory{1U << 16};  // registered as `mr`
  Mlx5Mr mr;
  std::vector<Mlx5CompletionQueue> cq;  // one, unless bare

 private:
  template <class T>
  static constexpr std::size_t size_of(const T*) noexcept {
    return std::is_same_v<T, std::nullptr_t> ? 0 : sizeof(T);
  }
  template <class T>
  static void append(std::vector<std::byte>& to, const T* from) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(from);
    if (size_of(from) != 0) to.insert(to.end(), bytes, bytes + sizeof(T));
  }
  template <class Answer, class DriverAnswer>
  int finish(const std::vector<std::byte>& bytes, const std::vector<std::byte>& out, Answer* answer,
             DriverAnswer* driver_answer) const {
    const int error = write(bytes.data(), bytes.size());
    if (error != 0) return error;
    if (size_of(answer) != 0) std::memcpy(static_cast<void*>(answer), out.data(), sizeof(Answer));
    if (size_of(driver_answer) != 0) {
      std::memcpy(static_cast<void*>(driver_answer), out.data() + size_of(answer),
                  sizeof(DriverAnswer));
    }
    return 0;
  }
  void* page_ = nullptr;
  std::mutex kept_mutex_;
  std::deque<Pages> kept_;  // guarded by kept_mutex_
};

// What an entry of a completion queue says.
[[nodiscard]] inline unsigned opcode_of(const mlx5_cqe64& e) noexcept {
  return e.op_own >> 4;
}
[[nodiscard]] inline std::uint8_t syndrome_of(const mlx5_cqe64& e) noexcept {
  return reinterpret_cast<const std::uint8_t*>(&e)[55];
}
[[nodiscard]] inline std::uint16_t counter_of(const mlx5_cqe64& e) noexcept {
  return be16toh(e.wqe_counter);
}

// Two RC queue pairs of one context, connected to each other; receives in 16 KiB of its memory.
struct Mlx5Pair {
  explicit Mlx5Pair(const Mlx5QpOptions& options = {}, const ConnectOptions& connection = {});
  Mlx5Library library;
  Mlx5CompletionQueue send_cq, receive_cq;
  Mlx5QueuePair a, b;
  // a's request ends so; nothing about receives.
  std::uint8_t syndrome(const Mlx5Wqe& wqe) {
    a.post(wqe);
    const mlx5_cqe64 e = send_cq.wait();
    return opcode_of(e) == MLX5_CQE_REQ_ERR ? syndrome_of(e) : 0;
  }
  [[nodiscard]] Mlx5Wqe send(std::size_t offset, std::uint32_t length,
                             std::uint8_t opcode = MLX5_OPCODE_SEND, std::uint32_t imm = 0) const {
    return Mlx5Wqe(opcode, imm).data(library.memory.address(offset), length, library.mr.lkey);
  }
};

}  // namespace turnout::hca::test
