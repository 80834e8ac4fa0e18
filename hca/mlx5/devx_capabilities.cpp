// SPDX-License-Identifier: BSD-3-Clause
#include "hca/mlx5/devx_capabilities.h"

#include <endian.h>

#include <bit>

#include "hca/device/attributes.h"
#include "hca/device/identity.h"
#include "hca/device/mlx5_format.h"

namespace turnout::hca {
namespace {

namespace cap = prm::cap;

constexpr std::uint32_t kLogMessage = 30;  // mlx5's, and what UCX insists on

constexpr std::uint32_t log_of(std::uint32_t power_of_two) noexcept {
  return static_cast<std::uint32_t>(std::countr_zero(power_of_two));
}

void tell_general(prm::Out out) {
  const auto set = [out](prm::Field f, std::uint32_t value) { prm::set(out, f, value); };
  set(cap::kHasGeneral2, 1);
  set(cap::kLogQps, log_of(kMaxQps));
  set(cap::kLogQpEntries, log_of(kMaxQpWr));
  set(cap::kLogSrqs, log_of(kMaxSrqs));
  set(cap::kLogSrqEntries, log_of(kMaxSrqWr));
  set(cap::kLogCqs, log_of(kMaxCqs));
  set(cap::kLogCqEntries, log_of(kMaxCqe));
  set(cap::kLogMkeys, log_of(kMaxMrs));
  set(cap::kLogMrBytes, static_cast<std::uint32_t>(std::countr_zero(kMaxMrBytes)));
  set(cap::kQpcExtension, 1);
  for (const prm::Field f :
       {cap::kLogRequests, cap::kLogAnswers, cap::kLogRequestsDc, cap::kLogAnswersDc}) {
    set(f, log_of(kMaxRdAtomic));
  }
  set(cap::kInfinibandVirtual, 1);
  set(cap::kHasDeviceMemory, identity().device_memory != 0 ? 1 : 0);
  set(cap::kPorts, 1);
  set(cap::kLogMessage, kLogMessage);
  set(cap::kCqeVersion, 1);
  set(cap::kCompactAddress, 1);
  set(cap::kMaxIndirection, kMaxIndirection);
  set(cap::kFixedLists, 1);
  set(cap::kLogKeyEntries, log_of(kMaxKeyEntries));
  // Work requests change all of a key of several regions but how long its entries are.
  set(cap::kNoUmrEntitySize, 1);
  for (const prm::Field f : {cap::kDct, cap::kAtomic, cap::kCqOverrun, cap::kCqResize,
                             cap::kBlocksLoopback, cap::kUd, cap::kUc, cap::kRc, cap::kPages4k}) {
    set(f, 1);
  }
  set(cap::kXrc, identity().xrc ? 1 : 0);
  set(cap::kPaging, identity().on_demand ? 1 : 0);
  set(cap::kLogPage, 12);
  constexpr std::uint32_t kRequestBytes = kMlx5MaxBlocks * kMlx5BlockBytes;
  set(cap::kSendBytes, kRequestBytes);
  set(cap::kSendBytesDc, kRequestBytes);
  set(cap::kReceiveBytes, kMaxSge * kMlx5UnitBytes);
  set(cap::kQpsOfGroup, kMaxMulticasts);
  set(cap::kLogGroups, log_of(kMaxMulticasts));
  set(cap::kLogPds, 23);
  set(cap::kLogXrcds, log_of(kMaxXrcds));
  set(cap::kLogRmps, log_of(kMaxSrqs));
  set(cap::kLogWqEntries, log_of(kMaxSrqWr));
  set(cap::kLogUmems, 16);
  set(cap::kFrequencyMhz, 1000);
  set(cap::kFrequencyKhz, 1'000'000);
  set(cap::kLogAtomicBytes, 3);
  set(cap::kLogAtomicBytesDc, 3);
  set(cap::kLogStreams, kMaxLogStreams);
  set(cap::kLogErrored, kMaxLogStreams);
  const auto type = [](prm::GeneralObject object) {
    return std::uint64_t{1} << static_cast<unsigned>(object);
  };
  prm::set64(out, cap::kObjectTypes,
             type(prm::GeneralObject::reserved_qpn) | type(prm::GeneralObject::av_qp_mapping));
}

// The bits of verbs, which are those of mlx5 from the other end.
std::uint32_t paging_word(std::uint32_t verbs) noexcept {
  std::uint32_t word = 0;
  const auto allow = [&](std::uint32_t flag, unsigned bit) {
    if ((verbs & flag) != 0) word |= 1U << (31 - bit);
  };
  allow(IBV_ODP_SUPPORT_SEND, 0);
  allow(IBV_ODP_SUPPORT_RECV, 1);
  allow(IBV_ODP_SUPPORT_WRITE, 2);
  allow(IBV_ODP_SUPPORT_READ, 3);
  allow(IBV_ODP_SUPPORT_ATOMIC, 4);
  allow(IBV_ODP_SUPPORT_SRQ_RECV, 5);
  return word;
}

void tell_paging(const Context& context, prm::Out out) {
  const ibv_device_attr_ex a = extended_attributes(context);
  const auto set = [out](std::uint32_t byte, std::uint32_t verbs) {
    prm::set(out, prm::field(byte, 0, 32), paging_word(verbs));
  };
  set(cap::kOdpRc, a.odp_caps.per_transport_caps.rc_odp_caps);
  set(cap::kOdpUc, a.odp_caps.per_transport_caps.uc_odp_caps);
  set(cap::kOdpUd, a.odp_caps.per_transport_caps.ud_odp_caps);
  set(cap::kOdpXrc, a.xrc_odp_caps);
  set(cap::kOdpDc, a.odp_caps.per_transport_caps.rc_odp_caps);
}

}  // namespace

bool tell_capabilities(const Context& context, std::uint32_t group, prm::Out out) {
  switch (group) {
    case cap::kGeneral:
      tell_general(out);
      return true;
    case cap::kGeneral2:  // every reserved number is an object of its own
      return true;
    case cap::kOdp:
      tell_paging(context, out);
      return true;
    case cap::kAtomics: {
      constexpr std::uint32_t kFourAndEight = 4 | 8;
      prm::set(out, cap::kAtomicOperations,
               cap::kSwap | cap::kAdd | cap::kMaskedSwap | cap::kMaskedAdd);
      prm::set(out, cap::kAtomicSizes, kFourAndEight);
      prm::set(out, cap::kAtomicSizesDc, kFourAndEight);
      prm::set(out, cap::kAtomicHostOrder, 1);
      return true;
    }
    case cap::kDeviceMemory:
      if (identity().device_memory == 0) return true;
      prm::set(out, cap::kMemic, 1);
      prm::set(out, cap::kMemicBytes, static_cast<std::uint32_t>(identity().device_memory));
      prm::set(out, cap::kLogMemicAlignment, 12);
      return true;
    case cap::kFlowTables:
    case cap::kQos:
      return true;
    default:
      return false;
  }
}

void tell_port(const Context& context, prm::Out out) {
  namespace vport = prm::vport;
  const ibv_port_attr a = port_attributes(context);
  const auto set = [out](prm::Field f, std::uint32_t value) { prm::set(out, f, value); };
  set(vport::kPhysicalState, a.phys_state);
  set(vport::kPortState, a.state);
  set(vport::kVportState, a.state);
  set(vport::kLid, a.lid);
  set(vport::kSmLid, a.sm_lid);
  set(vport::kSubnetTimeout, a.subnet_timeout);
  const std::uint64_t guid = be64toh(node_guid(context));
  prm::set64(out, vport::kSystemGuid, guid);
  prm::set64(out, vport::kPortGuid, guid);
  prm::set64(out, vport::kNodeGuid, guid);
}

}  // namespace turnout::hca
