// SPDX-License-Identifier: BSD-3-Clause
#include "provider/poll_set.h"

#include <algorithm>
#include <memory>

#include "provider/cntr.h"
#include "provider/cq.h"
#include "provider/errors.h"
#include "provider/ops.h"

namespace turnout::provider {
namespace {

// Calls f with the queue or counter; -FI_EINVAL: it is neither.
template <class F>
int with_object(::fid* member, F&& f) {
  switch (member->fclass) {
    case FI_CLASS_CQ:
      return f(Cq::of(member));
    case FI_CLASS_CNTR:
      return f(Cntr::of(member));
    default:
      return -FI_EINVAL;
  }
}

int poll_members(fid_poll* f, void** contexts, int count) {
  PollSet& set = PollSet::of(f);
  return contain([&] {
    const Guard guard(set.domain.lock);
    int ready = 0;
    for (::fid* member : set.members) {
      const int told = with_object(member, [&](auto& object) {
        object.progress();
        return ready < count && object.tells_poll() ? 1 : 0;
      });
      if (told == 1) contexts[ready++] = member->context;
    }
    return ready;
  });
}

template <int (PollSet::*kChange)(::fid*)>
int change(fid_poll* f, ::fid* member, std::uint64_t flags) {
  if (flags != 0) return -FI_EBADFLAGS;
  if (member == nullptr) return -FI_EINVAL;
  PollSet& set = PollSet::of(f);
  return contain([&] {
    const Guard guard(set.domain.lock);
    return (set.*kChange)(member);
  });
}

fi_ops poll_fid_ops = object_ops(PollSet::close);

fi_ops_poll poll_ops = {
    .size = sizeof(fi_ops_poll),
    .poll = poll_members,
    .poll_add = change<&PollSet::add>,
    .poll_del = change<&PollSet::remove>,
};

}  // namespace

int PollSet::add(::fid* member) {
  return with_object(member, [&](auto& object) {
    if (&object.domain != &domain) return -FI_EDOMAIN;
    members.push_back(member);
    ++object.poll_sets;
    return 0;
  });
}

int PollSet::remove(::fid* member) {
  const auto at = std::find(members.begin(), members.end(), member);
  if (at == members.end()) return -FI_EINVAL;
  members.erase(at);
  return with_object(member, [](auto& object) {
    --object.poll_sets;
    return 0;
  });
}

PollSet::~PollSet() {
  const Guard guard(domain.lock);
  while (!members.empty()) static_cast<void>(remove(members.back()));
}

int PollSet::open(Domain& domain, fi_poll_attr* attr, fid_poll** set) {
  if (attr != nullptr && attr->flags != 0) return -FI_EBADFLAGS;
  auto made = std::make_unique<PollSet>(domain);
  made->fid = {FI_CLASS_POLL, nullptr, &poll_fid_ops};
  made->ops = &poll_ops;
  *set = made.release();
  return 0;
}

}  // namespace turnout::provider
