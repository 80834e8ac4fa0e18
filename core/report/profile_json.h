// SPDX-License-Identifier: BSD-3-Clause
// SizeCounts to and from JSON: arrays of {below, messages, bytes} in the profile of a report. Bins
// that nothing came into are left out; a bin is named by the size that all in it are below. Any
// thread.
#pragma once

#include "core/report/json_reader.h"
#include "core/report/profile.h"

namespace turnout {

[[nodiscard]] inline Json sizes_to_json(const SizeCounts& sizes) {
  Json json = Json::array();
  for (std::size_t bin = 0; bin < kSizeBins; ++bin) {
    if (sizes[bin].messages == 0) continue;
    json.push_back({{"below", std::uint64_t{1} << bin},
                    {"messages", sizes[bin].messages},
                    {"bytes", sizes[bin].bytes}});
  }
  return json;
}

// Of the reader's member `key`. Untrusted. Errors: invalid, naming the field.
inline void sizes_from_json(const JsonReader& reader, const char* key, SizeCounts* sizes,
                            Status* status) {
  std::size_t next = 0;  // bins come in order, each once
  reader.each(
      key,
      [&](const Json& element, const std::string& at) {
        const JsonReader r("a report", element, at, status);
        std::uint64_t below = 0;
        SizeCount count;
        r.get("below", &below);
        r.get("messages", &count.messages);
        r.get("bytes", &count.bytes);
        if (!status->ok()) return;
        const auto bin = static_cast<std::size_t>(std::countr_zero(below));
        if (!std::has_single_bit(below) || bin >= kSizeBins || bin < next) {
          r.wrong("below", "a power of two above those before it");
          return;
        }
        sizes->add(bin, count);
        next = bin + 1;
      },
      kSizeBins);
}

}  // namespace turnout
