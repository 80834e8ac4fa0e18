// SPDX-License-Identifier: BSD-3-Clause
// What a program does over libfabric: fi_fabric() and fi_fabric2() are ours, and the objects that
// come from them get tables of operations of ours, in place, so that every object is still the
// provider's own. Domains, address vectors, completion queues and reliable datagram endpoints are
// observed; of others nothing is recorded.
//
// - Layered providers make objects of other providers by the same functions, from within libfabric
//   or within a call that is observed: those are not touched.
// - Completion queues are opened with the format that has everything, and what the program asked
//   for is copied out: each is the beginning of the next [fi_cq(3)].
// - Domains and endpoints are opened with FI_SOURCE, so that receives from any source tell whose
//   message they got; without it where the provider refuses. A source that is not told is found
//   when the recordings are merged.
// - An address is what the provider calls it: fi_getname() of an endpoint and fi_av_lookup() of a
//   peer give the same bytes.
//
// Objects are made and closed by one thread each; operations come from any. Source: fi_fabric(3) to
// fi_cq(3), fi_tagged(3), fi_msg(3), fi_rma(3), fi_atomic(3); the layouts are part of libfabric's
// ABI, and tables may be shorter or longer than these headers have them.
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>

#include "record/next_function.h"
#include "record/recorder.h"

namespace turnout::record {
namespace {

// A copy of a provider's table of operations, behind the record of the object that has it. Every
// table begins with its size.
template <class Ops>
class Table {
 public:
  // As large as the provider's, and as this header's, with zeros where the provider's ends.
  void copy(const Ops* real, void* owner) {
    real_ = real;
    if (real == nullptr) return;
    const std::size_t size = std::max(real->size, sizeof(Ops));
    bytes_ = std::make_unique<std::byte[]>(kFront + size);
    std::memcpy(bytes_.get(), &owner, sizeof owner);
    std::memcpy(bytes_.get() + kFront, real, real->size);
  }
  [[nodiscard]] Ops* get() noexcept {
    return real_ == nullptr ? nullptr : reinterpret_cast<Ops*>(bytes_.get() + kFront);
  }
  [[nodiscard]] const Ops* real() const noexcept { return real_; }
  // The provider has this operation: ours takes its place.
  template <class Function>
  void replace(Function Ops::*operation, Function with) noexcept {
    if (real_ != nullptr && get()->*operation != nullptr) get()->*operation = with;
  }

 private:
  static constexpr std::size_t kFront = 16;
  const Ops* real_ = nullptr;
  std::unique_ptr<std::byte[]> bytes_;
};

// Of a table that Table made.
template <class Owner, class Ops>
Owner& owner_of(const Ops* ops) noexcept {
  void* owner = nullptr;
  std::memcpy(&owner, reinterpret_cast<const std::byte*>(ops) - 16, sizeof owner);
  return *static_cast<Owner*>(owner);
}

// Where an object of ours is closed: with the provider's own tables, and its record goes if that
// went well.
struct Object {
  virtual ~Object() = default;
  virtual void restore() noexcept = 0;
  virtual void take() noexcept = 0;

  Table<fi_ops> general;
};

int close_object(fid* of) {
  Object* const object = &owner_of<Object>(of->ops);
  const Recorder::Call call(Recorder::get());
  object->restore();
  const int status = of->ops->close(of);
  if (status != 0) {
    object->take();
    return status;
  }
  delete object;
  return 0;
}

// An address as text may have a prefix, in one place and not in another ("fi_shm://"), and a zero
// at its end.
std::uint64_t name_of(std::span<const std::byte> address) noexcept {
  std::string_view text(reinterpret_cast<const char*>(address.data()), address.size());
  text = text.substr(0, text.find_last_not_of('\0') + 1);
  const bool words = std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
  if (const std::size_t prefix = text.find("://"); words && prefix != std::string_view::npos)
    text.remove_prefix(prefix + 3);
  return Recorder::name_of(std::as_bytes(std::span(text)));
}

struct Av final : Object {
  explicit Av(fid_av* av) : fid(av) {
    general.copy(av->fid.ops, static_cast<Object*>(this));
    general.replace(&fi_ops::close, &close_object);
    ops.copy(av->ops, this);
    ops.replace(&fi_ops_av::remove, &Av::remove);
    take();
  }
  void take() noexcept override {
    fid->fid.ops = general.get();
    fid->ops = ops.get();
  }
  void restore() noexcept override {
    fid->fid.ops = const_cast<fi_ops*>(general.real());
    fid->ops = const_cast<fi_ops_av*>(ops.real());
  }
  static int remove(fid_av* av, fi_addr_t* addresses, std::size_t count, std::uint64_t flags) {
    Av& self = owner_of<Av>(av->ops);
    if (Recorder* const recorder = Recorder::get(); recorder != nullptr) {
      const auto lock = recorder->guard();
      self.peers.clear();  // a number may come again
    }
    return self.ops.real()->remove(av, addresses, count, flags);
  }
  // kAnyPeer: it is none, or not known any more.
  [[nodiscard]] PeerId peer(Recorder& recorder, fi_addr_t address) {
    if (address == FI_ADDR_UNSPEC || address == FI_ADDR_NOTAVAIL) return kAnyPeer;
    {
      const auto lock = recorder.guard();
      if (const auto found = peers.find(address); found != peers.end()) return found->second;
    }
    std::array<std::byte, 512> name;
    std::size_t length = name.size();
    if (ops.real()->lookup(fid, address, name.data(), &length) != 0) return kAnyPeer;
    const auto lock = recorder.guard();
    const PeerId peer =
        recorder.peer(name_of(std::span(name).first(std::min(length, name.size()))));
    peers.emplace(address, peer);
    return peer;
  }

  fid_av* fid;
  Table<fi_ops_av> ops;
  std::unordered_map<fi_addr_t, PeerId> peers;  // guarded
};

struct Pending {
  Operation operation;
  Av* av = nullptr;  // of its endpoint
};

std::size_t size_of(fi_cq_format format) noexcept {
  switch (format) {
    case FI_CQ_FORMAT_CONTEXT:
      return sizeof(fi_cq_entry);
    case FI_CQ_FORMAT_MSG:
      return sizeof(fi_cq_msg_entry);
    case FI_CQ_FORMAT_DATA:
      return sizeof(fi_cq_data_entry);
    default:
      return sizeof(fi_cq_tagged_entry);
  }
}

bool fits(Operation::Kind kind, std::uint64_t flags) noexcept {
  using enum Operation::Kind;
  constexpr std::uint64_t kKinds = FI_SEND | FI_RECV | FI_READ | FI_WRITE;
  if ((flags & kKinds) == 0 || kind == other) return true;
  if (kind == receive || kind == receive_many) return (flags & FI_RECV) != 0;
  if (kind == send) return (flags & FI_SEND) != 0;
  return (flags & (FI_READ | FI_WRITE)) != 0;
}

struct Cq final : Object {
  Cq(fid_cq* cq, fi_cq_format format) : fid(cq), entry(size_of(format)) {
    general.copy(cq->fid.ops, static_cast<Object*>(this));
    general.replace(&fi_ops::close, &close_object);
    ops.copy(cq->ops, this);
    ops.replace(&fi_ops_cq::read, &Cq::read);
    ops.replace(&fi_ops_cq::readfrom, &Cq::readfrom);
    ops.replace(&fi_ops_cq::readerr, &Cq::readerr);
    ops.replace(&fi_ops_cq::sread, &Cq::sread);
    ops.replace(&fi_ops_cq::sreadfrom, &Cq::sreadfrom);
    take();
  }
  void take() noexcept override {
    fid->fid.ops = general.get();
    fid->ops = ops.get();
  }
  void restore() noexcept override {
    fid->fid.ops = const_cast<fi_ops*>(general.real());
    fid->ops = const_cast<fi_ops_cq*>(ops.real());
  }

  static ssize_t read(fid_cq* cq, void* to, std::size_t count) {
    return of(cq).take_entries(to, count, nullptr, [&](auto* entries, auto n, auto* sources) {
      return of(cq).ops.real()->readfrom(cq, entries, n, sources);
    });
  }
  static ssize_t readfrom(fid_cq* cq, void* to, std::size_t count, fi_addr_t* from) {
    return of(cq).take_entries(to, count, from, [&](auto* entries, auto n, auto* sources) {
      return of(cq).ops.real()->readfrom(cq, entries, n, sources);
    });
  }
  static ssize_t sread(fid_cq* cq, void* to, std::size_t count, const void* condition,
                       int timeout) {
    return of(cq).take_entries(to, count, nullptr, [&](auto* entries, auto n, auto* sources) {
      return of(cq).ops.real()->sreadfrom(cq, entries, n, sources, condition, timeout);
    });
  }
  static ssize_t sreadfrom(fid_cq* cq, void* to, std::size_t count, fi_addr_t* from,
                           const void* condition, int timeout) {
    return of(cq).take_entries(to, count, from, [&](auto* entries, auto n, auto* sources) {
      return of(cq).ops.real()->sreadfrom(cq, entries, n, sources, condition, timeout);
    });
  }
  static ssize_t readerr(fid_cq* cq, fi_cq_err_entry* to, std::uint64_t flags) {
    Cq& self = of(cq);
    const Recorder::Call call(Recorder::get());
    const ssize_t n = self.ops.real()->readerr(cq, to, flags);
    if (n > 0 && call.recorder() != nullptr) self.failed(*call.recorder(), *to);
    return n;
  }

  fid_cq* fid;
  std::size_t entry;  // bytes, as the program has them
  Table<fi_ops_cq> ops;
  std::unordered_multimap<void*, Pending> pending;  // by context; guarded

 private:
  static constexpr std::size_t kMost = 64;  // entries read at a time

  static Cq& of(fid_cq* cq) noexcept { return owner_of<Cq>(cq->ops); }

  template <class Read>
  ssize_t take_entries(void* to, std::size_t count, fi_addr_t* from, Read&& read_entries) {
    const Recorder::Call call(Recorder::get(), ComputedTime::Call::polls);
    std::array<fi_cq_tagged_entry, kMost> entries;
    std::array<fi_addr_t, kMost> sources;
    count = std::min(count, kMost);
    std::fill_n(sources.begin(), count, FI_ADDR_NOTAVAIL);
    const ssize_t n = read_entries(entries.data(), count, sources.data());
    for (std::size_t i = 0; n > 0 && i < static_cast<std::size_t>(n); ++i) {
      std::memcpy(static_cast<std::byte*>(to) + i * entry, &entries[i], entry);
      if (from != nullptr) from[i] = sources[i];
      if (call.recorder() != nullptr) ended(*call.recorder(), entries[i], sources[i]);
    }
    return n;
  }

  // The oldest that such a completion can be of.
  [[nodiscard]] auto find(void* context, std::uint64_t flags) {
    const auto [first, last] = pending.equal_range(context);
    auto oldest = pending.end();
    for (auto at = first; at != last; ++at) {
      if (!fits(at->second.operation.kind, flags)) continue;
      if (oldest == pending.end() || at->second.operation.number < oldest->second.operation.number)
        oldest = at;
    }
    return oldest;
  }
  void ended(Recorder& recorder, const fi_cq_tagged_entry& entry_read, fi_addr_t source) {
    auto lock = recorder.guard();
    const auto found = find(entry_read.op_context, entry_read.flags);
    if (found == pending.end()) return;  // told by a peer: one-sided, with data
    Operation& operation = found->second.operation;
    using enum Operation::Kind;
    if (operation.kind != receive && operation.kind != receive_many) {
      recorder.ended(&operation);
      pending.erase(found);
      return;
    }
    PeerId from = operation.peer;
    if (Av* const av = found->second.av; from == kAnyPeer && av != nullptr) {
      lock.unlock();
      from = av->peer(recorder, source);
      lock.lock();
    }
    const bool last = operation.kind == receive || (entry_read.flags & FI_MULTI_RECV) != 0;
    // The end of a buffer for many messages may come without one.
    if (operation.kind == receive || (entry_read.flags & FI_RECV) != 0)
      recorder.matched(&operation, from, entry_read.len, entry_read.tag);
    if (last) pending.erase(found);
  }
  void failed(Recorder& recorder, const fi_cq_err_entry& error) {
    const auto lock = recorder.guard();
    const auto found = find(error.op_context, error.flags);
    if (found == pending.end()) return;
    Operation& operation = found->second.operation;
    // A message that was too long has arrived all the same.
    if (operation.kind == Operation::Kind::receive && error.err == FI_ETRUNC) {
      recorder.matched(&operation, kAnyPeer, error.len + error.olen, error.tag);
    } else {
      recorder.dropped(&operation);
    }
    pending.erase(found);
  }
};

std::uint64_t length_of(const iovec* pieces, std::size_t count) noexcept {
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < count; ++i) length += pieces[i].iov_len;
  return length;
}

// Of fi_atomic(3)'s types, in their order.
std::uint64_t size_of(fi_datatype type) noexcept {
  constexpr std::array<std::uint8_t, 16> kSizes = {1, 1, 2, 2,  4,  4,  8,  8,
                                                   4, 8, 8, 16, 16, 32, 16, 16};
  const auto i = static_cast<std::size_t>(type);
  return i < kSizes.size() ? kSizes[i] : 8;
}
std::uint64_t elements_of(const fi_ioc* pieces, std::size_t count) noexcept {
  std::uint64_t elements = 0;
  for (std::size_t i = 0; i < count; ++i) elements += pieces[i].count;
  return elements;
}

struct Ep final : Object {
  Ep(fid_ep* endpoint, const fi_tx_attr* transmit, const fi_rx_attr* receive)
      : fid(endpoint),
        transmit_flags(transmit != nullptr ? transmit->op_flags : 0),
        receive_flags(receive != nullptr ? receive->op_flags : 0) {
    general.copy(endpoint->fid.ops, static_cast<Object*>(this));
    general.replace(&fi_ops::close, &close_object);
    general.replace(&fi_ops::bind, &Ep::bind);
    general.replace(&fi_ops::control, &Ep::control);
    endpoint->fid.ops = general.get();
  }
  void take() noexcept override;
  void restore() noexcept override;
  void enabled();
  // With its contexts.
  void make_scalable() {
    scalable = true;
    calls.copy(fid->ops, this);
    calls.replace(&fi_ops_ep::tx_ctx, &Ep::tx_ctx);
    calls.replace(&fi_ops_ep::rx_ctx, &Ep::rx_ctx);
    take();
  }
  void made_context(fid_ep* context, const fi_tx_attr* transmit, const fi_rx_attr* receive) {
    Ep* const made = new Ep(context, transmit, receive);
    made->whole = this;
    made->directed = directed;
  }
  static int tx_ctx(fid_ep* ep, int index, fi_tx_attr* attr, fid_ep** made, void* context) {
    Ep& self = owner_of<Ep>(ep->ops);
    const Recorder::Call call(Recorder::get());
    const int status = self.calls.real()->tx_ctx(ep, index, attr, made, context);
    if (status == 0 && call.recorder() != nullptr) self.made_context(*made, attr, nullptr);
    return status;
  }
  static int rx_ctx(fid_ep* ep, int index, fi_rx_attr* attr, fid_ep** made, void* context) {
    Ep& self = owner_of<Ep>(ep->ops);
    const Recorder::Call call(Recorder::get());
    const int status = self.calls.real()->rx_ctx(ep, index, attr, made, context);
    if (status == 0 && call.recorder() != nullptr) self.made_context(*made, nullptr, attr);
    return status;
  }

  static Ep& of(::fid* endpoint) noexcept {
    return static_cast<Ep&>(owner_of<Object>(endpoint->ops));
  }
  static int bind(::fid* endpoint, ::fid* other, std::uint64_t flags);
  static int control(::fid* endpoint, int command, void* argument) {
    Ep& self = of(endpoint);
    const Recorder::Call call(Recorder::get());
    const int status = self.general.real()->control(endpoint, command, argument);
    if (status == 0 && command == FI_ENABLE) self.enabled();
    return status;
  }

  // An operation that completes in `queue`, where it has an entry of its own; `post` starts it.
  template <class Post>
  ssize_t start(Operation operation, Cq* queue, bool entry, void* context, fi_addr_t address,
                Post&& post) {
    const Recorder::Call call(Recorder::get());
    Recorder* const recorder = call.recorder();
    if (recorder == nullptr) return post();
    Av* const known = whole != nullptr ? whole->av : av;
    if (known != nullptr) operation.peer = known->peer(*recorder, address);
    {
      const auto lock = recorder->guard();
      recorder->number(&operation);
      // Before it starts: another thread may read its completion before this one comes back.
      if (queue != nullptr && entry) queue->pending.emplace(context, Pending{operation, known});
    }
    const ssize_t status = post();
    const auto lock = recorder->guard();
    if (queue == nullptr || !entry) {
      if (status >= 0) recorder->ended(&operation);
      return status;
    }
    const auto [first, last] = queue->pending.equal_range(context);
    const auto found = std::find_if(first, last, [&](const auto& one) {
      return one.second.operation.number == operation.number;
    });
    if (found == last) return status;
    if (status < 0) {
      queue->pending.erase(found);
    } else {
      recorder->started(&found->second.operation);
    }
    return status;
  }
  template <class Post>
  ssize_t send(bool tagged, std::uint64_t bytes, std::uint64_t tag, fi_addr_t to,
               std::uint64_t flags, void* context, Post&& post) {
    Operation operation{.kind = Operation::Kind::send, .tagged = tagged};
    operation.bytes = bytes;
    operation.tag = tag;
    return start(operation, transmits, transmit_entry(flags), context, to,
                 std::forward<Post>(post));
  }
  template <class Post>
  ssize_t receive(bool tagged, std::uint64_t bytes, std::uint64_t tag, bool any_tag, fi_addr_t from,
                  std::uint64_t flags, void* context, Post&& post) {
    Operation operation{.kind = Operation::Kind::receive, .any_tag = any_tag, .tagged = tagged};
    operation.bytes = bytes;
    operation.tag = tag;
    const bool entry = !receive_selective || (flags & FI_COMPLETION) != 0;
    if ((flags & FI_MULTI_RECV) != 0) operation.kind = Operation::Kind::receive_many;
    // A look, or a message that goes unread: its receive is the one that takes it.
    if ((flags & (FI_PEEK | FI_DISCARD)) != 0) operation.kind = Operation::Kind::other;
    const bool claims = (flags & FI_CLAIM) != 0;  // what it asks for was said before
    if (!directed || claims) from = FI_ADDR_UNSPEC;
    if (claims) operation.any_tag = tagged;
    if (!entry) operation.kind = Operation::Kind::other;  // nobody says what it got
    return start(operation, receives, entry, context, from, std::forward<Post>(post));
  }
  template <class Post>
  ssize_t access(bool put, std::uint64_t bytes, fi_addr_t at, std::uint64_t flags, void* context,
                 Post&& post) {
    Operation operation{.kind = put ? Operation::Kind::put : Operation::Kind::get};
    operation.bytes = bytes;
    return start(operation, transmits, transmit_entry(flags), context, at,
                 std::forward<Post>(post));
  }
  [[nodiscard]] bool transmit_entry(std::uint64_t flags) const noexcept {
    return (flags & kInjected) == 0 && (!transmit_selective || (flags & FI_COMPLETION) != 0);
  }
  // No flag of libfabric: the call has no context.
  static constexpr std::uint64_t kInjected = std::uint64_t{1} << 63;

  fid_ep* fid;
  std::uint64_t transmit_flags, receive_flags;  // of calls that have none
  bool transmit_selective = false, receive_selective = false;
  bool directed = true;
  bool taken = false;
  // Of a scalable endpoint, which has contexts to send and receive in and no messages of its own;
  // theirs is the endpoint that they are part of.
  bool scalable = false;
  Ep* whole = nullptr;
  Av* av = nullptr;
  Cq *transmits = nullptr, *receives = nullptr;
  Table<fi_ops_msg> msg;
  Table<fi_ops_tagged> tagged;
  Table<fi_ops_rma> rma;
  Table<fi_ops_atomic> atomic;
  Table<fi_ops_ep> calls;  // of a scalable one
};

int Ep::bind(::fid* endpoint, ::fid* other, std::uint64_t flags) {
  Ep& self = of(endpoint);
  const int status = self.general.real()->bind(endpoint, other, flags);
  if (status != 0) return status;
  const auto is_ours = [&](auto close) {
    return other->ops != nullptr && other->ops->close == close;
  };
  if (!is_ours(&close_object)) return status;
  if (other->fclass == FI_CLASS_AV) {
    self.av = static_cast<Av*>(&owner_of<Object>(other->ops));
  } else if (other->fclass == FI_CLASS_CQ) {
    Cq* const queue = static_cast<Cq*>(&owner_of<Object>(other->ops));
    const bool selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
    if ((flags & FI_TRANSMIT) != 0) {
      self.transmits = queue;
      self.transmit_selective = selective;
    }
    if ((flags & FI_RECV) != 0) {
      self.receives = queue;
      self.receive_selective = selective;
    }
  }
  return status;
}

// Of fid_ep::msg.
struct Messages {
  static Ep& of(fid_ep* ep) noexcept { return owner_of<Ep>(ep->msg); }
  static ssize_t recv(fid_ep* ep, void* buffer, std::size_t length, void* desc, fi_addr_t from,
                      void* context) {
    Ep& e = of(ep);
    return e.receive(false, length, 0, false, from, e.receive_flags, context,
                     [&] { return e.msg.real()->recv(ep, buffer, length, desc, from, context); });
  }
  static ssize_t recvv(fid_ep* ep, const iovec* pieces, void** desc, std::size_t count,
                       fi_addr_t from, void* context) {
    Ep& e = of(ep);
    return e.receive(false, length_of(pieces, count), 0, false, from, e.receive_flags, context,
                     [&] { return e.msg.real()->recvv(ep, pieces, desc, count, from, context); });
  }
  static ssize_t recvmsg(fid_ep* ep, const fi_msg* msg, std::uint64_t flags) {
    Ep& e = of(ep);
    return e.receive(false, length_of(msg->msg_iov, msg->iov_count), 0, false, msg->addr, flags,
                     msg->context, [&] { return e.msg.real()->recvmsg(ep, msg, flags); });
  }
  static ssize_t send(fid_ep* ep, const void* buffer, std::size_t length, void* desc, fi_addr_t to,
                      void* context) {
    Ep& e = of(ep);
    return e.send(false, length, 0, to, e.transmit_flags, context,
                  [&] { return e.msg.real()->send(ep, buffer, length, desc, to, context); });
  }
  static ssize_t sendv(fid_ep* ep, const iovec* pieces, void** desc, std::size_t count,
                       fi_addr_t to, void* context) {
    Ep& e = of(ep);
    return e.send(false, length_of(pieces, count), 0, to, e.transmit_flags, context,
                  [&] { return e.msg.real()->sendv(ep, pieces, desc, count, to, context); });
  }
  static ssize_t sendmsg(fid_ep* ep, const fi_msg* msg, std::uint64_t flags) {
    Ep& e = of(ep);
    return e.send(false, length_of(msg->msg_iov, msg->iov_count), 0, msg->addr, flags, msg->context,
                  [&] { return e.msg.real()->sendmsg(ep, msg, flags); });
  }
  static ssize_t inject(fid_ep* ep, const void* buffer, std::size_t length, fi_addr_t to) {
    Ep& e = of(ep);
    return e.send(false, length, 0, to, Ep::kInjected, nullptr,
                  [&] { return e.msg.real()->inject(ep, buffer, length, to); });
  }
  static ssize_t senddata(fid_ep* ep, const void* buffer, std::size_t length, void* desc,
                          std::uint64_t data, fi_addr_t to, void* context) {
    Ep& e = of(ep);
    return e.send(false, length, 0, to, e.transmit_flags, context, [&] {
      return e.msg.real()->senddata(ep, buffer, length, desc, data, to, context);
    });
  }
  static ssize_t injectdata(fid_ep* ep, const void* buffer, std::size_t length, std::uint64_t data,
                            fi_addr_t to) {
    Ep& e = of(ep);
    return e.send(false, length, 0, to, Ep::kInjected, nullptr,
                  [&] { return e.msg.real()->injectdata(ep, buffer, length, data, to); });
  }
  static void replace(Table<fi_ops_msg>& table) {
    table.replace(&fi_ops_msg::recv, &recv);
    table.replace(&fi_ops_msg::recvv, &recvv);
    table.replace(&fi_ops_msg::recvmsg, &recvmsg);
    table.replace(&fi_ops_msg::send, &send);
    table.replace(&fi_ops_msg::sendv, &sendv);
    table.replace(&fi_ops_msg::sendmsg, &sendmsg);
    table.replace(&fi_ops_msg::inject, &inject);
    table.replace(&fi_ops_msg::senddata, &senddata);
    table.replace(&fi_ops_msg::injectdata, &injectdata);
  }
};

// Of fid_ep::tagged.
struct TaggedMessages {
  static Ep& of(fid_ep* ep) noexcept { return owner_of<Ep>(ep->tagged); }
  static ssize_t recv(fid_ep* ep, void* buffer, std::size_t length, void* desc, fi_addr_t from,
                      std::uint64_t tag, std::uint64_t ignore, void* context) {
    Ep& e = of(ep);
    return e.receive(true, length, tag, ignore != 0, from, e.receive_flags, context, [&] {
      return e.tagged.real()->recv(ep, buffer, length, desc, from, tag, ignore, context);
    });
  }
  static ssize_t recvv(fid_ep* ep, const iovec* pieces, void** desc, std::size_t count,
                       fi_addr_t from, std::uint64_t tag, std::uint64_t ignore, void* context) {
    Ep& e = of(ep);
    return e.receive(
        true, length_of(pieces, count), tag, ignore != 0, from, e.receive_flags, context, [&] {
          return e.tagged.real()->recvv(ep, pieces, desc, count, from, tag, ignore, context);
        });
  }
  static ssize_t recvmsg(fid_ep* ep, const fi_msg_tagged* msg, std::uint64_t flags) {
    Ep& e = of(ep);
    return e.receive(true, length_of(msg->msg_iov, msg->iov_count), msg->tag, msg->ignore != 0,
                     msg->addr, flags, msg->context,
                     [&] { return e.tagged.real()->recvmsg(ep, msg, flags); });
  }
  static ssize_t send(fid_ep* ep, const void* buffer, std::size_t length, void* desc, fi_addr_t to,
                      std::uint64_t tag, void* context) {
    Ep& e = of(ep);
    return e.send(true, length, tag, to, e.transmit_flags, context, [&] {
      return e.tagged.real()->send(ep, buffer, length, desc, to, tag, context);
    });
  }
  static ssize_t sendv(fid_ep* ep, const iovec* pieces, void** desc, std::size_t count,
                       fi_addr_t to, std::uint64_t tag, void* context) {
    Ep& e = of(ep);
    return e.send(true, length_of(pieces, count), tag, to, e.transmit_flags, context, [&] {
      return e.tagged.real()->sendv(ep, pieces, desc, count, to, tag, context);
    });
  }
  static ssize_t sendmsg(fid_ep* ep, const fi_msg_tagged* msg, std::uint64_t flags) {
    Ep& e = of(ep);
    return e.send(true, length_of(msg->msg_iov, msg->iov_count), msg->tag, msg->addr, flags,
                  msg->context, [&] { return e.tagged.real()->sendmsg(ep, msg, flags); });
  }
  static ssize_t inject(fid_ep* ep, const void* buffer, std::size_t length, fi_addr_t to,
                        std::uint64_t tag) {
    Ep& e = of(ep);
    return e.send(true, length, tag, to, Ep::kInjected, nullptr,
                  [&] { return e.tagged.real()->inject(ep, buffer, length, to, tag); });
  }
  static ssize_t senddata(fid_ep* ep, const void* buffer, std::size_t length, void* desc,
                          std::uint64_t data, fi_addr_t to, std::uint64_t tag, void* context) {
    Ep& e = of(ep);
    return e.send(true, length, tag, to, e.transmit_flags, context, [&] {
      return e.tagged.real()->senddata(ep, buffer, length, desc, data, to, tag, context);
    });
  }
  static ssize_t injectdata(fid_ep* ep, const void* buffer, std::size_t length, std::uint64_t data,
                            fi_addr_t to, std::uint64_t tag) {
    Ep& e = of(ep);
    return e.send(true, length, tag, to, Ep::kInjected, nullptr,
                  [&] { return e.tagged.real()->injectdata(ep, buffer, length, data, to, tag); });
  }
  static void replace(Table<fi_ops_tagged>& table) {
    table.replace(&fi_ops_tagged::recv, &recv);
    table.replace(&fi_ops_tagged::recvv, &recvv);
    table.replace(&fi_ops_tagged::recvmsg, &recvmsg);
    table.replace(&fi_ops_tagged::send, &send);
    table.replace(&fi_ops_tagged::sendv, &sendv);
    table.replace(&fi_ops_tagged::sendmsg, &sendmsg);
    table.replace(&fi_ops_tagged::inject, &inject);
    table.replace(&fi_ops_tagged::senddata, &senddata);
    table.replace(&fi_ops_tagged::injectdata, &injectdata);
  }
};

// Of fid_ep::rma.
struct Rma {
  static Ep& of(fid_ep* ep) noexcept { return owner_of<Ep>(ep->rma); }
  static ssize_t read(fid_ep* ep, void* buffer, std::size_t length, void* desc, fi_addr_t from,
                      std::uint64_t address, std::uint64_t key, void* context) {
    Ep& e = of(ep);
    return e.access(false, length, from, e.transmit_flags, context, [&] {
      return e.rma.real()->read(ep, buffer, length, desc, from, address, key, context);
    });
  }
  static ssize_t readv(fid_ep* ep, const iovec* pieces, void** desc, std::size_t count,
                       fi_addr_t from, std::uint64_t address, std::uint64_t key, void* context) {
    Ep& e = of(ep);
    return e.access(false, length_of(pieces, count), from, e.transmit_flags, context, [&] {
      return e.rma.real()->readv(ep, pieces, desc, count, from, address, key, context);
    });
  }
  static ssize_t readmsg(fid_ep* ep, const fi_msg_rma* msg, std::uint64_t flags) {
    Ep& e = of(ep);
    return e.access(false, length_of(msg->msg_iov, msg->iov_count), msg->addr, flags, msg->context,
                    [&] { return e.rma.real()->readmsg(ep, msg, flags); });
  }
  static ssize_t write(fid_ep* ep, const void* buffer, std::size_t length, void* desc, fi_addr_t to,
                       std::uint64_t address, std::uint64_t key, void* context) {
    Ep& e = of(ep);
    return e.access(true, length, to, e.transmit_flags, context, [&] {
      return e.rma.real()->write(ep, buffer, length, desc, to, address, key, context);
    });
  }
  static ssize_t writev(fid_ep* ep, const iovec* pieces, void** desc, std::size_t count,
                        fi_addr_t to, std::uint64_t address, std::uint64_t key, void* context) {
    Ep& e = of(ep);
    return e.access(true, length_of(pieces, count), to, e.transmit_flags, context, [&] {
      return e.rma.real()->writev(ep, pieces, desc, count, to, address, key, context);
    });
  }
  static ssize_t writemsg(fid_ep* ep, const fi_msg_rma* msg, std::uint64_t flags) {
    Ep& e = of(ep);
    return e.access(true, length_of(msg->msg_iov, msg->iov_count), msg->addr, flags, msg->context,
                    [&] { return e.rma.real()->writemsg(ep, msg, flags); });
  }
  static ssize_t inject(fid_ep* ep, const void* buffer, std::size_t length, fi_addr_t to,
                        std::uint64_t address, std::uint64_t key) {
    Ep& e = of(ep);
    return e.access(true, length, to, Ep::kInjected, nullptr,
                    [&] { return e.rma.real()->inject(ep, buffer, length, to, address, key); });
  }
  static ssize_t writedata(fid_ep* ep, const void* buffer, std::size_t length, void* desc,
                           std::uint64_t data, fi_addr_t to, std::uint64_t address,
                           std::uint64_t key, void* context) {
    Ep& e = of(ep);
    return e.access(true, length, to, e.transmit_flags, context, [&] {
      return e.rma.real()->writedata(ep, buffer, length, desc, data, to, address, key, context);
    });
  }
  static ssize_t injectdata(fid_ep* ep, const void* buffer, std::size_t length, std::uint64_t data,
                            fi_addr_t to, std::uint64_t address, std::uint64_t key) {
    Ep& e = of(ep);
    return e.access(true, length, to, Ep::kInjected, nullptr, [&] {
      return e.rma.real()->injectdata(ep, buffer, length, data, to, address, key);
    });
  }
  static void replace(Table<fi_ops_rma>& table) {
    table.replace(&fi_ops_rma::read, &read);
    table.replace(&fi_ops_rma::readv, &readv);
    table.replace(&fi_ops_rma::readmsg, &readmsg);
    table.replace(&fi_ops_rma::write, &write);
    table.replace(&fi_ops_rma::writev, &writev);
    table.replace(&fi_ops_rma::writemsg, &writemsg);
    table.replace(&fi_ops_rma::inject, &inject);
    table.replace(&fi_ops_rma::writedata, &writedata);
    table.replace(&fi_ops_rma::injectdata, &injectdata);
  }
};

// Of fid_ep::atomic: as what its bytes would be by RMA.
struct Atomics {
  static Ep& of(fid_ep* ep) noexcept { return owner_of<Ep>(ep->atomic); }
  static ssize_t write(fid_ep* ep, const void* buffer, std::size_t count, void* desc, fi_addr_t to,
                       std::uint64_t address, std::uint64_t key, fi_datatype type, fi_op op,
                       void* context) {
    Ep& e = of(ep);
    return e.access(true, count * size_of(type), to, e.transmit_flags, context, [&] {
      return e.atomic.real()->write(ep, buffer, count, desc, to, address, key, type, op, context);
    });
  }
  static ssize_t writev(fid_ep* ep, const fi_ioc* pieces, void** desc, std::size_t count,
                        fi_addr_t to, std::uint64_t address, std::uint64_t key, fi_datatype type,
                        fi_op op, void* context) {
    Ep& e = of(ep);
    return e.access(true, elements_of(pieces, count) * size_of(type), to, e.transmit_flags, context,
                    [&] {
                      return e.atomic.real()->writev(ep, pieces, desc, count, to, address, key,
                                                     type, op, context);
                    });
  }
  static std::uint64_t bytes_of(const fi_msg_atomic* msg) noexcept {
    return elements_of(msg->msg_iov, msg->iov_count) * size_of(msg->datatype);
  }
  static ssize_t writemsg(fid_ep* ep, const fi_msg_atomic* msg, std::uint64_t flags) {
    Ep& e = of(ep);
    return e.access(true, bytes_of(msg), msg->addr, flags, msg->context,
                    [&] { return e.atomic.real()->writemsg(ep, msg, flags); });
  }
  static ssize_t inject(fid_ep* ep, const void* buffer, std::size_t count, fi_addr_t to,
                        std::uint64_t address, std::uint64_t key, fi_datatype type, fi_op op) {
    Ep& e = of(ep);
    return e.access(true, count * size_of(type), to, Ep::kInjected, nullptr, [&] {
      return e.atomic.real()->inject(ep, buffer, count, to, address, key, type, op);
    });
  }
  static ssize_t readwrite(fid_ep* ep, const void* buffer, std::size_t count, void* desc,
                           void* result, void* result_desc, fi_addr_t at, std::uint64_t address,
                           std::uint64_t key, fi_datatype type, fi_op op, void* context) {
    Ep& e = of(ep);
    return e.access(false, count * size_of(type), at, e.transmit_flags, context, [&] {
      return e.atomic.real()->readwrite(ep, buffer, count, desc, result, result_desc, at, address,
                                        key, type, op, context);
    });
  }
  static ssize_t readwritev(fid_ep* ep, const fi_ioc* pieces, void** desc, std::size_t count,
                            fi_ioc* results, void** result_desc, std::size_t result_count,
                            fi_addr_t at, std::uint64_t address, std::uint64_t key,
                            fi_datatype type, fi_op op, void* context) {
    Ep& e = of(ep);
    return e.access(false, elements_of(results, result_count) * size_of(type), at, e.transmit_flags,
                    context, [&] {
                      return e.atomic.real()->readwritev(ep, pieces, desc, count, results,
                                                         result_desc, result_count, at, address,
                                                         key, type, op, context);
                    });
  }
  static ssize_t readwritemsg(fid_ep* ep, const fi_msg_atomic* msg, fi_ioc* results,
                              void** result_desc, std::size_t result_count, std::uint64_t flags) {
    Ep& e = of(ep);
    return e.access(false, elements_of(results, result_count) * size_of(msg->datatype), msg->addr,
                    flags, msg->context, [&] {
                      return e.atomic.real()->readwritemsg(ep, msg, results, result_desc,
                                                           result_count, flags);
                    });
  }
  static ssize_t compwrite(fid_ep* ep, const void* buffer, std::size_t count, void* desc,
                           const void* compare, void* compare_desc, void* result, void* result_desc,
                           fi_addr_t at, std::uint64_t address, std::uint64_t key, fi_datatype type,
                           fi_op op, void* context) {
    Ep& e = of(ep);
    return e.access(false, count * size_of(type), at, e.transmit_flags, context, [&] {
      return e.atomic.real()->compwrite(ep, buffer, count, desc, compare, compare_desc, result,
                                        result_desc, at, address, key, type, op, context);
    });
  }
  static ssize_t compwritev(fid_ep* ep, const fi_ioc* pieces, void** desc, std::size_t count,
                            const fi_ioc* compares, void** compare_desc, std::size_t compare_count,
                            fi_ioc* results, void** result_desc, std::size_t result_count,
                            fi_addr_t at, std::uint64_t address, std::uint64_t key,
                            fi_datatype type, fi_op op, void* context) {
    Ep& e = of(ep);
    return e.access(false, elements_of(results, result_count) * size_of(type), at, e.transmit_flags,
                    context, [&] {
                      return e.atomic.real()->compwritev(
                          ep, pieces, desc, count, compares, compare_desc, compare_count, results,
                          result_desc, result_count, at, address, key, type, op, context);
                    });
  }
  static ssize_t compwritemsg(fid_ep* ep, const fi_msg_atomic* msg, const fi_ioc* compares,
                              void** compare_desc, std::size_t compare_count, fi_ioc* results,
                              void** result_desc, std::size_t result_count, std::uint64_t flags) {
    Ep& e = of(ep);
    return e.access(false, elements_of(results, result_count) * size_of(msg->datatype), msg->addr,
                    flags, msg->context, [&] {
                      return e.atomic.real()->compwritemsg(ep, msg, compares, compare_desc,
                                                           compare_count, results, result_desc,
                                                           result_count, flags);
                    });
  }
  static void replace(Table<fi_ops_atomic>& table) {
    table.replace(&fi_ops_atomic::write, &write);
    table.replace(&fi_ops_atomic::writev, &writev);
    table.replace(&fi_ops_atomic::writemsg, &writemsg);
    table.replace(&fi_ops_atomic::inject, &inject);
    table.replace(&fi_ops_atomic::readwrite, &readwrite);
    table.replace(&fi_ops_atomic::readwritev, &readwritev);
    table.replace(&fi_ops_atomic::readwritemsg, &readwritemsg);
    table.replace(&fi_ops_atomic::compwrite, &compwrite);
    table.replace(&fi_ops_atomic::compwritev, &compwritev);
    table.replace(&fi_ops_atomic::compwritemsg, &compwritemsg);
  }
};

// Providers choose their tables when an endpoint is enabled.
void Ep::enabled() {
  Recorder* const recorder = Recorder::get();
  if (recorder == nullptr) return;
  std::array<std::byte, 512> name;
  std::size_t length = name.size();
  if (whole == nullptr && fi_getname(&fid->fid, name.data(), &length) == 0 &&
      length <= name.size()) {
    const auto lock = recorder->guard();
    recorder->own_name(name_of(std::span(name).first(length)));
  }
  if (scalable || taken) return;
  msg.copy(fid->msg, this);
  tagged.copy(fid->tagged, this);
  rma.copy(fid->rma, this);
  atomic.copy(fid->atomic, this);
  Messages::replace(msg);
  TaggedMessages::replace(tagged);
  Rma::replace(rma);
  Atomics::replace(atomic);
  taken = true;
  take();
}

void Ep::take() noexcept {
  fid->fid.ops = general.get();
  if (scalable) fid->ops = calls.get();
  if (!taken) return;
  fid->msg = msg.get();
  fid->tagged = tagged.get();
  fid->rma = rma.get();
  fid->atomic = atomic.get();
}

void Ep::restore() noexcept {
  fid->fid.ops = const_cast<fi_ops*>(general.real());
  if (scalable) fid->ops = const_cast<fi_ops_ep*>(calls.real());
  if (!taken) return;
  fid->msg = const_cast<fi_ops_msg*>(msg.real());
  fid->tagged = const_cast<fi_ops_tagged*>(tagged.real());
  fid->rma = const_cast<fi_ops_rma*>(rma.real());
  fid->atomic = const_cast<fi_ops_atomic*>(atomic.real());
}

// FI_SOURCE, while an object is opened; as it was afterwards.
class WithSource {
 public:
  explicit WithSource(fi_info* info) noexcept {
    add(&info->caps);
    if (info->rx_attr != nullptr) add(&info->rx_attr->caps);
  }
  WithSource(const WithSource&) = delete;
  WithSource& operator=(const WithSource&) = delete;
  ~WithSource() {
    for (std::size_t i = 0; i < count_; ++i) *caps_[i] = before_[i];
  }

 private:
  void add(std::uint64_t* caps) noexcept {
    caps_[count_] = caps;
    before_[count_++] = *caps;
    if (*caps != 0) *caps |= FI_SOURCE;  // 0: the provider's own
  }
  std::array<std::uint64_t*, 2> caps_{};
  std::array<std::uint64_t, 2> before_{};
  std::size_t count_ = 0;
};

// Opens with FI_SOURCE, else without.
template <class Open>
int open_with_source(fi_info* info, Open&& open) {
  {
    const WithSource with(info);
    if (open() == 0) return 0;
  }
  return open();
}

struct Domain final : Object {
  explicit Domain(fid_domain* domain) : fid(domain) {
    general.copy(domain->fid.ops, static_cast<Object*>(this));
    general.replace(&fi_ops::close, &close_object);
    ops.copy(domain->ops, this);
    ops.replace(&fi_ops_domain::av_open, &Domain::av_open);
    ops.replace(&fi_ops_domain::cq_open, &Domain::cq_open);
    ops.replace(&fi_ops_domain::endpoint, &Domain::endpoint);
    ops.replace(&fi_ops_domain::scalable_ep, &Domain::scalable_ep);
    ops.replace(&fi_ops_domain::endpoint2, &Domain::endpoint2);
    take();
  }
  void take() noexcept override {
    fid->fid.ops = general.get();
    fid->ops = ops.get();
  }
  void restore() noexcept override {
    fid->fid.ops = const_cast<fi_ops*>(general.real());
    fid->ops = const_cast<fi_ops_domain*>(ops.real());
  }
  static Domain& of(fid_domain* domain) noexcept { return owner_of<Domain>(domain->ops); }
  static int av_open(fid_domain* domain, fi_av_attr* attr, fid_av** av, void* context) {
    const Recorder::Call call(Recorder::get());
    const int status = of(domain).ops.real()->av_open(domain, attr, av, context);
    if (status == 0 && call.recorder() != nullptr) new Av(*av);
    return status;
  }
  static int cq_open(fid_domain* domain, fi_cq_attr* attr, fid_cq** cq, void* context) {
    const Recorder::Call call(Recorder::get());
    const fi_ops_domain* const real = of(domain).ops.real();
    if (call.recorder() == nullptr) return real->cq_open(domain, attr, cq, context);
    // An unspecified format is the provider's to choose: the program asks for no entry's size.
    const fi_cq_format asked = attr->format;
    if (asked == FI_CQ_FORMAT_UNSPEC) return real->cq_open(domain, attr, cq, context);
    attr->format = FI_CQ_FORMAT_TAGGED;
    int status = real->cq_open(domain, attr, cq, context);
    attr->format = asked;
    if (status == 0) {
      new Cq(*cq, asked);
      return 0;
    }
    return real->cq_open(domain, attr, cq, context);
  }
  // Only reliable datagrams: others have peers of their own kind.
  static int observed(int status, const fi_info* info, fid_ep** ep, Recorder* recorder,
                      bool scalable = false) {
    const bool datagrams = info->ep_attr == nullptr || info->ep_attr->type == FI_EP_RDM;
    if (status == 0 && recorder != nullptr && datagrams) {
      Ep* const made = new Ep(*ep, info->tx_attr, info->rx_attr);
      made->directed = (info->caps & FI_DIRECTED_RECV) != 0;
      if (scalable) made->make_scalable();
    }
    return status;
  }
  static int endpoint(fid_domain* domain, fi_info* info, fid_ep** ep, void* context) {
    const Recorder::Call call(Recorder::get());
    const auto open = [&] { return of(domain).ops.real()->endpoint(domain, info, ep, context); };
    return observed(call.recorder() == nullptr ? open() : open_with_source(info, open), info, ep,
                    call.recorder());
  }
  static int scalable_ep(fid_domain* domain, fi_info* info, fid_ep** ep, void* context) {
    const Recorder::Call call(Recorder::get());
    const auto open = [&] { return of(domain).ops.real()->scalable_ep(domain, info, ep, context); };
    return observed(call.recorder() == nullptr ? open() : open_with_source(info, open), info, ep,
                    call.recorder(), true);
  }
  static int endpoint2(fid_domain* domain, fi_info* info, fid_ep** ep, std::uint64_t flags,
                       void* context) {
    const Recorder::Call call(Recorder::get());
    const auto open = [&] {
      return of(domain).ops.real()->endpoint2(domain, info, ep, flags, context);
    };
    return observed(call.recorder() == nullptr ? open() : open_with_source(info, open), info, ep,
                    call.recorder());
  }

  fid_domain* fid;
  Table<fi_ops_domain> ops;
};

struct Fabric final : Object {
  explicit Fabric(fid_fabric* fabric) : fid(fabric) {
    general.copy(fabric->fid.ops, static_cast<Object*>(this));
    general.replace(&fi_ops::close, &close_object);
    ops.copy(fabric->ops, this);
    ops.replace(&fi_ops_fabric::domain, &Fabric::domain);
    ops.replace(&fi_ops_fabric::domain2, &Fabric::domain2);
    take();
  }
  void take() noexcept override {
    fid->fid.ops = general.get();
    fid->ops = ops.get();
  }
  void restore() noexcept override {
    fid->fid.ops = const_cast<fi_ops*>(general.real());
    fid->ops = const_cast<fi_ops_fabric*>(ops.real());
  }
  static Fabric& of(fid_fabric* fabric) noexcept { return owner_of<Fabric>(fabric->ops); }
  template <class Open>
  static int open_domain(fi_info* info, fid_domain** domain, Open&& open) {
    const Recorder::Call call(Recorder::get());
    if (call.recorder() == nullptr) return open();
    const int status = open_with_source(info, open);
    if (status == 0) new Domain(*domain);
    return status;
  }
  static int domain(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context) {
    return open_domain(
        info, domain, [&] { return of(fabric).ops.real()->domain(fabric, info, domain, context); });
  }
  static int domain2(fid_fabric* fabric, fi_info* info, fid_domain** domain, std::uint64_t flags,
                     void* context) {
    return open_domain(info, domain, [&] {
      return of(fabric).ops.real()->domain2(fabric, info, domain, flags, context);
    });
  }

  fid_fabric* fid;
  Table<fi_ops_fabric> ops;
};

// `open` is of the library that the caller would have called.
template <class Open>
int open_fabric(const NextFunction& next, fid_fabric** fabric, Open&& open) {
  if (next.address == nullptr) return -FI_ENOSYS;
  const Recorder::Call call(next.own ? nullptr : Recorder::get());
  const int status = open();
  if (status == 0 && call.recorder() != nullptr) new Fabric(*fabric);
  return status;
}

}  // namespace
}  // namespace turnout::record

extern "C" {

[[gnu::visibility("default")]] int fi_fabric(fi_fabric_attr* attr, fid_fabric** fabric,
                                             void* context) {
  using namespace turnout::record;
  const NextFunction next = next_function("fi_fabric", __builtin_return_address(0));
  return open_fabric(next, fabric, [&] {
    return reinterpret_cast<decltype(&fi_fabric)>(next.address)(attr, fabric, context);
  });
}

// Since libfabric 2.0.
[[gnu::visibility("default")]] int fi_fabric2(fi_info* info, fid_fabric** fabric,
                                              std::uint64_t flags, void* context) {
  using namespace turnout::record;
  const NextFunction next = next_function("fi_fabric2", __builtin_return_address(0));
  return open_fabric(next, fabric, [&] {
    return reinterpret_cast<decltype(&fi_fabric2)>(next.address)(info, fabric, flags, context);
  });
}

}  // extern "C"
