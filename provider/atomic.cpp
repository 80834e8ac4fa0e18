// SPDX-License-Identifier: BSD-3-Clause
// The atomic calls of an endpoint (fi_atomic(3)).
//
// Without FI_ATOMIC among its capabilities an endpoint has none of them; programs that probe every
// operation for every type all the same are told so. Operands and compare values are copied by the
// core before a call returns, so FI_INJECT asks for nothing more. FI_CSWAP_LE and the like compare
// as libfabric's own providers do since 1.7: the compare value stands on the left.
#include <rdma/fi_atomic.h>

#include <array>

#include "provider/transfer.h"

namespace turnout::provider {
namespace {

// The core's numbers are libfabric's.
static_assert(FI_INT8 == static_cast<int>(AtomicType::int8));
static_assert(FI_UINT64 == static_cast<int>(AtomicType::uint64));
static_assert(FI_FLOAT == static_cast<int>(AtomicType::float32));
static_assert(FI_DOUBLE == static_cast<int>(AtomicType::float64));
static_assert(FI_FLOAT_COMPLEX == static_cast<int>(AtomicType::complex_float32));
static_assert(FI_DOUBLE_COMPLEX == static_cast<int>(AtomicType::complex_float64));
static_assert(FI_LONG_DOUBLE == static_cast<int>(AtomicType::long_double));
static_assert(FI_LONG_DOUBLE_COMPLEX == static_cast<int>(AtomicType::complex_long_double));
static_assert(FI_MIN == static_cast<int>(AtomicOp::min));
static_assert(FI_BXOR == static_cast<int>(AtomicOp::bit_xor));
static_assert(FI_ATOMIC_WRITE == static_cast<int>(AtomicOp::write));
static_assert(FI_CSWAP == static_cast<int>(AtomicOp::swap_if_equal));
static_assert(FI_CSWAP_GT == static_cast<int>(AtomicOp::swap_if_gt));
static_assert(FI_MSWAP == static_cast<int>(AtomicOp::masked_swap));

constexpr std::uint64_t kFetchFlags = kTxOpFlags | FI_MORE;
constexpr std::uint64_t kUpdateFlags = kFetchFlags | FI_REMOTE_CQ_DATA;

// What all calls name.
struct Target {
  fi_addr_t with;
  std::uint64_t address, key;
  fi_datatype type;
  fi_op op;
};

bool known(AtomicForm form, fi_datatype type, fi_op op) noexcept {
  return static_cast<unsigned>(type) < kAtomicTypes && static_cast<unsigned>(op) < kAtomicOps &&
         exists(form, static_cast<AtomicOp>(op), static_cast<AtomicType>(type));
}

// Pieces counted in elements, as pieces of bytes.
struct Elements {
  std::array<iovec, kIovLimit> iov{};
  std::size_t pieces = 0, count = 0;

  Elements() = default;
  Elements(const void* buffer, std::size_t elements) noexcept : pieces(1), count(elements) {
    iov[0] = part(buffer, elements);
  }
  // False: there are too many, or more elements in one than any request can have.
  [[nodiscard]] bool set(const fi_ioc* from, std::size_t number) noexcept {
    if (number > kIovLimit || (number != 0 && from == nullptr)) return false;
    pieces = number;
    for (std::size_t i = 0; i < number; ++i) {
      if (from[i].count > kAtomicLimit) return false;
      iov[i] = {from[i].addr, from[i].count};
      count += from[i].count;
    }
    return true;
  }
  [[nodiscard]] std::span<const iovec> in_bytes(std::size_t size) noexcept {
    for (std::size_t i = 0; i < pieces; ++i) iov[i].iov_len *= size;
    return {iov.data(), pieces};
  }
};

ssize_t start(fid_ep* f, AtomicForm form, const Target& target, Elements operands, Elements compare,
              Elements result, std::uint64_t flags, void* context, std::uint64_t data = 0) {
  if (!known(form, target.type, target.op)) return -FI_EOPNOTSUPP;
  const auto op = static_cast<AtomicOp>(target.op);
  const auto type = static_cast<AtomicType>(target.type);
  if (!has_operands(op)) operands = {};
  const std::size_t count = form == AtomicForm::update ? operands.count : result.count;
  if (has_operands(op) && operands.count != count) return -FI_EINVAL;
  if (form == AtomicForm::compare && compare.count != count) return -FI_EINVAL;
  if (count == 0 || count > most_elements(form, type)) return -FI_EINVAL;
  const std::size_t size = size_of(type);
  return post(f, AtomicCall{form, op, type, count, operands.in_bytes(size), compare.in_bytes(size),
                            result.in_bytes(size), target.with, target.address, target.key, flags,
                            context, data});
}

// The one remote range of a message, if it is as long as what goes there.
bool target_of(const fi_msg_atomic& msg, std::size_t count, Target& target) noexcept {
  if (msg.rma_iov_count != 1 || msg.rma_iov[0].count != count) return false;
  target = {msg.addr, msg.rma_iov[0].addr, msg.rma_iov[0].key, msg.datatype, msg.op};
  return true;
}

// FI_INJECT of the endpoint's own flags is for buffers that nothing comes back to.
std::uint64_t own_flags(fid_ep* f, AtomicForm form) noexcept {
  const std::uint64_t flags = Ep::of(f).tx_flags;
  return form == AtomicForm::update ? flags : flags & ~FI_INJECT;
}

ssize_t write(fid_ep* f, const void* buffer, std::size_t count, void*, fi_addr_t to,
              std::uint64_t address, std::uint64_t key, fi_datatype type, fi_op op, void* context) {
  return start(f, AtomicForm::update, {to, address, key, type, op}, {buffer, count}, {}, {},
               own_flags(f, AtomicForm::update), context);
}

ssize_t writev(fid_ep* f, const fi_ioc* iov, void**, std::size_t count, fi_addr_t to,
               std::uint64_t address, std::uint64_t key, fi_datatype type, fi_op op,
               void* context) {
  Elements operands;
  if (!operands.set(iov, count)) return -FI_EINVAL;
  return start(f, AtomicForm::update, {to, address, key, type, op}, operands, {}, {},
               own_flags(f, AtomicForm::update), context);
}

ssize_t writemsg(fid_ep* f, const fi_msg_atomic* msg, std::uint64_t flags) {
  if ((flags & ~kUpdateFlags) != 0) return -FI_EBADFLAGS;
  Elements operands;
  Target target;
  if (!operands.set(msg->msg_iov, msg->iov_count)) return -FI_EINVAL;
  if (!target_of(*msg, operands.count, target)) return -FI_EINVAL;
  return start(f, AtomicForm::update, target, operands, {}, {}, flags | Ep::of(f).tx_msg_flags,
               msg->context, msg->data);
}

ssize_t inject(fid_ep* f, const void* buffer, std::size_t count, fi_addr_t to,
               std::uint64_t address, std::uint64_t key, fi_datatype type, fi_op op) {
  return start(f, AtomicForm::update, {to, address, key, type, op}, {buffer, count}, {}, {},
               Ep::of(f).tx_inject_flags, nullptr);
}

ssize_t readwrite(fid_ep* f, const void* buffer, std::size_t count, void*, void* result, void*,
                  fi_addr_t with, std::uint64_t address, std::uint64_t key, fi_datatype type,
                  fi_op op, void* context) {
  return start(f, AtomicForm::fetch, {with, address, key, type, op}, {buffer, count}, {},
               {result, count}, own_flags(f, AtomicForm::fetch), context);
}

ssize_t readwritev(fid_ep* f, const fi_ioc* iov, void**, std::size_t count, fi_ioc* resultv, void**,
                   std::size_t result_count, fi_addr_t with, std::uint64_t address,
                   std::uint64_t key, fi_datatype type, fi_op op, void* context) {
  Elements operands, result;
  if (op != FI_ATOMIC_READ && !operands.set(iov, count)) return -FI_EINVAL;
  if (!result.set(resultv, result_count)) return -FI_EINVAL;
  return start(f, AtomicForm::fetch, {with, address, key, type, op}, operands, {}, result,
               own_flags(f, AtomicForm::fetch), context);
}

ssize_t readwritemsg(fid_ep* f, const fi_msg_atomic* msg, fi_ioc* resultv, void**,
                     std::size_t result_count, std::uint64_t flags) {
  if ((flags & ~kFetchFlags) != 0) return -FI_EBADFLAGS;
  Elements operands, result;
  Target target;
  if (msg->op != FI_ATOMIC_READ && !operands.set(msg->msg_iov, msg->iov_count)) return -FI_EINVAL;
  if (!result.set(resultv, result_count)) return -FI_EINVAL;
  if (!target_of(*msg, result.count, target)) return -FI_EINVAL;
  return start(f, AtomicForm::fetch, target, operands, {}, result, flags | Ep::of(f).tx_msg_flags,
               msg->context);
}

ssize_t compwrite(fid_ep* f, const void* buffer, std::size_t count, void*, const void* compare,
                  void*, void* result, void*, fi_addr_t with, std::uint64_t address,
                  std::uint64_t key, fi_datatype type, fi_op op, void* context) {
  return start(f, AtomicForm::compare, {with, address, key, type, op}, {buffer, count},
               {compare, count}, {result, count}, own_flags(f, AtomicForm::compare), context);
}

ssize_t compwritev(fid_ep* f, const fi_ioc* iov, void**, std::size_t count, const fi_ioc* comparev,
                   void**, std::size_t compare_count, fi_ioc* resultv, void**,
                   std::size_t result_count, fi_addr_t with, std::uint64_t address,
                   std::uint64_t key, fi_datatype type, fi_op op, void* context) {
  Elements operands, compare, result;
  if (!operands.set(iov, count) || !compare.set(comparev, compare_count) ||
      !result.set(resultv, result_count)) {
    return -FI_EINVAL;
  }
  return start(f, AtomicForm::compare, {with, address, key, type, op}, operands, compare, result,
               own_flags(f, AtomicForm::compare), context);
}

ssize_t compwritemsg(fid_ep* f, const fi_msg_atomic* msg, const fi_ioc* comparev, void**,
                     std::size_t compare_count, fi_ioc* resultv, void**, std::size_t result_count,
                     std::uint64_t flags) {
  if ((flags & ~kFetchFlags) != 0) return -FI_EBADFLAGS;
  Elements operands, compare, result;
  Target target;
  if (!operands.set(msg->msg_iov, msg->iov_count) || !compare.set(comparev, compare_count) ||
      !result.set(resultv, result_count) || !target_of(*msg, result.count, target)) {
    return -FI_EINVAL;
  }
  return start(f, AtomicForm::compare, target, operands, compare, result,
               flags | Ep::of(f).tx_msg_flags, msg->context);
}

template <AtomicForm kForm>
int valid(fid_ep*, fi_datatype type, fi_op op, std::size_t* count) {
  if (!known(kForm, type, op)) return -FI_EOPNOTSUPP;
  if (count == nullptr) return -FI_EINVAL;
  *count = most_elements(kForm, static_cast<AtomicType>(type));
  return 0;
}

fi_ops_atomic absent_ops = {
    .size = sizeof(fi_ops_atomic),
    .write = kNotSupported,
    .writev = kNotSupported,
    .writemsg = kNotSupported,
    .inject = kNotSupported,
    .readwrite = kNotSupported,
    .readwritev = kNotSupported,
    .readwritemsg = kNotSupported,
    .compwrite = kNotSupported,
    .compwritev = kNotSupported,
    .compwritemsg = kNotSupported,
    .writevalid = kNotSupported,
    .readwritevalid = kNotSupported,
    .compwritevalid = kNotSupported,
};

fi_ops_atomic early_ops = {
    .size = sizeof(fi_ops_atomic),
    .write = kNotEnabled,
    .writev = kNotEnabled,
    .writemsg = kNotEnabled,
    .inject = kNotEnabled,
    .readwrite = kNotEnabled,
    .readwritev = kNotEnabled,
    .readwritemsg = kNotEnabled,
    .compwrite = kNotEnabled,
    .compwritev = kNotEnabled,
    .compwritemsg = kNotEnabled,
    .writevalid = valid<AtomicForm::update>,
    .readwritevalid = valid<AtomicForm::fetch>,
    .compwritevalid = valid<AtomicForm::compare>,
};

fi_ops_atomic live_ops = {
    .size = sizeof(fi_ops_atomic),
    .write = write,
    .writev = writev,
    .writemsg = writemsg,
    .inject = inject,
    .readwrite = readwrite,
    .readwritev = readwritev,
    .readwritemsg = readwritemsg,
    .compwrite = compwrite,
    .compwritev = compwritev,
    .compwritemsg = compwritemsg,
    .writevalid = valid<AtomicForm::update>,
    .readwritevalid = valid<AtomicForm::fetch>,
    .compwritevalid = valid<AtomicForm::compare>,
};

}  // namespace

fi_ops_atomic& atomic_ops(bool offered, bool enabled) noexcept {
  if (!offered) return absent_ops;
  return enabled ? live_ops : early_ops;
}

int describe_atomic(fi_datatype type, fi_op op, std::uint64_t flags,
                    fi_atomic_attr* attr) noexcept {
  if ((flags & ~(FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC)) != 0) return -FI_EBADFLAGS;
  AtomicForm form = AtomicForm::update;
  if (flags == FI_FETCH_ATOMIC) form = AtomicForm::fetch;
  if (flags == FI_COMPARE_ATOMIC) form = AtomicForm::compare;
  if (flags == (FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC)) return -FI_EBADFLAGS;
  if (!known(form, type, op)) return -FI_EOPNOTSUPP;
  if (attr == nullptr) return -FI_EINVAL;
  attr->count = most_elements(form, static_cast<AtomicType>(type));
  attr->size = size_of(static_cast<AtomicType>(type));
  return 0;
}

}  // namespace turnout::provider
