// SPDX-License-Identifier: BSD-3-Clause
#include "hca/virtual/xrc.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "hca/device/qp_state.h"
#include "hca/device/queue_pair.h"

namespace turnout::hca {

Xrcd* XrcDomains::open(Context& context, int fd, int oflags) {
  const std::uint32_t node = processes[context.process].node;
  struct stat file {};
  if (fd != -1 && fstat(fd, &file) != 0) return failed(errno);
  XrcDomain* domain = nullptr;
  for (const auto& one : domains_) {
    if (fd != -1 && one->named && one->node == node && one->device == file.st_dev &&
        one->inode == file.st_ino) {
      domain = one.get();
    }
  }
  // The errors are the kernel's (ib_uverbs_open_xrcd).
  if (fd != -1 && domain == nullptr && (oflags & O_CREAT) == 0) return failed(EAGAIN);
  if (domain != nullptr && (oflags & O_EXCL) != 0) return failed(EINVAL);
  if (domain == nullptr) {
    domains_.push_back(std::make_unique<XrcDomain>());
    domain = domains_.back().get();
    domain->node = node;
    domain->named = fd != -1;
    domain->device = file.st_dev;
    domain->inode = file.st_ino;
  }
  auto xrcd = std::make_unique<VirtualXrcd>();
  xrcd->verbs.context = &context.verbs.context;
  // Keeps the inode from being another file's while the domain is open.
  xrcd->fd = fd != -1 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
  xrcd->process = context.process;
  xrcd->domain = domain;
  domain->opens.push_back(xrcd.get());
  ++context.users;
  return xrcd.release();
}

int XrcDomains::close(Xrcd& base) {
  auto& xrcd = static_cast<VirtualXrcd&>(base);
  if (xrcd.users.load() != 0) return EBUSY;
  drop(xrcd);
  if (xrcd.fd >= 0) ::close(xrcd.fd);
  --context_of(xrcd.verbs.context).users;
  delete &xrcd;
  return 0;
}

void XrcDomains::drop(VirtualXrcd& xrcd) {
  XrcDomain* const domain = xrcd.domain;
  if (domain == nullptr) return;
  xrcd.domain = nullptr;
  std::erase(domain->opens, &xrcd);
  if (!domain->opens.empty()) return;
  std::erase_if(domains_, [&](const auto& one) { return one.get() == domain; });
}

Qp* XrcDomains::create_target(Context& context, const ibv_qp_init_attr_ex& attr,
                              std::uint32_t number) {
  auto target = std::make_unique<VirtualTarget>();
  target->kind = QpKind::xrc_tgt;
  target->index = target->number = number;
  target->process = context.process;
  target->domain = static_cast<VirtualXrcd*>(reinterpret_cast<Xrcd*>(attr.xrcd))->domain;
  qps[number] = target.get();
  return add_handle(*target.release(), context, attr);
}

Qp* XrcDomains::add_handle(VirtualTarget& target, Context& context,
                           const ibv_qp_init_attr_ex& attr) {
  auto handle = std::make_unique<TargetHandle>();
  begin_qp(*handle, context, attr, QpKind::xrc_tgt, target.number, target.number);
  handle->verbs.qp_base.state = to_verbs(target.phase);
  handle->process = context.process;
  handle->target = &target;
  target.handles.push_back(handle.get());
  return handle.release();
}

Qp* XrcDomains::open_target(Xrcd& base, std::uint32_t number, void* qp_context) {
  const auto& xrcd = static_cast<VirtualXrcd&>(base);
  VirtualQp* const found = qps.find(number);
  if (found == nullptr || found->kind != QpKind::xrc_tgt ||
      static_cast<VirtualTarget*>(found)->domain != xrcd.domain) {
    return failed(EINVAL);  // as the kernel's ib_open_qp
  }
  ibv_qp_init_attr_ex attr{};
  attr.qp_context = qp_context;
  attr.qp_type = IBV_QPT_XRC_RECV;
  attr.xrcd = &base.verbs;
  return add_handle(*static_cast<VirtualTarget*>(found), context_of(base.verbs.context), attr);
}

void XrcDomains::destroy_handle(TargetHandle& handle) {
  if (drop_handle(handle)) processes.charge(profile.setup_destroy_qp);
  end_qp(handle);
  delete &handle;
}

bool XrcDomains::drop_handle(TargetHandle& handle) {
  VirtualTarget* const target = handle.target;
  if (target == nullptr) return false;
  handle.target = nullptr;
  std::erase(target->handles, &handle);
  if (!target->handles.empty()) return false;
  work_queues.forget(*target);
  delete target;
  return true;
}

void XrcDomains::close_all(ProcessIndex process) {
  for (VirtualQp* qp : qps) {
    if (qp == nullptr || qp->kind != QpKind::xrc_tgt) continue;
    // A copy: the target may go with its last handle.
    for (TargetHandle* handle : std::vector(static_cast<VirtualTarget*>(qp)->handles)) {
      if (handle->process == process) drop_handle(*handle);
    }
  }
  std::vector<VirtualXrcd*> opens;
  for (const auto& domain : domains_) {
    for (VirtualXrcd* xrcd : domain->opens) {
      if (xrcd->process == process) opens.push_back(xrcd);
    }
  }
  for (VirtualXrcd* xrcd : opens) drop(*xrcd);
}

}  // namespace turnout::hca
