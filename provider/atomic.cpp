// The atomic calls of an endpoint (fi_atomic(3)): FI_ATOMIC is not offered, and programs that probe
// every operation for every type all the same are told so.
#include <rdma/fi_atomic.h>

#include "provider/endpoint.h"

namespace turnout::provider {

fi_ops_atomic& atomic_ops() noexcept {
  static fi_ops_atomic ops = {
      .size = sizeof(fi_ops_atomic),
      .write = kNotSupported,
      .writev = kNotSupported,
      .writemsg = kNotSupported,
      .inject = kNotSupported,
      .readwrite = kNotSupported,
      .readwritev = kNotSupported,
      .readwritemsg = kNotSupported,
      .compwrite = kNotSupported,
      .compwritev = kNotSupported,
      .compwritemsg = kNotSupported,
      .writevalid = kNotSupported,
      .readwritevalid = kNotSupported,
      .compwritevalid = kNotSupported,
  };
  return ops;
}

}  // namespace turnout::provider
