// SPDX-License-Identifier: BSD-3-Clause
#include "record/libfabric/address_name.h"

#include <algorithm>
#include <string_view>

#include "record/recorder.h"

namespace turnout::record::libfabric {

// An address as text may have a prefix, in one place and not in another ("fi_shm://"), and a zero
// at its end.
std::uint64_t name_of_address(std::span<const std::byte> address) noexcept {
  std::string_view text(reinterpret_cast<const char*>(address.data()), address.size());
  text = text.substr(0, text.find_last_not_of('\0') + 1);
  const bool words = std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
  if (const std::size_t prefix = text.find("://"); words && prefix != std::string_view::npos)
    text.remove_prefix(prefix + 3);
  return Recorder::name_of(std::as_bytes(std::span(text)));
}

}  // namespace turnout::record::libfabric
