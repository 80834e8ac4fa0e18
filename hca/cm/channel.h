// SPDX-License-Identifier: BSD-3-Clause
// Event channels: the queues behind rdma_get_cm_event(3).
//
// A channel's descriptor is an epoll descriptor with the sockets of the channel's identifiers, a
// timer for their deadlines and an eventfd that is readable while events are queued. It is readable
// exactly when there is work, so a program may poll it and set O_NONBLOCK on it. The library has no
// thread: arrivals are handled by the caller of rdma_get_cm_event and by the calls that change an
// identifier's state.
//
// One lock, state_lock(), protects all state of the library; its sections are short and never
// block. Functions here require it unless noted. The user owns a channel from
// rdma_create_event_channel() to rdma_destroy_event_channel(); an identifier without one
// (synchronous, rdma_create_id(3)) owns a private channel.
#pragma once

#include <rdma/rdma_cma.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>

#include "base/file_descriptor.h"

namespace turnout::cm {

struct Id;
struct Group;
using Clock = std::chrono::steady_clock;
using Lock = std::unique_lock<std::mutex>;

[[nodiscard]] std::mutex& state_lock();
// Signalled, under the lock, whenever an event is acknowledged.
[[nodiscard]] std::condition_variable& acknowledged();

// Events of later rdma-core than these headers are of.
inline constexpr int kAddrinfoResolved = RDMA_CM_EVENT_TIMEWAIT_EXIT + 1;
inline constexpr int kUserEvent = kAddrinfoResolved + 2;

// What an event is of, later ones too: an int, as rdma_cm_event_type cannot hold those.
[[nodiscard]] inline int type_of(const rdma_cm_event& event) noexcept {
  int type;
  static_assert(sizeof type == sizeof event.event);
  std::memcpy(&type, &event.event, sizeof type);
  return type;
}

// An event: of the channel until it is taken, then the user's until rdma_ack_cm_event().
struct Event {
  rdma_cm_event verbs{};   // first: the user's pointer is to it
  Id* owner = nullptr;     // who cannot be destroyed before it is acknowledged
  Group* group = nullptr;  // of MULTICAST_JOIN: likewise
  std::uint8_t private_data[256] = {};
};

struct Channel {
  rdma_event_channel verbs{};  // first: the user's pointer is to it; the epoll descriptor
  Descriptor wake, timer;
  std::deque<std::unique_ptr<Event>> queue;
  std::multimap<Clock::time_point, Id*> deadlines;
  unsigned waiters = 0;    // threads in next_event()
  bool destroyed = false;  // by the user: the last of them frees it
  ~Channel();
};

inline Channel& channel_of(rdma_event_channel* c) {
  return *reinterpret_cast<Channel*>(c);
}

// Null and errno on failure. Needs no lock.
[[nodiscard]] std::unique_ptr<Channel> make_channel();

// A descriptor of the caller's makes the channel's readable, too; the channel ignores it. errno or
// 0. Needs no lock.
[[nodiscard]] int watch_beside(Channel& channel, int fd);

// The user is done with it. Programs do that under the feet of a thread that waits for events,
// which with a kernel just goes on waiting: so it does here. Without the lock.
void destroy_channel(Channel* channel);

// Appends an event about `id`, whose channel it goes to. type: rdma_cm_event_type, or a later one,
// which that type cannot hold.
Event& queue_event(Id& id, int type, int status = 0);

// Reports messages for `id`'s socket on its channel from now on; ends that. errno or 0.
[[nodiscard]] int watch(Id& id);
void unwatch(Id& id);
// One deadline for each identifier; the latest call counts.
void set_deadline(Id& id, Clock::duration from_now);
void clear_deadline(Id& id);

// Moves the identifier, its socket, deadline and queued events to another channel.
void move_to(Id& id, Channel& to);
// Drops queued events about `id`, and the identifiers of its requests nobody has been told of; with
// a group, only events about that.
void drop_events(Id& id, const Group* group = nullptr);

// Works off all that is readable and due. Does not wait.
void progress(Channel& channel);

// Takes the next event; waits for one unless the descriptor has O_NONBLOCK. -1 and errno: EAGAIN,
// EINTR. Without the lock.
[[nodiscard]] int next_event(Channel& channel, Event** event);
// Frees an event the user had. Without the lock.
void acknowledge(Event* event);

}  // namespace turnout::cm
