// SPDX-License-Identifier: BSD-3-Clause
// The adapter's state as records in memory shared by processes: tables of processes, queue pairs,
// completion queues, shared receive queues, memory regions and XRC domains, plus a heap for their
// rings.
//
// Records hold offsets, indices and numbers, never pointers (a `cookie` is a pointer that only its
// owner uses). Every record names its owner by a process token. Only the owner creates and destroys
// it; the reaper (any live process, under Header::table_lock) destroys the records of dead owners.
// XRC domains and XRC target queue pairs have several owners: each has its own handle record, and
// an object without handles is destroyed under Header::table_lock by the process that finds it. The
// contents may come from a damaged process: range-check before use. Records are type-stable: their
// memory always holds a record of the same kind, so locking a stale index is harmless. An engine
// with one process can keep the same records in private memory.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>

#include "hca/device/limits.h"

namespace turnout::hca {

inline constexpr std::uint64_t kMagic = 0x3141'5554'4f4e'5254ULL;  // "TRNOTUA1"
inline constexpr std::uint32_t kLayoutVersion = 14;
inline constexpr std::uint64_t kPage = 4096;
inline constexpr std::uint32_t kNone = 0xffff'ffff;  // no index

// Who: (slot + 1) in the low 16 bits, generation of the slot above. 0: nobody.
using Token = std::uint32_t;
[[nodiscard]] constexpr std::uint32_t slot_of(Token token) noexcept {
  return (token & 0xffff) - 1;
}
[[nodiscard]] constexpr Token make_token(std::uint32_t slot, std::uint32_t generation) noexcept {
  return (slot + 1) | (generation << 16);
}
// Owner of what many processes share by handles: no process has this token.
inline constexpr Token kShared = 0xffff'ffff;
static_assert(slot_of(kShared) >= kMaxProcesses);

// A lock that survives its holder: the word is the holder's token. See live/lock.h.
struct Lock {
  std::atomic<std::uint32_t> owner;
};

// The write end of a pipe in the owner's file table; peers open it and check the inode.
struct PipeRef {
  std::uint64_t inode = 0;
  std::int32_t fd = -1;
  std::uint32_t unused = 0;
};

struct alignas(64) Header {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t layout;  // hash of all sizes below
  std::uint64_t file_size;
  std::uint64_t generation;  // random, new for every file
  std::atomic<std::uint32_t> ready;
  // A process has no membarrier(2): who names a hazard executes a barrier itself. See hazards.h.
  std::atomic<std::uint32_t> full_barriers;
  std::atomic<std::uint64_t> next_pd;
  std::atomic<std::uint32_t> faults;  // 1: some process has asked for faults
  alignas(64) Lock table_lock;        // creation and destruction of records, the heap, reaping
  // One past the highest index ever used; scans stop there.
  std::atomic<std::uint32_t> process_high, qp_high, cq_high, srq_high, mr_high;
  std::atomic<std::uint32_t> xrcd_high, xrc_handle_high, multicast_high;
  std::uint64_t heap_first_free;  // no free page lies below (a hint)
  std::uint64_t heap_high;        // one past the highest page ever used
};

struct alignas(64) ProcessRecord {
  std::atomic<Token> token;  // 0: slot free
  std::uint32_t generation;  // of the slot, survives its users
  std::uint32_t pid;
  std::atomic<std::uint32_t> leaving;       // at exit: no longer counts as attached
  std::uint64_t start_time;                 // field 22 of /proc/PID/stat: tells a reused pid
  PipeRef wake;                             // one byte wakes the process's firmware thread
  Lock atomics;                             // read-modify-write of memory that peers cannot map
  std::atomic<std::uint32_t> port_down;     // 1: nothing reaches it (Header::faults)
  std::atomic<std::uint64_t> links_downed;  // how often; survives the process
};
static_assert(sizeof(ProcessRecord) == 64);

// Receives posted and not yet used, of a QP or an SRQ: a ring of `slots` ReceiveWqe.
// Lock, head and tail share a cache line: a post and a take each move one line.
struct alignas(64) ReceiveQueue {
  Lock lock;
  std::uint32_t slots;   // power of two, 0: no queue
  std::uint32_t max_wr;  // <= slots - 1
  std::uint32_t max_sge;
  std::uint64_t ring;        // heap offset
  std::uint32_t head, tail;  // free-running; under lock
  std::uint32_t limit;       // SRQ: raise the event when fewer are left; 0: not armed
  std::uint32_t pd;
  std::uint32_t taker;  // QP index + 1 of who is taking now: left behind, it died there
  std::uint32_t mlx5;   // 1: the program posts in an mlx5's format; see Mlx5ReceiveRecord
  std::uint32_t unused[2];
};
static_assert(sizeof(ReceiveQueue) == 64);

struct ReceiveSge {
  std::uint64_t address;
  std::uint32_t length;
  std::uint32_t key;
};
struct ReceiveWqe {  // followed by max_sge ReceiveSge
  std::uint64_t wr_id;
  std::uint32_t num_sge;
  std::uint32_t unused;
};
[[nodiscard]] constexpr std::uint64_t receive_stride(std::uint32_t max_sge) noexcept {
  return sizeof(ReceiveWqe) + std::uint64_t{max_sge} * sizeof(ReceiveSge);
}

// xrc_ini: XRC initiator (IBV_QPT_XRC_SEND), xrc_tgt: XRC target (IBV_QPT_XRC_RECV).
enum class QpKind : std::uint8_t { none, rc, ud, dci, dct, xrc_ini, xrc_tgt, uc };
// Does it send to one queue pair only, which it is told when it is modified to RTR?
[[nodiscard]] constexpr bool sends_to_one(QpKind kind) noexcept {
  return kind == QpKind::rc || kind == QpKind::xrc_ini || kind == QpKind::uc;
}
// Does the target answer nothing, so that the sender's request succeeds whatever becomes of it?
[[nodiscard]] constexpr bool is_unacknowledged(QpKind kind) noexcept {
  return kind == QpKind::ud || kind == QpKind::uc;
}
enum class QpPhase : std::uint8_t { reset, init, rtr, rts, sqd, sqe, err, free };

// What an end of a connection takes next.
struct PacketSequence {
  // `connection` of the initiator that it follows, 0: nothing has come since it was made ready
  std::atomic<std::uint32_t> follows;
  std::uint32_t first;  // number of the first packet
};
inline void expect_sequence(PacketSequence& sequence, std::uint32_t first) noexcept {
  sequence.first = first & 0xff'ffff;
  sequence.follows.store(0, std::memory_order_relaxed);
}

// What a queue pair has sent, and the answers to it. Written by its owner, with the sq_lock held;
// read by anybody. Survives the queue pair and its owner: the sum over all records is that of the
// port.
struct alignas(64) QpCounters {
  std::uint64_t packets;  // requests, of so many MTUs, and answers that carry data
  std::uint64_t sends;    // messages for a receive of the target's
  std::uint64_t bytes;  // of data, without headers; not beside `packets`: gcc would add both in one
                        // register, which takes more instructions
  std::uint64_t multicasts;
  std::uint64_t rnr_naks;  // attempts that found no receive
  std::uint64_t retries;   // attempts made again since nobody answered
  std::uint64_t retries_exceeded, rnr_retries_exceeded;
};
static_assert(sizeof(QpCounters) == 64);

struct alignas(64) QpRecord {
  [[nodiscard]] static constexpr std::uint64_t identity_of(std::uint32_t number, QpPhase phase) {
    return std::uint64_t{number} << 8 | static_cast<std::uint64_t>(phase);
  }

  [[nodiscard]] static constexpr QpPhase phase_of(std::uint64_t identity) {
    return static_cast<QpPhase>(identity & 0xff);
  }
  [[nodiscard]] QpPhase phase() const noexcept { return phase_of(identity.load()); }

  // number (24 bits) << 8 | QpPhase: one load tells a peer whether this is still the QP it means.
  std::atomic<std::uint64_t> identity;
  std::atomic<Token> owner;
  QpKind kind;
  std::uint8_t salt;           // survives: top 8 bits of the next number
  std::uint8_t min_rnr_timer;  // IBTA code 0..31
  std::uint8_t unused;
  std::uint32_t access;  // IBV_ACCESS_REMOTE_*
  std::uint32_t pd;
  std::uint32_t recv_cq, send_cq;
  std::uint32_t srq;       // kNone: own receive queue
  std::uint32_t dest_qpn;  // RC, XRC
  std::uint32_t qkey;      // UD
  std::uint32_t xrcd;      // XRC target: its domain's number
  union {
    std::uint64_t dc_key;     // DCT
    PacketSequence sequence;  // RC, XRC target
  };
  std::uint64_t cookie;  // the owner's object

  ReceiveQueue rq;

  // The receive this QP, as initiator, took from a peer's queue and has not completed yet. If the
  // process dies here the reaper puts it back.
  alignas(64) std::atomic<std::uint32_t> taken;  // 0 none, 1 a QP's, 2 an SRQ's
  std::atomic<std::uint32_t> taken_index;
  std::atomic<Token> taken_owner;
  std::uint32_t taken_sges;
  std::uint64_t taken_wr_id;
  std::uint32_t taken_position;  // the queue's head before
  std::uint32_t taken_cq;        // where its completion goes
  std::uint64_t entry_position;  // and which entry there: set under the CQ's lock
  PipeRef async;                 // of the owner's context
  std::uint32_t connections;     // survives: how often it was made ready to send
  union {
    ReceiveSge taken_sge[kMaxSge];
    // XRC target, which takes nothing from anybody: its attributes as modified so far, which every
    // handle answers queries with. Guarded by rq.lock: it has no receives of its own.
    ibv_qp_attr attr;
  };

  QpCounters counters;
};
static_assert(sizeof(QpRecord) == 512);

// What a completion says.
struct Completion {
  std::uint64_t wr_id;
  std::uint64_t timestamp;  // CLOCK_MONOTONIC, ns; 0 unless the CQ asks for it
  std::uint32_t qpn;
  std::uint32_t src_qp;
  std::uint32_t byte_len;
  std::uint32_t imm;          // network order, as in ibv_wc
  std::uint32_t sq_position;  // send: everything up to here is done
  std::uint8_t status;        // ibv_wc_status
  std::uint8_t opcode;        // ibv_wc_opcode
  std::uint8_t flags;         // ibv_wc_flags
  std::uint8_t dropped;       // its QP was reset or destroyed: poll skips it
  std::uint32_t vendor_err;
  std::uint8_t send;       // 1: releases send-queue entries
  std::uint8_t solicited;  // mlx5: its entry says so
  std::uint8_t unused[2];
};

struct alignas(64) Cqe : Completion {
  // Position + 1 once the entry is whole: written last.
  std::atomic<std::uint64_t> sequence;
};
static_assert(sizeof(Cqe) == 64);

enum class ObjectPhase : std::uint32_t { free, live, error };
enum class Armed : std::uint32_t { no, solicited, any };

struct alignas(64) CqRecord {
  Lock lock;  // producers
  std::atomic<ObjectPhase> phase;
  std::atomic<Token> owner;
  std::uint32_t slots;      // power of two
  std::uint64_t ring;       // heap offset
  std::uint64_t tail;       // next position; under lock
  std::uint64_t head_seen;  // producers' copy of head; under lock
  // QP index + 1 of who completes a taken receive now: left behind, it died there.
  std::atomic<std::uint32_t> pusher;
  std::uint16_t has_channel;
  std::uint16_t timestamps;
  std::uint64_t cookie;

  alignas(64) std::atomic<std::uint64_t> head;  // the owner's: next position to poll
  std::atomic<Armed> armed;
  std::atomic<std::uint32_t> overflowed;
  PipeRef channel, async;
  std::uint32_t generation;  // of the record: tells events of a former CQ
  std::uint32_t mlx5;        // 1: its program polls entries of an mlx5's format; see Mlx5CqRecord
};
static_assert(sizeof(CqRecord) == 128);

struct alignas(64) SrqRecord {
  std::atomic<ObjectPhase> phase;
  std::atomic<Token> owner;
  std::uint32_t generation;
  std::uint32_t cq;  // XRC: where its receives complete
  std::uint64_t cookie;
  PipeRef async;
  // XRC: srq_name() from the time it is whole until it is destroyed; 0: requests cannot name it.
  std::atomic<std::uint64_t> name;
  std::uint64_t unused[2];
  ReceiveQueue rq;
};
static_assert(sizeof(SrqRecord) == 128);
// What ibv_get_srq_num tells: the index and how often it was used, so that a number told to a peer
// does not mean the record's next user.
[[nodiscard]] constexpr std::uint32_t srq_number(std::uint32_t index,
                                                 std::uint32_t generation) noexcept {
  return (generation * kMaxSrqs & 0xff'ffff) | index;
}
// An XRC shared receive queue as a target of this domain looks for it: never 0.
[[nodiscard]] constexpr std::uint64_t srq_name(std::uint32_t xrcd, std::uint32_t number) noexcept {
  return std::uint64_t{xrcd} << 32 | 1U << 24 | number;
}

// An XRC domain. It lives while a handle names it.
struct alignas(64) XrcdRecord {
  // generation * kMaxXrcds + index of the record; 0: the record is free.
  std::atomic<std::uint32_t> number;
  std::uint32_t generation;  // survives, not 0 in use
  std::uint32_t named;       // 1: it is that of a file, the next two; 0: of one process alone
  std::uint32_t unused;
  std::uint64_t device;  // st_dev
  std::uint64_t inode;   // st_ino: every process that has the domain open keeps the file open
};
static_assert(sizeof(XrcdRecord) == 64);

enum class XrcHandleKind : std::uint32_t { domain, target };

// That a process has an XRC domain, or a target queue pair of one, open: one record for each call
// of ibv_open_xrcd, ibv_open_qp, and ibv_create_qp_ex of a target. Changed under table_lock only.
struct alignas(64) XrcHandleRecord {
  std::atomic<Token> owner;  // 0: free
  XrcHandleKind kind;
  std::atomic<std::uint32_t> of;  // number of the domain or the queue pair; read unlocked, too
  std::uint32_t generation;       // tells events of a former handle
  std::uint64_t cookie;
  PipeRef async;  // of the owner's context
};
static_assert(sizeof(XrcHandleRecord) == 64);

// The owner's memory, pages of a file, none (a null region, which gives zeros and keeps nothing),
// or pieces of other regions (an mlx5's indirect key).
enum class MrKind : std::uint32_t { process, shared, null, list };
// A region itself, or a window of one (ibv_alloc_mw(3)).
enum class WindowKind : std::uint32_t { none, type_1, type_2 };

[[nodiscard]] constexpr std::uint32_t fold(std::uint64_t device) noexcept {
  return static_cast<std::uint32_t>(device ^ (device >> 32));
}

struct alignas(64) MrRecord {
  std::atomic<std::uint32_t> key;  // 0: not valid; else index << 8 | generation
  std::atomic<Token> owner;
  std::uint32_t pd;
  std::uint32_t access : 16;     // IBV_ACCESS_*
  std::uint32_t kind : 4;        // MrKind
  std::uint32_t window : 4;      // WindowKind
  std::uint32_t generation : 8;  // survives
  std::uint64_t iova;
  std::uint64_t length;
  std::uint64_t address;  // process: owner's address of iova; shared: offset in the file
  std::uint64_t inode;    // shared: of the file
  std::uint32_t device;   // shared: fold(st_dev)
  // Counts the registrations of this record: a key repeats after 256 of them, this does not.
  std::atomic<std::uint32_t> registration;
  std::int32_t fd;                    // shared: in the owner's file table
  std::atomic<std::uint32_t> mapped;  // a peer mapped it: tell peers when it goes
  // Of a window only. Its key is 0 while it is not bound.
  alignas(64) std::uint32_t bound_to;  // index of the region
  std::uint32_t window_qp;             // type 2: number of the one queue pair that it answers
  // Of an indirect key only, which has no `address`. Its key is 0 while it is free. `generation` is
  // the low byte of its key.
  std::uint64_t list;         // heap offset of its entries (device/key_list.h)
  std::uint32_t list_slots;   // so many
  std::uint8_t log_entry;     // 0: entries say how long they are; else all have 2^log_entry bytes
  std::uint8_t reconfigures;  // 1: a work request may change it
  std::uint8_t remote_end;    // 1: a peer's send may invalidate it
  std::uint8_t unused[41];
};
static_assert(sizeof(MrRecord) == 128);

// That a datagram queue pair is attached to a multicast group. Changed under table_lock.
struct MulticastRecord {
  std::atomic<Token> owner;        // 0: free
  std::atomic<std::uint32_t> qpn;  // 0: not yet, or no longer
  std::atomic<std::uint64_t> gid[2];
};
static_assert(sizeof(MulticastRecord) == 24);

// What an initiator touches now: target number << 32 | key. Whoever invalidates a QP or a region
// waits until no word names it, so that nothing lands afterwards (as a real adapter guarantees).
using Hazard = std::atomic<std::uint64_t>;
[[nodiscard]] constexpr std::uint64_t hazard_of(std::uint32_t number, std::uint32_t key) noexcept {
  return std::uint64_t{number} << 32 | key;
}

// Queues of programs that write and read them in memory of their own, in an mlx5's format
// (hca/mlx5): where that is, by the index of the queue's record, whose lock guards it. Addresses
// are the owner's, and what lies there is whatever its program put there.

// Entries of the ring are moved on to the program's buffer as they come, so the ring's head is the
// first that has not been.
struct alignas(64) Mlx5CqRecord {
  std::uint64_t buffer;
  std::uint64_t doorbell;   // two words of 32 bits: the consumer's index, and what is armed
  std::uint32_t entries;    // power of two
  std::uint32_t stride;     // bytes: 64 or 128, of which the last 64 are used
  std::uint64_t consumed;   // position up to which the program is known to have polled
  std::uint64_t announced;  // entries that told of a new buffer: positions are so much further
  // 1: its program answers for there being room, and does not tell how far it has polled.
  std::uint32_t unchecked;
};
static_assert(sizeof(Mlx5CqRecord) == 64);

// ring: used in order. list: of a shared queue, each entry's head says which one is next. headed:
// of a shared queue with such heads that are used in order nevertheless.
enum class Mlx5Entries : std::uint32_t { ring, list, headed };

// Receives are fetched from the program's buffer when the ring is empty. Of a queue pair: `buffer`
// is 0 where it has no receives of its own.
struct alignas(64) Mlx5ReceiveRecord {
  std::uint64_t buffer;
  std::uint64_t doorbell;    // a word of 32 bits: how many were posted, modulo 2^16
  std::uint32_t entries;     // power of two
  std::uint32_t stride;      // bytes
  std::uint32_t user_index;  // of the queue pair, or of the XRC shared queue
  Mlx5Entries entries_are;
  // The next entry << 32 | how many were fetched; and what it becomes, while `fetching`, tail + 1
  // of the ring, is not 0: who dies there leaves it.
  std::uint64_t fetched, becomes;
  std::uint32_t fetching;
  // A queue pair's own receives: several peers send datagrams, and each is completed before the
  // next is taken, for libmlx5 goes by their order. delivering: 1 with the lock held; left behind,
  // its holder died there.
  std::uint32_t delivering;
  Lock order;
};
static_assert(sizeof(Mlx5ReceiveRecord) == 64);

// Heap: one word for each page: owner's token, 0 when free. Free pages are zero.
using PageTag = std::uint32_t;

[[nodiscard]] constexpr std::uint64_t page_align(std::uint64_t n) noexcept {
  return (n + kPage - 1) / kPage * kPage;
}

// One for each process: a large transfer of its memory that it may help a peer with
// (live/shared_copies.h). A job is the initiator's token << 32 | a number.
struct alignas(64) CopyRecord {
  std::atomic<std::uint64_t> reserved;  // by the job of an initiator, which writes the rest
  std::atomic<std::uint64_t> open;      // the job; 0: none that anybody may join
  std::atomic<std::uint64_t> active;    // the job that a thread of this process copies for
  std::atomic<std::uint64_t> next;      // all bytes before it are copied or in hand
  std::atomic<std::uint64_t> copied;    // bytes that this process has copied
  std::uint32_t helped;                 // ranges, by this process
  std::uint32_t unused[5];
  // The job: between a region of `target` and memory of its initiator.
  Token target;
  std::uint32_t key;
  std::uint32_t number;  // the queue pair
  std::uint32_t reads;   // 1: the initiator reads, 0: it writes
  std::uint64_t address, local;
  std::uint32_t length;
};
static_assert(sizeof(CopyRecord) == 128);

struct Layout {
  static constexpr std::uint64_t processes = page_align(sizeof(Header));
  static constexpr std::uint64_t copies =
      processes + page_align(kMaxProcesses * sizeof(ProcessRecord));
  static constexpr std::uint64_t hazards = copies + page_align(kMaxProcesses * sizeof(CopyRecord));
  static constexpr std::uint64_t qps = hazards + page_align(kMaxQps * sizeof(Hazard));
  static constexpr std::uint64_t cqs = qps + page_align(kMaxQps * sizeof(QpRecord));
  static constexpr std::uint64_t srqs = cqs + page_align(kMaxCqs * sizeof(CqRecord));
  static constexpr std::uint64_t mrs = srqs + page_align(kMaxSrqs * sizeof(SrqRecord));
  static constexpr std::uint64_t xrcds = mrs + page_align(kMaxMrs * sizeof(MrRecord));
  static constexpr std::uint64_t xrc_handles = xrcds + page_align(kMaxXrcds * sizeof(XrcdRecord));
  static constexpr std::uint64_t multicasts =
      xrc_handles + page_align(kMaxXrcHandles * sizeof(XrcHandleRecord));
  static constexpr std::uint64_t mlx5_cqs =
      multicasts + page_align(kMaxMulticasts * sizeof(MulticastRecord));
  static constexpr std::uint64_t mlx5_qps = mlx5_cqs + page_align(kMaxCqs * sizeof(Mlx5CqRecord));
  static constexpr std::uint64_t mlx5_srqs =
      mlx5_qps + page_align(kMaxQps * sizeof(Mlx5ReceiveRecord));
  static constexpr std::uint64_t tags =
      mlx5_srqs + page_align(kMaxSrqs * sizeof(Mlx5ReceiveRecord));

  // Pages of the heap of a file of this size, and where it begins.
  static constexpr std::uint64_t heap_pages(std::uint64_t size) {
    return size <= tags ? 0 : (size - tags - kPage) / (kPage + sizeof(PageTag));
  }
  static constexpr std::uint64_t heap(std::uint64_t size) {
    return tags + page_align(heap_pages(size) * sizeof(PageTag));
  }
  static constexpr std::uint64_t minimum_size = tags + (std::uint64_t{16} << 20);

  static constexpr std::uint32_t hash() {
    std::uint64_t h = 1469598103934665603ULL;  // FNV-1a
    for (std::uint64_t v : {sizeof(Header),
                            sizeof(ProcessRecord),
                            sizeof(CopyRecord),
                            sizeof(QpRecord),
                            sizeof(CqRecord),
                            sizeof(SrqRecord),
                            sizeof(MrRecord),
                            sizeof(Cqe),
                            sizeof(XrcdRecord),
                            sizeof(XrcHandleRecord),
                            sizeof(MulticastRecord),
                            processes,
                            copies,
                            hazards,
                            qps,
                            cqs,
                            srqs,
                            mrs,
                            xrcds,
                            xrc_handles,
                            multicasts,
                            sizeof(Mlx5CqRecord),
                            sizeof(Mlx5ReceiveRecord),
                            tags}) {
      h = (h ^ v) * 1099511628211ULL;
    }
    return static_cast<std::uint32_t>(h ^ (h >> 32));
  }
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<Armed>::is_always_lock_free);

}  // namespace turnout::hca
