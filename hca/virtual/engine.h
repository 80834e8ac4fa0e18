// SPDX-License-Identifier: BSD-3-Clause
// VirtualEngine: verbs under a virtual clock, and the World that drives it.
//
// A work request goes through the stages of the cost model, each an event: ready at the adapter ->
// departs (send side, memory, link) -> arrives (port, receive side) -> lands (memory written,
// receive completed) -> answered (sender told) -> completed. Data moves when it lands, from the
// memory of the sender. Acknowledgements and requests to read take time, but no bandwidth; the
// switch between the ports has as much of it as all of them.
// Files: world.cpp (processes, the kernel), objects.cpp (everything but queue pairs),
// queue_pairs.cpp, xrc.cpp (XRC domains and targets), departure.cpp (sender's adapter, DC
// connections), arrival.cpp (target's adapter), completion.cpp (answers, completions, errors). One
// thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/split_mix.h"
#include "hca/device/data_path.h"
#include "hca/device/object_verbs.h"
#include "hca/device/rules.h"
#include "hca/virtual/events.h"
#include "hca/virtual/objects.h"
#include "hca/virtual/world.h"

namespace turnout::hca {

class VirtualEngine final : public ObjectVerbs, public DataPath, public World {
 public:
  explicit VirtualEngine(const WorldOptions& options);
  ~VirtualEngine() override;
  // The engine of this process's world; null: there is none, the live engine serves.
  [[nodiscard]] static VirtualEngine* present() noexcept;
  void open(Context& context);

  // World
  [[nodiscard]] const Profile& profile() const noexcept override { return profile_; }
  [[nodiscard]] ProcessIndex add_process(std::uint32_t node, Callback wake, void* context) override;
  void enter(ProcessIndex process) override;
  [[nodiscard]] bool stand_still() override;
  [[nodiscard]] ProcessIndex current() const noexcept override { return current_; }
  [[nodiscard]] Picoseconds process_time() const noexcept override {
    return processes_[current_].busy;
  }
  void charge(Picoseconds time) noexcept override { processes_[current_].busy += time; }
  [[nodiscard]] Picoseconds busy_until(ProcessIndex process) const noexcept override {
    return processes_[process].busy;
  }
  void kill(ProcessIndex process) override;
  [[nodiscard]] bool alive(ProcessIndex process) const noexcept override {
    return processes_[process].alive;
  }
  [[nodiscard]] std::uint64_t rnr_waits(ProcessIndex process) const noexcept override {
    return processes_[process].rnr_waits;
  }
  [[nodiscard]] Picoseconds now() const noexcept override { return now_; }
  void at(Picoseconds time, Callback callback, void* context, std::uint64_t argument) override;
  bool run_one() override;
  [[nodiscard]] std::uint64_t random() noexcept override { return random_.next(); }
  [[nodiscard]] const WorldStatistics& statistics() const noexcept override { return statistics_; }
  void set_trace(std::function<void(const Trace&)> trace) override { trace_ = std::move(trace); }

  // Engine
  Pd* alloc_pd(Context& context) override;
  int dealloc_pd(Pd& pd) override;
  Mr* register_memory(Pd& pd, void* address, std::uint64_t length, std::uint64_t iova,
                      unsigned access) override;
  Mr* register_file(Pd& pd, std::uint64_t offset, std::uint64_t length, std::uint64_t iova, int fd,
                    unsigned access) override;
  int deregister(Mr& mr) override;
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
  Xrcd* open_xrcd(Context& context, int fd, int oflags) override;
  int close_xrcd(Xrcd& xrcd) override;
  Qp* open_qp(Xrcd& xrcd, std::uint32_t number, void* qp_context) override;
  [[nodiscard]] bool data_in_order(ibv_wr_opcode opcode) const noexcept override {
    return !is_write(static_cast<std::uint8_t>(opcode)) || profile_.fault_reorder <= 0;
  }
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
  // Names the context of a DC initiator at its target's adapter.
  static constexpr std::uint64_t kResponder = std::uint64_t{1} << 32;
  enum Kind : std::uint32_t {
    kCallback,
    kReady,     // at the sender's adapter
    kRestart,   // of a queue pair whose head had to wait
    kResend,    // what found no receive, at the sender's adapter
    kArrive,    // at the target's adapter: the first packet; then all of it, if there are more
    kLand,      // in the target's memory
    kReturn,    // the data of a read, at the sender's adapter; then in its memory
    kAnswer,    // at the sender's adapter
    kComplete,  // in the sender's completion queue
    kNotify,    // a process, after an interrupt
  };
  struct AsyncEvent {
    Context* context;
    ibv_async_event event;
    std::uint32_t* read;  // counter of the object
    Picoseconds at;       // when the process can know
  };

  void schedule(Picoseconds time, Kind kind, void* object, std::uint64_t argument = 0);
  void wake(ProcessIndex process);
  // Into the hash of what every run of a seed must repeat.
  void mix(std::uint64_t a, std::uint64_t b) noexcept;
  [[nodiscard]] bool chance(std::int64_t ppm) noexcept;
  void note(Trace::Kind kind, const VirtualQp& qp, std::uint32_t peer, std::uint64_t bytes);
  // The same of an operation, at its sender.
  void note(Trace::Kind kind, const VirtualQp& qp, const Operation& operation, std::uint64_t bytes);
  void note_arrival(const VirtualQp& target, const Operation& operation);

  // objects.cpp
  struct Span {
    std::uint8_t* data;
    std::uint64_t length;
  };
  [[nodiscard]] const Region* find_region(std::uint32_t key, std::uint64_t address,
                                          std::uint64_t length, unsigned rights) const noexcept;
  [[nodiscard]] static int add_receive(Fifo<VirtualReceive>& queue, std::uint32_t max_wr,
                                       std::uint32_t max_sge, ibv_recv_wr* wr, ibv_recv_wr** bad);

  // queue_pairs.cpp
  [[nodiscard]] VirtualQp* find_qp(std::uint32_t number) const noexcept;
  // 0: there is none.
  [[nodiscard]] std::uint32_t new_qp_number();
  // The queue pair of a handle; what is no handle is it itself. Null: it is nobody's any more.
  [[nodiscard]] static VirtualQp* real(Qp& qp) noexcept;
  // Of a queue pair that no program can reach: as far as the adapter has it.
  void forget_qp(VirtualQp& qp);
  void drop_operations(VirtualQp& qp);
  void forget_completions(VirtualCq* cq, std::uint32_t number);

  // xrc.cpp
  [[nodiscard]] Qp* create_target(Context& context, const ibv_qp_init_attr_ex& attr,
                                  std::uint32_t number);
  [[nodiscard]] Qp* add_handle(VirtualTarget& target, Context& context,
                               const ibv_qp_init_attr_ex& attr);
  void destroy_handle(TargetHandle& handle);
  // True: it was the last one, and the target is no more.
  bool drop_handle(TargetHandle& handle);
  void drop_domain(VirtualXrcd& xrcd);
  // What a killed process had open.
  void close_xrc(ProcessIndex process);
  [[nodiscard]] VirtualSrq* find_srq(std::uint32_t number) const noexcept;
  // The SRQ that an XRC request names, null: `target` serves no such one.
  [[nodiscard]] VirtualSrq* srq_of(const Operation& operation,
                                   const VirtualQp& target) const noexcept;
  // Whose memory a request is for.
  [[nodiscard]] ProcessIndex receiver_of(const Operation& operation,
                                         const VirtualQp& target) const noexcept;

  // departure.cpp
  void start(VirtualQp& qp);
  [[nodiscard]] bool depart(VirtualQp& qp, Operation& operation);
  void depart_datagram(VirtualQp& qp, Operation& operation, Picoseconds arrival);
  void send_again(Operation& operation);
  // `first_miss` is that of the side which asks.
  [[nodiscard]] Picoseconds context_cost(Node& node, std::uint64_t context, Picoseconds first_miss,
                                         Picoseconds* latency);
  [[nodiscard]] bool near(const VirtualQp& from, const VirtualQp* to) const noexcept;
  // When data that leave `from`'s adapter for `to` (null: nobody) have come to its port.
  // from_memory: they are read from it, not inline.
  [[nodiscard]] Stream travel(Operation& operation, const VirtualQp& from, const VirtualQp* to,
                              Picoseconds leaves, std::uint64_t bytes, bool from_memory);
  [[nodiscard]] Stream leave(const VirtualQp& qp, Operation& operation, Picoseconds at);
  [[nodiscard]] PacketTimes on_wire(std::uint64_t bytes) const noexcept;
  [[nodiscard]] PacketTimes on_pcie(std::uint64_t bytes) const noexcept;
  void release_responder(VirtualQp& qp);

  // arrival.cpp
  void arrive(Operation& operation);
  // What has begun to come at this time, through the port.
  [[nodiscard]] Stream receive(Node& node, Operation& operation, std::uint64_t bytes) noexcept;
  void land(Operation& operation);
  // xrc: the SRQ that an XRC request names, else null.
  [[nodiscard]] bool land_rdma(VirtualQp& target, const VirtualSrq* xrc, Operation& operation);
  void place(const Operation& operation, std::uint8_t* target, std::uint64_t from,
             std::uint64_t to);
  void give_back(Operation& operation);
  [[nodiscard]] VirtualQp* target_of(const Operation& operation) noexcept;
  [[nodiscard]] bool admit(Node& node, VirtualQp& qp, Operation& operation);
  void leave_responder(Operation& operation);
  // srq: null: the queue pair's own receives.
  [[nodiscard]] bool take_receive(VirtualQp& target, VirtualSrq* srq, Operation& operation);
  void return_receive(Operation& operation);
  void gather(const Operation& operation);
  void copy_to_receive(Operation& operation, CompletionEntry& entry);
  void again(VirtualQp& qp, Operation& operation, Picoseconds wait, Kind as);
  void receiver_not_ready(VirtualQp& qp, const VirtualQp& target, Operation& operation);
  void refuse(Operation& operation, ibv_wc_status status);
  void no_answer(Operation& operation);
  [[nodiscard]] Picoseconds hop(const Operation& operation) const noexcept;
  void answer(Operation& operation);
  void fail_target(VirtualQp& target, ibv_event_type event);

  // completion.cpp
  void answered(Operation& operation);
  void complete(Operation& operation);
  void settle(VirtualQp& qp);
  void drop_done(VirtualQp& qp);
  void fail(VirtualQp& qp, QpPhase to);
  void flush_receives(VirtualQp& qp);
  void push(VirtualCq* cq, const CompletionEntry& entry, bool solicited);
  [[nodiscard]] static CompletionEntry entry_of(const Operation& operation, ibv_wc_status status);
  void raise(Context& context, const ibv_async_event& event, std::uint32_t* read);
  void raise_limit(VirtualSrq& srq);
  void raise_qp(VirtualQp& qp, ibv_event_type type);

  [[nodiscard]] Operation* new_operation();
  void free_operation(Operation* operation) noexcept;
  [[nodiscard]] Node& node_of(const VirtualQp& qp) noexcept {
    return nodes_[processes_[qp.process].node];
  }

  Profile profile_;
  WorldStatistics statistics_;
  std::function<void(const Trace&)> trace_;
  EventQueue events_;
  Picoseconds now_ = 0;
  SplitMix64 random_;
  std::vector<Node> nodes_;
  std::vector<Process> processes_;
  ProcessIndex current_ = 0;
  std::uint32_t next_pd_ = 1;
  std::vector<Region> regions_;  // by key >> 8
  Fifo<std::uint32_t> free_regions_;
  std::vector<VirtualQp*> qps_;  // by number
  Fifo<std::uint32_t> free_qps_;
  std::uint32_t connections_ = 0;  // made so far
  std::vector<VirtualSrq*> srqs_;  // by number
  Fifo<std::uint32_t> free_srqs_;
  std::vector<std::unique_ptr<XrcDomain>> domains_;
  Fifo<AsyncEvent> async_;
  std::vector<std::unique_ptr<Operation[]>> operation_blocks_;
  Operation* free_operations_ = nullptr;
  std::vector<Span> spans_;  // scratch
};

}  // namespace turnout::hca
