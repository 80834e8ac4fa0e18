// SPDX-License-Identifier: BSD-3-Clause
// ProfileReport to and from JSON: the part "profile" of a report. Size bins that nothing came into
// are left out; a bin is named by the size that all in it are below. Any thread.
#pragma once

#include "core/report/json_reader.h"
#include "core/report/profile.h"

namespace turnout {

// Array of {below, messages, bytes}.
[[nodiscard]] Json sizes_to_json(const SizeCounts& sizes);

[[nodiscard]] Json profile_to_json(const ProfileReport& profile);
// Untrusted. Errors: invalid, naming the field.
void profile_from_json(const Json& json, ProfileReport* profile, Status* status);

}  // namespace turnout
