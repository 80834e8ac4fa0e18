// SPDX-License-Identifier: BSD-3-Clause
// The verbs objects of one process: the structs that libibverbs returns, with the adapter's part
// behind each.
//
// Every object begins with its public struct, so a pointer to one is a pointer to the other.
// Created and destroyed by ObjectVerbs; `users` counts keep the objects it depends on alive (verbs
// returns EBUSY while they are used). Verbs may be called from any thread; each member names its
// lock.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <time.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "hca/device/fifo.h"
#include "hca/device/layout.h"
#include "hca/device/spin_lock.h"

namespace turnout::hca {

class DataPath;
class ObjectVerbs;
struct Mlx5Ops;

inline constexpr std::uint64_t kObjectMagic = 0x7475'726e'6f75'7431ULL;  // "turnout1"

// The result of a verb that fails to create an object: null, and errno.
[[nodiscard]] inline std::nullptr_t failed(int error) noexcept {
  errno = error;
  return nullptr;
}

// A clock of the system (clock_gettime(2)) in nanoseconds.
[[nodiscard]] inline std::uint64_t clock_ns(clockid_t clock) noexcept {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

// What an asynchronous event is of; none: the device or its port.
enum class EventObject : std::uint8_t { none, cq, srq, qp };
[[nodiscard]] constexpr EventObject object_of(std::uint32_t event_type) noexcept {
  switch (event_type) {
    case IBV_EVENT_CQ_ERR:
      return EventObject::cq;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return EventObject::srq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return EventObject::qp;
    default:
      return EventObject::none;
  }
}

struct Device {
  ibv_device verbs;
  std::uint64_t magic;  // libmlx5 reads it behind an ibv_device: rdma-core's own are longer
  const Mlx5Ops* mlx5;
  std::uint64_t guid;    // host order
  char last_error[512];  // why the latest ibv_open_device failed, for people; see open_error()
};

// The text of the latest failure to open `device`, null when it is not ours or there was none.
// Needs no linking: works on any ibv_device. Read it in the thread whose ibv_open_device returned
// null.
[[nodiscard]] inline const char* open_error(const ibv_device* device) noexcept {
  if (device == nullptr || __builtin_strcmp(device->name, kDeviceName) != 0) return nullptr;
  const auto* d = reinterpret_cast<const Device*>(device);
  return d->magic == kObjectMagic && d->last_error[0] != '\0' ? d->last_error : nullptr;
}

// verbs_context::priv of ours. rdma-core's own private struct is longer than `magic`.
struct ContextPrivate {
  std::uint64_t magic;
  const Mlx5Ops* mlx5;
};

struct Context {
  ContextPrivate private_part{};
  ObjectVerbs* objects = nullptr;  // the engine: its control path
  DataPath* data_path = nullptr;
  bool virtual_clock = false;           // time is a simulation's
  std::uint32_t process = 0;            // virtual engine: who opened it,
  std::uint32_t node = 0;               // and whose adapter it is
  int pid = 0;                          // of the process that opened it: a fork's child is refused
  std::atomic<std::uint32_t> users{0};  // objects alive
  // Attempts of its queue pairs that found no receive; see turnout_rnr_retries().
  std::atomic<std::uint64_t> rnr_retries{0};
  std::atomic<bool> port_down{false};  // a fault of the live engine
  int async_write = -1;                // of the pipe whose read end is verbs.context.async_fd
  int exporter = 0;  // process that opened the device first, and then gave its cmd_fd away
  PipeRef async;
  verbs_context verbs{};  // ends in ibv_context
};
[[nodiscard]] inline Context& context_of(ibv_context* context) noexcept {
  return *reinterpret_cast<Context*>(reinterpret_cast<char*>(context) -
                                     (offsetof(Context, verbs) + offsetof(verbs_context, context)));
}

struct Pd {
  ibv_pd verbs;
  std::uint32_t number;  // unique on the fabric; a parent domain has that of its protection domain
  std::atomic<std::uint32_t> users;
  Pd* parent_of;  // null: no parent domain
  ibv_td* td;     // of a parent domain, or null
};

[[nodiscard]] inline Pd& pd_of(ibv_pd* pd) noexcept {
  return *reinterpret_cast<Pd*>(pd);
}

struct Mr {
  ibv_mr verbs;
  std::uint32_t index;
  int fd;         // of the file that it lies in, kept by SharedFiles; or -1
  bool imported;  // another object of the same region owns it
};

struct Mw {
  ibv_mw verbs;
  std::uint32_t index;
};

struct Ah {
  ibv_ah verbs;
  ibv_ah_attr attr;
  bool reachable;  // names this port
  bool multicast;  // names a group
};

struct Channel {
  ibv_comp_channel verbs;
  int write;
  PipeRef pipe;
  std::atomic<std::uint32_t> users;
};

// Where a queue of ours lies in the heap: its record may be damaged, and is not given back.
struct OwnRing {
  std::uint64_t offset;  // 0: it has none
  std::uint64_t bytes;
};

struct Cq {
  ibv_cq_ex verbs;  // first part equals ibv_cq
  std::uint32_t index;
  CqRecord* record;
  OwnRing own_ring;
  Cqe* ring;  // this and the next two are guarded by poll_lock
  std::uint64_t mask;
  std::uint64_t head;
  std::atomic<Cqe*> next;               // entry to be polled next and the sequence it will have:
  std::atomic<std::uint64_t> expected;  // read without the lock, to find an empty queue fast
  SpinLock poll_lock;                   // consumers of this process
  bool single_threaded;                 // IBV_CREATE_CQ_ATTR_SINGLE_THREADED: no poll_lock
  bool extended;
  Completion current;  // start_poll .. end_poll
  std::atomic<std::uint32_t> users;
  std::uint32_t comp_events_read;  // guarded by verbs.mutex
  std::uint32_t async_events_read;
};
// False: nothing to poll. One load of shared memory. True may be wrong when another thread polls.
[[nodiscard]] inline bool may_have_entry(const Cq& cq) noexcept {
  return cq.next.load(std::memory_order_relaxed)->sequence.load(std::memory_order_acquire) ==
         cq.expected.load(std::memory_order_relaxed);
}
// After ring or head changed; poll_lock held.
inline void set_next(Cq& cq) noexcept {
  cq.next.store(&cq.ring[cq.head & cq.mask], std::memory_order_relaxed);
  cq.expected.store(cq.head + 1, std::memory_order_relaxed);
}
[[nodiscard]] inline Cq& cq_of(ibv_cq* cq) noexcept {
  return *reinterpret_cast<Cq*>(cq);
}

// An XRC domain, as one call of ibv_open_xrcd opened it.
struct Xrcd {
  ibv_xrcd verbs;
  std::uint32_t number;  // of the domain, unique on the fabric
  std::uint32_t handle;  // index of the XrcHandleRecord
  int fd;                // our duplicate of the file's, or -1: keeps the inode from another file
  std::atomic<std::uint32_t> users;
};

struct Srq {
  ibv_srq verbs;
  std::uint32_t index;
  std::uint32_t number;  // senders name an XRC one by it
  SrqRecord* record;
  OwnRing own_ring;
  Xrcd* xrcd;  // null: a basic one
  Cq* cq;      // XRC: where its receives complete
  std::atomic<std::uint32_t> users;
  std::uint32_t events_read;  // guarded by verbs.mutex
};
[[nodiscard]] inline Srq& srq_of(ibv_srq* srq) noexcept {
  return *reinterpret_cast<Srq*>(srq);
}

// Of an mlx5's masked atomics: which bits are compared and which are exchanged; of an addition,
// where the fields end that it is of.
struct AtomicMasks {
  std::uint64_t compare;  // of an addition: the highest bit of each field
  std::uint64_t swap;
  std::uint8_t bytes;  // 4 or 8; 0: the atomic operation is not masked
};

// What an mlx5's work request (UMR) changes of an indirect key, apart from its list.
struct KeyChange {
  std::uint64_t mask;  // MLX5_WQE_UMR_CTRL_MKEY_MASK_*: which of the others count
  std::uint64_t start, length;
  std::uint32_t key;      // that it is of
  std::uint32_t qpn;      // 24 bits
  std::uint16_t entries;  // of the list that the request brings
  std::uint16_t first;    // the entry that they begin at
  std::uint8_t pieces;    // SendWqe::list
  std::uint8_t tag;       // the key's low byte from now on
  std::uint8_t flags;     // MLX5_WQE_UMR_CTRL_FLAG_*
  std::uint8_t access;    // MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_*
  bool free;              // it is not valid afterwards
  bool signs;             // it would have signatures
};

// One work request of a send queue, whichever call built it.
struct SendWqe {
  std::uint64_t wr_id;
  std::uint8_t opcode;  // ibv_wr_opcode
  std::uint8_t flags;   // ibv_send_flags
  std::uint8_t num_sge;
  bool is_inline;
  bool reachable;        // UD, DC: what the address handle says
  bool addressed;        // UD, DC: an address was set; XRC: the SRQ was
  bool global;           // UD: the address has a GID
  bool multicast;        // UD: and it is that of a group, in `group`
  std::uint32_t length;  // of the message
  std::uint32_t imm;     // network order; a key to invalidate
  std::uint32_t rkey;    // bind: the window's from now on
  std::uint64_t remote;  // bind: address of the first byte
  union {
    struct {
      std::uint64_t compare_add, swap;
    };
    struct {
      std::uint64_t bind_length;
      std::uint32_t bind_access;
      std::uint32_t bind_lkey;  // of the region; 0: none, with no length
    };
    std::uint64_t group[2];
  };
  std::uint32_t dest_qpn;
  std::uint32_t qkey;
  std::uint64_t dc_key;
  std::uint32_t position;  // counts the queue's requests, first is 1
  union {
    std::uint32_t srqn;     // XRC: number of the SRQ at the target
    std::uint32_t bind_pd;  // number of the window's domain
    std::uint32_t stream;   // DCI
  };
  union {
    ibv_sge sge[kMaxSge];
    std::uint8_t data[kMaxInline];
    struct {  // kChangeKey
      KeyChange change;
      ibv_sge list[2];  // where the entries are, in change.pieces pieces
    };
  };
  AtomicMasks masks;
};

// What the program has of a queue pair.
struct QpHandles {
  ibv_qp_ex verbs;  // first part equals ibv_qp
  mlx5dv_qp_ex dv;
};
// Requests between wr_start and wr_complete; the last one is in Qp::scratch.
struct RequestBatch {
  int error;
  bool open;
  std::uint32_t count;
  Fifo<SendWqe> batch;  // the others
};
// Streams of a DCI fail apart from each other.
struct DciStreams {
  std::uint32_t count;           // 0: there are none
  std::uint32_t errors_allowed;  // with so many failed the queue pair fails
  std::uint64_t failed;          // a bit for each
};
// What the head of a send queue waits for.
struct Retry {
  std::uint64_t at;  // CLOCK_MONOTONIC, ns
  bool waiting_rnr;  // which kind of retry
  std::uint32_t rnr_left, left;
};
// A region of directly addressable memory, as a request found it.
struct DirectRegion {
  std::uint64_t registration;  // registration << 32 | key; 0: none
  std::uint64_t direct;        // our address of iova
  std::uint64_t iova, length;
};
// Where the latest RDMA write went; see live/direct_writes.h.
struct LatestWrite {
  std::uint64_t identity;  // of the target, as QpRecord's
  DirectRegion region;
  std::uintptr_t end;   // of the bytes written
  DirectRegion source;  // of registered bytes that went to a peer
};
struct Qp : QpHandles {
  std::uint64_t magic;
  QpKind kind;
  bool extended;  // has the work-request builders
  bool signal_all;
  std::uint32_t index;
  std::uint32_t number;
  QpRecord* record;
  Hazard* hazard;
  OwnRing own_ring;  // of receives
  ibv_qp_init_attr init;
  std::uint64_t dc_key;
  Xrcd* xrcd;            // XRC target: the object is one handle of the queue pair
  std::uint32_t handle;  // index of its XrcHandleRecord

  SpinLock sq_lock;                      // guards everything below, held while executing
  ibv_qp_attr attr;                      // as modified so far
  bool reachable;                        // RC, UC, XRC: the address vector names this port
  std::uint32_t connection;              // RC, XRC initiator: which of all that its number has had
  bool spoke;                            // its target has heard of this connection
  std::uint32_t posted;                  // requests accepted so far
  std::atomic<std::uint32_t> reclaimed;  // of these, known done to the user (polled); any thread
  SendWqe scratch;                       // the request being built or executed
  LatestWrite latest_write;
  RequestBatch build;
  DciStreams streams;
  Fifo<SendWqe> queue;        // accepted, waiting behind a stalled head
  std::atomic<bool> stalled;  // queue's head waits for `retry.at`; read unlocked
  Retry retry;

  std::uint32_t events_read;            // guarded by verbs.qp_base.mutex
  std::atomic<std::uint32_t> attached;  // to so many multicast groups
  bool hears_itself;                    // gets what it sends to a group that it is attached to
};
[[nodiscard]] inline Qp& qp_of(ibv_qp* qp) noexcept {
  return static_cast<Qp&>(*reinterpret_cast<QpHandles*>(qp));
}
[[nodiscard]] inline Qp& qp_of(ibv_qp_ex* qp) noexcept {
  return static_cast<Qp&>(*reinterpret_cast<QpHandles*>(qp));
}
[[nodiscard]] inline Qp& qp_of(mlx5dv_qp_ex* dv) noexcept {
  return static_cast<Qp&>(
      *reinterpret_cast<QpHandles*>(reinterpret_cast<char*>(dv) - offsetof(QpHandles, dv)));
}

}  // namespace turnout::hca
