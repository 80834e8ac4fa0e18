// SPDX-License-Identifier: BSD-3-Clause
// SizeCounts to and from JSON: arrays of {below, messages, bytes} in the profile of a report. Bins
// that nothing came into are left out; a bin is named by the size that all in it are below. Any
// thread.
#pragma once

#include "core/report/json_reader.h"
#include "core/report/profile.h"

namespace turnout {

[[nodiscard]] Json sizes_to_json(const SizeCounts& sizes);
// Of the reader's member `key`. Untrusted. Errors: invalid, naming the field.
void sizes_from_json(const JsonReader& reader, const char* key, SizeCounts* sizes, Status* status);

}  // namespace turnout
