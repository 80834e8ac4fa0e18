// SPDX-License-Identifier: BSD-3-Clause
#include "sim/formats/recording.h"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <limits>
#include <map>
#include <tuple>
#include <unordered_set>

#include "sim/formats/text_fields.h"

namespace turnout::sim {
namespace {

constexpr std::string_view kRecordingMagic = "turnout-recording";
constexpr std::uint64_t kNewestRecording = 2;  // 2: times, one-sided operations
constexpr std::uint64_t kAny64 = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kAny32 = std::numeric_limits<std::uint32_t>::max();

class RecordingReader {
 public:
  RecordingReader(std::istream& in, const std::string& file, const TraceLimits& limits)
      : file_(file), limits_(limits), lines_(in, file) {}

  Result<Recording> read() {
    const Result<std::uint64_t> version =
        read_first_line(lines_, file_, kRecordingMagic, kNewestRecording, "recording");
    if (!version) return version.status();
    version_ = version.value();
    const auto read_one = [this](Fields& fields) { read_line(fields); };
    if (Status s = read_lines(lines_, ended_, read_one); !s.ok()) return s;
    if (!ended_) {
      return Status{Code::invalid,
                    fmt::format("{}, line {}: no \"end\": the process did not close its endpoint",
                                file_, lines_.number())};
    }
    if (out_.endpoint == 0) {
      return Status{Code::invalid, fmt::format("{}: the endpoint is missing", file_)};
    }
    // Receives that got nothing.
    for (const auto& [request, index] : receives_) dropped_.insert(index);
    out_.unfinished = receives_.size();
    take_out_dropped();
    return std::move(out_);
  }

 private:
  void read_line(Fields& fields) {
    const std::string_view word = fields.word();
    if (word.size() == 1 && ++events_ > limits_.events) {
      return fields.wrong("events", fmt::format("more than {}", limits_.events));
    }
    if (word == "endpoint") {
      out_.endpoint = fields.number<std::uint64_t>("endpoint", 1, kAny64, 16);
    } else if (version_ >= 2 && word == "also") {
      out_.also.push_back(fields.number<std::uint64_t>("endpoint", 1, kAny64, 16));
    } else if (word == "rank") {
      out_.rank = known_number(fields, "rank");
      out_.ranks = known_number(fields, "number of ranks");
    } else if (word == "pid") {
      out_.pid = fields.number<std::uint32_t>("pid", 0, kAny32);
    } else if (word == "job") {
      out_.job = fields.rest();
    } else if (word == "p") {
      const auto key = fields.number<std::uint32_t>("peer", 0, kAny32 - 1);
      const auto endpoint = fields.number<std::uint64_t>("endpoint", 1, kAny64, 16);
      if (fields.ok() && !out_.peers.emplace(key, endpoint).second) {
        fields.wrong("peer", fmt::format("duplicate {}", key));
      }
    } else if (word == "s" || word == "r") {
      read_start(fields, word == "s");
    } else if (version_ >= 2 && (word == "u" || word == "g")) {
      read_one_sided(fields, word == "u");
    } else if (word == "m") {
      read_match(fields);
    } else if (word == "w" || word == "x") {
      read_end(fields, word == "x");
    } else if (word == "c") {
      TraceEvent event;
      event.amount = fields.number<std::uint64_t>("nanoseconds", 0, kMostTraceCompute);
      event.time = read_time(fields);
      out_.events.push_back(event);
    } else if (version_ == 1 && word == "o") {
      out_.one_sided = fields.number<std::uint64_t>("one-sided operations", 0, kAny64);
    } else if (word == "end") {
      ended_ = true;
    } else {
      fields.wrong(
          word.substr(0, 40),
          version_ == 1
              ? "expected endpoint, rank, pid, job, p, s, r, m, w, x, c, o or end"
              : "expected endpoint, also, rank, pid, job, p, s, r, u, g, m, w, x, c or end");
    }
    fields.at_end();
  }

  // The last field of an event since layout 2.
  std::int64_t read_time(Fields& fields) {
    if (version_ == 1) return TraceEvent::kNoTime;
    latest_ = static_cast<std::int64_t>(
        fields.number<std::uint64_t>("time", static_cast<std::uint64_t>(latest_), kMostTraceTime));
    return latest_;
  }

  // "-": unknown.
  int known_number(Fields& fields, std::string_view name) {
    if (fields.take("-")) return -1;
    return static_cast<int>(fields.number<std::uint32_t>(name, 0, limits_.ranks));
  }

  std::uint32_t known_peer(Fields& fields) {
    const auto key = fields.number<std::uint32_t>("peer", 0, kAny32 - 1);
    if (fields.ok() && !out_.peers.contains(key)) {
      fields.wrong("peer", fmt::format("{} needs a line \"p {} ID\" before it", key, key));
    }
    return key;
  }
  void read_start(Fields& fields, bool sends) {
    TraceEvent event{.kind = sends ? TraceEvent::Kind::send : TraceEvent::Kind::receive};
    event.request = fields.number<std::uint32_t>("request", 0, kMostRequest);
    event.any_source = !sends && fields.take("*");
    if (!event.any_source) event.peer = known_peer(fields);
    event.amount = fields.number<std::uint64_t>("bytes", 0, kAny64);
    if (sends && event.amount > kMostTraceBytes) fields.wrong("bytes", "more than 1 TiB");
    event.any_tag = !sends && fields.take("*");
    if (!event.any_tag) event.tag = fields.number<std::uint64_t>("tag", 0, kAny64);
    event.communicator = fields.number<std::uint32_t>("communicator", 0, kAny32);
    event.time = read_time(fields);
    begin(fields, event, sends ? &sends_ : &receives_);
  }

  void read_one_sided(Fields& fields, bool puts) {
    TraceEvent event{.kind = puts ? TraceEvent::Kind::put : TraceEvent::Kind::get};
    event.request = fields.number<std::uint32_t>("request", 0, kMostRequest);
    event.peer = known_peer(fields);
    event.amount = fields.number<std::uint64_t>("bytes", 0, kMostTraceBytes);
    event.time = read_time(fields);
    begin(fields, event, &sends_);  // it ends as a send does
  }

  void begin(Fields& fields, const TraceEvent& event,
             std::unordered_map<std::uint32_t, std::size_t>* pending) {
    if (fields.ok() && (sends_.contains(event.request) || receives_.contains(event.request))) {
      fields.wrong("request", fmt::format("{} is still pending", event.request));
    }
    (*pending)[event.request] = out_.events.size();
    out_.events.push_back(event);
  }

  void read_match(Fields& fields) {
    const auto request = fields.number<std::uint32_t>("request", 0, kMostRequest);
    const bool unknown = version_ >= 2 && fields.take("*");
    const std::uint32_t peer = unknown ? kUnknownPeer : known_peer(fields);
    const auto bytes = fields.number<std::uint64_t>("bytes", 0, kMostTraceBytes);
    const auto tag = fields.number<std::uint64_t>("tag", 0, kAny64);
    const std::int64_t time = read_time(fields);
    const auto found = receives_.find(request);
    if (fields.ok() && found == receives_.end()) {
      fields.wrong("request", fmt::format("{} is not a pending receive", request));
    }
    if (!fields.ok()) return;
    TraceEvent& event = out_.events[found->second];
    if (!event.any_source && event.peer != peer) {
      return fields.wrong("peer", fmt::format("the receive was from {}", event.peer));
    }
    if (!event.any_tag && event.tag != tag) {
      return fields.wrong("tag", fmt::format("the receive was of {}", event.tag));
    }
    event.peer = peer;
    event.tag = tag;
    event.amount = bytes;
    receives_.erase(found);
    add_wait(request, time);
  }

  void read_end(Fields& fields, bool drops) {
    const auto request = fields.number<std::uint32_t>("request", 0, kMostRequest);
    const std::int64_t time = read_time(fields);
    if (!fields.ok()) return;
    auto* pending = &sends_;
    auto found = sends_.find(request);
    if (found == sends_.end() && drops) {
      pending = &receives_;
      found = receives_.find(request);
    }
    if (found == pending->end()) {
      return fields.wrong(
          "request", fmt::format("{} is not a pending {}", request, drops ? "operation" : "send"));
    }
    if (drops) dropped_.insert(found->second);
    pending->erase(found);
    if (!drops) add_wait(request, time);
  }

  void add_wait(std::uint32_t request, std::int64_t time) {
    out_.events.push_back({.time = time, .request = request, .kind = TraceEvent::Kind::wait});
  }

  void take_out_dropped() {
    std::size_t index = 0;
    std::erase_if(out_.events, [&](const TraceEvent&) { return dropped_.contains(index++); });
  }

  const std::string& file_;
  const TraceLimits& limits_;
  Lines lines_;
  Recording out_;
  // Request to event; one-sided operations are among the sends.
  std::unordered_map<std::uint32_t, std::size_t> sends_, receives_;
  std::unordered_set<std::size_t> dropped_;
  std::uint64_t events_ = 0;
  std::uint64_t version_ = kNewestRecording;
  std::int64_t latest_ = 0;  // time of the events so far
  bool ended_ = false;
};

std::string who(const Recording& r) {
  return fmt::format("endpoint {:016x} of process {}", r.endpoint, r.pid);
}

// Finds the senders of receives from unknown peers: of each destination, what every source sent to
// it with a tag, in order. Peers are ranks already.
class SenderSearch {
 public:
  explicit SenderSearch(const std::vector<std::vector<TraceEvent>>& programs) {
    for (std::uint32_t from = 0; from < programs.size(); ++from) {
      for (const TraceEvent& event : programs[from]) {
        if (event.kind != TraceEvent::Kind::send) continue;
        sent_[{event.peer, event.communicator, event.tag}][from].push_back(event.amount);
      }
    }
    for (std::uint32_t to = 0; to < programs.size(); ++to) {
      for (const TraceEvent& event : programs[to]) {
        if (event.kind == TraceEvent::Kind::receive && event.peer != kUnknownPeer)
          take(to, event, event.peer);
      }
    }
  }

  // Gives the events of rank `to` their peers; what has none is left out.
  void resolve(std::uint32_t to, std::vector<TraceEvent>* events) {
    std::unordered_set<std::uint32_t> gone;  // requests
    std::erase_if(*events, [&](TraceEvent& event) {
      if (event.kind == TraceEvent::Kind::wait) return gone.erase(event.request) > 0;
      if (event.kind != TraceEvent::Kind::receive || event.peer != kUnknownPeer) return false;
      const auto found = sent_.find({to, event.communicator, event.tag});
      if (found != sent_.end()) {
        for (const auto& [from, sizes] : found->second) {
          if (!sizes.empty() && sizes.front() == event.amount) event.peer = from;
          if (event.peer != kUnknownPeer) break;
        }
      }
      if (event.peer == kUnknownPeer) {
        gone.insert(event.request);
        return true;
      }
      take(to, event, event.peer);
      return false;
    });
  }

 private:
  // The oldest of the source's messages of that size.
  void take(std::uint32_t to, const TraceEvent& event, std::uint32_t from) {
    const auto found = sent_.find({to, event.communicator, event.tag});
    if (found == sent_.end()) return;
    const auto source = found->second.find(from);
    if (source == found->second.end()) return;
    const auto at = std::ranges::find(source->second, event.amount);
    if (at != source->second.end()) source->second.erase(at);
  }

  using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>;
  std::map<Key, std::map<std::uint32_t, std::deque<std::uint64_t>>> sent_;
};

bool carries_messages(const Recording& r) {
  return std::any_of(r.events.begin(), r.events.end(),
                     [](const TraceEvent& e) { return e.is_message() || e.is_one_sided(); });
}

// Ranks of the recordings, in their order; the number of ranks.
Result<std::size_t> give_ranks(std::vector<Recording>* recordings) {
  const bool launched = std::all_of(recordings->begin(), recordings->end(),
                                    [](const Recording& r) { return r.rank >= 0; });
  if (!launched) {
    std::sort(recordings->begin(), recordings->end(), [](const Recording& a, const Recording& b) {
      return a.pid != b.pid ? a.pid < b.pid : a.endpoint < b.endpoint;
    });
    int next = 0;
    for (Recording& r : *recordings) r.rank = next++;
    return recordings->size();
  }
  std::sort(recordings->begin(), recordings->end(),
            [](const Recording& a, const Recording& b) { return a.rank < b.rank; });
  std::size_t ranks = 1;
  const Recording* before = nullptr;
  for (const Recording& r : *recordings) {
    if (before != nullptr && before->rank == r.rank) {
      return Status{
          Code::invalid,
          fmt::format("rank {} has two recordings with messages, {} and {}: expected one endpoint "
                      "per rank; remove recordings of other runs from the folder",
                      r.rank, who(*before), who(r))};
    }
    ranks = std::max({ranks, static_cast<std::size_t>(r.rank) + 1,
                      static_cast<std::size_t>(std::max(r.ranks, 0))});
    before = &r;
  }
  return ranks;
}

}  // namespace

Result<Recording> read_recording(std::istream& in, const std::string& file,
                                 const TraceLimits& limits) {
  return RecordingReader(in, file, limits).read();
}

Result<Trace> merge_recordings(std::vector<Recording> recordings, const std::string& name,
                               const TraceLimits& limits) {
  std::erase_if(recordings, [](const Recording& r) { return !carries_messages(r); });
  if (recordings.empty()) {
    return Status{Code::invalid,
                  "no recording with messages; run the program with TURNOUT_TRACE and with more "
                  "than one process"};
  }
  for (const Recording& r : recordings) {
    if (r.job != recordings.front().job) {
      return Status{
          Code::invalid,
          fmt::format("recordings of two jobs, \"{}\" and \"{}\"; name the files of one job",
                      recordings.front().job, r.job)};
    }
  }
  const Result<std::size_t> ranks = give_ranks(&recordings);
  if (!ranks) return ranks.status();
  if (ranks.value() > limits.ranks) {
    return Status{Code::invalid, fmt::format("{} ranks: at most {}", ranks.value(), limits.ranks)};
  }
  std::unordered_map<std::uint64_t, std::uint32_t> rank_of;
  for (const Recording& r : recordings) {
    std::vector<std::uint64_t> names = r.also;
    names.push_back(r.endpoint);
    for (const std::uint64_t name : names) {
      if (!rank_of.emplace(name, static_cast<std::uint32_t>(r.rank)).second) {
        return Status{Code::invalid, fmt::format("{} is given twice", who(r))};
      }
    }
  }
  Trace trace;
  trace.name = name;
  trace.source = "recorded by turnout";
  trace.programs.resize(ranks.value());
  bool unknown = false;
  for (Recording& r : recordings) {
    for (TraceEvent& event : r.events) {
      if (!event.is_message() && !event.is_one_sided()) continue;
      if (event.peer == kUnknownPeer) {
        unknown = true;
        continue;
      }
      const auto peer = rank_of.find(r.peers[event.peer]);
      if (peer == rank_of.end()) {
        return Status{
            Code::invalid,
            fmt::format(
                "rank {} exchanged messages with endpoint {:016x}, whose recording is missing",
                r.rank, r.peers[event.peer])};
      }
      event.peer = peer->second;
    }
    trace.programs[static_cast<std::size_t>(r.rank)] = std::move(r.events);
  }
  if (unknown) {
    SenderSearch senders(trace.programs);
    for (std::uint32_t rank = 0; rank < trace.programs.size(); ++rank)
      senders.resolve(rank, &trace.programs[rank]);
  }
  if (Status s = check_trace(trace, limits); !s.ok()) return s;
  return trace;
}

Result<Trace> read_recordings(const std::vector<std::string>& paths, const std::string& name,
                              const TraceLimits& limits) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      files.push_back(path);
      continue;
    }
    for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
      if (at->path().extension() == ".recording") files.push_back(at->path().string());
    }
    if (error) return file_failure("read the folder", path, error.value());
  }
  std::sort(files.begin(), files.end());
  std::vector<Recording> recordings;
  for (const std::string& file : files) {
    Result<Recording> recording = read_stream(
        file, "recording", [&](std::istream& in) { return read_recording(in, file, limits); });
    if (!recording) return recording.status();
    recordings.push_back(std::move(recording).value());
  }
  return merge_recordings(std::move(recordings), name, limits);
}

}  // namespace turnout::sim
