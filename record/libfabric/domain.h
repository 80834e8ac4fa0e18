// SPDX-License-Identifier: BSD-3-Clause
// Domain: the record of a domain. It makes the records of the address vectors, completion queues
// and reliable datagram endpoints that are opened in it; other objects are not observed.
//
// Owned as every Object. Any thread. Errors: the status of the provider's own call. Source:
// fi_domain(3), fi_av(3), fi_cq(3), fi_endpoint(3).
#pragma once

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include "record/libfabric/object.h"

namespace turnout::record::libfabric {

class Domain final : public ObjectWithTable<Domain, fid_domain> {
 public:
  explicit Domain(fid_domain* domain);

 private:
  static int av_open(fid_domain* domain, fi_av_attr* attr, fid_av** av, void* context);
  static int cq_open(fid_domain* domain, fi_cq_attr* attr, fid_cq** cq, void* context);
  static int endpoint(fid_domain* domain, fi_info* info, fid_ep** ep, void* context);
  static int scalable_ep(fid_domain* domain, fi_info* info, fid_ep** ep, void* context);
  static int endpoint2(fid_domain* domain, fi_info* info, fid_ep** ep, std::uint64_t flags,
                       void* context);
};

}  // namespace turnout::record::libfabric
