// SPDX-License-Identifier: BSD-3-Clause
// The one-sided calls of an endpoint (fi_rma(3)).
#include "record/libfabric/calls.h"
#include "record/libfabric/endpoint.h"
#include "record/sum.h"

namespace turnout::record::libfabric {
namespace {

struct RmaCalls {
  static Ep& of(const fid_ep* ep) noexcept { return owner_of<Ep>(ep->rma); }

  static ssize_t read(fid_ep* ep, void* buffer, std::size_t length, void* desc, fi_addr_t from,
                      std::uint64_t address, std::uint64_t key, void* context) {
    Ep& e = of(ep);
    return e.access(false, length, e.sends(from, context), [&] {
      return e.rma().read(ep, buffer, length, desc, from, address, key, context);
    });
  }
  static ssize_t readv(fid_ep* ep, const iovec* pieces, void** desc, std::size_t count,
                       fi_addr_t from, std::uint64_t address, std::uint64_t key, void* context) {
    Ep& e = of(ep);
    return e.access(false, sum_of(pieces, count, &iovec::iov_len), e.sends(from, context), [&] {
      return e.rma().readv(ep, pieces, desc, count, from, address, key, context);
    });
  }
  static ssize_t readmsg(fid_ep* ep, const fi_msg_rma* msg, std::uint64_t flags) {
    Ep& e = of(ep);
    return e.access(false, sum_of(msg->msg_iov, msg->iov_count, &iovec::iov_len),
                    {msg->addr, flags, msg->context},
                    [&] { return e.rma().readmsg(ep, msg, flags); });
  }
  static ssize_t write(fid_ep* ep, const void* buffer, std::size_t length, void* desc, fi_addr_t to,
                       std::uint64_t address, std::uint64_t key, void* context) {
    Ep& e = of(ep);
    return e.access(true, length, e.sends(to, context), [&] {
      return e.rma().write(ep, buffer, length, desc, to, address, key, context);
    });
  }
  static ssize_t writev(fid_ep* ep, const iovec* pieces, void** desc, std::size_t count,
                        fi_addr_t to, std::uint64_t address, std::uint64_t key, void* context) {
    Ep& e = of(ep);
    return e.access(true, sum_of(pieces, count, &iovec::iov_len), e.sends(to, context), [&] {
      return e.rma().writev(ep, pieces, desc, count, to, address, key, context);
    });
  }
  static ssize_t writemsg(fid_ep* ep, const fi_msg_rma* msg, std::uint64_t flags) {
    Ep& e = of(ep);
    return e.access(true, sum_of(msg->msg_iov, msg->iov_count, &iovec::iov_len),
                    {msg->addr, flags, msg->context},
                    [&] { return e.rma().writemsg(ep, msg, flags); });
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
  table->replace(&fi_ops_rma::read, &RmaCalls::read);
  table->replace(&fi_ops_rma::readv, &RmaCalls::readv);
  table->replace(&fi_ops_rma::readmsg, &RmaCalls::readmsg);
  table->replace(&fi_ops_rma::write, &RmaCalls::write);
  table->replace(&fi_ops_rma::writev, &RmaCalls::writev);
  table->replace(&fi_ops_rma::writemsg, &RmaCalls::writemsg);
  table->replace(&fi_ops_rma::inject, &RmaCalls::inject);
  table->replace(&fi_ops_rma::writedata, &RmaCalls::writedata);
  table->replace(&fi_ops_rma::injectdata, &RmaCalls::injectdata);
}

}  // namespace turnout::record::libfabric
