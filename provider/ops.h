// SPDX-License-Identifier: BSD-3-Clause
// Operations tables of libfabric's objects, and what answers the calls that an object does not
// implement (libfabric does not check most of them). Any thread. Source: fabric.h and
// fi_provider(3).
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include <cstddef>
#include <utility>

namespace turnout::provider {

// An object of libfabric, whose structure there is Fid.
template <class T, class Fid>
struct Object : Fid {
  Object() noexcept : Fid{} {}
  [[nodiscard]] static T& of(Fid* f) noexcept { return *static_cast<T*>(f); }
  [[nodiscard]] static T& of(::fid* f) noexcept { return of(reinterpret_cast<Fid*>(f)); }
};

// Converts to a function of any signature that answers this number.
template <int kAnswer>
struct Answers {
  template <class R, class... Arguments>
  using Function = R (*)(Arguments...);

  template <class R, class... Arguments>
  constexpr operator Function<R, Arguments...>() const noexcept {  // NOLINT
    return [](Arguments...) -> R { return static_cast<R>(kAnswer); };
  }
};

inline constexpr Answers<-FI_ENOSYS> kNotHere;           // this object has no such call
inline constexpr Answers<-FI_EOPNOTSUPP> kNotSupported;  // this provider cannot do it
inline constexpr Answers<-FI_EOPBADSTATE> kNotEnabled;   // before fi_enable

// A table of libfabric in which every call answers this.
template <class Ops, class Answer>
[[nodiscard]] constexpr Ops every_call(Answer answer) noexcept {
  return [&]<std::size_t... kCall>(std::index_sequence<kCall...>) {
    return Ops{sizeof(Ops), (static_cast<void>(kCall), answer)...};
  }
  (std::make_index_sequence<sizeof(Ops) / sizeof(void*) - 1>{});
}

// The table that every object has.
[[nodiscard]] constexpr fi_ops object_ops(decltype(fi_ops::close) close,
                                          decltype(fi_ops::bind) bind = kNotHere,
                                          decltype(fi_ops::control) control = kNotHere,
                                          decltype(fi_ops::ops_open) ops_open = kNotHere) noexcept {
  return {sizeof(fi_ops), close, bind, control, ops_open, nullptr, kNotHere};
}

}  // namespace turnout::provider
