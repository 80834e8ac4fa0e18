// SPDX-License-Identifier: BSD-3-Clause
// Fabric: the record of a fabric. It makes the records of the domains that are opened in it.
//
// Owned as every Object. Any thread. Errors: the status of the provider's own call. Source:
// fi_fabric(3), fi_domain(3).
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include "record/libfabric/object.h"

namespace turnout::record::libfabric {

class Fabric final : public ObjectWithTable<Fabric, fid_fabric> {
 public:
  explicit Fabric(fid_fabric* fabric);

 private:
  static int domain(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context);
  static int domain2(fid_fabric* fabric, fi_info* info, fid_domain** domain, std::uint64_t flags,
                     void* context);
};

}  // namespace turnout::record::libfabric
