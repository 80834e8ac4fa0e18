// SPDX-License-Identifier: BSD-3-Clause
// What a program does over libfabric: fi_fabric() and fi_fabric2() are ours, and the objects that
// come from them get tables of operations of ours, in place, so that every object is still the
// provider's own. Domains, address vectors, completion queues and reliable datagram endpoints are
// observed; of others nothing is recorded.
//
// Layered providers make objects of other providers by the same functions, from within libfabric or
// within a call that is observed: those are not touched.
//
// Source: fi_fabric(3).
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include "record/libfabric/fabric.h"
#include "record/next_function.h"
#include "record/recorder.h"

namespace turnout::record::libfabric {
namespace {

// `open` is of the library that the caller would have called.
template <class Open>
int open_fabric(const NextFunction& next, fid_fabric** fabric, Open&& open) {
  if (next.address == nullptr) return -FI_ENOSYS;
  const Recorder::Call call(next.own ? nullptr : Recorder::get());
  const int status = open();
  if (status == 0 && call.recorder() != nullptr) new Fabric(*fabric);
  return status;
}

}  // namespace
}  // namespace turnout::record::libfabric

extern "C" {

[[gnu::visibility("default")]] int fi_fabric(fi_fabric_attr* attr, fid_fabric** fabric,
                                             void* context) {
  using namespace turnout::record;
  using namespace turnout::record::libfabric;
  const NextFunction next = next_function("fi_fabric", __builtin_return_address(0));
  return open_fabric(next, fabric, [&] {
    return reinterpret_cast<decltype(&fi_fabric)>(next.address)(attr, fabric, context);
  });
}

// Since libfabric 2.0.
[[gnu::visibility("default")]] int fi_fabric2(fi_info* info, fid_fabric** fabric,
                                              std::uint64_t flags, void* context) {
  using namespace turnout::record;
  using namespace turnout::record::libfabric;
  const NextFunction next = next_function("fi_fabric2", __builtin_return_address(0));
  return open_fabric(next, fabric, [&] {
    return reinterpret_cast<decltype(&fi_fabric2)>(next.address)(info, fabric, flags, context);
  });
}

}  // extern "C"
