// SPDX-License-Identifier: BSD-3-Clause
// XrcDomains: XRC domains, and the target queue pairs in them, which the processes of a node share
// by handles.
//
// A target is of the adapter of its node; which process created it matters to nobody. It ends with
// the last handle. A further handle costs no time: it is the kernel's work alone, and none of the
// adapter's. Errors: null and errno, or an errno value. One thread.
#pragma once

#include <memory>
#include <vector>

#include "hca/virtual/work_queues.h"

namespace turnout::hca {

class XrcDomains : EngineParts {
 public:
  explicit XrcDomains(const EngineParts& parts) : EngineParts(parts) {}

  // fd: -1 for a domain of this handle alone. oflags: O_CREAT, O_EXCL.
  [[nodiscard]] Xrcd* open(Context& context, int fd, int oflags);
  [[nodiscard]] int close(Xrcd& xrcd);
  // A target with this number, and its first handle.
  [[nodiscard]] Qp* create_target(Context& context, const ibv_qp_init_attr_ex& attr,
                                  std::uint32_t number);
  // A further handle.
  [[nodiscard]] Qp* open_target(Xrcd& xrcd, std::uint32_t number, void* qp_context);
  void destroy_handle(TargetHandle& handle);
  // What a killed process had open.
  void close_all(ProcessIndex process);

 private:
  [[nodiscard]] static Qp* add_handle(VirtualTarget& target, Context& context,
                                      const ibv_qp_init_attr_ex& attr);
  // True: it was the last one, and the target is no more.
  bool drop_handle(TargetHandle& handle);
  void drop(VirtualXrcd& xrcd);

  std::vector<std::unique_ptr<XrcDomain>> domains_;
};

}  // namespace turnout::hca
