// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/xrc_handles.h"

#include <algorithm>
#include <bitset>

namespace turnout::hca {

std::uint32_t add_xrc_handle(const Fabric& fabric, XrcHandleKind kind, std::uint32_t of,
                             std::uint64_t cookie, const PipeRef& async) noexcept {
  const std::uint32_t index =
      fabric.find_free(&Tables::xrc_handle, kMaxXrcHandles, fabric.header().xrc_handle_high,
                       slot_of(fabric.me()) * 16);
  if (index == kNone) return kNone;
  XrcHandleRecord& r = fabric.xrc_handle(index);
  r.kind = kind;
  r.of.store(of, std::memory_order_relaxed);
  ++r.generation;
  r.cookie = cookie;
  r.async = async;
  r.owner.store(fabric.me(), std::memory_order_release);
  return index;
}

bool drop_xrc_handle(const Tables& tables, std::uint32_t handle) noexcept {
  XrcHandleRecord& gone = tables.xrc_handle(handle);
  const std::uint32_t of = gone.of.load(std::memory_order_relaxed);
  gone.owner.store(0, std::memory_order_release);
  const std::uint32_t high = std::min(tables.header().xrc_handle_high.load(), kMaxXrcHandles);
  for (std::uint32_t i = 0; i < high; ++i) {
    const XrcHandleRecord& r = tables.xrc_handle(i);
    if (r.owner.load(std::memory_order_acquire) != 0 && r.kind == gone.kind &&
        r.of.load(std::memory_order_relaxed) == of) {
      return false;
    }
  }
  return true;
}

void reap_xrc(const Tables& tables, Token token) noexcept {
  Header& h = tables.header();
  const std::uint32_t handles = std::min(h.xrc_handle_high.load(), kMaxXrcHandles);
  const std::uint32_t xrcds = std::min(h.xrcd_high.load(), kMaxXrcds);
  if (xrcds == 0) return;  // nobody has used XRC
  std::bitset<kMaxQps> targets;
  std::bitset<kMaxXrcds> domains;
  for (std::uint32_t i = 0; i < handles; ++i) {
    XrcHandleRecord& r = tables.xrc_handle(i);
    const Token owner = r.owner.load(std::memory_order_acquire);
    if (owner == token) r.owner.store(0, std::memory_order_release);
    if (owner == token || owner == 0) continue;
    const std::uint32_t of = r.of.load(std::memory_order_relaxed);
    if (r.kind == XrcHandleKind::domain) {
      domains.set(of % kMaxXrcds);
    } else {
      targets.set(of % kMaxQps);
    }
  }
  const std::uint32_t qps = std::min(h.qp_high.load(), kMaxQps);
  for (std::uint32_t i = 0; i < qps; ++i) {
    QpRecord& q = tables.qp(i);
    if (q.owner.load(std::memory_order_acquire) != kShared || targets.test(i)) continue;
    q.identity.store(static_cast<std::uint64_t>(QpPhase::free), std::memory_order_release);
    ++q.salt;
    q.owner.store(0, std::memory_order_release);
  }
  for (std::uint32_t i = 0; i < xrcds; ++i) {
    if (!domains.test(i)) tables.xrcd(i).number.store(0, std::memory_order_release);
  }
}

}  // namespace turnout::hca
