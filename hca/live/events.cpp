// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/events.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/log.h"
#include "hca/live/fork_guard.h"

namespace turnout::hca {
namespace {

// Reads one record; blocks unless the user made the descriptor non-blocking. 0 or errno. EINTR is
// the user's, as with rdma-core: a signal without SA_RESTART ends a program's waiting.
int read_record(int fd, EventRecord& event) {
  const ssize_t n = read(fd, &event, sizeof event);
  if (n == static_cast<ssize_t>(sizeof event)) return 0;
  return n < 0 ? errno : EBADF;
}

// Does an object of this kind have such an event? What a damaged record sends elsewhere could be
// taken for any: acknowledged as an event of another kind of object it would destroy this one.
bool fits(const EventRecord& event) noexcept {
  if (event.type == kCompletion) return event.object == kCqEvent;
  switch (object_of(event.type)) {
    case EventObject::cq:
      return event.object == kCqEvent;
    case EventObject::srq:
      return event.object == kSrqEvent;
    case EventObject::qp:
      return event.object == kQpEvent || event.object == kXrcEvent;
    default:
      return event.object == kPortEvent &&
             (event.type == IBV_EVENT_PORT_ERR || event.type == IBV_EVENT_PORT_ACTIVE ||
              event.type == IBV_EVENT_DEVICE_FATAL);
  }
}

}  // namespace

bool open_event_pipe(int& read_end, int& write_end, PipeRef& pipe) noexcept {
  int ends[2];
  struct stat st {};
  if (pipe2(ends, O_CLOEXEC) != 0 || fstat(ends[1], &st) != 0) return false;
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  read_end = ends[0];
  write_end = ends[1];
  pipe = PipeRef{st.st_ino, ends[1], 0};
  return true;
}

Channel* LiveEvents::create_channel(Context& context) {
  if (const int error = refuse_child(context); error != 0) return failed(error);
  auto channel = std::make_unique<Channel>();
  if (!open_event_pipe(channel->verbs.fd, channel->write, channel->pipe)) return nullptr;
  channel->verbs.context = &context.verbs.context;
  ++context.users;
  return channel.release();
}

int LiveEvents::destroy_channel(Channel& channel) {
  if (channel.users.load() != 0) return EBUSY;
  ::close(channel.verbs.fd);
  ::close(channel.write);
  --context_of(channel.verbs.context).users;
  delete &channel;
  return 0;
}

void LiveEvents::raise(Token owner, const PipeRef& pipe, const EventRecord& event) noexcept {
  if (!fabric.pipes().write(owner, pipe, &event, sizeof event)) {
    TURNOUT_LOG(
        hca, debug,
        "delivering asynchronous event {} failed: process slot {}: it does not read its events",
        event.type, slot_of(owner));
  }
}

void LiveEvents::raise_qp(const QpRecord& record, std::uint32_t number,
                          ibv_event_type type) noexcept {
  raise(
      record.owner.load(std::memory_order_relaxed), record.async,
      {record.cookie, number & (kMaxQps - 1), number, static_cast<std::uint32_t>(type), kQpEvent});
}

void LiveEvents::raise_target(std::uint32_t number, ibv_event_type type) noexcept {
  const std::uint32_t high = std::min(fabric.header().xrc_handle_high.load(), kMaxXrcHandles);
  for (std::uint32_t i = 0; i < high; ++i) {
    const XrcHandleRecord& r = fabric.xrc_handle(i);
    if (r.of.load(std::memory_order_relaxed) != number) continue;
    EventRecord event{};
    PipeRef pipe;
    Token owner = 0;
    {
      const TableGuard guard(fabric);
      owner = r.owner.load(std::memory_order_relaxed);
      if (owner == 0 || r.kind != XrcHandleKind::target || r.of.load() != number) continue;
      event = {r.cookie, i, r.generation, static_cast<std::uint32_t>(type), kXrcEvent};
      pipe = r.async;
    }
    raise(owner, pipe, event);
  }
}

void LiveEvents::direct(Cq& cq, Channel* channel) noexcept {
  const SharedGuard guard(fabric, cq.record->lock);
  CqRecord& record = *cq.record;
  record.async = record.channel = channel != nullptr ? channel->pipe : PipeRef{};
  record.has_channel = channel != nullptr ? 1 : 0;
}

void LiveEvents::direct(Qp& qp, const Channel* channel) noexcept {
  qp.record->async = channel != nullptr ? channel->pipe : PipeRef{};
}

void LiveEvents::direct(Srq& srq, const Channel* channel) noexcept {
  srq.record->async = channel != nullptr ? channel->pipe : PipeRef{};
}

bool LiveEvents::find(const EventRecord& event, AnyEvent& out) {
  if (!fits(event)) return false;
  out = {};
  out.type = event.type;
  if (event.object == kPortEvent) return true;
  const std::lock_guard lock(objects.mutex);
  const auto look = [&event](const auto& objects) {
    const auto found = objects.find(event.index);
    return found != objects.end() ? found->second : nullptr;
  };
  if (event.object == kCqEvent) {
    Cq* const cq = look(objects.cqs);
    if (cq == nullptr || cq->record->generation != event.generation) return false;
    ++(event.type == kCompletion ? cq->comp_events_read : cq->async_events_read);
    out.cq = cq;
    return true;
  }
  if (event.object == kSrqEvent) {
    Srq* const srq = look(objects.srqs);
    if (srq == nullptr || srq->record->generation != event.generation) return false;
    ++srq->events_read;
    out.srq = srq;
    return true;
  }
  Qp* qp = nullptr;
  if (event.object == kXrcEvent) {
    qp = look(objects.targets);
    if (qp != nullptr && fabric.xrc_handle(event.index).generation != event.generation) {
      return false;
    }
  } else {
    qp = objects.qps[event.index & (kMaxQps - 1)].load(std::memory_order_acquire);
    if (qp != nullptr && qp->number != event.generation) return false;
  }
  if (qp == nullptr) return false;
  ++qp->events_read;
  out.qp = qp;
  return true;
}

int LiveEvents::take_completion(Channel& channel, ibv_cq** cq, void** cq_context) {
  for (;;) {
    EventRecord event;
    AnyEvent found;
    if (const int error = read_record(channel.verbs.fd, event); error != 0) return error;
    // Of a CQ destroyed before its event was read there is none.
    if (event.type != kCompletion || !find(event, found)) continue;
    *cq = reinterpret_cast<ibv_cq*>(&found.cq->verbs);
    *cq_context = found.cq->verbs.cq_context;
    return 0;
  }
}

int LiveEvents::take(Context& context, ibv_async_event& out) {
  for (;;) {
    EventRecord event;
    AnyEvent found;
    if (const int error = read_record(context.verbs.context.async_fd, event); error != 0) {
      return error;
    }
    if (event.type == kCompletion || !find(event, found)) continue;
    out.event_type = static_cast<ibv_event_type>(event.type);
    if (found.cq != nullptr) {
      out.element.cq = reinterpret_cast<ibv_cq*>(&found.cq->verbs);
    } else if (found.srq != nullptr) {
      out.element.srq = &found.srq->verbs;
    } else if (found.qp != nullptr) {
      out.element.qp = &found.qp->verbs.qp_base;
    } else {
      out.element.port_num = kPort;
    }
    return 0;
  }
}

int LiveEvents::take_any(Channel& channel, AnyEvent& out) {
  for (;;) {
    EventRecord event;
    if (const int error = read_record(channel.verbs.fd, event); error != 0) return error;
    if (find(event, out)) return 0;
  }
}

}  // namespace turnout::hca
