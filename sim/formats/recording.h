// SPDX-License-Identifier: BSD-3-Clause
// Merges the recordings of a program's processes (TURNOUT_TRACE) into a trace. The format is in
// docs/trace.md.
//
// Plain functions, any thread. The text is untrusted: every number is checked, and that requests
// start before they end.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "sim/formats/trace.h"

namespace turnout::sim {

// Of a receive whose recorder was not told whose message it got.
inline constexpr std::uint32_t kUnknownPeer = 0xffffffff;

struct Recording {
  std::uint64_t endpoint = 0;
  std::vector<std::uint64_t> also;  // other names of the process
  int rank = -1, ranks = -1;        // -1: unknown
  std::uint32_t pid = 0;
  std::string job;
  std::vector<TraceEvent> events;  // `peer` is a key of `peers`, or kUnknownPeer
  std::unordered_map<std::uint32_t, std::uint64_t> peers;  // to endpoints
  std::uint64_t one_sided = 0;   // of layout 1: operations that are not in `events`
  std::uint64_t unfinished = 0;  // receives without a message, left out
};

// `file` is for messages. Errors: invalid, naming the line and the field; version.
[[nodiscard]] Result<Recording> read_recording(std::istream& in, const std::string& file,
                                               const TraceLimits& limits = {});

// The trace of one job. A receive from an unknown peer gets the message of a sender that sent such
// a tag to it and whose next one, in the order of its sends, has its size: the first such sender,
// by rank; one of no sender's is left out. Ranks are the launcher's if every recording has its own,
// else they follow the process numbers; a rank without a recording does nothing. Errors: invalid:
// no recording, two jobs, two recordings of one rank, a message with an endpoint that has no
// recording.
[[nodiscard]] Result<Trace> merge_recordings(std::vector<Recording> recordings,
                                             const std::string& name,
                                             const TraceLimits& limits = {});

// Reads the files, or every file of a folder whose name ends with .recording, and merges them.
// Errors: as above; permission, system.
[[nodiscard]] Result<Trace> read_recordings(const std::vector<std::string>& paths,
                                            const std::string& name,
                                            const TraceLimits& limits = {});

}  // namespace turnout::sim
