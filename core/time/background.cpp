// SPDX-License-Identifier: BSD-3-Clause
#include "core/time/background.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/signal_free_thread.h"

namespace turnout {
namespace {

class BackgroundThread final : public Background {
 public:
  // Not `threaded`: jobs run in start().
  explicit BackgroundThread(bool threaded) noexcept : threaded_(threaded) {}
  ~BackgroundThread() override {
    {
      const std::lock_guard guard(mutex_);
      ends_ = true;
    }
    wanted_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

  void start(std::unique_ptr<Job> job) override {
    if (!thread_.joinable() && !make_thread()) {
      job->run();
      const std::lock_guard guard(mutex_);
      end(std::move(job));
      return;
    }
    {
      const std::lock_guard guard(mutex_);
      const auto at = std::find_if(started_.begin(), started_.end(),
                                   [&](const auto& other) { return other->rank() > job->rank(); });
      started_.insert(at, std::move(job));
    }
    wanted_.notify_one();
  }

  std::unique_ptr<Job> done() override {
    if (!any_done_.load(std::memory_order_acquire)) return nullptr;
    const std::lock_guard guard(mutex_);
    std::unique_ptr<Job> job = std::move(done_.front());
    done_.pop_front();
    any_done_.store(!done_.empty(), std::memory_order_release);
    return job;
  }

 private:
  // Where no thread can be had, jobs run in start().
  bool make_thread() {
    if (!threaded_) return false;
    Result<std::thread> made = start_signal_free_thread("turnout-setup", [this] { main(); });
    if (!made.ok()) {
      TURNOUT_LOG(connection, warn,
                  "starting the connection thread failed: {}; queue pairs are created in the "
                  "calling thread",
                  made.status().text());
      return false;
    }
    thread_ = std::move(*made);
    return true;
  }

  void main() {
    std::unique_lock guard(mutex_);
    while (true) {
      wanted_.wait(guard, [this] { return ends_ || !started_.empty(); });
      if (ends_) return;
      std::unique_ptr<Job> job = std::move(started_.front());
      started_.pop_front();
      guard.unlock();
      job->run();
      guard.lock();
      end(std::move(job));
    }
  }

  void end(std::unique_ptr<Job> job) {
    done_.push_back(std::move(job));
    any_done_.store(true, std::memory_order_release);
  }

  const bool threaded_;
  std::mutex mutex_;
  std::condition_variable wanted_;
  std::deque<std::unique_ptr<Job>> started_, done_;
  std::atomic<bool> any_done_ = false;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Background> make_background(bool threaded) {
  return std::make_unique<BackgroundThread>(threaded);
}

}  // namespace turnout
