// SPDX-License-Identifier: BSD-3-Clause
#include "provider/cq.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <type_traits>

#include "provider/compat.h"
#include "provider/data_path.h"
#include "provider/errors.h"
#include "provider/info.h"
#include "provider/ops.h"

namespace turnout::provider {
namespace {

constexpr std::uint64_t flags_of(std::uint32_t flags) noexcept {
  std::uint64_t out = 0;
  if ((flags & kSend) != 0) out |= FI_SEND;
  if ((flags & kRecv) != 0) out |= FI_RECV;
  if ((flags & kTagged) != 0) out |= FI_TAGGED;
  if ((flags & kMessage) != 0) out |= FI_MSG;
  const std::uint64_t access = (flags & kAtomic) != 0 ? FI_ATOMIC : FI_RMA;
  if ((flags & kRmaWrite) != 0) out |= access | FI_WRITE;
  if ((flags & kRmaRead) != 0) out |= access | FI_READ;
  if ((flags & kRemoteData) != 0) out |= FI_REMOTE_CQ_DATA;
  if ((flags & kMultiRecvDone) != 0) out |= FI_MULTI_RECV;
  if ((flags & kRemoteWrite) != 0) out |= access | FI_REMOTE_WRITE;
  return out;
}

// All values once: an entry's flags cost one load. kClaimed shows nowhere in libfabric's flags.
constexpr std::size_t kFlagValues = std::size_t{2} * kAtomic;
constexpr auto kEntryFlags = [] {
  std::array<std::uint64_t, kFlagValues> table{};
  for (std::uint32_t i = 0; i < kFlagValues; ++i) table[i] = flags_of(i);
  return table;
}();

template <class Entry>
void write_entry(Entry& out, const Completion& c) noexcept {
  out.op_context = c.context;
  if constexpr (!std::is_same_v<Entry, fi_cq_entry>) {
    out.flags = entry_flags(c.flags);
    out.len = c.length;
  }
  if constexpr (std::is_same_v<Entry, fi_cq_data_entry> ||
                std::is_same_v<Entry, fi_cq_tagged_entry>) {
    out.buf = c.buffer;
    out.data = c.data;
  }
  if constexpr (std::is_same_v<Entry, fi_cq_tagged_entry>) out.tag = c.tag;
}

template <class Entry>
[[gnu::always_inline]] inline std::size_t take_entries(Cq::Source& source, Entry* out,
                                                       std::size_t count, fi_addr_t* addresses) {
  CompletionQueue& queue = source.queue;
  std::size_t n = 0;
  while (n < count && queue.size() != 0) {
    const Completion& c = queue.front();
    write_entry(out[n], c);
    if (addresses != nullptr) addresses[n] = source.name_of(c.source);
    queue.pop();
    ++n;
  }
  return n;
}

// Successes first, so that a failure is seen after what had ended before it; a queue is drained
// before progress is made, so successes cannot hide a failure for long.
template <class Entry>
ssize_t read_locked(Cq& cq, void* buffer, std::size_t count, fi_addr_t* addresses) {
  cq.domain.count_call();
  auto* out = static_cast<Entry*>(buffer);
  std::size_t n = 0;
  bool failed = false;
  for (auto& source : cq.sources) {
    CompletionQueue& queue = source->queue;
    if ((queue.size() == 0 || count == 0) && source->endpoint != nullptr)
      source->endpoint->progress();
    n += take_entries(*source, out + n, count - n, addresses == nullptr ? nullptr : addresses + n);
    failed |= queue.has_error();
  }
  if (n != 0) return static_cast<ssize_t>(n);
  if (failed) return -FI_EAVAIL;
  if (count == 0 && cq.unread() != 0) return 0;
  return -FI_EAGAIN;
}

// The same of a queue with one source, at least one entry, and nothing to lock.
template <class Entry>
[[gnu::always_inline]] inline ssize_t read_only_source(Cq::Source& source, void* buffer,
                                                       std::size_t count, fi_addr_t* addresses) {
  CompletionQueue& queue = source.queue;
  if (queue.size() == 0) {
    if (source.endpoint != nullptr) source.endpoint->progress();
    if (queue.size() == 0) return queue.has_error() ? -FI_EAVAIL : -FI_EAGAIN;
  }
  return static_cast<ssize_t>(take_entries(source, static_cast<Entry*>(buffer), count, addresses));
}

template <class Entry>
[[gnu::noinline]] ssize_t read_shared(Cq& cq, void* buffer, std::size_t count,
                                      fi_addr_t* addresses) {
  ssize_t n = 0;
  bool others_first = false;
  {
    const Guard guard(cq.domain.lock);
    others_first = cq.domain.read([&] {
      n = read_locked<Entry>(cq, buffer, count, addresses);
      return n != -FI_EAGAIN;
    });
  }
  if (others_first) [[unlikely]]
    sched_yield();
  return n;
}

template <class Entry>
ssize_t read_from(fid_cq* f, void* buffer, std::size_t count, fi_addr_t* addresses) {
  return contain([&]() __attribute__((always_inline))->ssize_t {
    Cq& cq = Cq::of(f);
    Cq::Source* const only = cq.only;
    if (only == nullptr || cq.domain.lock != nullptr || count == 0) [[unlikely]]
      return read_shared<Entry>(cq, buffer, count, addresses);
    ssize_t n = 0;
    if (cq.domain.read([&]() __attribute__((always_inline)) {
          n = read_only_source<Entry>(*only, buffer, count, addresses);
          return n != -FI_EAGAIN;
        })) [[unlikely]]
      sched_yield();
    return n;
  });
}

// Waits by polling: every event of this provider comes from progress, which this thread makes.
template <class Entry>
ssize_t wait_from(fid_cq* f, void* buffer, std::size_t count, fi_addr_t* addresses,
                  const void* condition, int timeout) {
  using Clock = std::chrono::steady_clock;
  Cq& cq = Cq::of(f);
  if (!cq.may_wait) return -FI_EINVAL;
  return contain([&]() -> ssize_t {
    const Clock::time_point end = Clock::now() + std::chrono::milliseconds(std::max(timeout, 0));
    std::size_t least = 1;
    if (cq.by_threshold && condition != nullptr) {
      least = std::clamp(reinterpret_cast<std::size_t>(condition), std::size_t{1},
                         std::max(count, std::size_t{1}));
    }
    for (;;) {
      const bool late = timeout >= 0 && Clock::now() >= end;
      {
        const Guard guard(cq.domain.lock);
        cq.progress();
        if (cq.unread() >= least || cq.failed() || late) {
          return read_locked<Entry>(cq, buffer, count, addresses);
        }
      }
      unsigned pending = cq.signals.load();
      while (pending != 0 && !cq.signals.compare_exchange_weak(pending, pending - 1)) {
      }
      if (pending != 0) return -FI_EAGAIN;
      sched_yield();
    }
  });
}

// Never writes to memory that err_data of the program's entry points to: programs that leave the
// entry uninitialised are common. Who passed err_data_size 0 gets a pointer to the text.
void fill_error(Cq& cq, Cq::Source& source, ErrorCompletion& c, fi_cq_err_entry* out) {
  const std::uint32_t api = cq.domain.api;
  write_error_entry(*out, c);
  cq.error_text = c.status.text().substr(0, kMaxErrorText - 1);
  cq.error_number = out->prov_errno;
  if (api < kApi15) {
    out->err_data = nullptr;
  } else if (out->err_data_size == 0) {
    out->err_data = cq.error_text.data();
    out->err_data_size = cq.error_text.size() + 1;
  } else {
    out->err_data_size = 0;
  }
  if (api >= kApi120) {
    reinterpret_cast<CqErrEntry120*>(out)->src_addr = source.name_of(c.source);
  }
}

ssize_t read_error(fid_cq* f, fi_cq_err_entry* entry, std::uint64_t /*flags*/) {
  return contain([&]() -> ssize_t {
    Cq& cq = Cq::of(f);
    const Guard guard(cq.domain.lock);
    for (auto& source : cq.sources) {
      if (!source->queue.has_error()) continue;
      ErrorCompletion c = source->queue.pop_error();
      fill_error(cq, *source, c, entry);
      return 1;
    }
    return -FI_EAGAIN;
  });
}

int signal_queue(fid_cq* f) {
  Cq& cq = Cq::of(f);
  if (!cq.may_wait) return -FI_EINVAL;
  const Guard guard(cq.domain.lock);
  cq.signals.fetch_add(1);
  if (cq.wait) cq.wait->signal();
  return 0;
}

const char* error_text(fid_cq* f, int prov_errno, const void* /*err_data*/, char* buffer,
                       std::size_t length) {
  Cq& cq = Cq::of(f);
  const Guard guard(cq.domain.lock);
  std::string_view text = provider_error_text(prov_errno);
  if (prov_errno == cq.error_number && !cq.error_text.empty()) text = cq.error_text;
  return put_text(text, buffer, length);
}

int control_queue(fid* f, int command, void* argument) {
  return WaitObject::control(Cq::of(f).wait.get(), command, argument);
}

fi_ops cq_fid_ops = object_ops(Cq::close, kNotHere, control_queue);

template <class Entry>
fi_ops_cq cq_ops = {
    .size = sizeof(fi_ops_cq),
    .read = [](fid_cq* f, void* buffer,
               std::size_t count) { return read_from<Entry>(f, buffer, count, nullptr); },
    .readfrom = read_from<Entry>,
    .readerr = read_error,
    .sread =
        [](fid_cq* f, void* buffer, std::size_t count, const void* condition, int timeout) {
          return wait_from<Entry>(f, buffer, count, nullptr, condition, timeout);
        },
    .sreadfrom = wait_from<Entry>,
    .signal = signal_queue,
    .strerror = error_text,
};

fi_ops_cq* ops_for(fi_cq_format format) noexcept {
  constexpr std::array kTables = {&cq_ops<fi_cq_entry>, &cq_ops<fi_cq_entry>,
                                  &cq_ops<fi_cq_msg_entry>, &cq_ops<fi_cq_data_entry>,
                                  &cq_ops<fi_cq_tagged_entry>};
  static_assert(FI_CQ_FORMAT_UNSPEC == 0 && FI_CQ_FORMAT_TAGGED + 1 == kTables.size());
  const auto place = static_cast<std::size_t>(format);
  return place < kTables.size() ? kTables[place] : nullptr;
}

}  // namespace

void write_error_entry(fi_cq_err_entry& out, const ErrorCompletion& c) noexcept {
  out.op_context = c.context;
  out.flags = entry_flags(c.flags);
  out.len = c.length;
  out.buf = c.buffer;
  out.data = c.data;
  out.tag = c.tag;
  out.olen = c.overflow;
  out.err = fi_error(c.status);
  out.prov_errno = provider_errno(c.status);
}

std::uint64_t entry_flags(std::uint32_t flags) noexcept {
  return kEntryFlags[flags & (kFlagValues - 1)];
}

int Cq::open(Domain& domain, fi_cq_attr* attr, fid_cq** cq, void* context) {
  if (attr == nullptr) return -FI_EINVAL;
  fi_ops_cq* table = ops_for(attr->format);
  if (table == nullptr) return -FI_ENOSYS;
  auto made = std::make_unique<Cq>(domain);
  if ((attr->flags & FI_PEER) != 0) {
    if (const int error = PeerCq::check(*attr, context); error != 0) return error;
    made->peer = std::make_unique<PeerCq>(*static_cast<const fi_peer_cq_context*>(context)->cq);
    table = &PeerCq::ops;
  }
  made->fid = {FI_CLASS_CQ, context, &cq_fid_ops};
  made->ops = table;
  // A program's size is a hint from outside; the queue grows by itself beyond what is reserved.
  made->expected = attr->size == 0 ? kContextSize : std::min(attr->size, kContextSize);
  made->may_wait = attr->wait_obj != FI_WAIT_NONE;
  made->by_threshold = attr->wait_cond == FI_CQ_COND_THRESHOLD;
  // Last: a set looks at it from now on.
  if (const int error = domain.watch(*made, attr->wait_obj, attr->wait_set); error != 0)
    return error;
  if (attr->format == FI_CQ_FORMAT_UNSPEC) attr->format = FI_CQ_FORMAT_CONTEXT;
  *cq = made.release();
  return 0;
}

void Cq::leave(DataPath& endpoint) noexcept {
  // Completions of an owner's receives refer to what the endpoint has.
  if (peer != nullptr) {
    static_cast<void>(contain([&] { return peer->take(*this, SIZE_MAX); }));
  }
  for (auto& source : sources) {
    if (source->endpoint == &endpoint) source->endpoint = nullptr;
  }
  if (peer == nullptr) return;
  std::erase_if(sources, [](const auto& source) { return source->endpoint == nullptr; });
  note_only();
}

CompletionQueue& Cq::join(DataPath& endpoint) {
  for (auto& source : sources) {
    if (source->endpoint == &endpoint) return source->queue;
  }
  // Sources of closed endpoints that were drained make room.
  std::erase_if(sources, [](auto& s) {
    return s->endpoint == nullptr && s->queue.size() == 0 && !s->queue.has_error();
  });
  sources.push_back(std::make_unique<Source>(Source{&endpoint, CompletionQueue(expected)}));
  note_only();
  return sources.back()->queue;
}

void Cq::progress() {
  domain.count_call();
  for (auto& source : sources) {
    if (source->endpoint != nullptr) source->endpoint->progress();
  }
}

}  // namespace turnout::provider
