// SPDX-License-Identifier: BSD-3-Clause
// RecordingEndpoint: an endpoint that records the operations of the layer above, for TURNOUT_TRACE.
// It wraps the real endpoint; without the setting it is absent and costs nothing.
//
// It gives operations its own completion queue to observe their completions, then forwards these.
// Same owner, threads and errors as the wrapped endpoint.
#pragma once

#include <memory>
#include <string>

#include "core/endpoint.h"

namespace turnout {

// `setting` is the setting `trace`. In virtual time the clock tells how long the program computes.
// Otherwise it is the processor time of the calling thread.
[[nodiscard]] std::unique_ptr<Endpoint> make_recording_endpoint(std::unique_ptr<Endpoint> endpoint,
                                                                const std::string& setting,
                                                                Clock& clock, bool in_virtual_time);

}  // namespace turnout
