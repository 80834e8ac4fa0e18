// SPDX-License-Identifier: BSD-3-Clause
#include "provider/eq.h"

#include <chrono>
#include <cstring>
#include <memory>

#include "provider/errors.h"
#include "provider/ops.h"

namespace turnout::provider {
namespace {

int close_event_queue(fid* f) {
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
  *entry = queue.errors.front();
  queue.errors.pop_front();
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
  return WaitDescriptor::control(EventQueue::of(f).wait.get(), command, argument);
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
  const fi_wait_obj wait = attr != nullptr ? attr->wait_obj : FI_WAIT_NONE;
  auto made = std::make_unique<EventQueue>(fabric);
  if (const int error = WaitDescriptor::make(wait, made->wait); error != 0) return error;
  made->fid = {FI_CLASS_EQ, context, &eq_fid_ops};
  made->ops = &eq_ops;
  made->may_write = attr != nullptr && (attr->flags & FI_WRITE) != 0;
  made->may_wait = wait != FI_WAIT_NONE;
  *eq = made.release();
  return 0;
}

void EventQueue::push(std::uint32_t number, const void* data, std::size_t length) {
  Event event{number, std::vector<std::byte>(length)};
  if (length != 0) std::memcpy(event.data.data(), data, length);
  {
    const std::lock_guard hold(mutex);
    events.push_back(std::move(event));
    if (wait != nullptr) wait->signal();
  }
  arrived.notify_one();
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
      errors.push_back(entry);
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
  if ((flags & FI_PEEK) == 0) events.pop_front();
  return static_cast<ssize_t>(size);
}

}  // namespace turnout::provider
