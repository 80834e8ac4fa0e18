// SPDX-License-Identifier: BSD-3-Clause
// The atomic calls of an endpoint (fi_atomic(3)), recorded as what their bytes would be by RMA.
#include <array>

#include "record/libfabric/calls.h"
#include "record/libfabric/endpoint.h"
#include "record/sum.h"

namespace turnout::record::libfabric {
namespace {

// Of fi_atomic(3)'s types, in their order.
std::uint64_t size_of(fi_datatype type) noexcept {
  constexpr std::array<std::uint8_t, 16> kSizes = {1, 1, 2, 2,  4,  4,  8,  8,
                                                   4, 8, 8, 16, 16, 32, 16, 16};
  const auto i = static_cast<std::size_t>(type);
  return i < kSizes.size() ? kSizes[i] : 8;
}
std::uint64_t bytes_of(const fi_ioc* pieces, std::size_t count, fi_datatype type) noexcept {
  return sum_of(pieces, count, &fi_ioc::count) * size_of(type);
}

struct AtomicCalls {
  static Ep& of(const fid_ep* ep) noexcept { return owner_of<Ep>(ep->atomic); }

  static ssize_t write(fid_ep* ep, const void* buffer, std::size_t count, void* desc, fi_addr_t to,
                       std::uint64_t address, std::uint64_t key, fi_datatype type, fi_op op,
                       void* context) {
    Ep& e = of(ep);
    return e.access(true, count * size_of(type), e.sends(to, context), [&] {
      return e.atomic().write(ep, buffer, count, desc, to, address, key, type, op, context);
    });
  }
  static ssize_t writev(fid_ep* ep, const fi_ioc* pieces, void** desc, std::size_t count,
                        fi_addr_t to, std::uint64_t address, std::uint64_t key, fi_datatype type,
                        fi_op op, void* context) {
    Ep& e = of(ep);
    return e.access(true, bytes_of(pieces, count, type), e.sends(to, context), [&] {
      return e.atomic().writev(ep, pieces, desc, count, to, address, key, type, op, context);
    });
  }
  static ssize_t writemsg(fid_ep* ep, const fi_msg_atomic* msg, std::uint64_t flags) {
    Ep& e = of(ep);
    return e.access(true, bytes_of(msg->msg_iov, msg->iov_count, msg->datatype),
                    {msg->addr, flags, msg->context},
                    [&] { return e.atomic().writemsg(ep, msg, flags); });
  }
  static ssize_t inject(fid_ep* ep, const void* buffer, std::size_t count, fi_addr_t to,
                        std::uint64_t address, std::uint64_t key, fi_datatype type, fi_op op) {
    Ep& e = of(ep);
    return e.access(true, count * size_of(type), Ep::injects(to), [&] {
      return e.atomic().inject(ep, buffer, count, to, address, key, type, op);
    });
  }
  static ssize_t readwrite(fid_ep* ep, const void* buffer, std::size_t count, void* desc,
                           void* result, void* result_desc, fi_addr_t at, std::uint64_t address,
                           std::uint64_t key, fi_datatype type, fi_op op, void* context) {
    Ep& e = of(ep);
    return e.access(false, count * size_of(type), e.sends(at, context), [&] {
      return e.atomic().readwrite(ep, buffer, count, desc, result, result_desc, at, address, key,
                                  type, op, context);
    });
  }
  static ssize_t readwritev(fid_ep* ep, const fi_ioc* pieces, void** desc, std::size_t count,
                            fi_ioc* results, void** result_desc, std::size_t result_count,
                            fi_addr_t at, std::uint64_t address, std::uint64_t key,
                            fi_datatype type, fi_op op, void* context) {
    Ep& e = of(ep);
    return e.access(false, bytes_of(results, result_count, type), e.sends(at, context), [&] {
      return e.atomic().readwritev(ep, pieces, desc, count, results, result_desc, result_count, at,
                                   address, key, type, op, context);
    });
  }
  static ssize_t readwritemsg(fid_ep* ep, const fi_msg_atomic* msg, fi_ioc* results,
                              void** result_desc, std::size_t result_count, std::uint64_t flags) {
    Ep& e = of(ep);
    return e.access(false, bytes_of(results, result_count, msg->datatype),
                    {msg->addr, flags, msg->context}, [&] {
                      return e.atomic().readwritemsg(ep, msg, results, result_desc, result_count,
                                                     flags);
                    });
  }
  static ssize_t compwrite(fid_ep* ep, const void* buffer, std::size_t count, void* desc,
                           const void* compare, void* compare_desc, void* result, void* result_desc,
                           fi_addr_t at, std::uint64_t address, std::uint64_t key, fi_datatype type,
                           fi_op op, void* context) {
    Ep& e = of(ep);
    return e.access(false, count * size_of(type), e.sends(at, context), [&] {
      return e.atomic().compwrite(ep, buffer, count, desc, compare, compare_desc, result,
                                  result_desc, at, address, key, type, op, context);
    });
  }
  static ssize_t compwritev(fid_ep* ep, const fi_ioc* pieces, void** desc, std::size_t count,
                            const fi_ioc* compares, void** compare_desc, std::size_t compare_count,
                            fi_ioc* results, void** result_desc, std::size_t result_count,
                            fi_addr_t at, std::uint64_t address, std::uint64_t key,
                            fi_datatype type, fi_op op, void* context) {
    Ep& e = of(ep);
    return e.access(false, bytes_of(results, result_count, type), e.sends(at, context), [&] {
      return e.atomic().compwritev(ep, pieces, desc, count, compares, compare_desc, compare_count,
                                   results, result_desc, result_count, at, address, key, type, op,
                                   context);
    });
  }
  static ssize_t compwritemsg(fid_ep* ep, const fi_msg_atomic* msg, const fi_ioc* compares,
                              void** compare_desc, std::size_t compare_count, fi_ioc* results,
                              void** result_desc, std::size_t result_count, std::uint64_t flags) {
    Ep& e = of(ep);
    return e.access(false, bytes_of(results, result_count, msg->datatype),
                    {msg->addr, flags, msg->context}, [&] {
                      return e.atomic().compwritemsg(ep, msg, compares, compare_desc, compare_count,
                                                     results, result_desc, result_count, flags);
                    });
  }
};

}  // namespace

void replace_calls(Table<fi_ops_atomic>* table) {
  table->replace(&fi_ops_atomic::write, &AtomicCalls::write);
  table->replace(&fi_ops_atomic::writev, &AtomicCalls::writev);
  table->replace(&fi_ops_atomic::writemsg, &AtomicCalls::writemsg);
  table->replace(&fi_ops_atomic::inject, &AtomicCalls::inject);
  table->replace(&fi_ops_atomic::readwrite, &AtomicCalls::readwrite);
  table->replace(&fi_ops_atomic::readwritev, &AtomicCalls::readwritev);
  table->replace(&fi_ops_atomic::readwritemsg, &AtomicCalls::readwritemsg);
  table->replace(&fi_ops_atomic::compwrite, &AtomicCalls::compwrite);
  table->replace(&fi_ops_atomic::compwritev, &AtomicCalls::compwritev);
  table->replace(&fi_ops_atomic::compwritemsg, &AtomicCalls::compwritemsg);
}

}  // namespace turnout::record::libfabric
