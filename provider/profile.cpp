// SPDX-License-Identifier: BSD-3-Clause
#include "provider/profile.h"

#include <rdma/fi_atomic.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "core/memory/account.h"
#include "provider/endpoint.h"
#include "provider/errors.h"
#include "provider/ops.h"

namespace turnout::provider {
namespace {

// This thread is within a callback, which has the lock.
thread_local bool calling_back = false;

DomainLock* lock_of(const Profile& profile) noexcept {
  return calling_back ? nullptr : profile.domain.lock;
}

fi_ops profile_fid_ops = object_ops(Profile::close);

// With the names that libfabric has for them.
ProfileDesc variables[] = {
    {kUnexpectedCount, 0, FI_UINT64, 0, sizeof(std::uint64_t), "pvar_unexp_msg_cnt",
     "messages that have arrived and wait for a receive"},
    {kUnexpectedQueue, 1, kCqErrEntryType, 0, sizeof(CqErrEntry120), "pvar_unexp_msg_queue",
     "those messages, the tagged ones first, each kind in its order"},
    {kQueueCount, 0, FI_UINT64, 0, sizeof(std::uint64_t), "pvar_msg_queue_cnt", "queue pairs"},
    {kConnectionCount, 0, FI_UINT64, 0, sizeof(std::uint64_t), "pvar_connection_cnt",
     "reliable connections made so far"},
    {kMemory, 0, FI_UINT64, 0, sizeof(std::uint64_t), "pvar_ofi_mem_alloc(MB)",
     "memory of the endpoints, in MiB"},
};
ProfileDesc events[] = {
    {kUnexpectedArrived, 1, kCqErrEntryType, 0, sizeof(CqErrEntry120), "pevent_unexp_msg_recd",
     "a message arrived that no receive waits for"},
    {kUnexpectedMatched, 1, kCqErrEntryType, 0, sizeof(CqErrEntry120), "pevent_unexp_msg_matched",
     "a receive, or a claim, took such a message"},
};

// As many as there is room for; without a list how many there are.
template <std::size_t kCount>
ssize_t list(const ProfileDesc (&all)[kCount], ProfileDesc* out, std::size_t* count) noexcept {
  if (count == nullptr) return -FI_EINVAL;
  const std::size_t n = out != nullptr ? std::min(*count, kCount) : 0;
  if (out != nullptr) std::copy_n(all, n, out);
  *count = kCount;
  return static_cast<ssize_t>(n);
}

CqErrEntry120 entry_of(Ep& ep, const TakenMessage& message) {
  CqErrEntry120 entry{};
  entry.base.flags = entry_flags(kRecv | (message.tagged ? kTagged : kMessage) |
                                 (message.has_remote_data ? kRemoteData : 0u));
  entry.base.len = message.length;
  entry.base.data = message.remote_data;
  entry.base.tag = message.tag;
  entry.src_addr = ep.path.peers.source_of(message.peer);
  return entry;
}

}  // namespace

ProfileOps Profile::profile_ops = {
    .size = sizeof(ProfileOps),
    .reset =
        [](ProfileFid* f, std::uint64_t) {
          Profile& profile = of(f);
          const Guard guard(lock_of(profile));
          profile.callbacks_ = {};
          profile.keeps_ = false;
        },
    .query_vars = [](ProfileFid*, ProfileDesc* out,
                     std::size_t* count) { return list(variables, out, count); },
    .query_events = [](ProfileFid*, ProfileDesc* out,
                       std::size_t* count) { return list(events, out, count); },
    .read_var = [](ProfileFid* f, std::uint32_t id, void* data, std::size_t* size) -> ssize_t {
      return contain([&]() -> ssize_t {
        Profile& profile = of(f);
        const Guard guard(lock_of(profile));
        return profile.read(id, data, size);
      });
    },
    .reg_callback = [](ProfileFid* f, std::uint32_t id, ProfileCallback call,
                       void* context) -> int {
      if (id >= kEvents) return -FI_EINVAL;
      Profile& profile = of(f);
      const Guard guard(lock_of(profile));
      profile.callbacks_[id] = {call, context};
      return 0;
    },
    .start_reads =
        [](ProfileFid* f, std::uint64_t) {
          static_cast<void>(contain([&] {
            Profile& profile = of(f);
            const Guard guard(lock_of(profile));
            profile.kept_ = profile.look();
            profile.keeps_ = true;
            return 0;
          }));
        },
    .end_reads =
        [](ProfileFid* f, std::uint64_t) {
          Profile& profile = of(f);
          const Guard guard(lock_of(profile));
          profile.keeps_ = false;
        },
};

// Of one endpoint, for the profiles that it concerns.
class Profile::Watcher final : public UnexpectedWatcher {
 public:
  explicit Watcher(Ep& ep) : ep_(ep) {}
  void on_unexpected(const TakenMessage& message, bool arrived) override {
    CqErrEntry120 entry = entry_of(ep_, message);
    for (Profile* const profile : ep_.domain.profiles) {
      if (profile->concerns(ep_))
        profile->tell(arrived ? kUnexpectedArrived : kUnexpectedMatched, entry);
    }
  }

 private:
  Ep& ep_;
};

int Profile::open(::fid* f, const char* name, std::uint64_t flags, void** ops, void* context) {
  if (name == nullptr || std::string_view(name) != "fi_profile_ops") return -FI_ENOSYS;
  if (flags != 0) return -FI_EBADFLAGS;
  if (ops == nullptr) return -FI_EINVAL;
  return contain([&] {
    Ep* const ep = f->fclass == FI_CLASS_EP ? &Ep::of(f) : nullptr;
    auto made = std::make_unique<Profile>(ep != nullptr ? ep->domain : Domain::of(f), ep, context);
    Domain& domain = made->domain;
    const Guard guard(domain.lock);
    domain.profiles.push_back(made.get());
    *ops = static_cast<void*>(&made.release()->ProfileFid::ops);
    for (Ep* const one : domain.endpoints) watch(*one);
    return 0;
  });
}

Profile::Profile(Domain& on, Ep* ep, void* context)
    : ObjectOfDomain(on), of_domain_(ep == nullptr), ep_(ep) {
  fid = {kProfileClass, context, &profile_fid_ops};
  ProfileFid::ops = &profile_ops;
}

void Profile::leave_domain() noexcept {
  std::erase(domain.profiles, this);
  if (!domain.profiles.empty()) return;
  for (Ep* const ep : domain.endpoints) {
    static_cast<void>(contain([&] {
      ep->core->watch_unexpected(nullptr);
      return 0;
    }));
  }
}

void Profile::watch(Ep& ep) {
  if (ep.watcher == nullptr) ep.watcher = std::make_unique<Watcher>(ep);
  ep.core->watch_unexpected(ep.watcher.get());
}

void Profile::forget(const Ep& ep) noexcept {
  for (Profile* const profile : ep.domain.profiles) {
    if (profile->ep_ == &ep) profile->ep_ = nullptr;
  }
}

void Profile::tell(ProfileEvent event, CqErrEntry120& entry) {
  const Callback callback = callbacks_[event];
  if (callback.call == nullptr) return;
  const bool outer = std::exchange(calling_back, true);
  callback.call(this, &events[event], &entry, sizeof entry, callback.context);
  calling_back = outer;
}

Profile::Values Profile::look() const {
  Values values;
  for (Ep* const ep : domain.endpoints) {
    if (!concerns(*ep)) continue;
    for (const TakenMessage& message : ep->core->watch_unexpected(ep->watcher.get()))
      values.queue.push_back(entry_of(*ep, message));
    const EndpointReport report = ep->core->report();
    values.numbers[kConnectionCount] += report.connections.made;
    values.numbers[kMemory] += report.used;
    for (const MemoryLine& line : report.memory) {
      if (line.kind == name(MemoryKind::queue_pairs)) values.numbers[kQueueCount] += line.objects;
    }
  }
  values.numbers[kUnexpectedCount] = values.queue.size();
  values.numbers[kMemory] >>= 20;
  return values;
}

// The bytes that were written.
ssize_t Profile::read(std::uint32_t id, void* data, std::size_t* size) {
  const auto* const known = std::ranges::find(variables, id, &ProfileDesc::id);
  if (known == std::end(variables) || data == nullptr || size == nullptr) return -FI_EINVAL;
  if (!keeps_) kept_ = look();
  const void* from = &kept_.numbers[id];
  std::size_t length = sizeof(std::uint64_t);
  if (id == kUnexpectedQueue) {
    from = kept_.queue.data();
    length = kept_.queue.size() * sizeof(CqErrEntry120);
  }
  const std::size_t room = std::exchange(*size, length);
  if (room < length) return -FI_ETOOSMALL;
  if (length != 0) std::memcpy(data, from, length);
  return static_cast<ssize_t>(length);
}

}  // namespace turnout::provider
