// SPDX-License-Identifier: BSD-3-Clause
// LiveEngine: verbs among the processes of one host. The initiator executes a work request
// completely inside the post: it checks the target's records, moves the data, completes the
// target's receive and then its own request.
//
// One per process and fabric, shared by the contexts opened on it. A firmware thread per engine
// reaps dead peers and retries stalled queue pairs; it sleeps while idle. Files: regions.cpp
// (memory), objects.cpp (channels, CQs), srqs.cpp, qps.cpp, xrc.cpp (XRC domains and targets),
// executor.cpp (requests), receives.cpp (receive queues), completions.cpp, events.cpp, firmware.cpp
// (retries and the thread).
//
// Locks of this process, in order: stalled_mutex_ is only try-locked with sq_lock taken inside it
// by try_lock; sq_lock -> locks of the shared state; poll_lock -> locks of the shared state.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/status.h"
#include "hca/device/data_path.h"
#include "hca/device/object_verbs.h"
#include "hca/live/fabric.h"
#include "hca/live/memory.h"
#include "hca/live/shared_pages.h"

namespace turnout::hca {

// An entry of a completion channel's or a context's pipe.
struct EventRecord {
  std::uint64_t cookie;
  std::uint32_t index;
  std::uint32_t generation;  // of a CQ, SRQ or XRC handle record; a QP's number
  std::uint32_t type;        // ibv_event_type; kCompletion
  std::uint32_t object;      // kCqEvent, kQpEvent, kSrqEvent, kXrcEvent
};
static_assert(sizeof(EventRecord) == 24);
// kXrcEvent: of a handle of an XRC target.
enum : std::uint32_t { kCqEvent = 1, kQpEvent = 2, kSrqEvent = 3, kXrcEvent = 4 };
inline constexpr std::uint32_t kCompletion = 0xffff;

// Is this request of a stream that failed? Of a queue pair with streams; sq_lock held.
[[nodiscard]] bool stream_failed(const Qp& qp, const SendWqe& wqe) noexcept;

class LiveEngine final : public ObjectVerbs, public DataPath {
 public:
  // The engine of `fabric` (empty: which the settings name), with a context on it. Errors:
  // Fabric::open's and those of the settings.
  static Result<LiveEngine*> open(Context& context, const std::string& fabric = {});
  [[nodiscard]] const std::string& fabric_name() const noexcept { return fabric_->name(); }
  ~LiveEngine() override;
  // As Fabric's.
  static void before_fork();
  static void after_fork();
  // Ends the firmware thread. Once, at exit or destruction.
  void stop() noexcept;

  Pd* alloc_pd(Context& context) override;
  int dealloc_pd(Pd& pd) override;
  Mr* register_memory(Pd& pd, void* address, std::uint64_t length, std::uint64_t iova,
                      unsigned access) override;
  Mr* register_file(Pd& pd, std::uint64_t offset, std::uint64_t length, std::uint64_t iova, int fd,
                    unsigned access) override;
  int deregister(Mr& mr) override;
  Pd* import_pd(Context& context, std::uint32_t handle) override;
  Mr* import_region(Pd& pd, std::uint32_t handle) override;
  int reregister(Mr& mr, const Reregistration& change) override;
  Mw* alloc_window(Pd& pd, ibv_mw_type type) override;
  int dealloc_window(Mw& mw) override;
  int attach(Qp& qp, const ibv_gid& group) override;
  int detach(Qp& qp, const ibv_gid& group) override;
  int prefetch(Pd& pd, const ibv_sge& part, bool write, bool faults) override;
  Channel* create_channel(Context& context) override;
  int destroy_channel(Channel& channel) override;
  Cq* create_cq(Context& context, const ibv_cq_init_attr_ex& attr) override;
  int resize_cq(Cq& cq, int entries) override;
  int destroy_cq(Cq& cq) override;
  Srq* create_srq(Pd& pd, ibv_srq_init_attr& attr, Xrcd* xrcd, Cq* cq) override;
  int modify_srq(Srq& srq, const ibv_srq_attr& attr, int mask) override;
  int query_srq(Srq& srq, ibv_srq_attr& attr) override;
  int destroy_srq(Srq& srq) override;
  Qp* create_qp(Context& context, ibv_qp_init_attr_ex& attr,
                const mlx5dv_qp_init_attr* dc) override;
  int modify_qp(Qp& qp, const ibv_qp_attr& attr, int mask) override;
  int query_qp(Qp& qp, ibv_qp_attr& attr, ibv_qp_init_attr& init) override;
  int destroy_qp(Qp& qp) override;
  int reset_stream(Qp& qp, std::uint16_t stream) override;
  int reserve_number(std::uint32_t& number) override;
  int release_number(std::uint32_t number) override;
  Xrcd* open_xrcd(Context& context, int fd, int oflags) override;
  int close_xrcd(Xrcd& xrcd) override;
  Qp* open_qp(Xrcd& xrcd, std::uint32_t number, void* qp_context) override;
  [[nodiscard]] bool data_in_order(ibv_wr_opcode) const noexcept override { return true; }
  Ah* create_ah(Pd& pd, const ibv_ah_attr& attr) override;
  int destroy_ah(Ah& ah) override;

  int check(const Qp& qp, const SendWqe& wqe) override;
  int send(Qp& qp, SendWqe& wqe) override;
  int post_recv(Qp& qp, ibv_recv_wr* wr, ibv_recv_wr** bad) override;
  int post_srq_recv(Srq& srq, ibv_recv_wr* wr, ibv_recv_wr** bad) override;
  bool take(Cq& cq, Cqe& out) override;
  int idle(Cq& cq) override;
  int request_notify(Cq& cq, bool solicited_only) override;

  int get_cq_event(Channel& channel, ibv_cq** cq, void** cq_context) override;
  int get_async_event(Context& context, ibv_async_event& event) override;

  void close(Context& context) override;

 private:
  // How an attempt at a request ended.
  enum class Step : std::uint8_t { done, receiver_not_ready, no_answer };
  struct Segment {
    std::uint8_t* data;
    std::uint64_t length;
  };
  struct Segments {
    Segment part[kMaxSge + 1];
    std::uint32_t count = 0;
    std::uint64_t length = 0;
    void add(std::uint8_t* data, std::uint64_t n) {
      part[count++] = {data, n};
      length += n;
    }
  };
  // A receive taken from a queue.
  struct Receive {
    std::uint64_t wr_id;
    std::uint32_t num_sge;
    std::uint32_t pd;
    std::uint64_t room;
    std::uint32_t cq;
    Token owner;
    ReceiveSge sge[kMaxSge];
  };
  enum class Taken : std::uint8_t { yes, empty, gone, damaged };
  // Who answers a request: the queue pair at the other end, and whose receives and memory it has.
  struct Target {
    QpRecord* record = nullptr;  // null: nobody answers
    std::uint32_t number = 0;
    std::uint32_t pd = 0;        // of the memory that remote keys name
    std::uint32_t srq = 0;       // index; kNone: the queue pair's own receives
    std::uint32_t cq = 0;        // where receives complete
    Token owner = 0;             // of the two
    std::uint64_t srq_name = 0;  // XRC: what the SRQ's record must keep saying
  };

  explicit LiveEngine(std::shared_ptr<Fabric> fabric);
  Status start();

  // executor.cpp. All with sq_lock held.
  [[nodiscard]] Step execute(Qp& qp, SendWqe& wqe, ibv_wc_status& status) noexcept;
  // One that goes to a peer, as far as its answer.
  [[nodiscard]] Step run(Qp& qp, SendWqe& wqe, Segments& local, ibv_wc_status& status) noexcept;
  [[nodiscard]] Target find_target(Qp& qp, const SendWqe& wqe) noexcept;
  // XRC: completes `target` by the SRQ that the request names. False: there is no such SRQ.
  [[nodiscard]] bool find_srq(const SendWqe& wqe, Target& target) const noexcept;
  [[nodiscard]] ibv_wc_status gather(Qp& qp, SendWqe& wqe, unsigned rights, Segments& out) noexcept;
  [[nodiscard]] Step run_rdma(Qp& qp, SendWqe& wqe, const Target& target, Segments& local,
                              ibv_wc_status& status) noexcept;
  [[nodiscard]] Step run_atomic(SendWqe& wqe, const Target& target, Segments& local,
                                ibv_wc_status& status) noexcept;
  [[nodiscard]] Step run_send(Qp& qp, SendWqe& wqe, const Target& target, Segments& local,
                              ibv_wc_status& status) noexcept;
  [[nodiscard]] Access scatter(Qp& qp, std::uint32_t number, const Receive& receive,
                               const Segments& data) noexcept;
  [[nodiscard]] ibv_wc_status remote_failure(const Target& target, Access access,
                                             ibv_event_type event) noexcept;
  // What kept a request from the target's memory, which goes when its owner dies: then nobody
  // answers, whatever it looked like.
  [[nodiscard]] Access judge(const Target& target, Access access) const noexcept;
  // Completes the receive taken from `target`.
  void deliver(Qp& qp, const SendWqe& wqe, const Target& target, const Receive& receive,
               const Cqe& entry) noexcept;
  void complete(Qp& qp, const SendWqe& wqe, ibv_wc_status status) noexcept;
  void fail(Qp& qp, QpPhase to) noexcept;
  void flush_send_queue(Qp& qp) noexcept;

  // streams.cpp
  // A request failed: is it its stream alone that fails?
  [[nodiscard]] bool fails_alone(Qp& qp, const SendWqe& wqe) noexcept;

  // windows.cpp
  [[nodiscard]] ibv_wc_status bind(const Qp& qp, const SendWqe& wqe) noexcept;
  [[nodiscard]] ibv_wc_status invalidate(const Qp& qp, const SendWqe& wqe) noexcept;
  // Is a window bound to this region of ours?
  [[nodiscard]] bool has_windows(std::uint32_t region) const noexcept;
  // Is it a bound window of type 2 that a request to `target` may invalidate?
  [[nodiscard]] bool names_window_of(std::uint32_t key, const Target& target) const noexcept;

  // multicast.cpp
  void send_to_group(Qp& qp, const SendWqe& wqe, const Segments& local) noexcept;

  // firmware.cpp
  void stall(Qp& qp, Step why) noexcept;
  void progress(Qp& qp) noexcept;
  void retry_due(bool firmware) noexcept;
  void forget_stalled(Qp& qp) noexcept;
  void firmware_main() noexcept;

  // receives.cpp
  [[nodiscard]] int post(ReceiveQueue& queue, ibv_recv_wr* wr, ibv_recv_wr** bad) noexcept;
  [[nodiscard]] Taken take_receive(Qp& qp, const Target& target, Receive& out) noexcept;
  void flush_receives(QpRecord& record, std::uint32_t number) noexcept;
  // Moves a QP (ours or a peer's) to err, completes its receives, tells its owner.
  void fail_target(QpRecord& target, std::uint32_t number, ibv_event_type event) noexcept;
  [[nodiscard]] int create_receive_queue(ReceiveQueue& queue, std::uint32_t max_wr,
                                         std::uint32_t max_sge, std::uint32_t pd,
                                         OwnRing& own) noexcept;
  void destroy_receive_queue(ReceiveQueue& queue, const OwnRing& own) noexcept;

  // completions.cpp
  // taker: the queue pair whose taken receive this completes, or null.
  bool push(std::uint32_t cq, Token owner, const Cqe& entry, bool solicited, Qp* taker) noexcept;
  void drop_completions(Cq& cq, std::uint32_t number) noexcept;

  // events.cpp
  void raise(Token owner, const PipeRef& pipe, const EventRecord& event) noexcept;
  void raise_qp(const QpRecord& record, std::uint32_t number, ibv_event_type type) noexcept;
  // To every handle of an XRC target.
  void raise_target(std::uint32_t number, ibv_event_type type) noexcept;

  // xrc.cpp
  [[nodiscard]] Qp* create_target(Context& context, const ibv_qp_init_attr_ex& attr);
  void begin_target(Qp& qp, Context& context, const ibv_qp_init_attr_ex& attr, std::uint32_t index,
                    std::uint32_t number);
  [[nodiscard]] int modify_target(Qp& qp, const ibv_qp_attr& attr, int mask);
  [[nodiscard]] int change_target(const Qp& qp, QpRecord& r, const ibv_qp_attr& attr, int mask,
                                  QpPhase& from, QpPhase& to);
  [[nodiscard]] int destroy_target(Qp& qp);

  // qps.cpp
  // An index of ours, kNone: the table is full. Takes table_lock.
  [[nodiscard]] std::uint32_t reserve_qp() noexcept;
  // Of a kind that is not shared between processes.
  [[nodiscard]] Qp* create_own(Context& context, ibv_qp_init_attr_ex& attr, QpKind kind,
                               const mlx5dv_qp_init_attr* dc);
  [[nodiscard]] static int checked_phase(const Qp& qp, QpPhase from, const ibv_qp_attr& attr,
                                         int mask, QpPhase& to);

  // Waits until no initiator touches this region or queue pair. 0: not asked about. held: the queue
  // pair of ours whose sq_lock the caller has, if any.
  void wait_unused(std::uint32_t key, std::uint32_t number, const Qp* held = nullptr) noexcept;
  // Waits until no initiator has a receive of this SRQ of ours. Nobody can take another.
  void wait_untaken(std::uint32_t srq) noexcept;
  // May somebody execute a request of the queue pair with this index now?
  [[nodiscard]] bool executes(std::uint32_t index) noexcept;
  // A free record of the table of regions, ours from now on; kNone: it is full. table_lock held.
  [[nodiscard]] std::uint32_t reserve_region() noexcept;
  // What a region's record says of where its bytes are.
  struct Backing {
    MrKind kind = MrKind::process;
    std::uint64_t location = 0;
    std::uint32_t device = 0;
    std::uint64_t inode = 0;
    int fd = -1;
  };
  // Of `pages`, which it takes over, or of ordinary memory if there are none.
  [[nodiscard]] Backing back(const void* address, const SharedPages& pages);
  static void set_backing(MrRecord& record, const Backing& backing) noexcept;
  // Takes the backing's descriptor over. address: null of a file that was registered as one.
  [[nodiscard]] Mr* publish_region(Pd& pd, void* address, std::uint64_t length, std::uint64_t iova,
                                   unsigned access, const Backing& backing);
  [[nodiscard]] bool names_this_port(const ibv_ah_attr& attr,
                                     const Context& context) const noexcept;

  std::shared_ptr<Fabric> fabric_;
  Memory memory_;
  SharedFiles files_;
  std::uint32_t contexts_ = 0;       // guarded by the registry's mutex
  std::atomic<Qp*>* qps_ = nullptr;  // by index; ours only

  std::mutex objects_mutex_;  // the maps
  std::unordered_map<std::uint32_t, Cq*> cqs_;
  std::unordered_map<std::uint32_t, Srq*> srqs_;
  std::unordered_map<std::uint32_t, Qp*> targets_;  // by handle

  std::unordered_set<std::uint32_t> reserved_;  // numbers

  std::mutex stalled_mutex_;
  std::vector<Qp*> stalled_;
  std::atomic<std::uint64_t> next_retry_{UINT64_MAX};

  std::thread firmware_;
  std::atomic<bool> stop_{false};
};

}  // namespace turnout::hca
