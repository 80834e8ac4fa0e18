// SPDX-License-Identifier: BSD-3-Clause
// WaitSet: libfabric's fid_wait, which queues and counters are opened with (FI_WAIT_SET) so that
// one call, or one wait object, waits for all of them.
//
// Owned by the program; what was opened with it must be closed first. Any thread; has a lock of its
// own, which comes before those of domains and event queues. Source: fi_poll(3).
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>

#include <atomic>
#include <cassert>
#include <memory>
#include <mutex>
#include <vector>

#include "provider/ops.h"
#include "provider/wait_object.h"

namespace turnout::provider {

struct Fabric;

struct WaitSet final : Object<WaitSet, fid_wait> {
  explicit WaitSet(Fabric& owner);
  WaitSet(const WaitSet&) = delete;
  WaitSet& operator=(const WaitSet&) = delete;
  ~WaitSet();

  Fabric& fabric;
  std::shared_ptr<WaitObject> object;  // null: the program waits in fi_wait alone
  std::mutex mutex;                    // of:
  std::vector<::fid*> members;

  static int open(Fabric& fabric, fi_wait_attr* attr, fid_wait** set);
};

// How a program waits for a queue or a counter: its own wait object or that of a set, or none.
class WaitHandle {
 public:
  WaitHandle() = default;
  ~WaitHandle() { leave(); }
  WaitHandle(const WaitHandle&) = delete;
  WaitHandle& operator=(const WaitHandle&) = delete;

  // Of `member`, which is opened with these attributes. 0 or -FI_E*: a set is of the same fabric.
  [[nodiscard]] int open(const Fabric& fabric, fi_wait_obj kind, fid_wait* set, ::fid* member);
  // The set looks at the member no more. Before the member is taken apart.
  void leave() noexcept;
  [[nodiscard]] bool in_set() const noexcept { return set_ != nullptr; }
  [[nodiscard]] WaitObject* get() const noexcept { return object_.get(); }
  [[nodiscard]] const std::shared_ptr<WaitObject>& shared() const noexcept { return object_; }
  [[nodiscard]] explicit operator bool() const noexcept { return object_ != nullptr; }
  [[nodiscard]] WaitObject* operator->() const noexcept {
    assert(object_ != nullptr);
    return object_.get();
  }

 private:
  std::shared_ptr<WaitObject> object_;
  WaitSet* set_ = nullptr;
  ::fid* member_ = nullptr;
};

// fi_trywait of one object. 0: the program may block; nothing that is there now would be missed.
// -FI_EAGAIN: there is something. -FI_EINVAL: it has no wait object. -FI_ENOSYS: another kind.
[[nodiscard]] int may_wait_for(::fid* object);

}  // namespace turnout::provider
