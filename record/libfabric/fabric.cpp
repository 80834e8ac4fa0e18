// SPDX-License-Identifier: BSD-3-Clause
#include "record/libfabric/fabric.h"

#include "record/libfabric/domain.h"
#include "record/libfabric/with_source.h"
#include "record/recorder.h"

namespace turnout::record::libfabric {
namespace {

template <class Open>
int open_domain(fi_info* info, fid_domain** domain, Open&& open) {
  const Recorder::Call call(Recorder::get());
  if (call.recorder() == nullptr) return open();
  const int status = open_with_source(info, open);
  if (status == 0) new Domain(*domain);
  return status;
}

}  // namespace

Fabric::Fabric(fid_fabric* fabric) : ObjectWithTable(fabric) {
  ops_.replace(&fi_ops_fabric::domain, &Fabric::domain);
  ops_.replace(&fi_ops_fabric::domain2, &Fabric::domain2);
  take();
}

int Fabric::domain(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context) {
  return open_domain(info, domain,
                     [&] { return real(fabric).domain(fabric, info, domain, context); });
}

int Fabric::domain2(fid_fabric* fabric, fi_info* info, fid_domain** domain, std::uint64_t flags,
                    void* context) {
  return open_domain(info, domain,
                     [&] { return real(fabric).domain2(fabric, info, domain, flags, context); });
}

}  // namespace turnout::record::libfabric
