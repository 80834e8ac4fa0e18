// SPDX-License-Identifier: BSD-3-Clause
// RMA, atomics, and what starts by a counter. Source: fi_rma(3), fi_atomic(3), fi_trigger(3),
// fi_mr(3).
#include <rdma/fi_trigger.h>
#include <sys/uio.h>

#include <array>
#include <atomic>
#include <complex>
#include <cstring>
#include <deque>
#include <type_traits>

#include "tests/clients/rig.h"

namespace turnout::clients {
namespace {

constexpr std::size_t kRoom = 4 << 20;
constexpr std::size_t kWindow = 16;

enum class Rma { write, read, write_data };

Setup one_sided(fi_ep_type type, std::uint64_t caps = FI_MSG | FI_RMA, std::size_t room = kRoom) {
  Setup setup;
  setup.type = type;
  setup.caps = caps;
  setup.room = room;
  return setup;
}

// The peer's buffer for what comes in. Offsets are from its begin.
class Target {
 public:
  explicit Target(Node& node) : node_(node) {
    require(node.in_mr() != nullptr, "the buffer has no region");
    there_ = node.exchange_value(node.remote(node.in(), node.in_mr()));
  }
  void write(std::span<const std::byte> from, std::size_t offset, Op& op) {
    node_.post("fi_write", [&] {
      return fi_write(node_.ep(), from.data(), from.size(), node_.out_desc(), node_.peer(),
                      there_.addr + offset, there_.key, &op);
    });
  }
  void write_data(std::span<const std::byte> from, std::size_t offset, std::uint64_t data, Op& op) {
    node_.post("fi_writedata", [&] {
      return fi_writedata(node_.ep(), from.data(), from.size(), node_.out_desc(), data,
                          node_.peer(), there_.addr + offset, there_.key, &op);
    });
  }
  void read(std::span<std::byte> into, std::size_t offset, Op& op) {
    node_.post("fi_read", [&] {
      return fi_read(node_.ep(), into.data(), into.size(), node_.out_desc(), node_.peer(),
                     there_.addr + offset, there_.key, &op);
    });
  }
  [[nodiscard]] const fi_rma_iov& there() const noexcept { return there_; }

 private:
  Node& node_;
  fi_rma_iov there_{};
};

// Where the provider says nothing of a write that has come, memory is looked at until it is whole.
void await_content(Node& node, std::span<const std::byte> data, std::size_t number) {
  Bytes expected(data.size());
  fill(expected, number);
  node.until("the content of a write", [&] {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return std::memcmp(data.data(), expected.data(), data.size()) == 0;
  });
}

void await_data(Node& node, std::uint64_t data) {
  node.until("the data of a write", [&] { return !node.strays().empty(); });
  const fi_cq_tagged_entry entry = node.strays().front();
  node.strays().erase(node.strays().begin());
  require((entry.flags & FI_REMOTE_CQ_DATA) != 0 && entry.data == data,
          "the remote data are others");
}

void rma_ping_pong(const Run& run, fi_ep_type type, Rma how) {
  Node node(run, one_sided(type));
  Target target(node);
  std::size_t number = 1;
  for (const std::size_t size : sizes(run, node.largest())) {
    for (std::size_t i = iterations(run, size); i != 0; --i, ++number) {
      const auto come = [&] {
        if (how == Rma::write_data) await_data(node, number & 0xffff);
        await_content(node, node.in().first(size), number);
      };
      if (run.server) come();
      Op op;
      fill(node.out().first(size), number);
      if (how == Rma::write_data) {
        target.write_data(node.out().first(size), 0, number & 0xffff, op);
      } else {
        target.write(node.out().first(size), 0, op);
      }
      node.wait_sent(op);
      if (!run.server) come();
    }
  }
  node.sync();
}

void rma_stream(const Run& run, fi_ep_type type, Rma how) {
  Node node(run, one_sided(type));
  Target target(node);
  std::size_t number = 1;
  for (const std::size_t size : sizes(run, node.largest())) {
    const std::size_t depth = std::min(kWindow, kRoom / size);
    for (std::size_t i = run.standard ? 10 : 2; i != 0; --i, number += depth) {
      if (run.server && how == Rma::read) {
        for (std::size_t k = 0; k < depth; ++k) fill(node.in().subspan(k * size, size), number + k);
      }
      node.sync();
      if (!run.server) {
        std::deque<Op> ops(depth);
        for (std::size_t k = 0; k < depth; ++k) {
          const auto part = node.out().subspan(k * size, size);
          if (how != Rma::read) fill(part, number + k);
          if (how == Rma::read) target.read(part, k * size, ops[k]);
          if (how == Rma::write) target.write(part, k * size, ops[k]);
          if (how == Rma::write_data) target.write_data(part, k * size, k, ops[k]);
        }
        for (Op& op : ops) node.wait_sent(op);
        for (std::size_t k = 0; how == Rma::read && k < depth; ++k) {
          verify(node.out().subspan(k * size, size), number + k);
        }
      } else if (how == Rma::write_data) {
        std::uint64_t all = 0;
        for (std::size_t k = 0; k < depth; ++k) {  // in any order
          node.until("the data of a write", [&] { return !node.strays().empty(); });
          all |= 1ULL << node.strays().front().data;
          node.strays().erase(node.strays().begin());
        }
        require(all == (1ULL << depth) - 1, "the data of a write are missing");
      }
      if (run.server && how != Rma::read) {
        for (std::size_t k = 0; k < depth; ++k)
          await_content(node, node.in().subspan(k * size, size), number + k);
      }
      node.sync();
    }
  }
}

void write_data(const Run& run, fi_ep_type type) {
  Setup setup = one_sided(type, FI_MSG | FI_RMA, 4096);
  setup.more = [](fi_info& hints) { hints.domain_attr->cq_data_size = 4; };
  Node node(run, setup);
  Target target(node);
  const std::uint64_t all = node.info().domain_attr->cq_data_size >= 8 ? ~0ULL : 0xffffffffULL;
  const std::size_t size = std::min<std::size_t>(1000, node.largest());
  for (std::size_t i = 0; i < 5; ++i) {
    const std::uint64_t data = (0xfedcba9876543210ULL + i) & all;
    if (run.server) {
      await_data(node, data);
      await_content(node, node.in().first(size), i);
    } else {
      Op op;
      fill(node.out().first(size), i);
      target.write_data(node.out().first(size), 0, data, op);
      node.wait_sent(op);
    }
    node.sync();
  }
}

void simple_write(const Run& run, fi_ep_type type) {
  Node node(run, one_sided(type, FI_MSG | FI_RMA, 4096));
  Target target(node);
  node.sync();
  if (!run.server) {
    // Injected, in pieces, read back.
    const std::size_t size = std::min<std::size_t>(node.info().tx_attr->inject_size, 512);
    fill(node.out().first(size), 1);
    node.post("fi_inject_write", [&] {
      return fi_inject_write(node.ep(), node.out().data(), size, node.peer(), target.there().addr,
                             target.there().key);
    });
    node.sync();
    Op op;
    target.read(node.out().first(size), 0, op);
    node.wait_sent(op);
    verify(node.out().first(size), 1);
    return node.sync();
  }
  await_content(node, node.in().first(std::min<std::size_t>(node.info().tx_attr->inject_size, 512)),
                1);
  node.sync();
  node.sync();
}

// The target's counter tells of writes that have come.
void rma_event(const Run& run) {
  Setup setup = one_sided(FI_EP_RDM, FI_MSG | FI_RMA | FI_RMA_EVENT, 65536);
  setup.counters = true;
  Node node(run, setup);
  Target target(node);
  require(fi_cntr_read(node.received()) == 0, "a write was counted that nobody made");
  node.sync();
  constexpr std::size_t kCount = 10, kPart = 5000;
  if (run.server) {
    node.until("a counter of remote writes",
               [&] { return fi_cntr_read(node.received()) >= kCount; });
    for (std::size_t i = 0; i < kCount; ++i) verify(node.in().subspan(i * kPart, kPart), i);
    require(fi_cntr_read(node.received()) == kCount, "more was counted than was written");
  } else {
    const std::uint64_t sent = fi_cntr_read(node.sent());
    std::deque<Op> ops(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      fill(node.out().subspan(i * kPart, kPart), i);
      target.write(node.out().subspan(i * kPart, kPart), i * kPart, ops[i]);
    }
    node.until("a counter of writes", [&] { return fi_cntr_read(node.sent()) >= sent + kCount; });
  }
  node.sync();
}

// A write that starts when another has completed.
void rma_trigger(const Run& run) {
  Setup setup = one_sided(FI_EP_RDM, FI_MSG | FI_RMA | FI_TRIGGER, 65536);
  setup.counters = true;
  Node node(run, setup);
  Target target(node);
  node.sync();
  const std::size_t size = 1000;
  if (run.server) {
    await_content(node, node.in().first(size), 1);
    await_content(node, node.in().subspan(size, size), 2);
    return node.sync();
  }
  const std::uint64_t sent = fi_cntr_read(node.sent());
  fill(node.out().first(size), 1);
  fill(node.out().subspan(size, size), 2);
  fi_triggered_context2 context{};
  context.event_type = FI_TRIGGER_THRESHOLD;
  context.trigger.threshold.cntr = node.sent();
  context.trigger.threshold.threshold = sent + 1;
  iovec part{node.out().data() + size, size};
  const fi_rma_iov there{target.there().addr + size, size, target.there().key};
  void* desc = node.out_desc();
  const fi_msg_rma msg{&part, &desc, 1, node.peer(), &there, 1, &context, 0};
  node.post("fi_writemsg", [&] { return fi_writemsg(node.ep(), &msg, FI_TRIGGER); });
  for (int i = 0; i < 1000; ++i) node.progress();
  require(fi_cntr_read(node.sent()) == sent, "the write has not waited for its trigger");
  Op op;
  target.write(node.out().first(size), 0, op);
  node.until("both writes", [&] { return fi_cntr_read(node.sent()) >= sent + 2; });
  node.sync();
}

// Each region is reached by its own key, and no other.
void multi_mr(const Run& run, fi_ep_type type) {
  constexpr std::size_t kCount = 16, kPart = 4096;
  Node node(run, one_sided(type, FI_MSG | FI_RMA, kCount * kPart));
  std::vector<FiHandle<fid_mr>> regions;
  std::vector<fi_rma_iov> mine, theirs(kCount);
  const std::uint64_t access =
      FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_SEND | FI_RECV;
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto area = node.in().subspan(i * kPart, kPart);
    regions.push_back(node.register_memory(area, access, 0x20 + i));
    mine.push_back(node.remote(area, regions.back().get()));
  }
  const Bytes note = node.exchange(std::as_bytes(std::span(mine)));
  require(note.size() == kCount * sizeof(fi_rma_iov), "the peer has another number of regions");
  std::memcpy(theirs.data(), note.data(), note.size());
  node.sync();
  std::deque<Op> ops(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto part = node.out().subspan(i * kPart, kPart);
    fill(part, i + 3);
    node.post("fi_write", [&] {
      return fi_write(node.ep(), part.data(), kPart, node.out_desc(), node.peer(), theirs[i].addr,
                      theirs[i].key, &ops[i]);
    });
  }
  for (Op& op : ops) node.wait_sent(op);
  for (std::size_t i = 0; i < kCount; ++i)
    await_content(node, node.in().subspan(i * kPart, kPart), i + 3);
  node.sync();
  for (std::size_t i = 0; i < kCount; ++i) {  // and back, in the other order
    const auto part = node.out().subspan((kCount - 1 - i) * kPart, kPart);
    std::fill(part.begin(), part.end(), std::byte{0});
    node.post("fi_read", [&] {
      return fi_read(node.ep(), part.data(), kPart, node.out_desc(), node.peer(), theirs[i].addr,
                     theirs[i].key, &ops[i]);
    });
    node.wait_sent(ops[i]);
    verify(part, i + 3);
  }
  node.sync();
}

// Atomics

template <class T>
constexpr bool kComplex = false;
template <class F>
constexpr bool kComplex<std::complex<F>> = true;

// What `op` makes of the value that is there; false: this type has no such operation.
template <class T>
bool apply(fi_op op, T there, T operand, T compare, T& result) {
  result = there;
  if (op == FI_ATOMIC_READ) return true;
  if (op == FI_ATOMIC_WRITE) return result = operand, true;
  if (op == FI_SUM) return result = static_cast<T>(there + operand), true;
  if (op == FI_PROD) return result = static_cast<T>(there * operand), true;
  const bool yes = there != T{}, other = operand != T{};
  if (op == FI_LOR) return result = static_cast<T>(yes || other ? 1 : 0), true;
  if (op == FI_LAND) return result = static_cast<T>(yes && other ? 1 : 0), true;
  if (op == FI_LXOR) return result = static_cast<T>(yes != other ? 1 : 0), true;
  if (op == FI_CSWAP) return result = compare == there ? operand : there, true;
  if (op == FI_CSWAP_NE) return result = compare != there ? operand : there, true;
  if constexpr (!kComplex<T>) {
    if (op == FI_MIN) return result = operand < there ? operand : there, true;
    if (op == FI_MAX) return result = operand > there ? operand : there, true;
    if (op == FI_CSWAP_LE) return result = compare <= there ? operand : there, true;
    if (op == FI_CSWAP_LT) return result = compare < there ? operand : there, true;
    if (op == FI_CSWAP_GE) return result = compare >= there ? operand : there, true;
    if (op == FI_CSWAP_GT) return result = compare > there ? operand : there, true;
  }
  if constexpr (std::is_integral_v<T>) {
    if (op == FI_BOR) return result = static_cast<T>(there | operand), true;
    if (op == FI_BAND) return result = static_cast<T>(there & operand), true;
    if (op == FI_BXOR) return result = static_cast<T>(there ^ operand), true;
    if (op == FI_MSWAP) {
      return result = static_cast<T>((operand & compare) | (there & static_cast<T>(~compare))),
             true;
    }
  }
  return false;
}

enum class Kind { base, fetch, compare };

struct AtomicWorld {
  Node& node;
  Target& target;
  Kind kind;
  bool writer;          // this side acts, the other looks
  std::size_t ran = 0;  // pairs of operation and type
};

// By members: padding has no value.
template <class T>
bool same(const std::byte* at, const std::vector<T>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    T value{};
    std::memcpy(&value, at + i * sizeof(T), sizeof(T));
    if (value != values[i]) return false;
  }
  return true;
}

template <class T>
void atomics_of(AtomicWorld& world, fi_datatype type, std::uint64_t random) {
  Node& node = world.node;
  const bool compare = world.kind == Kind::compare;
  for (int number = compare ? FI_CSWAP : FI_MIN; number <= (compare ? FI_MSWAP : FI_ATOMIC_WRITE);
       ++number) {
    const auto op = static_cast<fi_op>(number);
    if (world.kind == Kind::base && op == FI_ATOMIC_READ) continue;
    std::size_t count = 0;
    const int valid = world.kind == Kind::base ? fi_atomicvalid(node.ep(), type, op, &count)
                      : world.kind == Kind::fetch
                          ? fi_fetch_atomicvalid(node.ep(), type, op, &count)
                          : fi_compare_atomicvalid(node.ep(), type, op, &count);
    fi_atomic_attr attr{};
    const std::uint64_t flags = world.kind == Kind::base    ? 0
                                : world.kind == Kind::fetch ? FI_FETCH_ATOMIC
                                                            : FI_COMPARE_ATOMIC;
    const int queried = fi_query_atomic(node.domain(), type, op, &attr, flags);
    require((valid == 0) == (queried == 0) || queried == -FI_ENOSYS,
            "fi_query_atomic and the endpoint do not agree");
    if (valid != 0) {
      require(valid == -FI_EOPNOTSUPP || valid == -FI_ENOSYS || valid == -FI_EINVAL,
              "an atomic that is not offered answered " + std::to_string(valid));
      continue;
    }
    require(queried != 0 || attr.size == sizeof(T),
            "an atomic's type has another size: " + std::to_string(attr.size));
    T probe{};
    require(apply(op, T{}, T{}, T{}, probe), "an atomic is offered that has no meaning");
    ++world.ran;
    count = std::min<std::size_t>(count, 8);
    require(count > 0, "an atomic has no elements");
    // Small numbers: sums and products are exact in every type.
    std::vector<T> there(count), operand(count), comparison(count), after(count), fetched(count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto draw = [&] {
        random = random * 6364136223846793005ULL + 1442695040888963407ULL;
        return static_cast<T>(static_cast<std::int8_t>(random >> 61));
      };
      there[i] = draw();
      operand[i] = draw();
      comparison[i] = i % 2 == 0 ? there[i] : draw();
      apply(op, there[i], operand[i], comparison[i], after[i]);
    }
    if (!world.writer) std::memcpy(node.in().data(), there.data(), count * sizeof(T));
    node.sync();
    if (!world.writer) {
      node.sync();  // the other's operation is complete
      node.until("an atomic", [&] {
        std::atomic_signal_fence(std::memory_order_seq_cst);
        return same(node.in().data(), after);
      });
      node.sync();
      continue;
    }
    constexpr std::size_t kSecond = 4096, kThird = 8192;
    std::byte* const out = node.out().data();
    std::memcpy(out, operand.data(), count * sizeof(T));
    std::memcpy(out + kSecond, comparison.data(), count * sizeof(T));
    const fi_rma_iov& at = world.target.there();
    void* desc = node.out_desc();
    Op done;
    node.post("an atomic", [&] {
      switch (world.kind) {
        case Kind::base:
          return fi_atomic(node.ep(), out, count, desc, node.peer(), at.addr, at.key, type, op,
                           &done);
        case Kind::fetch:
          return fi_fetch_atomic(node.ep(), out, count, desc, out + kThird, desc, node.peer(),
                                 at.addr, at.key, type, op, &done);
        case Kind::compare:
          break;
      }
      return fi_compare_atomic(node.ep(), out, count, desc, out + kSecond, desc, out + kThird, desc,
                               node.peer(), at.addr, at.key, type, op, &done);
    });
    node.wait_sent(done);
    if (world.kind != Kind::base) {
      require(same(out + kThird, there), "atomic " + std::to_string(op) + " of type " +
                                             std::to_string(type) + " fetched another value");
    }
    node.sync();
    node.sync();
  }
}

void atomics(const Run& run, Kind kind) {
  Node node(run, one_sided(FI_EP_RDM, FI_MSG | FI_RMA | FI_ATOMIC, 16384));
  Target target(node);
  AtomicWorld world{node, target, kind, !run.server};
  for (std::uint64_t i = 0; i < (run.standard ? 10 : 1); ++i) {
    atomics_of<std::int8_t>(world, FI_INT8, i + 1);
    atomics_of<std::uint8_t>(world, FI_UINT8, i + 2);
    atomics_of<std::int16_t>(world, FI_INT16, i + 3);
    atomics_of<std::uint16_t>(world, FI_UINT16, i + 4);
    atomics_of<std::int32_t>(world, FI_INT32, i + 5);
    atomics_of<std::uint32_t>(world, FI_UINT32, i + 6);
    atomics_of<std::int64_t>(world, FI_INT64, i + 7);
    atomics_of<std::uint64_t>(world, FI_UINT64, i + 8);
    atomics_of<float>(world, FI_FLOAT, i + 9);
    atomics_of<double>(world, FI_DOUBLE, i + 10);
    atomics_of<std::complex<float>>(world, FI_FLOAT_COMPLEX, i + 11);
    atomics_of<std::complex<double>>(world, FI_DOUBLE_COMPLEX, i + 12);
    atomics_of<long double>(world, FI_LONG_DOUBLE, i + 13);
    atomics_of<std::complex<long double>>(world, FI_LONG_DOUBLE_COMPLEX, i + 14);
  }
  if (world.ran == 0) throw Unsupported("no atomic of this kind");
}

// What fi_atomicvalid and fi_query_atomic say of nonsense.
void atomic_queries(const Run& run) {
  Node node(run, one_sided(FI_EP_RDM, FI_MSG | FI_RMA | FI_ATOMIC, 16384));
  std::size_t count = 0;
  require(fi_atomicvalid(node.ep(), FI_UINT64, static_cast<fi_op>(99), &count) < 0,
          "an unknown operation is valid");
  require(fi_atomicvalid(node.ep(), static_cast<fi_datatype>(99), FI_SUM, &count) < 0,
          "an unknown type is valid");
  require(fi_compare_atomicvalid(node.ep(), FI_UINT64, FI_SUM, &count) < 0,
          "a sum is a comparison");
  require(fi_atomicvalid(node.ep(), FI_DOUBLE, FI_BOR, &count) < 0, "a number has bits");
  node.sync();
}

// Work that waits for a counter
void deferred(const Run& run, fi_op_type type) {
  Setup setup = one_sided(FI_EP_RDM, FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_TRIGGER, 16384);
  Node node(run, setup);
  Target target(node);
  const auto open = [&] {
    fi_cntr_attr attr{};
    attr.events = FI_CNTR_EVENTS_COMP;
    fid_cntr* cntr = nullptr;
    check_offered(fi_cntr_open(node.domain(), &attr, &cntr, nullptr), "fi_cntr_open");
    return FiHandle<fid_cntr>(cntr);
  };
  const FiHandle<fid_cntr> trigger = open(), done = open();
  constexpr std::size_t kSize = 512;
  constexpr std::uint64_t kTag = 0x77;
  const bool receiving = type == FI_OP_RECV || type == FI_OP_TRECV;
  const bool tagged = type == FI_OP_TRECV || type == FI_OP_TSEND;
  const bool acts = receiving ? run.server : !run.server;  // who has the deferred work
  std::uint64_t there = 5, operand = 7, fetched = 0;
  if (run.server &&
      (type == FI_OP_ATOMIC || type == FI_OP_FETCH_ATOMIC || type == FI_OP_COMPARE_ATOMIC)) {
    std::memcpy(node.in().data(), &there, sizeof there);
  }
  if (run.server && type == FI_OP_READ) fill(node.in().first(kSize), 9);
  if (!run.server && type != FI_OP_READ) fill(node.out().first(kSize), 9);
  node.sync();
  Op op;
  const fi_rma_iov at{target.there().addr, kSize, target.there().key};
  const fi_rma_ioc cell{target.there().addr, 1, target.there().key};
  void* in_desc = node.in_desc();
  void* out_desc = node.out_desc();
  iovec out{node.out().data(), kSize}, in{node.in().data(), kSize};
  std::byte* const numbers = node.out().data() + 2048;
  fi_ioc one{numbers, 1}, result{numbers + 8, 1}, comparison{numbers + 16, 1};
  fi_op_msg msg{};
  fi_op_tagged tmsg{};
  fi_op_rma rma{};
  fi_op_atomic atomic{};
  fi_op_fetch_atomic fetch{};
  fi_op_compare_atomic compare{};
  fi_op_cntr counter{};
  fi_deferred_work work{};
  work.threshold = 3;
  work.triggering_cntr = trigger.get();
  work.completion_cntr = done.get();
  work.op_type = type;
  if (acts) {
    msg = {node.ep(),
           {receiving ? &in : &out, receiving ? &in_desc : &out_desc, 1,
            receiving ? FI_ADDR_UNSPEC : node.peer(), &op, 0},
           0};
    tmsg = {node.ep(),
            {receiving ? &in : &out, receiving ? &in_desc : &out_desc, 1,
             receiving ? FI_ADDR_UNSPEC : node.peer(), kTag, 0, &op, 0},
            0};
    rma = {node.ep(), {&out, &out_desc, 1, node.peer(), &at, 1, &op, 0}, 0};
    std::memcpy(numbers, &operand, sizeof operand);
    std::memcpy(numbers + 16, &there, sizeof there);
    const fi_op what = type == FI_OP_COMPARE_ATOMIC ? FI_CSWAP : FI_SUM;
    atomic = {node.ep(), {&one, &out_desc, 1, node.peer(), &cell, 1, FI_UINT64, what, &op, 0}, 0};
    fetch = {node.ep(), atomic.msg, {&result, &out_desc, 1}, 0};
    compare = {node.ep(), atomic.msg, {&result, &out_desc, 1}, {&comparison, &out_desc, 1}, 0};
    switch (type) {
      case FI_OP_RECV:
      case FI_OP_SEND:
        work.op.msg = &msg;
        break;
      case FI_OP_TRECV:
      case FI_OP_TSEND:
        work.op.tagged = &tmsg;
        break;
      case FI_OP_READ:
      case FI_OP_WRITE:
        work.op.rma = &rma;
        break;
      case FI_OP_ATOMIC:
        work.op.atomic = &atomic;
        break;
      case FI_OP_FETCH_ATOMIC:
        work.op.fetch_atomic = &fetch;
        break;
      case FI_OP_COMPARE_ATOMIC:
        work.op.compare_atomic = &compare;
        break;
      default:
        counter = {done.get(), 42};
        work.op.cntr = &counter;
        work.completion_cntr = nullptr;
    }
    const int queued = fi_control(&node.domain()->fid, FI_QUEUE_WORK, &work);
    check_offered(queued, "fi_control for FI_QUEUE_WORK");
    check(fi_cntr_add(trigger.get(), 2), "fi_cntr_add");
    for (int i = 0; i < 1000; ++i) node.progress();
    require(fi_cntr_read(done.get()) == 0, "the work has not waited for its counter");
    check(fi_cntr_add(trigger.get(), 1), "fi_cntr_add");
  }
  Op other;
  if (!acts &&
      (type == FI_OP_SEND || type == FI_OP_TSEND || receiving)) {  // the message's other end
    node.post("the other end", [&]() -> long {
      if (receiving) {
        return tagged
                   ? fi_tsend(node.ep(), out.iov_base, kSize, out_desc, node.peer(), kTag, &other)
                   : fi_send(node.ep(), out.iov_base, kSize, out_desc, node.peer(), &other);
      }
      return tagged
                 ? fi_trecv(node.ep(), in.iov_base, kSize, in_desc, FI_ADDR_UNSPEC, kTag, 0, &other)
                 : fi_recv(node.ep(), in.iov_base, kSize, in_desc, FI_ADDR_UNSPEC, &other);
    });
    receiving ? node.wait_sent(other) : node.wait_received(other);
    if (!receiving) verify(node.in().first(kSize), 9);
  }
  if (acts) {
    const std::uint64_t wanted = type == FI_OP_CNTR_SET || type == FI_OP_CNTR_ADD ? 42 : 1;
    node.until("the completion of deferred work",
               [&] { return fi_cntr_read(done.get()) == wanted; });
    if (receiving) verify(node.in().first(kSize), 9);
    if (type == FI_OP_READ) verify(node.out().first(kSize), 9);
    if (type == FI_OP_FETCH_ATOMIC || type == FI_OP_COMPARE_ATOMIC) {
      std::memcpy(&fetched, numbers + 8, sizeof fetched);
      require(fetched == there, "a deferred atomic fetched another value");
    }
  } else if (type == FI_OP_WRITE) {
    await_content(node, node.in().first(kSize), 9);
  } else if (type == FI_OP_ATOMIC || type == FI_OP_FETCH_ATOMIC || type == FI_OP_COMPARE_ATOMIC) {
    const std::uint64_t wanted = type == FI_OP_COMPARE_ATOMIC ? operand : there + operand;
    node.until("a deferred atomic",
               [&] { return same(node.in().data(), std::vector<std::uint64_t>{wanted}); });
  }
  node.sync();
}

}  // namespace

std::vector<Test> one_sided_tests() {
  std::vector<Test> tests;
  const auto add = [&](const std::string& name, auto body) { tests.push_back({name, 2, body}); };
  using R = const Run&;
  const std::pair<const char*, fi_ep_type> types[] = {{"msg", FI_EP_MSG}, {"rdm", FI_EP_RDM}};
  const std::pair<const char*, Rma> operations[] = {
      {"write", Rma::write}, {"read", Rma::read}, {"writedata", Rma::write_data}};
  for (const auto& [word, kind] : types) {
    const fi_ep_type type = kind;
    for (const auto& [what, rma] : operations) {
      const Rma how = rma;
      add(std::string("fi_rma_bw -e ") + word + " -o " + what,
          [=](R r) { rma_stream(r, type, how); });
      if (how == Rma::read) continue;  // its target is told of nothing
      add(std::string("fi_rma_pingpong -e ") + word + " -o " + what,
          [=](R r) { rma_ping_pong(r, type, how); });
    }
    add(std::string("fi_cq_data -e ") + word + " -o writedata", [=](R r) { write_data(r, type); });
    add(std::string("fi_multi_mr -e ") + word + " -V", [=](R r) { multi_mr(r, type); });
    add(std::string("fi_rdm_rma_simple -e ") + word, [=](R r) { simple_write(r, type); });
  }
  add("fi_cq_data -e dgram -o writedata", [](R r) { write_data(r, FI_EP_DGRAM); });
  add("fi_rdm_rma_event", rma_event);
  add("fi_rdm_rma_trigger", rma_trigger);
  add("fi_rdm_atomic -o base", [](R r) { atomics(r, Kind::base); });
  add("fi_rdm_atomic -o fetch", [](R r) { atomics(r, Kind::fetch); });
  add("fi_rdm_atomic -o compare", [](R r) { atomics(r, Kind::compare); });
  add("fi_rdm_atomic queries", atomic_queries);
  const std::pair<const char*, fi_op_type> works[] = {{"send", FI_OP_SEND},
                                                      {"recv", FI_OP_RECV},
                                                      {"tsend", FI_OP_TSEND},
                                                      {"trecv", FI_OP_TRECV},
                                                      {"write", FI_OP_WRITE},
                                                      {"read", FI_OP_READ},
                                                      {"atomic", FI_OP_ATOMIC},
                                                      {"fetch", FI_OP_FETCH_ATOMIC},
                                                      {"compare", FI_OP_COMPARE_ATOMIC},
                                                      {"cntr_set", FI_OP_CNTR_SET},
                                                      {"cntr_add", FI_OP_CNTR_ADD}};
  for (const auto& [word, kind] : works) {
    add(std::string("fi_rdm_deferred_wq ") + word, [type = kind](R r) { deferred(r, type); });
  }
  return tests;
}

}  // namespace turnout::clients
