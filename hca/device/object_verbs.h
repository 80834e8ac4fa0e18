// SPDX-License-Identifier: BSD-3-Clause
// ObjectVerbs: creates, modifies, queries and destroys the objects of a context. The slow half of
// an engine; the fast half is data_path.h. The exported functions (hca/abi) forward to those of
// their context.
//
// The engine owns the objects between their creation and their destruction. Functions that create
// an object return null and set errno; the others return 0 or an errno value, like the verb of the
// same name (its man page is the source). Arguments are objects of this engine that are not
// destroyed. Any thread may call.
#pragma once

#include <cerrno>
#include <cstdint>

#include "hca/device/objects.h"

namespace turnout::hca {

// What ibv_rereg_mr(3) changes of a region.
struct Reregistration {
  Pd* pd = nullptr;  // null: stays
  bool moves = false;
  void* address = nullptr;  // with `moves`
  std::uint64_t length = 0;
  bool changes_access = false;
  unsigned access = 0;
};

class ObjectVerbs {
 public:
  virtual ~ObjectVerbs() = default;

  virtual Pd* alloc_pd(Context& context) = 0;
  virtual Mr* register_memory(Pd& pd, void* address, std::uint64_t length, std::uint64_t iova,
                              unsigned access) = 0;
  virtual Mr* register_file(Pd& pd, std::uint64_t offset, std::uint64_t length, std::uint64_t iova,
                            int fd, unsigned access) = 0;
  // ibv_alloc_null_mr(3). Not under the virtual clock.
  virtual Mr* alloc_null_region(Pd&) { return failed(EOPNOTSUPP); }
  virtual int deregister(Mr& mr) = 0;
  // A further object of a domain or a region that exists (ibv_import_pd(3)), by its handle; the end
  // of one leaves the original alone. Not under the virtual clock.
  virtual Pd* import_pd(Context&, std::uint32_t /*handle*/) { return failed(EOPNOTSUPP); }
  virtual Mr* import_region(Pd&, std::uint32_t /*handle*/) { return failed(EOPNOTSUPP); }
  // The keys stay. Not under the virtual clock.
  virtual int reregister(Mr&, const Reregistration&) { return EOPNOTSUPP; }
  // Checks that `part` lies in a region of this domain (with `write` a writable one) and brings its
  // pages in; without `faults` only the check.
  virtual int prefetch(Pd&, const ibv_sge& /*part*/, bool /*write*/, bool /*faults*/) {
    return EOPNOTSUPP;
  }
  // Memory windows and multicast groups: not under the virtual clock.
  virtual Mw* alloc_window(Pd&, ibv_mw_type) { return failed(EOPNOTSUPP); }
  virtual int dealloc_window(Mw&) { return EOPNOTSUPP; }
  virtual int attach(Qp&, const ibv_gid&) { return EOPNOTSUPP; }
  virtual int detach(Qp&, const ibv_gid&) { return EOPNOTSUPP; }
  virtual Channel* create_channel(Context& context) = 0;
  virtual int destroy_channel(Channel& channel) = 0;
  virtual Cq* create_cq(Context& context, const ibv_cq_init_attr_ex& attr) = 0;
  virtual int resize_cq(Cq& cq, int entries) = 0;
  virtual int destroy_cq(Cq& cq) = 0;
  // xrcd, cq: both or neither: of an XRC one, in the context of `pd`.
  virtual Srq* create_srq(Pd& pd, ibv_srq_init_attr& attr, Xrcd* xrcd, Cq* cq) = 0;
  virtual int modify_srq(Srq& srq, const ibv_srq_attr& attr, int mask) = 0;
  virtual int query_srq(Srq& srq, ibv_srq_attr& attr) = 0;
  virtual int destroy_srq(Srq& srq) = 0;
  // dc: null for a kind of InfiniBand's own.
  virtual Qp* create_qp(Context& context, ibv_qp_init_attr_ex& attr,
                        const mlx5dv_qp_init_attr* dc) = 0;
  virtual int modify_qp(Qp& qp, const ibv_qp_attr& attr, int mask) = 0;
  virtual int query_qp(Qp& qp, ibv_qp_attr& attr, ibv_qp_init_attr& init) = 0;
  virtual int destroy_qp(Qp& qp) = 0;
  // Are the bytes of such a request placed in order, the last one last?
  [[nodiscard]] virtual bool data_in_order(ibv_wr_opcode opcode) const noexcept = 0;
  // fd: -1 for a domain of this handle alone. oflags: O_CREAT, O_EXCL.
  virtual Xrcd* open_xrcd(Context& context, int fd, int oflags) = 0;
  virtual int close_xrcd(Xrcd& xrcd) = 0;
  // A number that no queue pair will have until it is released; EINVAL: it was not reserved so.
  virtual int reserve_number(std::uint32_t&) { return EOPNOTSUPP; }
  virtual int release_number(std::uint32_t) { return EOPNOTSUPP; }
  // A DCI's stream that failed works again (mlx5dv_dci_stream_id_reset(3)).
  virtual int reset_stream(Qp&, std::uint16_t /*stream*/) { return EOPNOTSUPP; }
  // A further handle of an XRC target.
  virtual Qp* open_qp(Xrcd& xrcd, std::uint32_t number, void* qp_context) = 0;
  virtual Ah* create_ah(Pd& pd, const ibv_ah_attr& attr) = 0;
  virtual int get_async_event(Context& context, ibv_async_event& event) = 0;
  // Ends the engine's part of a context. The engine may end with its last context.
  virtual void close(Context& context) = 0;
};

}  // namespace turnout::hca
