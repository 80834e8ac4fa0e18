// SPDX-License-Identifier: BSD-3-Clause
#include "provider/connection_manager.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <utility>
#include <vector>

#include "base/signal_free_thread.h"
#include "provider/connection.h"

namespace turnout::provider {

Result<std::unique_ptr<ConnectionManager>> ConnectionManager::start() {
  const auto failed = [] {
    return Status{Code::system, "creating the descriptors of a connection manager failed", errno};
  };
  Descriptor epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return failed();
  Descriptor stop(eventfd(0, EFD_CLOEXEC));
  if (!stop) return failed();
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = stop.get();
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, stop.get(), &event) != 0) return failed();
  std::unique_ptr<ConnectionManager> made(new ConnectionManager(std::move(epoll), std::move(stop)));
  auto thread = start_signal_free_thread("turnout-cm", [&own = *made] { own.serve(); });
  if (!thread.ok()) return thread.status();
  made->thread_ = std::make_unique<std::thread>(std::move(thread).value());
  return made;
}

ConnectionManager::ConnectionManager(Descriptor epoll, Descriptor stop)
    : epoll_(std::move(epoll)), stop_(std::move(stop)), pid_(getpid()) {}

ConnectionManager::~ConnectionManager() {
  if (getpid() != pid_) {
    static_cast<void>(thread_.release());
    watched_.clear();
    return;
  }
  if (thread_ == nullptr) return;
  const std::uint64_t one = 1;
  while (::write(stop_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
  thread_->join();
  // What still receives a request forgets its socket here.
  decltype(watched_) rest;
  rest.swap(watched_);
}

int ConnectionManager::watch(int fd, std::uint32_t events, std::shared_ptr<Watched> object) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  const std::lock_guard hold(mutex_);
  const bool known = watched_.contains(fd);
  watched_[fd] = std::move(object);
  if (epoll_ctl(epoll_.get(), known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) == 0) return 0;
  const int error = errno;
  watched_.erase(fd);
  return error;
}

void ConnectionManager::close(Descriptor& socket) noexcept {
  if (getpid() == pid_) {
    std::shared_ptr<Watched> object;  // ends without the lock
    {
      const std::lock_guard hold(mutex_);
      static_cast<void>(epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket.get(), nullptr));
      if (const auto found = watched_.find(socket.get()); found != watched_.end()) {
        object = std::move(found->second);
        watched_.erase(found);
      }
    }
    // A child may have the socket, too.
    ::shutdown(socket.get(), SHUT_RDWR);
    socket.reset();
  } else {
    socket.reset();
  }
}

std::unique_lock<std::mutex> ConnectionManager::lock(std::mutex& mutex) const {
  return getpid() == pid_ ? std::unique_lock(mutex) : std::unique_lock<std::mutex>();
}

void ConnectionManager::add_request(::fid* handle, std::shared_ptr<Connection> request) {
  const std::lock_guard hold(mutex_);
  requests_.emplace(handle, std::move(request));
}

std::shared_ptr<Connection> ConnectionManager::take_request(::fid* handle) noexcept {
  const std::lock_guard hold(mutex_);
  const auto found = requests_.find(handle);
  if (found == requests_.end()) return nullptr;
  std::shared_ptr<Connection> request = std::move(found->second);
  requests_.erase(found);
  return request;
}

void ConnectionManager::serve() noexcept {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kTick{1000};
  Clock::time_point next_tick = Clock::now() + kTick;
  for (;;) {
    std::array<epoll_event, 16> events{};
    std::vector<std::shared_ptr<Watched>> all;
    if (Clock::now() >= next_tick) {
      next_tick = Clock::now() + kTick;
      const std::lock_guard hold(mutex_);
      for (const auto& [fd, object] : watched_) all.push_back(object);
    }
    for (const std::shared_ptr<Watched>& object : all) object->tick();
    all.clear();
    const int n = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                             static_cast<int>(kTick.count()));
    if (n < 0 && errno != EINTR) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      continue;
    }
    for (int i = 0; i < n; ++i) {
      const int fd = events[static_cast<std::size_t>(i)].data.fd;
      if (fd == stop_.get()) return;
      std::shared_ptr<Watched> object;
      {
        const std::lock_guard hold(mutex_);
        const auto found = watched_.find(fd);
        if (found != watched_.end()) object = found->second;
      }
      if (object != nullptr) object->ready();
    }
  }
}

}  // namespace turnout::provider
