// SPDX-License-Identifier: BSD-3-Clause
// The remote memory calls of an endpoint (fi_rma(3)).
#include <rdma/fi_rma.h>

#include <type_traits>

#include "provider/info.h"
#include "provider/ops.h"
#include "provider/post.h"

namespace turnout::provider {
namespace {

constexpr std::uint64_t kReadFlags = FI_COMPLETION | kCompletionLevels | FI_MORE;
constexpr std::uint64_t kWriteFlags = kTxOpFlags | FI_REMOTE_CQ_DATA | FI_MORE;

template <bool kWrite>
using Buffer = std::conditional_t<kWrite, const void*, void*>;

struct Remote {
  std::uint64_t address, key;
};

std::size_t total(std::span<const iovec> parts) noexcept {
  std::size_t length = 0;
  for (const iovec& one : parts) length += one.iov_len;
  return length;
}

template <bool kWrite>
[[gnu::always_inline]] inline ssize_t start(fid_ep* f, std::span<const iovec> local,
                                            const Remote& remote, const Call& call,
                                            std::uint64_t data = 0,
                                            const Deferral* deferral = nullptr) noexcept {
  RmaRequest request;
  request.write = kWrite;
  request.local = local;
  request.remote_address = remote.address;
  request.key = remote.key;
  request.length = total(local);
  request.remote_data = data;
  return post(f, request, call, deferral);
}

template <bool kWrite>
std::uint64_t own_flags(fid_ep* f) noexcept {
  return Ep::of(f).options.tx_flags() & ~(kWrite ? 0 : FI_INJECT);
}

template <bool kWrite>
ssize_t one(fid_ep* f, Buffer<kWrite> buffer, std::size_t length, void*, fi_addr_t with,
            std::uint64_t address, std::uint64_t key, void* context) {
  return start<kWrite>(f, part(buffer, length), {address, key},
                       {with, own_flags<kWrite>(f), context});
}

template <bool kWrite>
ssize_t vector(fid_ep* f, const iovec* iov, void**, std::size_t count, fi_addr_t with,
               std::uint64_t address, std::uint64_t key, void* context) {
  if (count > kIovLimit) return -FI_EINVAL;
  return start<kWrite>(f, {iov, count}, {address, key}, {with, own_flags<kWrite>(f), context});
}

template <bool kWrite>
constexpr std::uint64_t kMessageFlags = kWrite ? kWriteFlags : kReadFlags;

// One remote range, as long as the local one.
template <bool kWrite>
[[gnu::always_inline]] inline ssize_t start(fid_ep* f, const fi_msg_rma& msg, std::uint64_t flags,
                                            std::uint64_t own,
                                            const Deferral* deferral = nullptr) noexcept {
  if (msg.iov_count > kIovLimit || msg.rma_iov_count != 1) return -FI_EINVAL;
  const std::span<const iovec> local{msg.msg_iov, msg.iov_count};
  const fi_rma_iov& remote = msg.rma_iov[0];
  if (total(local) != remote.len) return -FI_EINVAL;
  if ((flags & ~kMessageFlags<kWrite>) != 0) return -FI_EBADFLAGS;
  return start<kWrite>(f, local, {remote.addr, remote.key}, {msg.addr, flags | own, msg.context},
                       msg.data, deferral);
}

template <bool kWrite>
ssize_t defer(fid_ep* f, const fi_msg_rma& msg, std::uint64_t flags,
              const Deferral& deferral) noexcept {
  return start<kWrite>(f, msg, flags, deferral.flags(Ep::of(f).options.tx_msg_flags()), &deferral);
}

template <bool kWrite>
ssize_t message(fid_ep* f, const fi_msg_rma* msg, std::uint64_t flags) {
  if ((flags & ~kMessageFlags<kWrite>) != 0) {
    Deferral deferral;
    const int error = deferral_of(f, flags & ~kMessageFlags<kWrite>, msg->context, deferral);
    return error != 0 ? error : defer<kWrite>(f, *msg, flags & ~FI_TRIGGER, deferral);
  }
  return start<kWrite>(f, *msg, flags, Ep::of(f).options.tx_msg_flags());
}

ssize_t inject(fid_ep* f, const void* buffer, std::size_t length, fi_addr_t to,
               std::uint64_t address, std::uint64_t key) {
  if (length > kInjectLimit) return -FI_EINVAL;
  return start<true>(f, part(buffer, length), {address, key},
                     {to, Ep::of(f).options.tx_inject_flags()});
}

ssize_t writedata(fid_ep* f, const void* buffer, std::size_t length, void*, std::uint64_t data,
                  fi_addr_t to, std::uint64_t address, std::uint64_t key, void* context) {
  const std::uint64_t flags = own_flags<true>(f) | FI_REMOTE_CQ_DATA;
  return start<true>(f, part(buffer, length), {address, key}, {to, flags, context}, data);
}

ssize_t injectdata(fid_ep* f, const void* buffer, std::size_t length, std::uint64_t data,
                   fi_addr_t to, std::uint64_t address, std::uint64_t key) {
  if (length > kInjectLimit) return -FI_EINVAL;
  const std::uint64_t flags = Ep::of(f).options.tx_inject_flags() | FI_REMOTE_CQ_DATA;
  return start<true>(f, part(buffer, length), {address, key}, {to, flags}, data);
}

fi_ops_rma live_ops = {
    .size = sizeof(fi_ops_rma),
    .read = one<false>,
    .readv = vector<false>,
    .readmsg = message<false>,
    .write = one<true>,
    .writev = vector<true>,
    .writemsg = message<true>,
    .inject = inject,
    .writedata = writedata,
    .injectdata = injectdata,
};

fi_ops_rma early_ops = every_call<fi_ops_rma>(kNotEnabled);

}  // namespace

ssize_t defer_read(const fi_op_rma& op, const Deferral& deferral) noexcept {
  return defer<false>(op.ep, op.msg, op.flags, deferral);
}
ssize_t defer_write(const fi_op_rma& op, const Deferral& deferral) noexcept {
  return defer<true>(op.ep, op.msg, op.flags, deferral);
}

fi_ops_rma& rma_ops(bool enabled) noexcept {
  return enabled ? live_ops : early_ops;
}

}  // namespace turnout::provider
