// SPDX-License-Identifier: BSD-3-Clause
// open_with_source(): opens an object of a provider with FI_SOURCE, so that receives from any
// source tell whose message they got; without it where the provider refuses. A source that is not
// told is found when the recordings are merged.
//
// The information stays the caller's, and is afterwards as it was. The thread that opens the
// object. Errors: the provider's own status. Source: fi_getinfo(3), capabilities.
#pragma once

#include <rdma/fabric.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace turnout::record::libfabric {

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

template <class Open>
int open_with_source(fi_info* info, Open&& open) {
  {
    const WithSource with(info);
    if (open() == 0) return 0;
  }
  return open();
}

}  // namespace turnout::record::libfabric
