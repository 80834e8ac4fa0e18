// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/xrc_domain.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "base/private_folder.h"

namespace turnout {

Result<std::unique_ptr<XrcDomain>> XrcDomain::open(const verbs::Device& device, ibv_cq* cq) {
  if ((device.attributes().device_cap_flags & IBV_DEVICE_XRC) == 0) {
    return Status{Code::unsupported, fmt::format("{} does not support XRC", device.name())};
  }
  const std::string path = fmt::format("{}/turnout-xrc-{}", runtime_folder(), ::geteuid());
  auto folder = open_private(path, true);
  if (!folder) return folder.status();
  const Descriptor file(::openat(folder->get(), device.name().c_str(),
                                 O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return folder_failure("open", fmt::format("{}/{}", path, device.name()), errno);
  auto domain = std::make_unique<XrcDomain>();
  ibv_xrcd_init_attr attr{};
  attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  attr.fd = file.get();
  attr.oflags = O_CREAT;
  domain->domain_.reset(ibv_open_xrcd(device.context(), &attr));
  if (!domain->domain_) return verbs::failure("ibv_open_xrcd", path, errno);
  ibv_srq_init_attr_ex queue{};
  queue.attr.max_wr = 1;
  queue.attr.max_sge = 1;
  queue.comp_mask =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  queue.srq_type = IBV_SRQT_XRC;
  queue.pd = device.pd();
  queue.xrcd = domain->domain_.get();
  queue.cq = cq;
  domain->srq_.reset(ibv_create_srq_ex(device.context(), &queue));
  if (!domain->srq_) return verbs::failure("ibv_create_srq_ex", "XRC receive queue", errno);
  if (const int error = ibv_get_srq_num(domain->srq_.get(), &domain->srq_number_); error != 0) {
    return verbs::failure("ibv_get_srq_num", "XRC receive queue", error);
  }
  return domain;
}

}  // namespace turnout
