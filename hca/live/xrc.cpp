// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/xrc.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "base/file_descriptor.h"
#include "hca/device/common_objects.h"
#include "hca/device/qp_state.h"
#include "hca/device/queue_pair.h"
#include "hca/live/fork_guard.h"
#include "hca/live/hazards.h"
#include "hca/live/qp_numbers.h"
#include "hca/live/receives.h"
#include "hca/live/xrc_handles.h"

namespace turnout::hca {
namespace {

// The domain of this file, or the first free record. table_lock held.
XrcdRecord* find_domain(const Fabric& fabric, const struct stat& file, XrcdRecord*& free) {
  free = nullptr;
  for (std::uint32_t i = 0; i < kMaxXrcds; ++i) {
    XrcdRecord& r = fabric.xrcd(i);
    if (r.number.load(std::memory_order_acquire) == 0) {
      if (free == nullptr) free = &r;
      if (i >= fabric.header().xrcd_high.load()) break;
      continue;
    }
    if (r.named != 0 && r.device == file.st_dev && r.inode == file.st_ino) return &r;
  }
  return nullptr;
}

void begin_domain(const Fabric& fabric, XrcdRecord& r, const struct stat* file) {
  const auto index = static_cast<std::uint32_t>(&r - &fabric.xrcd(0));
  Header& h = fabric.header();
  if (h.xrcd_high.load() < index + 1) h.xrcd_high.store(index + 1);
  r.generation = r.generation % (UINT32_MAX / kMaxXrcds) + 1;
  r.named = file != nullptr;
  r.device = file != nullptr ? file->st_dev : 0;
  r.inode = file != nullptr ? file->st_ino : 0;
  r.number.store(r.generation * kMaxXrcds + index, std::memory_order_release);
}

}  // namespace

Xrcd* LiveXrc::open(Context& context, int fd, int oflags) {
  if (const int error = refuse_child(context); error != 0) return failed(error);
  struct stat file {};
  Descriptor own;
  if (fd != -1) {
    own = Descriptor(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!own || fstat(own.get(), &file) != 0) return nullptr;
    // Whether it exists must not depend on whether the dead have been noticed.
    if ((oflags & O_EXCL) != 0 || (oflags & O_CREAT) == 0) fabric.reap_dead();
  }
  auto xrcd = std::make_unique<Xrcd>();
  {
    const TableGuard guard(fabric);
    XrcdRecord* free = nullptr;
    XrcdRecord* domain = find_domain(fabric, file, free);
    if (fd == -1) domain = nullptr;
    // The errors are the kernel's (ib_uverbs_open_xrcd).
    if (fd != -1 && domain == nullptr && (oflags & O_CREAT) == 0) return failed(EAGAIN);
    if (domain != nullptr && (oflags & O_EXCL) != 0) return failed(EINVAL);
    if (domain == nullptr) {
      if (free == nullptr) return failed(ENOMEM);
      domain = free;
      begin_domain(fabric, *domain, fd != -1 ? &file : nullptr);
    }
    xrcd->number = domain->number.load(std::memory_order_relaxed);
    xrcd->handle = add_xrc_handle(fabric, XrcHandleKind::domain, xrcd->number, 0, PipeRef{});
    // Where the domain is fresh the next reaping takes it.
    if (xrcd->handle == kNone) return failed(ENOMEM);
  }
  xrcd->verbs.context = &context.verbs.context;
  xrcd->fd = own.release();
  ++context.users;
  return xrcd.release();
}

int LiveXrc::close(Xrcd& xrcd) {
  Context& context = context_of(xrcd.verbs.context);
  if (const int error = refuse_child(context); error != 0) return error;
  if (xrcd.users.load() != 0) return EBUSY;
  {
    const TableGuard guard(fabric);
    if (drop_xrc_handle(fabric, xrcd.handle)) {
      fabric.xrcd(xrcd.number % kMaxXrcds).number.store(0, std::memory_order_release);
    }
  }
  if (xrcd.fd >= 0) ::close(xrcd.fd);
  --context.users;
  delete &xrcd;
  return 0;
}

Qp* LiveXrc::create_target(Context& context, const ibv_qp_init_attr_ex& attr) {
  auto& xrcd = *reinterpret_cast<Xrcd*>(attr.xrcd);
  if (attr.xrcd->context != &context.verbs.context) return failed(EINVAL);
  std::unique_ptr<Qp> qp(new Qp{});
  const std::uint32_t index = numbers.reserve_index();
  if (index == kNone) return failed(ENOMEM);
  QpRecord& r = fabric.qp(index);
  r.kind = QpKind::xrc_tgt;
  r.min_rnr_timer = 0;
  r.access = 0;
  r.pd = 0;
  r.recv_cq = r.send_cq = r.srq = r.dest_qpn = kNone;
  r.qkey = 0;
  r.xrcd = xrcd.number;
  r.dc_key = 0;
  r.cookie = 0;
  r.async = PipeRef{};
  r.attr = {};
  r.taken.store(0, std::memory_order_relaxed);
  fabric.hazard(index).store(0, std::memory_order_relaxed);
  receives.destroy_queue(r.rq, {});
  const std::uint32_t number = std::uint32_t{r.salt} << 16 | index;
  {
    const TableGuard guard(fabric);
    // The handle first: from the change of the owner on it is what keeps the queue pair.
    qp->handle = add_xrc_handle(fabric, XrcHandleKind::target, number,
                                reinterpret_cast<std::uint64_t>(qp.get()), context.async);
    if (qp->handle == kNone) {
      r.owner.store(0, std::memory_order_release);
      return failed(ENOMEM);
    }
    r.identity.store(QpRecord::identity_of(number, QpPhase::reset), std::memory_order_release);
    r.owner.store(kShared, std::memory_order_release);
  }
  begin_target(*qp, context, attr, index, number);
  return qp.release();
}

Qp* LiveXrc::open_target(Xrcd& xrcd, std::uint32_t number, void* qp_context) {
  Context& context = context_of(xrcd.verbs.context);
  if (const int error = refuse_child(context); error != 0) return failed(error);
  std::unique_ptr<Qp> qp(new Qp{});
  const std::uint32_t index = number & (kMaxQps - 1);
  {
    const TableGuard guard(fabric);
    const QpRecord& r = fabric.qp(index);
    if (number > 0xff'ffff || r.owner.load(std::memory_order_acquire) != kShared ||
        r.identity.load(std::memory_order_acquire) >> 8 != number || r.xrcd != xrcd.number) {
      return failed(EINVAL);  // as the kernel's ib_open_qp
    }
    qp->handle = add_xrc_handle(fabric, XrcHandleKind::target, number,
                                reinterpret_cast<std::uint64_t>(qp.get()), context.async);
    if (qp->handle == kNone) return failed(ENOMEM);
  }
  ibv_qp_init_attr_ex attr{};
  attr.qp_context = qp_context;
  attr.qp_type = IBV_QPT_XRC_RECV;
  attr.xrcd = &xrcd.verbs;
  begin_target(*qp, context, attr, index, number);
  qp->verbs.qp_base.state = to_verbs(qp->record->phase());
  return qp.release();
}

void LiveXrc::begin_target(Qp& qp, Context& context, const ibv_qp_init_attr_ex& attr,
                           std::uint32_t index, std::uint32_t number) {
  begin_qp(qp, context, attr, QpKind::xrc_tgt, index, number);
  qp.record = &fabric.qp(index);
  qp.hazard = &fabric.hazard(index);
  {
    const std::lock_guard lock(objects.mutex);
    objects.targets[qp.handle] = &qp;
  }
  fork_guard_add(qp);
}

int LiveXrc::modify_target(Qp& qp, const ibv_qp_attr& attr, int mask) {
  QpRecord& r = *qp.record;
  QpPhase from = QpPhase::reset, to = QpPhase::reset;
  {
    const SharedGuard guard(fabric, r.rq.lock);
    std::uint64_t identity = r.identity.load(std::memory_order_acquire);
    from = QpRecord::phase_of(identity);
    if (const int error = checked_phase(qp, from, attr, mask, to); error != 0) return error;
    if (to == QpPhase::err || to == QpPhase::reset) {
      r.identity.store(QpRecord::identity_of(qp.number, to), std::memory_order_seq_cst);
      hazards.wait_unused(0, qp.number);  // nothing succeeds from here on
      if (to == QpPhase::reset) {
        r.attr = {};
        r.dest_qpn = kNone;
        r.access = 0;
      }
    } else {
      remember_attributes(r.attr, attr, mask);
      if ((mask & IBV_QP_ACCESS_FLAGS) != 0) r.access = attr.qp_access_flags;
      if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) r.min_rnr_timer = attr.min_rnr_timer;
      if ((mask & IBV_QP_DEST_QPN) != 0) r.dest_qpn = attr.dest_qp_num;
      if ((mask & IBV_QP_RQ_PSN) != 0) expect_sequence(r.sequence, attr.rq_psn);
      // An initiator may have failed it meanwhile: then that stands.
      if (!r.identity.compare_exchange_strong(identity, QpRecord::identity_of(qp.number, to)))
        return EINVAL;
    }
  }
  qp.verbs.qp_base.state = to_verbs(to);
  // It has no send queue to drain.
  if (to == QpPhase::sqd && from == QpPhase::rts && (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) != 0 &&
      attr.en_sqd_async_notify != 0) {
    events.raise_target(qp.number, IBV_EVENT_SQ_DRAINED);
  }
  return 0;
}

int LiveXrc::destroy_target(Qp& qp) {
  ibv_qp& v = qp.verbs.qp_base;
  QpRecord& r = *qp.record;
  fork_guard_remove(qp);
  std::uint32_t read = 0;
  {
    const std::lock_guard lock(objects.mutex);
    objects.targets.erase(qp.handle);  // from here on its events are not handed out any more
    read = qp.events_read;
  }
  bool last = false;
  {
    const TableGuard guard(fabric);
    last = drop_xrc_handle(fabric, qp.handle);
    if (last) {  // nobody can open it any more
      r.owner.store(fabric.me(), std::memory_order_release);
      r.identity.store(static_cast<std::uint64_t>(QpPhase::free), std::memory_order_seq_cst);
    }
  }
  if (last) {
    // Not under table_lock: who still executes a request of it may need that for an event.
    hazards.wait_unused(0, qp.number);
    ++r.salt;
    r.owner.store(0, std::memory_order_release);
  }
  wait_acknowledged(v, v.events_completed, read);
  end_qp(qp);
  delete &qp;
  return 0;
}

}  // namespace turnout::hca
