// SPDX-License-Identifier: BSD-3-Clause
// The atomic calls of an endpoint (fi_atomic(3)).
//
// Without FI_ATOMIC among its capabilities an endpoint has none of them; programs that probe every
// operation for every type all the same are told so. Operands and compare values are copied by the
// core before a call returns, so FI_INJECT asks for nothing more. FI_CSWAP_LE and the like compare
// as libfabric's own providers do since 1.7: the compare value stands on the left.
#include <rdma/fi_atomic.h>

#include <array>
#include <optional>

#include "provider/info.h"
#include "provider/ops.h"
#include "provider/post.h"

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
  std::uint64_t address, key;
  fi_datatype type;
  fi_op op;
};

using Ioc = std::span<const fi_ioc>;

bool known(AtomicForm form, fi_datatype type, fi_op op) noexcept {
  return static_cast<unsigned>(type) < kAtomicTypes && static_cast<unsigned>(op) < kAtomicOps &&
         exists(form, static_cast<AtomicOp>(op), static_cast<AtomicType>(type));
}

// Pieces counted in elements, as pieces of bytes.
struct Elements {
  std::array<iovec, kIovLimit> iov{};
  std::size_t pieces = 0, count = 0;
  bool valid = true;  // not too many, and no more in one than any request can have

  Elements() = default;
  Elements(const void* buffer, std::size_t elements) noexcept : pieces(1), count(elements) {
    iov[0] = {const_cast<void*>(buffer), elements};
  }
  explicit Elements(Ioc list) noexcept
      : valid(list.size() <= kIovLimit && (list.empty() || list.data() != nullptr)) {
    if (!valid) return;
    for (const fi_ioc& one : list) {
      valid &= one.count <= kAtomicLimit;
      iov[pieces++] = {one.addr, one.count};
      count += one.count;
    }
  }
  [[nodiscard]] std::span<const iovec> in_bytes(std::size_t size) noexcept {
    for (std::size_t i = 0; i < pieces; ++i) iov[i].iov_len *= size;
    return {iov.data(), pieces};
  }
};

// A read has no operands, and what the program passes for them is not looked at.
bool reads(AtomicForm form, fi_op op) noexcept {
  return form == AtomicForm::fetch && op == FI_ATOMIC_READ;
}

Elements operands_of(AtomicForm form, fi_op op, Ioc list) noexcept {
  return reads(form, op) ? Elements{} : Elements(list);
}

// `there`: elements of the remote range, where the call names them.
ssize_t start(fid_ep* f, AtomicForm form, const Target& target, const Call& call,
              Elements&& operands, Elements&& result = {}, Elements&& compare = {},
              std::uint64_t data = 0, std::optional<std::size_t> there = {},
              const Deferral* deferral = nullptr) noexcept {
  if (!operands.valid || !compare.valid || !result.valid) return -FI_EINVAL;
  const std::size_t count = form == AtomicForm::update ? operands.count : result.count;
  if (there.value_or(count) != count) return -FI_EINVAL;
  if (!known(form, target.type, target.op)) return -FI_EOPNOTSUPP;
  AtomicRequest request;
  request.form = form;
  request.op = static_cast<AtomicOp>(target.op);
  request.type = static_cast<AtomicType>(target.type);
  request.count = count;
  if (count == 0 || count > most_elements(form, request.type)) return -FI_EINVAL;
  const std::size_t size = size_of(request.type);
  if (!reads(form, target.op)) {
    if (operands.count != count) return -FI_EINVAL;
    request.operands = operands.in_bytes(size);
  }
  if (form == AtomicForm::compare && compare.count != count) return -FI_EINVAL;
  request.compare = compare.in_bytes(size);
  request.result = result.in_bytes(size);
  request.remote_address = target.address;
  request.key = target.key;
  request.remote_data = data;
  return post(f, request, call, deferral);
}

// `deferral` null: FI_TRIGGER among the flags says whether there is one.
ssize_t start(fid_ep* f, AtomicForm form, const fi_msg_atomic& msg, std::uint64_t flags,
              Ioc result = {}, Ioc compare = {}, const Deferral* deferral = nullptr) noexcept {
  const std::uint64_t beyond = flags & ~(form == AtomicForm::update ? kUpdateFlags : kFetchFlags);
  Deferral triggered;
  if (beyond != 0 && deferral != nullptr) return -FI_EBADFLAGS;
  if (beyond != 0) {
    const int error = deferral_of(f, beyond, msg.context, triggered);
    if (error != 0) return error;
    deferral = &triggered;
  }
  if (msg.rma_iov_count != 1) return -FI_EINVAL;
  const fi_rma_ioc& remote = msg.rma_iov[0];
  const std::uint64_t own = Ep::of(f).options.tx_msg_flags();
  return start(
      f, form, {remote.addr, remote.key, msg.datatype, msg.op},
      {msg.addr, (flags & ~FI_TRIGGER) | (deferral != nullptr ? deferral->flags(own) : own),
       msg.context},
      operands_of(form, msg.op, {msg.msg_iov, msg.iov_count}), Elements(result), Elements(compare),
      msg.data, remote.count, deferral);
}

// FI_INJECT of the endpoint's own flags is for buffers that nothing comes back to.
std::uint64_t own_flags(fid_ep* f, AtomicForm form) noexcept {
  return Ep::of(f).options.tx_flags() & ~(form == AtomicForm::update ? 0 : FI_INJECT);
}

ssize_t write(fid_ep* f, const void* buffer, std::size_t count, void*, fi_addr_t to,
              std::uint64_t address, std::uint64_t key, fi_datatype type, fi_op op, void* context) {
  return start(f, AtomicForm::update, {address, key, type, op},
               {to, own_flags(f, AtomicForm::update), context}, Elements{buffer, count});
}

ssize_t writev(fid_ep* f, const fi_ioc* iov, void**, std::size_t count, fi_addr_t to,
               std::uint64_t address, std::uint64_t key, fi_datatype type, fi_op op,
               void* context) {
  return start(f, AtomicForm::update, {address, key, type, op},
               {to, own_flags(f, AtomicForm::update), context}, Elements(Ioc{iov, count}));
}

ssize_t writemsg(fid_ep* f, const fi_msg_atomic* msg, std::uint64_t flags) {
  return start(f, AtomicForm::update, *msg, flags);
}

ssize_t inject(fid_ep* f, const void* buffer, std::size_t count, fi_addr_t to,
               std::uint64_t address, std::uint64_t key, fi_datatype type, fi_op op) {
  return start(f, AtomicForm::update, {address, key, type, op},
               {to, Ep::of(f).options.tx_inject_flags()}, Elements{buffer, count});
}

ssize_t readwrite(fid_ep* f, const void* buffer, std::size_t count, void*, void* result, void*,
                  fi_addr_t with, std::uint64_t address, std::uint64_t key, fi_datatype type,
                  fi_op op, void* context) {
  return start(f, AtomicForm::fetch, {address, key, type, op},
               {with, own_flags(f, AtomicForm::fetch), context}, Elements{buffer, count},
               Elements{result, count});
}

ssize_t readwritev(fid_ep* f, const fi_ioc* iov, void**, std::size_t count, fi_ioc* resultv, void**,
                   std::size_t result_count, fi_addr_t with, std::uint64_t address,
                   std::uint64_t key, fi_datatype type, fi_op op, void* context) {
  return start(f, AtomicForm::fetch, {address, key, type, op},
               {with, own_flags(f, AtomicForm::fetch), context},
               operands_of(AtomicForm::fetch, op, {iov, count}),
               Elements(Ioc{resultv, result_count}));
}

ssize_t readwritemsg(fid_ep* f, const fi_msg_atomic* msg, fi_ioc* resultv, void**,
                     std::size_t result_count, std::uint64_t flags) {
  return start(f, AtomicForm::fetch, *msg, flags, {resultv, result_count});
}

ssize_t compwrite(fid_ep* f, const void* buffer, std::size_t count, void*, const void* compare,
                  void*, void* result, void*, fi_addr_t with, std::uint64_t address,
                  std::uint64_t key, fi_datatype type, fi_op op, void* context) {
  return start(f, AtomicForm::compare, {address, key, type, op},
               {with, own_flags(f, AtomicForm::compare), context}, Elements{buffer, count},
               Elements{result, count}, Elements{compare, count});
}

ssize_t compwritev(fid_ep* f, const fi_ioc* iov, void**, std::size_t count, const fi_ioc* comparev,
                   void**, std::size_t compare_count, fi_ioc* resultv, void**,
                   std::size_t result_count, fi_addr_t with, std::uint64_t address,
                   std::uint64_t key, fi_datatype type, fi_op op, void* context) {
  return start(f, AtomicForm::compare, {address, key, type, op},
               {with, own_flags(f, AtomicForm::compare), context}, Elements(Ioc{iov, count}),
               Elements(Ioc{resultv, result_count}), Elements(Ioc{comparev, compare_count}));
}

ssize_t compwritemsg(fid_ep* f, const fi_msg_atomic* msg, const fi_ioc* comparev, void**,
                     std::size_t compare_count, fi_ioc* resultv, void**, std::size_t result_count,
                     std::uint64_t flags) {
  return start(f, AtomicForm::compare, *msg, flags, {resultv, result_count},
               {comparev, compare_count});
}

template <AtomicForm kForm>
int valid(fid_ep*, fi_datatype type, fi_op op, std::size_t* count) {
  if (!known(kForm, type, op)) return -FI_EOPNOTSUPP;
  if (count == nullptr) return -FI_EINVAL;
  *count = most_elements(kForm, static_cast<AtomicType>(type));
  return 0;
}

fi_ops_atomic absent_ops = every_call<fi_ops_atomic>(kNotSupported);

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

fi_ops_atomic early_ops = [] {
  auto ops = every_call<fi_ops_atomic>(kNotEnabled);
  ops.writevalid = valid<AtomicForm::update>;
  ops.readwritevalid = valid<AtomicForm::fetch>;
  ops.compwritevalid = valid<AtomicForm::compare>;
  return ops;
}();

}  // namespace

ssize_t defer_atomic(const fi_op_atomic& op, const Deferral& deferral) noexcept {
  return start(op.ep, AtomicForm::update, op.msg, op.flags, {}, {}, &deferral);
}
ssize_t defer_atomic(const fi_op_fetch_atomic& op, const Deferral& deferral) noexcept {
  return start(op.ep, AtomicForm::fetch, op.msg, op.flags, {op.fetch.msg_iov, op.fetch.iov_count},
               {}, &deferral);
}
ssize_t defer_atomic(const fi_op_compare_atomic& op, const Deferral& deferral) noexcept {
  return start(op.ep, AtomicForm::compare, op.msg, op.flags, {op.fetch.msg_iov, op.fetch.iov_count},
               {op.compare.msg_iov, op.compare.iov_count}, &deferral);
}

fi_ops_atomic& atomic_ops(bool offered, bool enabled) noexcept {
  if (!offered) return absent_ops;
  return enabled ? live_ops : early_ops;
}

int describe_atomic(fi_datatype type, fi_op op, std::uint64_t flags,
                    fi_atomic_attr* attr) noexcept {
  if (flags != 0 && flags != FI_FETCH_ATOMIC && flags != FI_COMPARE_ATOMIC) return -FI_EBADFLAGS;
  const AtomicForm form = flags == 0                 ? AtomicForm::update
                          : flags == FI_FETCH_ATOMIC ? AtomicForm::fetch
                                                     : AtomicForm::compare;
  if (!known(form, type, op)) return -FI_EOPNOTSUPP;
  if (attr == nullptr) return -FI_EINVAL;
  attr->count = most_elements(form, static_cast<AtomicType>(type));
  attr->size = size_of(static_cast<AtomicType>(type));
  return 0;
}

}  // namespace turnout::provider
