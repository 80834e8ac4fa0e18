// SPDX-License-Identifier: BSD-3-Clause
// VirtualObjectVerbs: ObjectVerbs under the virtual clock: hands each verb to the component that
// has such objects.
//
// Windows, multicast groups, imports, streams and files are not there: the verbs of these say so.
// One thread.
#pragma once

#include <cerrno>

#include "hca/device/common_objects.h"
#include "hca/device/object_verbs.h"
#include "hca/device/rules.h"
#include "hca/virtual/queue_pairs.h"

namespace turnout::hca {

class VirtualObjectVerbs final : public ObjectVerbs, EngineParts {
 public:
  explicit VirtualObjectVerbs(const EngineParts& parts) : EngineParts(parts) {}

  Pd* alloc_pd(Context& context) override { return make_domain(context, next_domain_++); }
  Mr* register_memory(Pd& pd, void* address, std::uint64_t length, std::uint64_t iova,
                      unsigned access) override {
    return regions.add(pd, address, length, iova, access);
  }
  // Pages of a file are needed between processes only; here all share one address space.
  Mr* register_file(Pd&, std::uint64_t, std::uint64_t, std::uint64_t, int, unsigned) override {
    return failed(EOPNOTSUPP);
  }
  int deregister(Mr& mr) override { return regions.remove(mr); }
  Channel* create_channel(Context& context) override {
    return Completions::create_channel(context);
  }
  int destroy_channel(Channel& channel) override { return Completions::destroy_channel(channel); }
  Cq* create_cq(Context& context, const ibv_cq_init_attr_ex& attr) override {
    return Completions::create(context, attr);
  }
  int resize_cq(Cq& cq, int entries) override { return Completions::resize(cq, entries); }
  int destroy_cq(Cq& cq) override { return Completions::destroy(cq); }
  Srq* create_srq(Pd& pd, ibv_srq_init_attr& attr, Xrcd* xrcd, Cq* cq) override {
    return srqs.create(pd, attr, xrcd, cq);
  }
  int modify_srq(Srq& srq, const ibv_srq_attr& attr, int mask) override {
    return srqs.modify(srq, attr, mask);
  }
  int query_srq(Srq& srq, ibv_srq_attr& attr) override {
    return SharedReceiveQueues::query(srq, attr);
  }
  int destroy_srq(Srq& srq) override { return srqs.destroy(srq); }
  Qp* create_qp(Context& context, ibv_qp_init_attr_ex& attr,
                const mlx5dv_qp_init_attr* dc) override {
    return queue_pairs.create(context, attr, dc);
  }
  int modify_qp(Qp& qp, const ibv_qp_attr& attr, int mask) override {
    return queue_pairs.modify(qp, attr, mask);
  }
  int query_qp(Qp& qp, ibv_qp_attr& attr, ibv_qp_init_attr& init) override {
    return QueuePairs::query(qp, attr, init);
  }
  int destroy_qp(Qp& qp) override { return queue_pairs.destroy(qp); }
  [[nodiscard]] bool data_in_order(ibv_wr_opcode opcode) const noexcept override {
    return !is_write(static_cast<std::uint8_t>(opcode)) || profile.fault_reorder <= 0;
  }
  Xrcd* open_xrcd(Context& context, int fd, int oflags) override {
    return xrc.open(context, fd, oflags);
  }
  int close_xrcd(Xrcd& xrcd) override { return xrc.close(xrcd); }
  Qp* open_qp(Xrcd& xrcd, std::uint32_t number, void* qp_context) override {
    return xrc.open_target(xrcd, number, qp_context);
  }
  // Every node of the world is; who is meant is told by queue pair numbers.
  Ah* create_ah(Pd& pd, const ibv_ah_attr& attr) override {
    return make_address_handle(pd, attr, true);
  }
  int get_async_event(Context& context, ibv_async_event& event) override {
    return events.take(context, event);
  }
  void close(Context& context) override { events.forget(context); }

 private:
  std::uint32_t next_domain_ = 1;
};

}  // namespace turnout::hca
