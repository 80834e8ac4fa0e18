// SPDX-License-Identifier: BSD-3-Clause
// Profile: what a profiling tool reads of an endpoint, or of all endpoints of a domain: unexpected
// messages, queue pairs, connections and memory, and events when an unexpected message arrives or a
// receive takes it. Without one open the core reports nothing.
//
// Opened with fi_open_ops (fi_profile_open), owned by the program; it may outlive its endpoint, and
// then reads zeros. Calls take the domain's lock. Callbacks are made with it, within the call that
// moves the endpoint, and may call the functions of profiles alone. Errors: -FI_E*. Source:
// fi_profile(3).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/endpoint.h"
#include "provider/compat.h"
#include "provider/domain.h"
#include "provider/profile_layout.h"

namespace turnout::provider {

struct Ep;

class Profile final : public ObjectOfDomain<Profile, ProfileFid> {
 public:
  // fi_open_ops of an endpoint or a domain. -FI_ENOSYS: another name.
  static int open(::fid* f, const char* name, std::uint64_t flags, void** ops, void* context);
  Profile(Domain& on, Ep* ep, void* context);

  // The following with the domain's lock.
  [[nodiscard]] bool in_use() const noexcept { return false; }
  void leave_domain() noexcept;
  // An endpoint of the domain was opened, while profiles are open; or is closed.
  static void watch(Ep& ep);
  static void forget(const Ep& ep) noexcept;

 private:
  class Watcher;
  static constexpr std::size_t kVariables = 8, kEvents = 2;
  struct Values {
    std::array<std::uint64_t, kVariables> numbers{};
    std::vector<CqErrEntry120> queue;
  };
  struct Callback {
    ProfileCallback call = nullptr;
    void* context = nullptr;
  };

  [[nodiscard]] bool concerns(const Ep& ep) const noexcept { return of_domain_ || ep_ == &ep; }
  [[nodiscard]] Values look() const;
  void tell(ProfileEvent event, CqErrEntry120& entry);
  ssize_t read(std::uint32_t id, void* data, std::size_t* size);
  static ProfileOps profile_ops;

  const bool of_domain_;
  Ep* ep_;  // null: of the domain, or closed
  std::array<Callback, kEvents> callbacks_{};
  bool keeps_ = false;  // reads are of `kept_`
  Values kept_;
};

}  // namespace turnout::provider
