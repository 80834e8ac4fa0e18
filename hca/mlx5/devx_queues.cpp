// SPDX-License-Identifier: BSD-3-Clause
// Commands of DevX that make, modify and query queues.
#include <algorithm>
#include <bit>
#include <cstring>

#include "hca/device/mlx5_format.h"
#include "hca/device/qp_state.h"
#include "hca/device/queue_pair.h"
#include "hca/mlx5/devx_commands.h"

namespace turnout::hca {
namespace {

using prm::Answer;
using prm::get;
using prm::Opcode;
using prm::set;

constexpr std::uint32_t kNumberBits = 0xff'ffff;
constexpr std::uint64_t kDoorbellBytes = 8;

// What the firmware answers where verbs give an errno value.
Answer answer_of_errno(int error) noexcept {
  switch (error) {
    case ENOMEM:
      return Answer::no_resources;
    case EBUSY:
      return Answer::resource_busy;
    case EOPNOTSUPP:
      return Answer::bad_operation;
    default:
      return Answer::bad_parameter;
  }
}

unsigned access_of(prm::In context, prm::Field reads, prm::Field writes,
                   prm::Field atomics) noexcept {
  unsigned access = IBV_ACCESS_LOCAL_WRITE;
  if (get(context, reads) != 0) access |= IBV_ACCESS_REMOTE_READ;
  if (get(context, writes) != 0) access |= IBV_ACCESS_REMOTE_WRITE;
  if (get(context, atomics) != 0) access |= IBV_ACCESS_REMOTE_ATOMIC;
  return access;
}

// The port that a context names; none: the first.
std::uint8_t port_of(prm::In context, prm::Field field) noexcept {
  const std::uint32_t port = get(context, field);
  return port == 0 ? kPort : static_cast<std::uint8_t>(port);
}

ibv_ah_attr path_of(prm::In context) noexcept {
  namespace qp = prm::qp;
  ibv_ah_attr out{};
  out.port_num = port_of(context, qp::kPort);
  out.dlid = static_cast<std::uint16_t>(get(context, qp::kLid));
  out.sl = static_cast<std::uint8_t>(get(context, qp::kServiceLevel));
  out.src_path_bits = static_cast<std::uint8_t>(get(context, qp::kPathBits));
  out.static_rate = static_cast<std::uint8_t>(get(context, qp::kRate));
  out.is_global = static_cast<std::uint8_t>(get(context, qp::kGlobal));
  if (out.is_global != 0) {
    out.grh.flow_label = get(context, qp::kFlowLabel);
    out.grh.sgid_index = static_cast<std::uint8_t>(get(context, qp::kSourceGid));
    out.grh.hop_limit = static_cast<std::uint8_t>(get(context, qp::kHopLimit));
    out.grh.traffic_class = static_cast<std::uint8_t>(get(context, qp::kTrafficClass));
    const prm::In gid = prm::behind(context, qp::kGid);
    if (gid.size() >= sizeof out.grh.dgid.raw) {
      std::memcpy(out.grh.dgid.raw, gid.data(), sizeof out.grh.dgid.raw);
    }
  }
  return out;
}

void tell_path(prm::Out context, const ibv_ah_attr& path) noexcept {
  namespace qp = prm::qp;
  set(context, qp::kPort, path.port_num);
  set(context, qp::kLid, path.dlid);
  set(context, qp::kServiceLevel, path.sl);
  set(context, qp::kPathBits, path.src_path_bits);
  set(context, qp::kRate, path.static_rate);
  set(context, qp::kGlobal, path.is_global);
  if (path.is_global == 0) return;
  set(context, qp::kFlowLabel, path.grh.flow_label);
  set(context, qp::kSourceGid, path.grh.sgid_index);
  set(context, qp::kHopLimit, path.grh.hop_limit);
  set(context, qp::kTrafficClass, path.grh.traffic_class);
  const prm::Out gid = prm::behind(context, qp::kGid);
  if (gid.size() >= sizeof path.grh.dgid.raw) {
    std::memcpy(gid.data(), path.grh.dgid.raw, sizeof path.grh.dgid.raw);
  }
}

// mlx5's number of a state of verbs.
std::uint32_t state_number(ibv_qp_state state) noexcept {
  switch (state) {
    case IBV_QPS_INIT:
      return 1;
    case IBV_QPS_RTR:
      return 2;
    case IBV_QPS_RTS:
      return 3;
    case IBV_QPS_SQE:
      return 4;
    case IBV_QPS_ERR:
      return 6;
    case IBV_QPS_SQD:
      return 7;
    default:
      return 0;
  }
}

// What a command changes: the attributes of verbs that its context says, for this kind.
struct Change {
  ibv_qp_attr attr{};
  int mask = IBV_QP_STATE;
};

constexpr int kAtPort = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
constexpr int kPeer = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kAnswers = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRequests =
    IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

int required_mask(Opcode opcode, QpKind kind) noexcept {
  switch (opcode) {
    case Opcode::rst2init_qp:
      if (kind == QpKind::ud) return kAtPort | IBV_QP_QKEY;
      return kind == QpKind::dci ? kAtPort : kAtPort | IBV_QP_ACCESS_FLAGS;
    case Opcode::init2rtr_qp:
      if (kind == QpKind::rc) return kPeer | kAnswers;
      if (kind == QpKind::uc) return kPeer;
      return kind == QpKind::dci ? IBV_QP_PATH_MTU : 0;
    case Opcode::rtr2rts_qp:
      return kind == QpKind::rc || kind == QpKind::dci ? kRequests : IBV_QP_SQ_PSN;
    default:
      return 0;
  }
}

// What the program adds to it (opt_param_mask), as far as the kind has it.
int optional_mask(Opcode opcode, QpKind kind, std::uint32_t optional) noexcept {
  namespace qp = prm::qp;
  const bool connected = kind == QpKind::rc || kind == QpKind::uc;
  int mask = 0;
  if ((optional & qp::kOptAccess) != 0 && connected) mask |= IBV_QP_ACCESS_FLAGS;
  if ((optional & qp::kOptPkey) != 0 && opcode != Opcode::rtr2rts_qp &&
      opcode != Opcode::rts2rts_qp) {
    mask |= IBV_QP_PKEY_INDEX;
  }
  if ((optional & qp::kOptQkey) != 0 && kind == QpKind::ud) mask |= IBV_QP_QKEY;
  const bool sends = opcode == Opcode::rtr2rts_qp || opcode == Opcode::rts2rts_qp;
  if ((optional & qp::kOptRnrTimer) != 0 && kind == QpKind::rc && sends) {
    mask |= IBV_QP_MIN_RNR_TIMER;
  }
  return mask;
}

void read_context(prm::In context, ibv_qp_attr& attr) noexcept {
  namespace qp = prm::qp;
  const auto byte = [context](prm::Field f) { return static_cast<std::uint8_t>(get(context, f)); };
  attr.pkey_index = static_cast<std::uint16_t>(get(context, qp::kPkeyIndex));
  attr.port_num = port_of(context, qp::kPort);
  attr.qp_access_flags = access_of(context, qp::kRemoteRead, qp::kRemoteWrite, qp::kRemoteAtomic);
  attr.qkey = get(context, qp::kQkey);
  attr.ah_attr = path_of(context);
  attr.dest_qp_num = get(context, qp::kRemoteQpn);
  attr.rq_psn = get(context, qp::kReceivePsn);
  attr.sq_psn = get(context, qp::kSendPsn);
  attr.max_rd_atomic = static_cast<std::uint8_t>(1U << get(context, qp::kLogRequests));
  attr.max_dest_rd_atomic = static_cast<std::uint8_t>(1U << get(context, qp::kLogAnswers));
  attr.min_rnr_timer = byte(qp::kRnrTimer);
  attr.timeout = byte(qp::kAckTimeout);
  attr.retry_cnt = byte(qp::kRetries);
  attr.rnr_retry = byte(qp::kRnrRetries);
}

}  // namespace

Pd* DevxCommands::domain(std::uint32_t number) const {
  const auto* const found = objects_.domains.find_if(
      [=](const FileObjects::Domain& d) { return (d.pd->number & kNumberBits) == number; });
  return found != nullptr ? found->pd : nullptr;
}

Cq* DevxCommands::completion_queue(std::uint32_t number) const {
  const auto matches = [=](const CqObject& queue) { return queue.cq->index == number; };
  if (const CqObject* const found = objects_.cqs.find_if(matches)) return found->cq;
  const Object* const own = devx_.find_if(
      [&](const Object& object) { return object.cq != nullptr && matches(*object.cq); });
  return own != nullptr ? own->cq->cq : nullptr;
}

Srq* DevxCommands::shared_queue(std::uint32_t number) const {
  const auto matches = [=](const SrqObject& shared) { return shared.srq->number == number; };
  if (const SrqObject* const found = objects_.srqs.find_if(matches)) return found->srq;
  const Object* const own = devx_.find_if(
      [&](const Object& object) { return object.srq != nullptr && matches(*object.srq); });
  return own != nullptr ? own->srq->srq : nullptr;
}

QpObject* DevxCommands::queue_pair(std::uint32_t handle, std::uint32_t number) const {
  const auto matches = [=](const QpObject* pair) {
    return pair != nullptr && pair->qp->number == number && pair->qp->kind != QpKind::dct &&
           pair->qp->kind != QpKind::xrc_tgt;
  };
  const Object* const own = devx_.find(handle);
  if (own != nullptr && matches(own->qp.get())) return own->qp.get();
  QpObject* const verbs = objects_.qps.find(handle);
  return matches(verbs) ? verbs : nullptr;
}

DevxCommands::Refusal DevxCommands::execute_create(Opcode opcode, prm::In in, prm::Out out,
                                                   Object& object) {
  object.made_by = opcode;
  Refusal refusal;
  switch (opcode) {
    case Opcode::create_cq:
      refusal = create_cq(in, object);
      break;
    case Opcode::create_qp:
      refusal = create_qp(in, object);
      break;
    case Opcode::create_rmp:
      refusal = create_rmp(in, object);
      break;
    case Opcode::create_dct:
      refusal = create_dct(in, object);
      break;
    case Opcode::create_mkey:
      refusal = create_key(in, object);
      break;
    case Opcode::create_general_object:
      refusal = create_general_object(in, object);
      set(out, prm::kObjectId, object.number);
      return refusal;
    default:
      return {Answer::bad_operation, "this device does not have the command"};
  }
  set(out, prm::kNumber, object.number);
  return refusal;
}

DevxCommands::Refusal DevxCommands::create_cq(prm::In in, Object& object) {
  namespace cq = prm::cq;
  if (in.size() < cq::kBytes) return {Answer::bad_input_length, "completion queue"};
  const prm::In context = prm::behind(in, cq::kContext);
  const std::uint32_t vector = get(context, cq::kEqn) - 1;
  if (vector >= static_cast<std::uint32_t>(kCompletionVectors)) {
    return {Answer::bad_resource, "no such event queue"};
  }
  if (!is_page(get(context, cq::kPage))) return {Answer::bad_resource, "no such doorbell page"};
  const std::uint32_t code = get(context, cq::kEntryBytes);
  if (code > 1) return {Answer::bad_parameter, "entries have 64 or 128 bytes"};
  const std::uint32_t log_size = get(context, cq::kLogSize);
  if ((std::uint64_t{1} << log_size) > kMaxCqe) {
    return {Answer::exceeds_limit, "entries of a completion queue"};
  }
  mlx5_ib_create_cq mlx5{};
  mlx5.cqe_size = 64U << code;
  if (const Refusal r = place(get(in, cq::kUmem), prm::get64(in, cq::kUmemOffset),
                              std::uint64_t{mlx5.cqe_size} << log_size, object, mlx5.buf_addr);
      r.refused()) {
    return r;
  }
  if (const Refusal r =
          place(get(context, cq::kDoorbellUmem), prm::get64(context, cq::kDoorbellOffset),
                kDoorbellBytes, object, mlx5.db_addr);
      r.refused()) {
    return r;
  }
  CqRequest request;
  request.user_handle = reinterpret_cast<std::uint64_t>(&object);
  request.cqe = (1U << log_size) - 1;
  request.comp_vector = vector;
  request.unchecked = get(context, cq::kIgnoreOverrun) != 0;
  if (const int error = queues_.make(request, mlx5, object.cq); error != 0) {
    return {answer_of_errno(error), "the completion queue cannot be made"};
  }
  objects_.engine->events().direct(*object.cq->cq, nullptr);
  object.number = object.cq->cq->index;
  return {};
}

DevxCommands::Refusal DevxCommands::create_qp(prm::In in, Object& object) {
  namespace qp = prm::qp;
  if (in.size() < qp::kBytes) return {Answer::bad_input_length, "queue pair"};
  const prm::In context = prm::behind(in, qp::kContext);
  QpRequest request;
  mlx5_ib_create_qp mlx5{};
  request.asked.user_handle = reinterpret_cast<std::uint64_t>(&object);
  switch (get(context, qp::kService)) {
    case qp::kServiceRc:
      request.asked.qp_type = IBV_QPT_RC;
      break;
    case qp::kServiceUc:
      request.asked.qp_type = IBV_QPT_UC;
      break;
    case qp::kServiceUd:
      request.asked.qp_type = IBV_QPT_UD;
      break;
    case qp::kServiceDci:
      request.asked.qp_type = IBV_QPT_DRIVER;
      mlx5.flags = MLX5_QP_FLAG_TYPE_DCI;
      break;
    default:
      return {Answer::bad_parameter, "no such service"};
  }
  const std::uint32_t streams = get(context, qp::kLogStreams);
  if (mlx5.flags != 0 && streams != 0) {
    mlx5.flags |= MLX5_QP_FLAG_DCI_STREAM;
    mlx5.dci_streams.log_num_concurent = static_cast<std::uint8_t>(streams);
    mlx5.dci_streams.log_num_errored = static_cast<std::uint8_t>(get(context, qp::kLogErrored));
  }
  request.pd = domain(get(context, qp::kPd));
  if (request.pd == nullptr) return {Answer::bad_resource, "no such protection domain"};
  if (!is_page(get(context, qp::kPage))) return {Answer::bad_resource, "no such doorbell page"};
  request.send = completion_queue(get(context, qp::kSendCq));
  request.receive = completion_queue(get(context, qp::kReceiveCq));
  if (request.send == nullptr || request.receive == nullptr) {
    return {Answer::bad_resource, "no such completion queue"};
  }
  const std::uint32_t receives = get(context, qp::kReceiveType);
  mlx5.rq_wqe_shift = get(context, qp::kLogReceiveStride) + 4;
  if (receives == qp::kReceivesOwn) {
    mlx5.rq_wqe_count = 1U << get(context, qp::kLogReceives);
  } else if (receives == qp::kReceivesShared) {
    request.srq = shared_queue(get(context, qp::kShared));
    if (request.srq == nullptr) return {Answer::bad_resource, "no such shared receive queue"};
    request.asked.is_srq = 1;
  } else if (receives != qp::kReceivesNone) {
    return {Answer::bad_parameter, "no such kind of receive queue"};
  }
  if (get(context, qp::kNoSends) == 0) mlx5.sq_wqe_count = 1U << get(context, qp::kLogSends);
  const std::uint64_t bytes = (std::uint64_t{mlx5.rq_wqe_count} << mlx5.rq_wqe_shift) +
                              std::uint64_t{mlx5.sq_wqe_count} * kMlx5BlockBytes;
  if (bytes != 0) {
    if (const Refusal r = place(get(in, qp::kUmem), prm::get64(in, qp::kUmemOffset), bytes, object,
                                mlx5.buf_addr);
        r.refused()) {
      return r;
    }
    if (const Refusal r =
            place(get(context, qp::kDoorbellUmem), prm::get64(context, qp::kDoorbellOffset),
                  kDoorbellBytes, object, mlx5.db_addr);
        r.refused()) {
      return r;
    }
  }
  mlx5.uidx = get(context, qp::kUserIndex);
  if (const int error = queues_.make(request, mlx5, object.qp); error != 0) {
    return {answer_of_errno(error), "the queue pair cannot be made"};
  }
  LiveEvents::direct(*object.qp->qp, nullptr);
  object.number = object.qp->qp->number;
  return {};
}

DevxCommands::Refusal DevxCommands::create_rmp(prm::In in, Object& object) {
  namespace rmp = prm::rmp;
  if (in.size() < rmp::kBytes) return {Answer::bad_input_length, "shared receives"};
  const prm::In context = prm::behind(in, rmp::kContext), queue = prm::behind(in, rmp::kQueue);
  if (get(context, rmp::kState) != rmp::kReady) {
    return {Answer::bad_resource_state, "shared receives begin ready"};
  }
  const std::uint32_t type = get(queue, rmp::kType);
  // Others have entries of several messages, or without heads.
  if (type > rmp::kCyclic || get(context, rmp::kBasicCyclic) != 0) {
    return {Answer::bad_parameter, "no such kind of shared receives"};
  }
  SrqRequest request;
  request.user_handle = reinterpret_cast<std::uint64_t>(&object);
  request.pd = domain(get(queue, rmp::kPd));
  if (request.pd == nullptr) return {Answer::bad_resource, "no such protection domain"};
  const std::uint32_t log_size = get(queue, rmp::kLogSize),
                      log_stride = get(queue, rmp::kLogStride);
  constexpr std::uint32_t kLeast = 5, kMost = 9;  // a head and a pointer; as many as there can be
  if (log_stride < kLeast || log_stride > kMost) {
    return {Answer::bad_parameter, "entries of shared receives"};
  }
  if ((std::uint64_t{1} << log_size) > kMaxSrqWr) {
    return {Answer::exceeds_limit, "entries of shared receives"};
  }
  request.limits.max_wr = (1U << log_size) - 1;
  request.limits.max_sge = std::min(kMaxSge, (1U << log_stride) / kMlx5UnitBytes - 1);
  request.cyclic = type == rmp::kCyclic;
  mlx5_ib_create_srq mlx5{};
  if (const Refusal r = place(get(queue, rmp::kUmem), prm::get64(queue, rmp::kUmemOffset),
                              std::uint64_t{1} << (log_size + log_stride), object, mlx5.buf_addr);
      r.refused()) {
    return r;
  }
  if (const Refusal r =
          place(get(queue, rmp::kDoorbellUmem), prm::get64(queue, rmp::kDoorbellOffset),
                kDoorbellBytes, object, mlx5.db_addr);
      r.refused()) {
    return r;
  }
  if (const int error = queues_.make(request, mlx5, object.srq); error != 0) {
    return {answer_of_errno(error), "the shared receives cannot be made"};
  }
  LiveEvents::direct(*object.srq->srq, nullptr);
  object.number = object.srq->srq->number;
  return {};
}

DevxCommands::Refusal DevxCommands::create_dct(prm::In in, Object& object) {
  namespace dct = prm::dct;
  if (in.size() < dct::kBytes) return {Answer::bad_input_length, "DC target"};
  const prm::In context = prm::behind(in, dct::kContext);
  QpRequest request;
  request.asked.user_handle = reinterpret_cast<std::uint64_t>(&object);
  request.asked.qp_type = IBV_QPT_DRIVER;
  request.asked.is_srq = 1;
  request.pd = domain(get(context, dct::kPd));
  if (request.pd == nullptr) return {Answer::bad_resource, "no such protection domain"};
  request.receive = completion_queue(get(context, dct::kCq));
  if (request.receive == nullptr) return {Answer::bad_resource, "no such completion queue"};
  request.srq = shared_queue(get(context, dct::kShared));
  if (request.srq == nullptr) return {Answer::bad_resource, "no such shared receive queue"};
  mlx5_ib_create_qp mlx5{};
  mlx5.flags = MLX5_QP_FLAG_TYPE_DCT;
  mlx5.access_key = prm::get64(context, dct::kAccessKey);
  mlx5.uidx = get(context, dct::kUserIndex);
  const std::uint32_t mtu = get(context, dct::kMtu);
  if (mtu < IBV_MTU_256 || mtu > IBV_MTU_4096) return {Answer::bad_parameter, "no such MTU"};
  if (const int error = queues_.make(request, mlx5, object.qp); error != 0) {
    return {answer_of_errno(error), "the DC target cannot be made"};
  }
  LiveEvents::direct(*object.qp->qp, nullptr);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.pkey_index = static_cast<std::uint16_t>(get(context, dct::kPkeyIndex));
  attr.port_num = attr.ah_attr.port_num = port_of(context, dct::kPort);
  attr.qp_access_flags =
      access_of(context, dct::kRemoteRead, dct::kRemoteWrite, dct::kRemoteAtomic);
  attr.path_mtu = static_cast<ibv_mtu>(mtu);
  attr.min_rnr_timer = static_cast<std::uint8_t>(get(context, dct::kRnrTimer));
  attr.ah_attr.grh.hop_limit = static_cast<std::uint8_t>(get(context, dct::kHopLimit));
  attr.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(get(context, dct::kSourceGid));
  int error = queues_.modify(*object.qp, attr, IBV_QP_STATE | kAtPort | IBV_QP_ACCESS_FLAGS);
  if (error == 0) {
    attr.qp_state = IBV_QPS_RTR;
    error = queues_.modify(*object.qp, attr,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER);
  }
  if (error != 0) return {answer_of_errno(error), "the DC target cannot be made ready"};
  object.number = object.qp->qp->number;
  return {};
}

DevxCommands::Refusal DevxCommands::create_general_object(prm::In in, Object& object) {
  switch (static_cast<prm::GeneralObject>(get(in, prm::kObjectType))) {
    case prm::GeneralObject::reserved_qpn:
      if (get(in, prm::kLogObjectRange) != 0) {
        return {Answer::bad_parameter, "numbers are reserved one by one"};
      }
      if (const int error = objects_.verbs().reserve_number(object.number); error != 0) {
        return {answer_of_errno(error), "no number is free"};
      }
      return {};
    case prm::GeneralObject::av_qp_mapping: {
      if (in.size() < prm::kMappingBytes) return {Answer::bad_input_length, "mapping"};
      const std::uint32_t number = get(in, prm::kMappedQpn);
      if (number < kFirstQp || number > kNumberBits) {
        return {Answer::bad_resource, "no such queue pair"};
      }
      // A hint about congestion, which there is none of. Beyond the numbers of queue pairs.
      object.number = kNumberBits + next_hint_++;
      return {};
    }
    default:
      return {Answer::bad_parameter, "no such object"};
  }
}

DevxCommands::Refusal DevxCommands::modify_qp(QpObject& pair, Opcode opcode, prm::In in) {
  namespace qp = prm::qp;
  Change change;
  if (opcode == Opcode::to_err_qp || opcode == Opcode::to_rst_qp) {
    change.attr.qp_state = opcode == Opcode::to_err_qp ? IBV_QPS_ERR : IBV_QPS_RESET;
  } else {
    if (in.size() < qp::kBytes) return {Answer::bad_input_length, "change of a queue pair"};
    const QpKind kind = pair.qp->kind;
    const prm::In context = prm::behind(in, qp::kContext);
    const std::uint32_t mtu = get(context, qp::kMtu);
    read_context(context, change.attr);
    change.mask |=
        required_mask(opcode, kind) | optional_mask(opcode, kind, get(in, qp::kOptional));
    if ((change.mask & IBV_QP_PATH_MTU) != 0) {
      if (mtu < IBV_MTU_256 || mtu > IBV_MTU_4096) return {Answer::bad_parameter, "no such MTU"};
      change.attr.path_mtu = static_cast<ibv_mtu>(mtu);
    }
    if (opcode == Opcode::rst2init_qp || opcode == Opcode::init2init_qp) {
      change.attr.qp_state = IBV_QPS_INIT;
    } else {
      change.attr.qp_state = opcode == Opcode::init2rtr_qp ? IBV_QPS_RTR : IBV_QPS_RTS;
    }
    // From which state the command leads.
    const ibv_qp_state now = to_verbs(pair.qp->record->phase());
    const ibv_qp_state from = opcode == Opcode::rst2init_qp    ? IBV_QPS_RESET
                              : opcode == Opcode::init2init_qp ? IBV_QPS_INIT
                              : opcode == Opcode::init2rtr_qp  ? IBV_QPS_INIT
                              : opcode == Opcode::rtr2rts_qp   ? IBV_QPS_RTR
                                                               : IBV_QPS_RTS;
    if (now != from) return {Answer::bad_qp_state, "the queue pair is in another state"};
    if (opcode == Opcode::rts2rts_qp && get(in, qp::kExtended) != 0 &&
        (get(in, qp::kOptional2) & qp::kOptStream) != 0) {
      const auto stream = static_cast<std::uint16_t>(get(in, qp::kStream));
      if (objects_.verbs().reset_stream(*pair.qp, stream) != 0) {
        return {Answer::bad_parameter, "the stream has not failed"};
      }
      if (change.mask == IBV_QP_STATE) return {};
    }
  }
  if (const int error = queues_.modify(pair, change.attr, change.mask); error != 0) {
    return {answer_of_errno(error), "the change is not allowed"};
  }
  return {};
}

DevxCommands::Refusal DevxCommands::query_qp(const QpObject& pair, prm::Out out) {
  namespace qp = prm::qp;
  if (out.size() < qp::kBytes) return {Answer::bad_output_length, "queue pair"};
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  if (const int error = objects_.verbs().query_qp(*pair.qp, attr, init); error != 0) {
    return {answer_of_errno(error), "the queue pair cannot be looked at"};
  }
  const prm::Out context = prm::behind(out, qp::kContext);
  const auto tell = [context](prm::Field f, std::uint32_t value) { set(context, f, value); };
  const QpKind kind = pair.qp->kind;
  tell(qp::kState, state_number(attr.qp_state));
  tell(qp::kService, kind == QpKind::uc    ? qp::kServiceUc
                     : kind == QpKind::ud  ? qp::kServiceUd
                     : kind == QpKind::dci ? qp::kServiceDci
                                           : qp::kServiceRc);
  tell(qp::kPathMigration, qp::kMigrated);
  tell(qp::kPd, pair.qp->record->pd);
  tell(qp::kMtu, attr.path_mtu);
  constexpr std::uint32_t kLogMessageBytes = 30;
  tell(qp::kLogMessage, kLogMessageBytes);
  tell(qp::kUserIndex, pair.queue->place().user_index);
  tell(qp::kRemoteQpn, attr.dest_qp_num);
  tell(qp::kPkeyIndex, attr.pkey_index);
  tell_path(context, attr.ah_attr);
  if (attr.ah_attr.port_num == 0) tell(qp::kPort, attr.port_num);
  tell(qp::kAckTimeout, attr.timeout);
  tell(qp::kRetries, attr.retry_cnt);
  tell(qp::kRnrRetries, attr.rnr_retry);
  tell(qp::kSendPsn, attr.sq_psn);
  tell(qp::kReceivePsn, attr.rq_psn);
  tell(qp::kRnrTimer, attr.min_rnr_timer);
  tell(qp::kQkey, attr.qkey);
  const auto log_of = [](std::uint32_t value) {
    return value == 0 ? 0U : static_cast<std::uint32_t>(std::bit_width(value) - 1);
  };
  tell(qp::kLogRequests, log_of(attr.max_rd_atomic));
  tell(qp::kLogAnswers, log_of(attr.max_dest_rd_atomic));
  tell(qp::kLogSends, log_of(pair.queue->place().blocks));
  tell(qp::kNoSends, pair.queue->place().blocks == 0 ? 1 : 0);
  tell(qp::kLogReceives, log_of(pair.receives.entries));
  tell(qp::kLogReceiveStride, log_of(pair.receives.max_sge));
  const auto allows = [&](unsigned right) { return (attr.qp_access_flags & right) != 0 ? 1U : 0U; };
  tell(qp::kRemoteRead, allows(IBV_ACCESS_REMOTE_READ));
  tell(qp::kRemoteWrite, allows(IBV_ACCESS_REMOTE_WRITE));
  tell(qp::kRemoteAtomic, allows(IBV_ACCESS_REMOTE_ATOMIC));
  const QpRecord& record = *pair.qp->record;
  tell(qp::kSendCq, record.send_cq & kNumberBits);
  tell(qp::kReceiveCq, record.recv_cq & kNumberBits);
  const auto* const srq = reinterpret_cast<const Srq*>(init.srq);
  tell(qp::kReceiveType, srq != nullptr               ? qp::kReceivesShared
                         : pair.receives.entries != 0 ? qp::kReceivesOwn
                                                      : qp::kReceivesNone);
  if (srq != nullptr) tell(qp::kShared, srq->number);
  return {};
}

}  // namespace turnout::hca
