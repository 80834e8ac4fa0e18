// SPDX-License-Identifier: BSD-3-Clause
// LiveObjectVerbs: ObjectVerbs among the processes of one host: hands each verb to the component
// that has such objects.
//
// Any thread.
#pragma once

#include "hca/device/common_objects.h"
#include "hca/device/object_verbs.h"
#include "hca/live/faults.h"
#include "hca/live/fork_guard.h"
#include "hca/live/qp_numbers.h"
#include "hca/live/qps.h"
#include "hca/live/regions.h"
#include "hca/live/srqs.h"
#include "hca/live/streams.h"

namespace turnout::hca {

class LiveEngine;

class LiveObjectVerbs final : public ObjectVerbs, LiveParts {
 public:
  LiveObjectVerbs(const LiveParts& parts, LiveEngine& engine) : LiveParts(parts), engine_(engine) {}

  // Domains are numbers that are unique on the fabric; they have no record. A handle that was given
  // out may be of one that is gone, and then its regions and queue pairs are, too.
  Pd* alloc_pd(Context& context) override {
    if (const int error = refuse_child(context); error != 0) return failed(error);
    if (refused(FaultObject::pd)) return nullptr;
    return make_domain(context, static_cast<std::uint32_t>(fabric.header().next_pd.fetch_add(1)));
  }
  Pd* import_pd(Context& context, std::uint32_t handle) override {
    if (const int error = refuse_child(context); error != 0) return failed(error);
    if (handle >= fabric.header().next_pd.load()) return failed(EINVAL);
    return make_domain(context, handle);
  }
  Mr* register_memory(Pd& pd, void* address, std::uint64_t length, std::uint64_t iova,
                      unsigned access) override {
    if (refused(FaultObject::mr)) return nullptr;
    return created(FaultObject::mr, regions.add(pd, address, length, iova, access));
  }
  Mr* register_file(Pd& pd, std::uint64_t offset, std::uint64_t length, std::uint64_t iova, int fd,
                    unsigned access) override {
    if (refused(FaultObject::mr)) return nullptr;
    return created(FaultObject::mr, regions.add_file(pd, offset, length, iova, fd, access));
  }
  Mr* alloc_null_region(Pd& pd) override {
    if (refused(FaultObject::mr)) return nullptr;
    return created(FaultObject::mr, regions.add_null(pd));
  }
  int deregister(Mr& mr) override {
    const bool own = !mr.imported;
    return destroyed(FaultObject::mr, regions.remove(mr), own);
  }
  Mr* import_region(Pd& pd, std::uint32_t handle) override { return regions.import(pd, handle); }
  int reregister(Mr& mr, const Reregistration& change) override {
    return regions.change(mr, change);
  }
  int prefetch(Pd& pd, const ibv_sge& part, bool write, bool faults) override {
    return regions.prefetch(pd, part, write, faults);
  }
  Mw* alloc_window(Pd& pd, ibv_mw_type type) override {
    return refused(FaultObject::mw) ? nullptr : windows.alloc(pd, type);
  }
  int dealloc_window(Mw& mw) override { return windows.dealloc(mw); }
  int attach(Qp& qp, const ibv_gid& group) override { return multicast.attach(qp, group); }
  int detach(Qp& qp, const ibv_gid& group) override { return multicast.detach(qp, group); }
  Channel* create_channel(Context& context) override {
    return refused(FaultObject::channel) ? nullptr : LiveEvents::create_channel(context);
  }
  int destroy_channel(Channel& channel) override { return LiveEvents::destroy_channel(channel); }
  Cq* create_cq(Context& context, const ibv_cq_init_attr_ex& attr) override {
    if (refused(FaultObject::cq)) return nullptr;
    return created(FaultObject::cq, completions.create(context, attr));
  }
  int resize_cq(Cq& cq, int entries) override { return completions.resize(cq, entries); }
  int destroy_cq(Cq& cq) override { return destroyed(FaultObject::cq, completions.destroy(cq)); }
  Srq* create_srq(Pd& pd, ibv_srq_init_attr& attr, Xrcd* xrcd, Cq* cq) override {
    if (refused(FaultObject::srq)) return nullptr;
    return created(FaultObject::srq, srqs.create(pd, attr, xrcd, cq));
  }
  int modify_srq(Srq& srq, const ibv_srq_attr& attr, int mask) override {
    return srqs.modify(srq, attr, mask);
  }
  int query_srq(Srq& srq, ibv_srq_attr& attr) override { return srqs.query(srq, attr); }
  int destroy_srq(Srq& srq) override { return destroyed(FaultObject::srq, srqs.destroy(srq)); }
  Qp* create_qp(Context& context, ibv_qp_init_attr_ex& attr,
                const mlx5dv_qp_init_attr* dc) override {
    if (refused(FaultObject::qp)) return nullptr;
    return created(FaultObject::qp, queue_pairs.create(context, attr, dc));
  }
  int modify_qp(Qp& qp, const ibv_qp_attr& attr, int mask) override {
    return queue_pairs.modify(qp, attr, mask);
  }
  int query_qp(Qp& qp, ibv_qp_attr& attr, ibv_qp_init_attr& init) override {
    return queue_pairs.query(qp, attr, init);
  }
  int destroy_qp(Qp& qp) override { return destroyed(FaultObject::qp, queue_pairs.destroy(qp)); }
  int reset_stream(Qp& qp, std::uint16_t stream) override { return hca::reset_stream(qp, stream); }
  int reserve_number(std::uint32_t& number) override { return numbers.reserve(number); }
  int release_number(std::uint32_t number) override { return numbers.release(number); }
  [[nodiscard]] bool data_in_order(ibv_wr_opcode) const noexcept override { return true; }
  Xrcd* open_xrcd(Context& context, int fd, int oflags) override {
    return refused(FaultObject::xrcd) ? nullptr : xrc.open(context, fd, oflags);
  }
  int close_xrcd(Xrcd& xrcd) override { return xrc.close(xrcd); }
  Qp* open_qp(Xrcd& xrcd, std::uint32_t number, void* qp_context) override {
    if (refused(FaultObject::qp)) return nullptr;
    return created(FaultObject::qp, xrc.open_target(xrcd, number, qp_context));
  }
  Ah* create_ah(Pd& pd, const ibv_ah_attr& attr) override {
    Context& context = context_of(pd.verbs.context);
    if (const int error = refuse_child(context); error != 0) return failed(error);
    if (refused(FaultObject::ah)) return nullptr;
    return make_address_handle(pd, attr, names_this_port(attr, context));
  }
  int get_async_event(Context& context, ibv_async_event& event) override {
    return events.take(context, event);
  }
  void close(Context& context) override;

 private:
  // Does a fault keep an object from being created? Then errno is set.
  [[nodiscard]] bool refused(FaultObject object) noexcept {
    const int error = faults.refuse(object);
    if (error != 0) errno = error;
    return error != 0;
  }

  // Of an object, or of null where there is none.
  template <class T>
  [[nodiscard]] T* created(FaultObject object, T* made) noexcept {
    if (made != nullptr) faults.count(object, true);
    return made;
  }
  [[nodiscard]] int destroyed(FaultObject object, int error, bool counted = true) noexcept {
    if (error == 0 && counted) faults.count(object, false);
    return error;
  }

  LiveEngine& engine_;
};

}  // namespace turnout::hca
