// SPDX-License-Identifier: BSD-3-Clause
// Completion queues: creation, polling in both styles.
#include <cerrno>
#include <mutex>

#include "hca/abi/verbs.h"
#include "hca/device/identity.h"
#include "hca/device/rules.h"

using namespace turnout::hca;

namespace {

Cq& of(ibv_cq_ex* cq) {
  return *reinterpret_cast<Cq*>(cq);
}

bool next_entry(Cq& cq) {
  if (!data_path_of(&cq.verbs).take(cq, cq.current)) return false;
  cq.verbs.wr_id = cq.current.wr_id;
  cq.verbs.status = static_cast<ibv_wc_status>(cq.current.status);
  return true;
}

// start_poll keeps the lock until end_poll when it returns 0 (ibv_create_cq_ex(3)).
int start_poll(ibv_cq_ex* current, ibv_poll_cq_attr* attr) {
  if (attr->comp_mask != 0) return EINVAL;
  Cq& cq = of(current);
  if (!may_have_entry(cq) && data_path_of(current).idle(cq) < 0) return EIO;
  if (!may_have_entry(cq)) return ENOENT;
  if (!cq.single_threaded) cq.poll_lock.lock();
  if (next_entry(cq)) return 0;
  if (!cq.single_threaded) cq.poll_lock.unlock();
  return ENOENT;
}
int next_poll(ibv_cq_ex* current) {
  return next_entry(of(current)) ? 0 : ENOENT;
}
void end_poll(ibv_cq_ex* current) {
  if (!of(current).single_threaded) of(current).poll_lock.unlock();
}

void fill_readers(ibv_cq_ex& v) {
  v.start_poll = start_poll;
  v.next_poll = next_poll;
  v.end_poll = end_poll;
  v.read_opcode = [](ibv_cq_ex* c) { return static_cast<ibv_wc_opcode>(of(c).current.opcode); };
  v.read_vendor_err = [](ibv_cq_ex* c) { return of(c).current.vendor_err; };
  v.read_byte_len = [](ibv_cq_ex* c) { return of(c).current.byte_len; };
  v.read_imm_data = [](ibv_cq_ex* c) { return __be32{of(c).current.imm}; };
  v.read_qp_num = [](ibv_cq_ex* c) { return of(c).current.qpn; };
  v.read_src_qp = [](ibv_cq_ex* c) { return of(c).current.src_qp; };
  v.read_wc_flags = [](ibv_cq_ex* c) { return static_cast<unsigned>(of(c).current.flags); };
  v.read_slid = [](ibv_cq_ex*) { return std::uint32_t{kLid}; };
  v.read_sl = [](ibv_cq_ex*) { return std::uint8_t{0}; };
  v.read_dlid_path_bits = [](ibv_cq_ex*) { return std::uint8_t{0}; };
  v.read_completion_ts = [](ibv_cq_ex* c) { return of(c).current.timestamp; };
  v.read_completion_wallclock_ns = [](ibv_cq_ex* c) {
    const std::uint64_t real = clock_ns(CLOCK_REALTIME), mono = clock_ns(CLOCK_MONOTONIC);
    return of(c).current.timestamp + (real - mono);
  };
}

Cq* create(ibv_context* context, const ibv_cq_init_attr_ex& attr) {
  if (attr.cqe > identity().max_cqe) return failed(EINVAL);
  if (const int error = check_queue_memory("MLX_CQ_ALLOC_TYPE"); error != 0) return failed(error);
  return objects_of(context).create_cq(context_of(context), attr);
}

}  // namespace

namespace turnout::hca {

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  constexpr auto known = std::uint64_t{IBV_WC_STANDARD_FLAGS} |
                         IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                         IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
  // A parent domain says who allocates and who locks: memory of queues is not the program's here.
  constexpr unsigned known_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
  if ((attr->wc_flags & ~known) != 0 || (attr->comp_mask & ~known_mask) != 0) {
    return failed(EOPNOTSUPP);
  }
  Cq* cq = create(context, *attr);
  if (cq == nullptr) return nullptr;
  cq->extended = true;
  fill_readers(cq->verbs);
  return &cq->verbs;
}

int modify_cq(ibv_cq*, ibv_modify_cq_attr* attr) {
  // Moderation bounds how late an event may come: ours come at once.
  return (attr->attr_mask & ~static_cast<unsigned>(IBV_CQ_ATTR_MODERATE)) != 0 ? EINVAL : 0;
}

int poll_cq(ibv_cq* verbs, int entries, ibv_wc* wc) {
  Cq& cq = cq_of(verbs);
  DataPath& data_path = data_path_of(verbs);
  if (!may_have_entry(cq)) {
    // It may have let others run meanwhile: "empty" must not be what was so before that. Who polls
    // and then looks at its connections would else find a peer gone whose last message it lost.
    const int result = data_path.idle(cq);
    if (result < 0 || !may_have_entry(cq)) return result;
  }
  std::unique_lock lock(cq.poll_lock, std::defer_lock);
  if (!cq.single_threaded) lock.lock();
  int n = 0;
  Completion entry;
  while (n < entries && data_path.take(cq, entry)) to_verbs(entry, wc[n++]);
  return n;
}

int req_notify_cq(ibv_cq* verbs, int solicited_only) {
  return data_path_of(verbs).request_notify(cq_of(verbs), solicited_only != 0);
}

}  // namespace turnout::hca

TURNOUT_EXPORT ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context,
                                     ibv_comp_channel* channel, int comp_vector) {
  if (cqe <= 0 || comp_vector < 0) return failed(EINVAL);
  ibv_cq_init_attr_ex attr{};
  attr.cqe = static_cast<std::uint32_t>(cqe);
  attr.cq_context = cq_context;
  attr.channel = channel;
  attr.comp_vector = static_cast<std::uint32_t>(comp_vector);
  Cq* cq = create(context, attr);
  return cq != nullptr ? ibv_cq_ex_to_cq(&cq->verbs) : nullptr;
}

TURNOUT_EXPORT int ibv_resize_cq(ibv_cq* cq, int cqe) {
  return objects_of(cq).resize_cq(cq_of(cq), cqe);
}

TURNOUT_EXPORT int ibv_destroy_cq(ibv_cq* cq) {
  return objects_of(cq).destroy_cq(cq_of(cq));
}
