// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/engine.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "base/log.h"
#include "base/settings.h"
#include "base/signal_free_thread.h"
#include "hca/live/fork_guard.h"

namespace turnout::hca {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, LiveEngine*> engines;  // by label of the fabric
};
Registry& registry() {
  static auto* one = new Registry;  // contexts may be closed by exit handlers
  return *one;
}

// A process may end with its devices open.
struct ExitHook {
  ~ExitHook() {
    {
      Registry& all = registry();
      const std::unique_lock lock(all.mutex, std::try_to_lock);
      if (lock.owns_lock()) {
        for (auto& [label, engine] : all.engines) {
          if (engine != nullptr) engine->stop();
        }
      }
    }
    Fabric::leave_all_at_exit();
  }
} exit_hook;

}  // namespace

LiveEngine::LiveEngine(std::shared_ptr<Fabric> fabric)
    : fabric_(std::move(fabric)), memory_(*fabric_) {}

Result<LiveEngine*> LiveEngine::open(Context& context, const std::string& name) {
  auto loaded = Settings::load(UnknownNames::ignore);  // the provider's copy warns
  if (!loaded) return loaded.status();
  const Settings& settings = loaded.value();
  auto opened = Fabric::open(name.empty() ? settings.fabric : name, settings.fabric_size);
  if (!opened) return opened.status();
  std::shared_ptr<Fabric> fabric = opened.value();
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  LiveEngine*& slot = all.engines[fabric->label()];
  // A fork's child finds its parent's, whose thread is not here.
  if (slot == nullptr || slot->fabric_ != fabric) {
    std::unique_ptr<LiveEngine> engine(new LiveEngine(fabric));
    if (Status s = engine->start(); !s) {
      slot = nullptr;
      return s;
    }
    slot = engine.release();
  }
  int ends[2];
  struct stat st {};
  if (pipe2(ends, O_CLOEXEC) != 0 || fstat(ends[1], &st) != 0) {
    return Status(Code::system, "creating the pipe for asynchronous events failed", errno);
  }
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  context.verbs.context.async_fd = ends[0];
  context.async_write = ends[1];
  context.async = PipeRef{st.st_ino, ends[1], 0};
  context.objects = slot;
  context.data_path = slot;
  context.pid = getpid();
  ++slot->contexts_;
  fork_guard_add(context);
  return slot;
}

Status LiveEngine::start() {
  void* p = mmap(nullptr, kMaxQps * sizeof(std::atomic<Qp*>), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return Status(Code::system, "allocating the queue pair table failed", errno);
  qps_ = static_cast<std::atomic<Qp*>*>(p);
  watch_forks();
  Result<std::thread> firmware =
      start_signal_free_thread("turnout-hca", [this] { firmware_main(); });
  if (!firmware.ok()) return firmware.status();
  firmware_ = std::move(*firmware);
  // Peers begin to watch this process.
  fabric_->wake_all();
  return {};
}

void LiveEngine::before_fork() {
  registry().mutex.lock();
}
void LiveEngine::after_fork() {
  registry().mutex.unlock();
}

void LiveEngine::stop() noexcept {
  if (!firmware_.joinable()) return;
  if (fabric_->pid() == getpid()) {
    stop_.store(true, std::memory_order_release);
    fabric_->wake(fabric_->me());
    firmware_.join();
  } else {
    firmware_.detach();  // a fork's child has no such thread
  }
}

LiveEngine::~LiveEngine() {
  stop();
  if (qps_ != nullptr) munmap(qps_, kMaxQps * sizeof(std::atomic<Qp*>));
}

void LiveEngine::close(Context& context) {
  fork_guard_remove(context);
  if (context.pid == getpid()) {
    ::close(context.verbs.context.async_fd);
    ::close(context.async_write);
  }
  Registry& all = registry();
  LiveEngine* gone = nullptr;
  std::shared_ptr<Fabric> fabric;  // leaves after the engine
  {
    const std::lock_guard lock(all.mutex);
    if (--contexts_ == 0) {
      gone = this;
      fabric = fabric_;
      const auto known = all.engines.find(fabric_->label());
      if (known != all.engines.end() && known->second == this) all.engines.erase(known);
    }
  }
  delete gone;
}

bool LiveEngine::executes(std::uint32_t index) noexcept {
  {
    // Of our own the record may say anything: who executes holds sq_lock.
    const std::lock_guard lock(objects_mutex_);
    if (Qp* qp = qps_[index].load(std::memory_order_acquire); qp != nullptr) {
      if (!qp->sq_lock.try_lock()) return true;
      qp->sq_lock.unlock();
      return false;
    }
  }
  const Token owner = fabric_->qp(index).owner.load();
  return owner != fabric_->me() && fabric_->alive(owner);
}

void LiveEngine::wait_unused(std::uint32_t key, std::uint32_t number, const Qp* held) noexcept {
  // Of a queue pair that executes nothing: another value is damage, and others might wait for it.
  if (held != nullptr) held->hazard->store(0, std::memory_order_relaxed);
  // The invalidation before, the look at the hazards after: see executor.cpp.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const std::uint32_t high = std::min(fabric_->header().qp_high.load(), kMaxQps);
  for (std::uint32_t i = kFirstQp; i < high; ++i) {
    const Hazard& hazard = fabric_->hazard(i);
    for (int round = 0;; ++round) {
      const std::uint64_t h = hazard.load(std::memory_order_seq_cst);
      const bool busy = (key != 0 && static_cast<std::uint32_t>(h) == key) ||
                        (number != 0 && static_cast<std::uint32_t>(h >> 32) == number);
      if (!busy) break;
      if (round < 100) {
        __builtin_ia32_pause();
        continue;
      }
      const timespec nap{0, 20'000};
      nanosleep(&nap, nullptr);
      if (round % 64 == 0 && !executes(i)) break;
    }
  }
}

void LiveEngine::wait_untaken(std::uint32_t srq) noexcept {
  const std::uint32_t high = std::min(fabric_->header().qp_high.load(), kMaxQps);
  for (std::uint32_t i = kFirstQp; i < high; ++i) {
    const QpRecord& q = fabric_->qp(i);
    constexpr std::uint32_t kOfSrq = 2;
    // What the record says of the receive stands since before `taken` does.
    for (int round = 0; q.taken.load(std::memory_order_acquire) == kOfSrq && q.taken_index == srq &&
                        q.taken_owner == fabric_->me();
         ++round) {
      if (round < 100) {
        __builtin_ia32_pause();
        continue;
      }
      const timespec nap{0, 20'000};
      nanosleep(&nap, nullptr);
      // What a dead one had taken must be put back before the record has another queue.
      if (round % 64 != 0 || executes(i)) continue;
      fabric_->reap(q.owner.load());
      break;
    }
  }
}

}  // namespace turnout::hca
