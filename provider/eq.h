// SPDX-License-Identifier: BSD-3-Clause
// EventQueue: libfabric's fid_eq. Events of control operations (asynchronous insertion into a
// vector, connections) and events written by the program. Owned by the program (fi_close). Has its
// own lock: any thread may call; who holds other locks of ours has a LateSignals around them. Waits
// on a condition variable. Source: fi_eq(3).
#pragma once

#include <rdma/fi_eq.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "provider/fabric.h"
#include "provider/library.h"
#include "provider/wait_set.h"

namespace turnout::provider {

struct EventQueue final : Object<EventQueue, fid_eq> {
  explicit EventQueue(Fabric& owner) : fabric(owner) { fabric.references.fetch_add(1); }
  ~EventQueue() {
    wait.leave();
    fabric.references.fetch_sub(1);
  }

  struct Event {
    std::uint32_t number;
    std::vector<std::byte> data;
    ::fid* endpoint = nullptr;  // whose connection it is about
    InfoPtr info;               // the program's once it has read the event
  };
  struct Failure {
    fi_eq_err_entry entry;
    std::vector<std::byte> data;  // the peer's
  };

  Fabric& fabric;
  bool may_write = false;  // the program passed FI_WRITE
  bool may_wait = false;
  std::atomic<unsigned> users{0};  // endpoints that report here
  std::mutex mutex;
  std::condition_variable arrived;
  std::deque<Event> events;
  std::deque<Failure> errors;
  std::vector<std::byte> error_data;  // of the error that was read last
  WaitHandle wait;

  void push(std::uint32_t number, const void* data, std::size_t length) {
    const auto* const bytes = static_cast<const std::byte*>(data);
    add(events, Event{number, {bytes, bytes + length}, nullptr, nullptr});
  }
  // An insertion of `context` into `vector` ended: `inserted` of them went well, each index in
  // `failed` did not.
  void push_insertion(::fid* vector, void* context, std::uint64_t inserted,
                      const std::vector<std::pair<std::uint64_t, int>>& failed);
  // FI_CONNREQ, FI_CONNECTED, FI_SHUTDOWN of `endpoint`; who reads the event owns `info`.
  void push_connection(std::uint32_t number, ::fid* endpoint, fi_info* info,
                       std::span<const std::byte> data);
  // What is about this endpoint is dropped.
  void forget(const ::fid* endpoint) noexcept;
  // `endpoint` could not be connected: a positive FI_E*.
  void push_failure(::fid* endpoint, int error, std::span<const std::byte> data);
  // A read would find something. Precondition: mutex held.
  [[nodiscard]] bool has_news() const noexcept { return !events.empty() || !errors.empty(); }
  // Takes the first event if it fits. Precondition: mutex held. -FI_EAGAIN, -FI_EAVAIL,
  // -FI_ETOOSMALL or the bytes written.
  ssize_t take(std::uint32_t* number, void* buffer, std::size_t length, std::uint64_t flags);

  static int open(Fabric& fabric, fi_eq_attr* attr, fid_eq** eq, void* context);

 private:
  // To `events` or `errors`; wakes who waits.
  template <class One>
  void add(std::deque<One>& queue, One&& one) {
    const bool late = wait && LateSignals::leave(wait.shared());
    {
      const std::lock_guard hold(mutex);
      queue.push_back(std::move(one));
    }
    arrived.notify_one();
    if (wait && !late) wait->signal_once();
  }
};

}  // namespace turnout::provider
