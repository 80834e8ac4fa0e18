// SPDX-License-Identifier: BSD-3-Clause
// LiveEvents: events between processes: small records in the pipes behind channel->fd and
// context->async_fd.
//
// The initiator whose act causes an event writes the record into the owner's pipe. The record names
// the object by index and generation, so an event of an object destroyed meanwhile is recognised.
// take...() block unless the user made the descriptor non-blocking. Any thread.
#pragma once

#include "hca/live/parts.h"

namespace turnout::hca {

// An entry of a completion channel's or a context's pipe.
struct EventRecord {
  std::uint64_t cookie;
  std::uint32_t index;
  std::uint32_t generation;  // of a CQ, SRQ or XRC handle record; a QP's number
  std::uint32_t type;        // ibv_event_type; kCompletion
  std::uint32_t object;      // kCqEvent, kQpEvent, kSrqEvent, kXrcEvent, kPortEvent
};
static_assert(sizeof(EventRecord) == 24);
// kXrcEvent: of a handle of an XRC target. kPortEvent: of the port or the device.
enum : std::uint32_t { kCqEvent = 1, kQpEvent = 2, kSrqEvent = 3, kXrcEvent = 4, kPortEvent = 5 };
inline constexpr std::uint32_t kCompletion = 0xffff;

// A pipe whose write end never blocks, and how peers name that. False and errno.
[[nodiscard]] bool open_event_pipe(int& read_end, int& write_end, PipeRef& pipe) noexcept;

// An event of any kind, and its object: counted as read.
struct AnyEvent {
  std::uint32_t type = 0;  // ibv_event_type; kCompletion
  Cq* cq = nullptr;
  Srq* srq = nullptr;
  Qp* qp = nullptr;  // none of the three: of the port or the device
};

class LiveEvents : LiveParts {
 public:
  explicit LiveEvents(const LiveParts& parts) : LiveParts(parts) {}

  // Completion channels (ibv_create_comp_channel(3)): their program's until they are destroyed.
  [[nodiscard]] static Channel* create_channel(Context& context);
  [[nodiscard]] static int destroy_channel(Channel& channel);

  // All events of a queue go to this channel from now on, completions included; null: they are
  // dropped. The queue must have been created without a channel. Its program's thread.
  void direct(Cq& cq, Channel* channel) noexcept;
  static void direct(Qp& qp, const Channel* channel) noexcept;
  static void direct(Srq& srq, const Channel* channel) noexcept;

  // To the process `owner`; dropped when nobody reads.
  void raise(Token owner, const PipeRef& pipe, const EventRecord& event) noexcept;
  void raise_qp(const QpRecord& record, std::uint32_t number, ibv_event_type type) noexcept;
  // To every handle of an XRC target.
  void raise_target(std::uint32_t number, ibv_event_type type) noexcept;
  // 0 or errno. EINTR is the user's, as with rdma-core.
  [[nodiscard]] int take(Context& context, ibv_async_event& event);
  [[nodiscard]] int take_completion(Channel& channel, ibv_cq** cq, void** cq_context);
  // The next of a channel that queues were directed to.
  [[nodiscard]] int take_any(Channel& channel, AnyEvent& event);

 private:
  // Of what a pipe gave. False: its object has gone, or has no such event.
  [[nodiscard]] bool find(const EventRecord& event, AnyEvent& out);
};

}  // namespace turnout::hca
