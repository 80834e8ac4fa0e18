// SPDX-License-Identifier: BSD-3-Clause
#include "core/report/profile_json.h"

namespace turnout {

namespace {

// Bins come in order, each once: whatever follows the first `next` ones.
void size_from_json(const JsonReader& reader, std::size_t* next, SizeCounts* sizes,
                    Status* status) {
  std::uint64_t below = 0;
  SizeCount count;
  reader.get("below", &below);
  reader.get("messages", &count.messages);
  reader.get("bytes", &count.bytes);
  if (!status->ok()) return;
  const auto bin = static_cast<std::size_t>(std::countr_zero(below));
  if (!std::has_single_bit(below) || bin >= kSizeBins || bin < *next) {
    reader.wrong("below", "a power of two above those before it");
    return;
  }
  sizes->add(bin, count);
  *next = bin + 1;
}

void sizes_from_json(const JsonReader& reader, const char* key, SizeCounts* sizes, Status* status) {
  std::size_t next = 0;
  reader.each(
      key,
      [&](const Json& element, const std::string& at) {
        size_from_json(JsonReader("a report", element, at, status), &next, sizes, status);
      },
      kSizeBins);
}

}  // namespace

Json sizes_to_json(const SizeCounts& sizes) {
  Json json = Json::array();
  for (std::size_t bin = 0; bin < kSizeBins; ++bin) {
    if (sizes[bin].messages == 0) continue;
    json.push_back({{"below", std::uint64_t{1} << bin},
                    {"messages", sizes[bin].messages},
                    {"bytes", sizes[bin].bytes}});
  }
  return json;
}

Json profile_to_json(const ProfileReport& profile) {
  Json sent = Json::object();
  for (std::size_t kind = 0; kind < kTrafficKinds; ++kind) {
    sent[std::string(name(static_cast<Traffic>(kind)))] = sizes_to_json(profile.counts.sent[kind]);
  }
  return {{"sent", std::move(sent)},
          {"unexpected", sizes_to_json(profile.counts.unexpected)},
          {"low_watermark_events", profile.counts.low_watermark_events},
          {"rnr_retries", profile.rnr_retries ? Json(*profile.rnr_retries) : Json(nullptr)},
          {"calls", profile.calls},
          {"calls_measured", profile.calls_measured},
          {"library_time_ns", profile.library_time},
          {"library_time_error_ns", profile.library_time_error}};
}

void profile_from_json(const Json& json, ProfileReport* profile, Status* status) {
  const JsonReader reader("a report", json, "profile.", status);
  if (const Json* const sent = reader.member("sent")) {
    const JsonReader kinds("a report", *sent, "profile.sent.", status);
    for (std::size_t kind = 0; kind < kTrafficKinds; ++kind) {
      const std::string key(name(static_cast<Traffic>(kind)));
      sizes_from_json(kinds, key.c_str(), &profile->counts.sent[kind], status);
    }
  }
  sizes_from_json(reader, "unexpected", &profile->counts.unexpected, status);
  reader.get("low_watermark_events", &profile->counts.low_watermark_events);
  if (const Json* const retries = reader.member("rnr_retries");
      retries != nullptr && !retries->is_null()) {
    reader.get("rnr_retries", &profile->rnr_retries.emplace());
  }
  reader.get("calls", &profile->calls);
  reader.get("calls_measured", &profile->calls_measured);
  reader.get("library_time_ns", &profile->library_time);
  reader.get("library_time_error_ns", &profile->library_time_error);
  if (status->ok() && profile->calls_measured > profile->calls) {
    reader.wrong("calls_measured", "at most the calls");
  }
}

}  // namespace turnout
