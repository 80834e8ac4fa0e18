// SPDX-License-Identifier: BSD-3-Clause
// The commands of an mlx5's firmware that DevX carries: their numbers, what they answer, and where
// the fields of their mailboxes are.
//
// A mailbox is bytes in big-endian words; a field lies within a word of 32 bits. What lies beyond
// the end of a mailbox reads as zero, and is not written: lengths are checked by whoever runs the
// command. Pure, any thread. Source: the structs of rdma-core's mlx5_ifc.h.
#pragma once

#include <endian.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace turnout::hca::prm {

// `bit` counts from the highest bit of the mailbox's first byte.
struct Field {
  std::uint32_t bit;
  std::uint32_t width;
};
[[nodiscard]] constexpr Field field(std::uint32_t byte, std::uint32_t bit, std::uint32_t width) {
  return {byte * 8 + bit, width};
}

using In = std::span<const std::byte>;
using Out = std::span<std::byte>;

// From this byte on; empty where the mailbox is shorter.
template <class Bytes>
[[nodiscard]] Bytes behind(Bytes box, std::size_t byte) noexcept {
  return byte < box.size() ? box.subspan(byte) : Bytes{};
}

namespace detail {
inline constexpr std::uint32_t kWordBits = 32;
struct Place {
  std::size_t byte;  // of the word
  std::uint32_t shift, mask;
};
[[nodiscard]] constexpr Place place_of(Field f) noexcept {
  return {f.bit / kWordBits * sizeof(std::uint32_t), kWordBits - f.bit % kWordBits - f.width,
          f.width == kWordBits ? ~0U : (1U << f.width) - 1};
}
}  // namespace detail

[[nodiscard]] inline std::uint32_t get(In box, Field f) noexcept {
  const detail::Place at = detail::place_of(f);
  std::uint32_t word = 0;
  if (at.byte + sizeof word > box.size()) return 0;
  std::memcpy(&word, box.data() + at.byte, sizeof word);
  return be32toh(word) >> at.shift & at.mask;
}
inline void set(Out box, Field f, std::uint32_t value) noexcept {
  const detail::Place at = detail::place_of(f);
  std::uint32_t word = 0;
  if (at.byte + sizeof word > box.size()) return;
  std::memcpy(&word, box.data() + at.byte, sizeof word);
  word = be32toh(word) & ~(at.mask << at.shift);
  word = htobe32(word | (value & at.mask) << at.shift);
  std::memcpy(box.data() + at.byte, &word, sizeof word);
}
// Of 64 bits, which begin at this byte.
[[nodiscard]] inline std::uint64_t get64(In box, std::uint32_t byte) noexcept {
  return std::uint64_t{get(box, field(byte, 0, 32))} << 32 | get(box, field(byte + 4, 0, 32));
}
inline void set64(Out box, std::uint32_t byte, std::uint64_t value) noexcept {
  set(box, field(byte, 0, 32), static_cast<std::uint32_t>(value >> 32));
  set(box, field(byte + 4, 0, 32), static_cast<std::uint32_t>(value));
}

enum class Opcode : std::uint16_t {
  query_hca_cap = 0x100,
  create_mkey = 0x200,
  destroy_mkey = 0x202,
  create_cq = 0x400,
  create_qp = 0x500,
  rst2init_qp = 0x502,
  init2rtr_qp = 0x503,
  rtr2rts_qp = 0x504,
  rts2rts_qp = 0x505,
  to_err_qp = 0x507,
  to_rst_qp = 0x50a,
  query_qp = 0x50b,
  init2init_qp = 0x50e,
  create_dct = 0x710,
  drain_dct = 0x712,
  query_hca_vport_context = 0x762,
  query_lag = 0x842,
  create_rmp = 0x90c,
  create_general_object = 0xa00,
};

// MLX5_CMD_STAT_*: the first byte of an answer.
enum class Answer : std::uint8_t {
  ok = 0x0,
  internal_error = 0x1,
  bad_operation = 0x2,
  bad_parameter = 0x3,
  bad_resource = 0x5,
  resource_busy = 0x6,
  exceeds_limit = 0x8,
  bad_resource_state = 0x9,
  no_resources = 0xf,
  bad_qp_state = 0x10,
  bad_input_length = 0x50,
  bad_output_length = 0x51,
};

// Of every command, and of every answer.
inline constexpr Field kOpcode = field(0, 0, 16), kOpMod = field(6, 0, 16),
                       kStatus = field(0, 0, 8), kSyndrome = field(4, 0, 32),
                       kNumber = field(9, 0, 24);  // of the object
inline constexpr std::size_t kHeadBytes = 16;

// Of CREATE_GENERAL_OBJECT. Its answer has the number in kObjectId.
inline constexpr Field kObjectType = field(6, 0, 16), kObjectId = field(8, 0, 32),
                       kLogObjectRange = field(12, 3, 5);
enum class GeneralObject : std::uint16_t { reserved_qpn = 0x2c, av_qp_mapping = 0x3a };
inline constexpr std::size_t kGeneralObjectBytes = 16;  // of the command, before the object
inline constexpr Field kMappedQpn = field(16 + 12, 0, 32);
inline constexpr std::size_t kMappingBytes = 16 + 16 + 48;

// CREATE_CQ. Offsets of the context's fields count from its begin.
namespace cq {
inline constexpr std::size_t kContext = 0x10, kBytes = 272;
inline constexpr std::uint32_t kUmemOffset = 0x50;
inline constexpr Field kUmem = field(0x58, 0, 32);
// Of the context.
inline constexpr Field kDoorbellUmem = field(4, 0, 32), kEntryBytes = field(1, 0, 3),
                       kIgnoreOverrun = field(1, 6, 1), kLogSize = field(0xc, 3, 5),
                       kPage = field(0xd, 0, 24), kEqn = field(0x17, 0, 8);
inline constexpr std::uint32_t kDoorbellOffset = 0x38;
}  // namespace cq

// CREATE_QP, the commands that modify, and the answer of QUERY_QP have the context at one place.
namespace qp {
inline constexpr std::size_t kContext = 0x18, kBytes = 272;
inline constexpr Field kOptional = field(0x10, 0, 32);  // opt_param_mask
inline constexpr Field kExtended = field(8, 0, 1);      // qpc_ext: what follows is there
inline constexpr Field kOptional2 = field(0x10c, 0, 32);
inline constexpr Field kStream = field(0x110 + 2, 0, 16);  // dci_stream_channel_id
inline constexpr std::uint32_t kUmemOffset = 0x100;
inline constexpr Field kUmem = field(0x108, 0, 32);
// Bits of kOptional and, of kOptional2, the last.
inline constexpr std::uint32_t kOptAccess = 1U << 1 | 1U << 2 | 1U << 3, kOptPkey = 1U << 4,
                               kOptQkey = 1U << 5, kOptRnrTimer = 1U << 6, kOptStream = 1U << 0;
// Of the context.
inline constexpr Field kState = field(0, 0, 4), kService = field(1, 0, 8),
                       kPathMigration = field(2, 3, 2), kPd = field(5, 0, 24),
                       kMtu = field(8, 0, 3), kLogMessage = field(8, 3, 5),
                       kLogReceives = field(9, 1, 4), kLogReceiveStride = field(9, 5, 3),
                       kNoSends = field(0xa, 0, 1), kLogSends = field(0xa, 1, 4),
                       kPage = field(0xd, 0, 24), kUserIndex = field(0x11, 0, 24),
                       kRemoteQpn = field(0x15, 0, 24), kPkeyIndex = field(0x1a, 0, 16),
                       kGlobal = field(0x1d, 0, 1), kPathBits = field(0x1d, 1, 7),
                       kLid = field(0x1e, 0, 16), kAckTimeout = field(0x20, 0, 5),
                       kSourceGid = field(0x21, 0, 8), kRate = field(0x22, 4, 4),
                       kHopLimit = field(0x23, 0, 8), kTrafficClass = field(0x24, 4, 8),
                       kFlowLabel = field(0x25, 4, 20), kServiceLevel = field(0x3c, 4, 4),
                       kPort = field(0x3d, 0, 8), kLogRequests = field(0x71, 0, 3),
                       kRetries = field(0x71, 5, 3), kRnrRetries = field(0x72, 0, 3),
                       kSendPsn = field(0x79, 0, 24), kLogStreams = field(0x7c, 4, 4),
                       kSendCq = field(0x7d, 0, 24), kLogErrored = field(0x80, 4, 4),
                       kLogAnswers = field(0x91, 0, 3), kAtomicMode = field(0x91, 4, 4),
                       kRemoteRead = field(0x92, 0, 1), kRemoteWrite = field(0x92, 1, 1),
                       kRemoteAtomic = field(0x92, 2, 1), kRnrTimer = field(0x94, 3, 5),
                       kReceivePsn = field(0x95, 0, 24), kReceiveCq = field(0x9d, 0, 24),
                       kQkey = field(0xa8, 0, 32), kReceiveType = field(0xac, 5, 3),
                       kShared = field(0xad, 0, 24), kDoorbellUmem = field(0xe4, 0, 32);
inline constexpr std::uint32_t kGid = 0x28, kDoorbellOffset = 0xa0;
enum : std::uint32_t { kServiceRc = 0, kServiceUc = 1, kServiceUd = 2, kServiceDci = 5 };
enum : std::uint32_t { kReceivesOwn = 0, kReceivesShared = 1, kReceivesNone = 3 };
enum : std::uint32_t { kMigrated = 3 };
}  // namespace qp

// CREATE_RMP: receives that queue pairs share.
namespace rmp {
inline constexpr std::size_t kContext = 0x20, kQueue = kContext + 0x30, kBytes = 272;
inline constexpr Field kState = field(1, 0, 4);  // of the context
inline constexpr Field kBasicCyclic = field(4, 0, 1);
enum : std::uint32_t { kReady = 1 };
// Of the queue.
inline constexpr Field kType = field(0, 0, 4), kPd = field(9, 0, 24),
                       kLogStride = field(0x21, 4, 4), kLogSize = field(0x23, 3, 5),
                       kDoorbellUmem = field(0x28, 0, 32), kUmem = field(0x2c, 0, 32);
inline constexpr std::uint32_t kDoorbellOffset = 0x10, kUmemOffset = 0x30;
enum : std::uint32_t { kList = 0, kCyclic = 1 };
}  // namespace rmp

namespace dct {
inline constexpr std::size_t kContext = 0x10, kBytes = 0x80;
inline constexpr Field kState = field(0, 4, 4), kUserIndex = field(5, 0, 24), kCq = field(9, 0, 24),
                       kAtomicMode = field(0xd, 0, 4), kRemoteRead = field(0xd, 4, 1),
                       kRemoteWrite = field(0xd, 5, 1), kRemoteAtomic = field(0xd, 6, 1),
                       kRnrTimer = field(0x12, 3, 5), kShared = field(0x15, 0, 24),
                       kPd = field(0x19, 0, 24), kMtu = field(0x28, 5, 3),
                       kPort = field(0x29, 0, 8), kPkeyIndex = field(0x2a, 0, 16),
                       kSourceGid = field(0x2d, 0, 8), kHopLimit = field(0x2f, 0, 8);
inline constexpr std::uint32_t kAccessKey = 0x20;
}  // namespace dct

// CREATE_MKEY.
namespace mkey {
inline constexpr std::size_t kContext = 0x10, kBytes = 0x110, kEntryBytes = 16;
inline constexpr Field kUmem = field(0x64, 0, 32), kEntries = field(0x60, 0, 32);
inline constexpr std::uint32_t kUmemOffset = 0x68;
// Of the context.
inline constexpr Field kFree = field(0, 1, 1), kAccessModeHigh = field(0, 3, 3),
                       kUmrEnabled = field(2, 0, 1), kAtomic = field(2, 1, 1),
                       kRemoteWrite = field(2, 2, 1), kRemoteRead = field(2, 3, 1),
                       kLocalWrite = field(2, 4, 1), kLocalRead = field(2, 5, 1),
                       kAccessMode = field(2, 6, 2), kQpn = field(4, 0, 24),
                       kLowByte = field(7, 0, 8), kSigns = field(0xc, 1, 1),
                       kRemoteEnd = field(0xc, 7, 1), kLength64 = field(0xc, 0, 1),
                       kPd = field(0xd, 0, 24), kSignatures = field(0x20, 0, 32),
                       kTranslations = field(0x34, 0, 32), kLogEntry = field(0x3b, 2, 6);
inline constexpr std::uint32_t kStart = 0x10, kLength = 0x18;
enum : std::uint32_t { kPages = 1, kList = 2, kFixedList = 3 };
inline constexpr std::uint32_t kAnyQp = 0xff'ffff;
}  // namespace mkey

// QUERY_HCA_CAP: kOpMod is the group << 1, and 1: of what is set up now. Its answer has the
// capabilities behind the head. Offsets count from there.
namespace cap {
enum : std::uint32_t {
  kGeneral = 0,
  kOdp = 2,
  kAtomics = 3,
  kFlowTables = 7,
  kQos = 0xc,
  kDeviceMemory = 0xf,
  kGeneral2 = 0x20
};
inline constexpr std::size_t kBytes = 16 + 256;
inline constexpr Field kHasGeneral2 = field(4, 0, 1), kLogSrqEntries = field(0x10, 0, 8),
                       kLogQpEntries = field(0x11, 0, 8), kLogQps = field(0x13, 3, 5),
                       kLogSrqs = field(0x15, 3, 5), kLogCqEntries = field(0x19, 0, 8),
                       kLogCqs = field(0x1b, 3, 5), kLogMkeys = field(0x1d, 2, 6),
                       kLogEqs = field(0x1f, 4, 4), kMaxIndirection = field(0x20, 0, 8),
                       kFixedLists = field(0x21, 0, 1), kLogMrBytes = field(0x21, 1, 7),
                       kLogKeyEntries = field(0x23, 2, 6), kQpcExtension = field(0x24, 2, 1),
                       kLogRequestsDc = field(0x25, 2, 6), kLogAnswersDc = field(0x27, 2, 6),
                       kLogRequests = field(0x29, 2, 6), kLogAnswers = field(0x2b, 2, 6),
                       kEndPadding = field(0x2c, 0, 1), kInfinibandVirtual = field(0x34, 2, 1),
                       kHasDeviceMemory = field(0x35, 0, 1), kPortType = field(0x36, 6, 2),
                       kPorts = field(0x37, 0, 8), kLogMessage = field(0x38, 3, 5),
                       kCqeVersion = field(0x3f, 4, 4), kCompactAddress = field(0x40, 0, 1),
                       kNoUmrEntitySize = field(0x40, 7, 1), kNoUmrAtomic = field(0x41, 0, 1),
                       kNoUmrIndirect = field(0x41, 1, 1), kDct = field(0x43, 2, 1),
                       kAtomic = field(0x43, 6, 1), kCqOverrun = field(0x44, 0, 1),
                       kCqResize = field(0x44, 1, 1), kCqModeration = field(0x44, 2, 1),
                       kBlocksLoopback = field(0x45, 0, 1), kPaging = field(0x44, 7, 1),
                       kXrc = field(0x47, 4, 1), kUd = field(0x47, 5, 1), kUc = field(0x47, 6, 1),
                       kRc = field(0x47, 7, 1), kPages4k = field(0x48, 0, 1),
                       kLogPage = field(0x4b, 0, 8), kSendBytes = field(0x52, 0, 16),
                       kReceiveBytes = field(0x56, 0, 16), kSendBytesDc = field(0x5a, 0, 16),
                       kQpsOfGroup = field(0x5c, 7, 25), kLogGroups = field(0x63, 0, 8),
                       kLogPds = field(0x65, 3, 5), kLogXrcds = field(0x67, 3, 5),
                       kLogRmps = field(0x70, 3, 5), kLogWqEntries = field(0x7b, 3, 5),
                       kLogContexts = field(0x8c, 3, 5), kLogUmems = field(0x8d, 3, 5),
                       kLogPageBytes = field(0x92, 0, 16), kFrequencyMhz = field(0x98, 0, 32),
                       kFrequencyKhz = field(0x9c, 0, 32), kLogAtomicBytes = field(0xb0, 0, 8),
                       kLogStreams = field(0xb1, 3, 5), kLogErrored = field(0xb2, 3, 5),
                       kLogAtomicBytesDc = field(0xb3, 0, 8);
inline constexpr std::uint32_t kObjectTypes = 0x80;
// Of kAtomics.
inline constexpr Field kAtomicOperations = field(0x12, 0, 16), kAtomicSizes = field(0x16, 0, 16),
                       kAtomicSizesDc = field(0x1a, 0, 16), kAtomicHostOrder = field(8, 0, 2);
enum : std::uint32_t { kSwap = 1, kAdd = 2, kMaskedSwap = 4, kMaskedAdd = 8 };
// Of kOdp: a word for each of RC, UC, UD, XRC and DC, with these bits from the highest on.
inline constexpr std::uint32_t kOdpRc = 0x10, kOdpUc = 0x14, kOdpUd = 0x18, kOdpXrc = 0x1c,
                               kOdpDc = 0x20;
// Of kDeviceMemory.
inline constexpr Field kMemic = field(0, 0, 1), kMemicBytes = field(0x14, 0, 32),
                       kLogMemicAlignment = field(7, 0, 8);
// Of kGeneral2.
inline constexpr Field kLogReservedQpns = field(0x12, 3, 5);
}  // namespace cap

// QUERY_HCA_VPORT_CONTEXT: the context in its answer, behind the head.
namespace vport {
inline constexpr std::size_t kBytes = 16 + 512;
inline constexpr Field kPort = field(9, 4, 4);
inline constexpr Field kPhysicalState = field(0x22, 0, 4), kPortState = field(0x23, 0, 4),
                       kVportState = field(0x23, 4, 4), kLid = field(0x60, 0, 16),
                       kSubnetTimeout = field(0x63, 3, 5), kSmLid = field(0x64, 0, 16);
inline constexpr std::uint32_t kSystemGuid = 0x28, kPortGuid = 0x30, kNodeGuid = 0x38;
}  // namespace vport

}  // namespace turnout::hca::prm
