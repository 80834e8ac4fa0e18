// SPDX-License-Identifier: BSD-3-Clause
// The one-sided calls of an endpoint (fi_rma(3)).
#include "record/libfabric/calls.h"
#include "record/libfabric/endpoint.h"
#include "record/sum.h"

namespace turnout::record::libfabric {
namespace {

struct RmaCalls {
  static Ep& of(const fid_ep* ep) noexcept { return owner_of<Ep>(ep->rma); }

  // Reads and writes are called alike; kCall is the provider's.
  template <bool kPut, auto kCall, class Buffer>
  static ssize_t access(fid_ep* ep, Buffer* buffer, std::size_t length, void* desc, fi_addr_t peer,
                        std::uint64_t address, std::uint64_t key, void* context) {
    Ep& e = of(ep);
    return e.access(kPut, length, e.sends(peer, context), [&] {
      return (e.rma().*kCall)(ep, buffer, length, desc, peer, address, key, context);
    });
  }
  template <bool kPut, auto kCall>
  static ssize_t accessv(fid_ep* ep, const iovec* pieces, void** desc, std::size_t count,
                         fi_addr_t peer, std::uint64_t address, std::uint64_t key, void* context) {
    Ep& e = of(ep);
    return e.access(kPut, sum_of(pieces, count, &iovec::iov_len), e.sends(peer, context), [&] {
      return (e.rma().*kCall)(ep, pieces, desc, count, peer, address, key, context);
    });
  }
  template <bool kPut, auto kCall>
  static ssize_t accessmsg(fid_ep* ep, const fi_msg_rma* msg, std::uint64_t flags) {
    Ep& e = of(ep);
    return e.access(kPut, sum_of(msg->msg_iov, msg->iov_count, &iovec::iov_len),
                    {msg->addr, flags, msg->context},
                    [&] { return (e.rma().*kCall)(ep, msg, flags); });
  }
  static ssize_t inject(fid_ep* ep, const void* buffer, std::size_t length, fi_addr_t to,
                        std::uint64_t address, std::uint64_t key) {
    Ep& e = of(ep);
    return e.access(true, length, Ep::injects(to),
                    [&] { return e.rma().inject(ep, buffer, length, to, address, key); });
  }
  static ssize_t writedata(fid_ep* ep, const void* buffer, std::size_t length, void* desc,
                           std::uint64_t data, fi_addr_t to, std::uint64_t address,
                           std::uint64_t key, void* context) {
    Ep& e = of(ep);
    return e.access(true, length, e.sends(to, context), [&] {
      return e.rma().writedata(ep, buffer, length, desc, data, to, address, key, context);
    });
  }
  static ssize_t injectdata(fid_ep* ep, const void* buffer, std::size_t length, std::uint64_t data,
                            fi_addr_t to, std::uint64_t address, std::uint64_t key) {
    Ep& e = of(ep);
    return e.access(true, length, Ep::injects(to),
                    [&] { return e.rma().injectdata(ep, buffer, length, data, to, address, key); });
  }
};

}  // namespace

void replace_calls(Table<fi_ops_rma>* table) {
  table->replace(&fi_ops_rma::read, &RmaCalls::access<false, &fi_ops_rma::read, void>);
  table->replace(&fi_ops_rma::readv, &RmaCalls::accessv<false, &fi_ops_rma::readv>);
  table->replace(&fi_ops_rma::readmsg, &RmaCalls::accessmsg<false, &fi_ops_rma::readmsg>);
  table->replace(&fi_ops_rma::write, &RmaCalls::access<true, &fi_ops_rma::write, const void>);
  table->replace(&fi_ops_rma::writev, &RmaCalls::accessv<true, &fi_ops_rma::writev>);
  table->replace(&fi_ops_rma::writemsg, &RmaCalls::accessmsg<true, &fi_ops_rma::writemsg>);
  table->replace(&fi_ops_rma::inject, &RmaCalls::inject);
  table->replace(&fi_ops_rma::writedata, &RmaCalls::writedata);
  table->replace(&fi_ops_rma::injectdata, &RmaCalls::injectdata);
}

}  // namespace turnout::record::libfabric
