// SPDX-License-Identifier: BSD-3-Clause
#include "hca/cm/channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "hca/cm/connection.h"
#include "hca/cm/identifier.h"
#include "hca/cm/multicast.h"

namespace turnout::cm {
namespace {

// In an epoll entry: neither is an identifier's address. kWake is also there for what needs no
// work.
void* const kWake = nullptr;
void* timer_tag(Channel& c) {
  return &c;
}

int watch_fd(Channel& c, int fd, void* tag) {
  epoll_event e{};
  e.events = EPOLLIN;
  e.data.ptr = tag;
  return epoll_ctl(c.verbs.fd, EPOLL_CTL_ADD, fd, &e) == 0 ? 0 : errno;
}

void arm(Channel& c) {
  itimerspec when{};  // zero disarms it, and forgets an expiry that was not read
  if (!c.deadlines.empty()) {
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                        c.deadlines.begin()->first.time_since_epoch())
                        .count();
    when.it_value.tv_sec = ns / 1'000'000'000;
    when.it_value.tv_nsec = ns % 1'000'000'000;
  }
  timerfd_settime(c.timer.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

void show_empty(Channel& c) {
  eventfd_t ignored;
  eventfd_read(c.wake.get(), &ignored);
}

void append(Channel& c, std::unique_ptr<Event> event) {
  c.queue.push_back(std::move(event));
  if (c.queue.size() == 1) eventfd_write(c.wake.get(), 1);
}

// Takes the queued events out that `chosen` says.
template <class Chosen>
std::vector<std::unique_ptr<Event>> extract(Channel& c, const Chosen& chosen) {
  std::vector<std::unique_ptr<Event>> taken;
  for (auto& event : c.queue) {
    if (chosen(*event)) taken.push_back(std::move(event));
  }
  std::erase(c.queue, nullptr);
  if (!taken.empty() && c.queue.empty()) show_empty(c);
  return taken;
}

// What the real library does when an event is taken, not when it happens. False: there is none.
bool deliver(Event& event) {
  Id& owner = *event.owner;
  if (type_of(event.verbs) == RDMA_CM_EVENT_CONNECT_REQUEST) {
    Id& child = id_of(event.verbs.id);
    child.verbs.context = owner.verbs.context;
    if (owner.synchronous()) {
      auto own = make_channel();
      if (own == nullptr) {
        retire(child);
        delete &child;
        return false;
      }
      move_to(child, *own);
      child.own_channel = std::move(own);
    }
  }
  if (type_of(event.verbs) == RDMA_CM_EVENT_MULTICAST_JOIN) deliver_join(event);
  ++owner.unacknowledged;
  if (event.group != nullptr) ++event.group->unacknowledged;
  return true;
}

// Counts a thread that waits; also when pthread_cancel() ends the waiting.
class Waiter {
 public:
  explicit Waiter(Channel& c) : channel_(c) {
    const std::lock_guard guard(state_lock());
    ++c.waiters;
  }
  ~Waiter() {
    const std::lock_guard guard(state_lock());
    if (--channel_.waiters == 0 && channel_.destroyed) delete &channel_;
  }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

 private:
  Channel& channel_;
};

}  // namespace

std::mutex& state_lock() {
  static std::mutex mutex;
  return mutex;
}

std::condition_variable& acknowledged() {
  static auto* one = new std::condition_variable;  // threads may wait while the process exits
  return *one;
}

Channel::~Channel() {
  if (verbs.fd >= 0) close(verbs.fd);
}

std::unique_ptr<Channel> make_channel() {
  auto c = std::make_unique<Channel>();
  c->verbs.fd = above_standard(epoll_create1(EPOLL_CLOEXEC));
  if (c->verbs.fd < 0) return nullptr;
  c->wake = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  c->timer = Descriptor(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!c->wake || !c->timer) return nullptr;
  if (watch_fd(*c, c->wake.get(), kWake) != 0 || watch_fd(*c, c->timer.get(), timer_tag(*c)) != 0) {
    return nullptr;
  }
  return c;
}

int watch_beside(Channel& c, int fd) {
  return watch_fd(c, fd, kWake);
}

Event& queue_event(Id& id, int type, int status) {
  auto event = std::make_unique<Event>();
  event->verbs.id = &id.verbs;
  std::memcpy(&event->verbs.event, &type, sizeof type);
  event->verbs.status = status;
  event->owner = &id;
  Event& e = *event;
  append(*id.channel, std::move(event));
  return e;
}

int watch(Id& id) {
  if (id.watched) return 0;
  const int error = watch_fd(*id.channel, id.socket.get(), &id);
  id.watched = error == 0;
  return error;
}

void unwatch(Id& id) {
  if (!id.watched) return;
  epoll_ctl(id.channel->verbs.fd, EPOLL_CTL_DEL, id.socket.get(), nullptr);
  id.watched = false;
}

void set_deadline(Id& id, Clock::duration from_now) {
  Channel& c = *id.channel;
  if (id.deadline) c.deadlines.erase(*id.deadline);
  id.deadline = c.deadlines.emplace(Clock::now() + from_now, &id);
  arm(c);
}

void clear_deadline(Id& id) {
  if (!id.deadline) return;
  id.channel->deadlines.erase(*id.deadline);
  id.deadline.reset();
  arm(*id.channel);
}

void move_to(Id& id, Channel& to) {
  Channel& from = *id.channel;
  if (&from == &to) return;
  const bool watched = id.watched;
  unwatch(id);
  std::optional<Clock::time_point> due;
  if (id.deadline) due = (*id.deadline)->first;
  clear_deadline(id);
  id.channel = &to;
  id.verbs.channel = &to.verbs;
  if (watched && watch(id) != 0) queue_event(id, RDMA_CM_EVENT_CONNECT_ERROR, -ENOMEM);
  if (due) set_deadline(id, *due - Clock::now());
  for (const auto& child : id.silent) move_to(*child, to);

  std::vector<Id*> told;  // identifiers of requests whose event moves
  for (auto& event : extract(from, [&](const Event& e) { return e.owner == &id; })) {
    if (event->verbs.id != &id.verbs) told.push_back(&id_of(event->verbs.id));
    append(to, std::move(event));
  }
  for (Id* child : told) move_to(*child, to);
}

void drop_events(Id& id, const Group* group) {
  const auto chosen = [&](const Event& e) {
    return e.owner == &id && (group == nullptr || e.group == group);
  };
  for (const auto& event : extract(*id.channel, chosen)) {
    if (event->verbs.id == &id.verbs) continue;
    Id* const child = &id_of(event->verbs.id);
    retire(*child);
    delete child;
  }
}

void progress(Channel& c) {
  epoll_event ready[32];
  const int n = epoll_wait(c.verbs.fd, ready, 32, 0);
  bool due = false;
  for (int i = 0; i < n; ++i) {
    if (ready[i].data.ptr == kWake) continue;
    if (ready[i].data.ptr == timer_tag(c)) {
      due = true;
    } else {
      work(*static_cast<Id*>(ready[i].data.ptr));  // frees itself at most
    }
  }
  if (!due) return;
  // Last: it may free identifiers that have an entry above.
  const auto now = Clock::now();
  while (!c.deadlines.empty() && c.deadlines.begin()->first <= now) {
    Id& id = *c.deadlines.begin()->second;
    c.deadlines.erase(c.deadlines.begin());
    id.deadline.reset();
    expire(id);
  }
  arm(c);
}

void destroy_channel(Channel* c) {
  const std::lock_guard guard(state_lock());
  c->destroyed = true;
  if (c->waiters == 0) delete c;
}

int next_event(Channel& c, Event** event) {
  const Waiter waiter(c);
  for (;;) {
    std::unique_lock lock(state_lock());
    if (c.queue.empty()) progress(c);
    while (!c.queue.empty()) {
      std::unique_ptr<Event> next = std::move(c.queue.front());
      c.queue.pop_front();
      if (c.queue.empty()) show_empty(c);
      if (!deliver(*next)) continue;
      *event = next.release();
      return 0;
    }
    const int flags = fcntl(c.verbs.fd, F_GETFL);
    if (flags < 0) return -1;
    if ((flags & O_NONBLOCK) != 0) return failure(EAGAIN);
    pollfd readable{c.verbs.fd, POLLIN, 0};
    lock.unlock();
    if (poll(&readable, 1, -1) < 0) return -1;
  }
}

void acknowledge(Event* event) {
  const std::lock_guard guard(state_lock());
  --event->owner->unacknowledged;
  if (event->group != nullptr) --event->group->unacknowledged;
  delete event;
  acknowledged().notify_all();
}

}  // namespace turnout::cm
