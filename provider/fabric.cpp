// SPDX-License-Identifier: BSD-3-Clause
#include "provider/fabric.h"

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <memory>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "provider/domain.h"
#include "provider/eq.h"
#include "provider/errors.h"
#include "provider/info.h"
#include "provider/passive_endpoint.h"
#include "provider/wait_set.h"

namespace turnout::provider {
namespace {

int open_domain(fid_fabric* f, fi_info* info, fid_domain** domain, void* context) {
  return contain([&] { return Domain::open(Fabric::of(f), info, domain, context); });
}

int open_domain2(fid_fabric* f, fi_info* info, fid_domain** domain, std::uint64_t flags,
                 void* context) {
  if (flags != 0) return -FI_EOPNOTSUPP;  // FI_PEER: objects of other providers
  return open_domain(f, info, domain, context);
}

int open_passive_endpoint(fid_fabric* f, fi_info* info, fid_pep** pep, void* context) {
  return contain([&] { return PassiveEp::open(Fabric::of(f), info, pep, context); });
}

int open_event_queue(fid_fabric* f, fi_eq_attr* attr, fid_eq** eq, void* context) {
  return contain([&] { return EventQueue::open(Fabric::of(f), attr, eq, context); });
}

int open_wait_set(fid_fabric* f, fi_wait_attr* attr, fid_wait** set) {
  return contain([&] { return WaitSet::open(Fabric::of(f), attr, set); });
}

int try_wait(fid_fabric* /*fabric*/, ::fid** objects, int count) {
  if (objects == nullptr && count != 0) return -FI_EINVAL;
  return contain([&] {
    for (int i = 0; i < count; ++i) {
      if (const int answer = may_wait_for(objects[i]); answer != 0) return answer;
    }
    return 0;
  });
}

fi_ops fabric_fid_ops = object_ops(close_unreferenced<Fabric>);

fi_ops_fabric fabric_ops = {
    .size = sizeof(fi_ops_fabric),
    .domain = open_domain,
    .passive_ep = open_passive_endpoint,
    .eq_open = open_event_queue,
    .wait_open = open_wait_set,
    .trywait = try_wait,
    .domain2 = open_domain2,
};

}  // namespace

Result<ConnectionManager*> Fabric::connection_manager() {
  const std::lock_guard hold(mutex_);
  if (manager_ == nullptr) {
    auto started = ConnectionManager::start();
    if (!started.ok()) return started.status();
    manager_ = std::move(started).value();
  }
  return manager_.get();
}

void Fabric::add(PassiveEp& one) {
  const std::lock_guard hold(mutex_);
  passive_.push_back(&one);
}

void Fabric::remove(PassiveEp& one) noexcept {
  const std::lock_guard hold(mutex_);
  std::erase(passive_, &one);
}

PassiveEp* Fabric::passive_of(const ::fid* handle) {
  const std::lock_guard hold(mutex_);
  for (PassiveEp* const one : passive_) {
    if (&one->fid == handle) return one;
  }
  return nullptr;
}

int Fabric::open(fi_fabric_attr* attr, fid_fabric** fabric, void* context) {
  const Result<Settings>& settings = process_settings();
  if (!settings.ok()) return -FI_ENODATA;  // logged when they were read
  if (attr->name != nullptr && "turnout-" + settings.value().fabric != attr->name) {
    TURNOUT_LOG(provider, warn,
                "fi_fabric failed: fabric {}: not found; use turnout-{}, or change TURNOUT_FABRIC",
                attr->name, settings.value().fabric);
    return -FI_ENODATA;
  }
  auto made = std::make_unique<Fabric>();
  made->fid = {FI_CLASS_FABRIC, context, &fabric_fid_ops};
  made->ops = &fabric_ops;
  made->api_version = attr->api_version;
  *fabric = made.release();
  return 0;
}

}  // namespace turnout::provider
