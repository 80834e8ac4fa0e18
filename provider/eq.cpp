// SPDX-License-Identifier: BSD-3-Clause
#include "provider/eq.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

#include "provider/errors.h"
#include "provider/library.h"
#include "provider/ops.h"

namespace turnout::provider {
namespace {

int close_event_queue(fid* f) {
  if (EventQueue::of(f).users.load() != 0) return -FI_EBUSY;
  delete &EventQueue::of(f);
  return 0;
}

ssize_t read_event(fid_eq* f, std::uint32_t* number, void* buffer, std::size_t length,
                   std::uint64_t flags) {
  EventQueue& queue = EventQueue::of(f);
  const std::lock_guard hold(queue.mutex);
  return queue.take(number, buffer, length, flags);
}

ssize_t read_error(fid_eq* f, fi_eq_err_entry* entry, std::uint64_t /*flags*/) {
  EventQueue& queue = EventQueue::of(f);
  const std::lock_guard hold(queue.mutex);
  if (queue.errors.empty()) return -FI_EAGAIN;
  EventQueue::Failure& first = queue.errors.front();
  // With a size of 0 the program gets a pointer, else a copy (fi_eq(3)). Where there are no data
  // its pointer, which may be uninitialised, is not followed.
  void* const place = entry->err_data;
  const std::size_t room = entry->err_data_size;
  *entry = first.entry;
  queue.error_data = std::move(first.data);
  queue.errors.pop_front();
  if (queue.error_data.empty()) return sizeof(fi_eq_err_entry);
  entry->err_data = room == 0 ? queue.error_data.data() : place;
  entry->err_data_size =
      room == 0 ? queue.error_data.size() : std::min(room, queue.error_data.size());
  if (room != 0) std::memcpy(place, queue.error_data.data(), entry->err_data_size);
  return sizeof(fi_eq_err_entry);
}

ssize_t write_event(fid_eq* f, std::uint32_t number, const void* data, std::size_t length,
                    std::uint64_t /*flags*/) {
  EventQueue& queue = EventQueue::of(f);
  if (!queue.may_write) return -FI_EINVAL;
  return contain([&]() -> ssize_t {
    queue.push(number, data, length);
    return static_cast<ssize_t>(length);
  });
}

ssize_t wait_event(fid_eq* f, std::uint32_t* number, void* buffer, std::size_t length, int timeout,
                   std::uint64_t flags) {
  EventQueue& queue = EventQueue::of(f);
  if (!queue.may_wait) return -FI_EINVAL;
  std::unique_lock hold(queue.mutex);
  const auto something = [&] { return queue.has_news(); };
  if (timeout < 0) {
    queue.arrived.wait(hold, something);
  } else {
    queue.arrived.wait_for(hold, std::chrono::milliseconds(timeout), something);
  }
  return queue.take(number, buffer, length, flags);
}

const char* error_text(fid_eq*, int prov_errno, const void*, char* buffer, std::size_t length) {
  return put_text(provider_error_text(prov_errno), buffer, length);
}

int control_events(fid* f, int command, void* argument) {
  return WaitObject::control(EventQueue::of(f).wait.get(), command, argument);
}

fi_ops eq_fid_ops = object_ops(close_event_queue, kNotHere, control_events);

fi_ops_eq eq_ops = {
    .size = sizeof(fi_ops_eq),
    .read = read_event,
    .readerr = read_error,
    .write = write_event,
    .sread = wait_event,
    .strerror = error_text,
};

}  // namespace

int EventQueue::open(Fabric& fabric, fi_eq_attr* attr, fid_eq** eq, void* context) {
  // Of another provider's.
  if (attr != nullptr && (attr->flags & FI_PEER) != 0) return -FI_EINVAL;
  const fi_wait_obj wait = attr != nullptr ? attr->wait_obj : FI_WAIT_NONE;
  auto made = std::make_unique<EventQueue>(fabric);
  made->fid = {FI_CLASS_EQ, context, &eq_fid_ops};
  made->ops = &eq_ops;
  made->may_write = attr != nullptr && (attr->flags & FI_WRITE) != 0;
  made->may_wait = wait != FI_WAIT_NONE;
  fid_wait* const set = attr != nullptr ? attr->wait_set : nullptr;
  if (const int error = made->wait.open(fabric, wait, set, &made->fid); error != 0) return error;
  *eq = made.release();
  return 0;
}

void EventQueue::push_connection(std::uint32_t number, ::fid* endpoint, fi_info* info,
                                 std::span<const std::byte> data) {
  const fi_eq_cm_entry entry{endpoint, info};
  std::vector<std::byte> bytes(sizeof entry + data.size());
  std::memcpy(bytes.data(), &entry, sizeof entry);
  if (!data.empty()) std::memcpy(bytes.data() + sizeof entry, data.data(), data.size());
  add(events, Event{number, std::move(bytes), endpoint, InfoPtr(info)});
}

void EventQueue::forget(const ::fid* endpoint) noexcept {
  const std::lock_guard hold(mutex);
  std::erase_if(events, [&](const Event& event) { return event.endpoint == endpoint; });
  std::erase_if(errors, [&](const Failure& failure) { return failure.entry.fid == endpoint; });
}

void EventQueue::push_failure(::fid* endpoint, int error, std::span<const std::byte> data) {
  Failure failure{{}, {data.begin(), data.end()}};
  failure.entry.fid = endpoint;
  failure.entry.context = endpoint->context;
  failure.entry.err = failure.entry.prov_errno = error;
  add(errors, std::move(failure));
}

void EventQueue::push_insertion(::fid* vector, void* insertion, std::uint64_t inserted,
                                const std::vector<std::pair<std::uint64_t, int>>& failed) {
  {
    const std::lock_guard hold(mutex);
    for (const auto& [index, error] : failed) {
      fi_eq_err_entry entry{};
      entry.fid = vector;
      entry.context = insertion;
      entry.data = index;
      entry.err = error;
      errors.push_back({entry, {}});
    }
  }
  const fi_eq_entry entry{vector, insertion, inserted};
  push(FI_AV_COMPLETE, &entry, sizeof(entry));
}

ssize_t EventQueue::take(std::uint32_t* number, void* buffer, std::size_t length,
                         std::uint64_t flags) {
  if (!errors.empty()) return -FI_EAVAIL;
  if (events.empty()) return -FI_EAGAIN;
  Event& first = events.front();
  if (length < first.data.size()) return -FI_ETOOSMALL;
  const std::size_t size = first.data.size();
  *number = first.number;
  if (size != 0) std::memcpy(buffer, first.data.data(), size);
  if ((flags & FI_PEEK) == 0) {
    static_cast<void>(first.info.release());  // in the bytes
    events.pop_front();
  }
  return static_cast<ssize_t>(size);
}

}  // namespace turnout::provider
