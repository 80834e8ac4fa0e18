// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/engine.h"

#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <map>
#include <mutex>

#include "base/launcher.h"
#include "base/settings.h"
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

Result<LiveEngine*> LiveEngine::open(Context& context, const std::string& name) {
  auto loaded = Settings::load(UnknownNames::ignore);  // the provider's copy warns
  if (!loaded) return loaded.status();
  const Settings& settings = loaded.value();
  Result<FaultPlan> plan =
      FaultPlan::parse(settings.fault, settings.fault.empty() ? -1 : launcher_identity().rank);
  if (!plan) return plan.status();
  auto opened = Fabric::open(name.empty() ? settings.fabric : name, settings.fabric_size);
  if (!opened) return opened.status();
  std::shared_ptr<Fabric> fabric = opened.value();
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  LiveEngine*& slot = all.engines[fabric->label()];
  // A fork's child finds its parent's, whose thread is not here.
  if (slot == nullptr || slot->fabric_ != fabric) {
    std::unique_ptr<LiveEngine> engine(new LiveEngine(fabric, std::move(plan.value())));
    if (Status s = engine->start(); !s) {
      slot = nullptr;
      return s;
    }
    slot = engine.release();
  }
  if (!open_event_pipe(context.verbs.context.async_fd, context.async_write, context.async)) {
    return Status(Code::system, "creating the pipe for asynchronous events failed", errno);
  }
  context.objects = &slot->objects_;
  context.data_path =
      slot->faults_.active() ? static_cast<DataPath*>(&slot->faulty_data_path_) : &slot->data_path_;
  context.pid = getpid();
  ++slot->contexts_;
  slot->faults_.add(context);
  fork_guard_add(context);
  return slot;
}

Status LiveEngine::start() {
  if (Status s = local_.start(); !s) return s;
  watch_forks();
  faults_.start();
  if (Status s = firmware_.start(); !s) return s;
  // Peers begin to watch this process.
  fabric_->wake_all();
  return {};
}

std::mutex& LiveEngine::open_mutex() noexcept {
  return registry().mutex;
}

void LiveEngine::stop() noexcept {
  firmware_.stop();
  if (fabric_->pid() == getpid()) faults_.summarize();
}

void LiveEngine::close(Context& context) {
  fork_guard_remove(context);
  if (context.pid == getpid()) {
    faults_.remove(context);
    ::close(context.verbs.context.async_fd);
    ::close(context.async_write);
  }
  Registry& all = registry();
  LiveEngine* gone = nullptr;
  std::shared_ptr<Fabric> fabric;  // leaves after the engine
  {
    const std::lock_guard lock(all.mutex);
    assert(contexts_ > 0);
    if (--contexts_ == 0) {
      gone = this;
      fabric = fabric_;
      const auto known = all.engines.find(fabric_->label());
      if (known != all.engines.end() && known->second == this) all.engines.erase(known);
    }
  }
  delete gone;
}

void LiveObjectVerbs::close(Context& context) {
  engine_.close(context);
}

}  // namespace turnout::hca
