// SPDX-License-Identifier: BSD-3-Clause
#include "record/libfabric/domain.h"

#include "record/libfabric/av.h"
#include "record/libfabric/cq.h"
#include "record/libfabric/endpoint.h"
#include "record/libfabric/with_source.h"
#include "record/recorder.h"

namespace turnout::record::libfabric {
namespace {

template <class Open>
int open_endpoint(fi_info* info, fid_ep** ep, bool scalable, Open&& open) {
  const Recorder::Call call(Recorder::get());
  if (call.recorder() == nullptr) return open();
  const int status = open_with_source(info, open);
  // Only reliable datagrams: others have peers of their own kind.
  const bool datagrams = info->ep_attr == nullptr || info->ep_attr->type == FI_EP_RDM;
  if (status == 0 && datagrams) {
    const bool directed = (info->caps & FI_DIRECTED_RECV) != 0;
    new Ep(*ep, info->tx_attr, info->rx_attr, directed, scalable);
  }
  return status;
}

}  // namespace

Domain::Domain(fid_domain* domain) : ObjectWithTable(domain) {
  ops_.replace(&fi_ops_domain::av_open, &Domain::av_open);
  ops_.replace(&fi_ops_domain::cq_open, &Domain::cq_open);
  ops_.replace(&fi_ops_domain::endpoint, &Domain::endpoint);
  ops_.replace(&fi_ops_domain::scalable_ep, &Domain::scalable_ep);
  ops_.replace(&fi_ops_domain::endpoint2, &Domain::endpoint2);
  take();
}

int Domain::av_open(fid_domain* domain, fi_av_attr* attr, fid_av** av, void* context) {
  const Recorder::Call call(Recorder::get());
  const int status = real(domain).av_open(domain, attr, av, context);
  if (status == 0 && call.recorder() != nullptr) new Av(*av);
  return status;
}

int Domain::cq_open(fid_domain* domain, fi_cq_attr* attr, fid_cq** cq, void* context) {
  const Recorder::Call call(Recorder::get());
  const auto open = [&] { return real(domain).cq_open(domain, attr, cq, context); };
  if (call.recorder() == nullptr) return open();
  // An unspecified format is the provider's to choose: the program asks for no entry's size.
  const fi_cq_format asked = attr->format;
  if (asked == FI_CQ_FORMAT_UNSPEC) return open();
  attr->format = FI_CQ_FORMAT_TAGGED;
  const int status = open();
  attr->format = asked;
  if (status != 0) return open();
  new Cq(*cq, asked);
  return 0;
}

int Domain::endpoint(fid_domain* domain, fi_info* info, fid_ep** ep, void* context) {
  return open_endpoint(info, ep, false,
                       [&] { return real(domain).endpoint(domain, info, ep, context); });
}

int Domain::scalable_ep(fid_domain* domain, fi_info* info, fid_ep** ep, void* context) {
  return open_endpoint(info, ep, true,
                       [&] { return real(domain).scalable_ep(domain, info, ep, context); });
}

int Domain::endpoint2(fid_domain* domain, fi_info* info, fid_ep** ep, std::uint64_t flags,
                      void* context) {
  return open_endpoint(info, ep, false,
                       [&] { return real(domain).endpoint2(domain, info, ep, flags, context); });
}

}  // namespace turnout::record::libfabric
