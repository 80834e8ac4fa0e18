// SPDX-License-Identifier: BSD-3-Clause
#include "sim/formats/timeline.h"

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace turnout::sim {
namespace {

constexpr std::size_t kBuffer = 1 << 16;
// Left for the closing mark and bracket.
constexpr std::uint64_t kReserve = 512;
// A queue pair holds far fewer requests; what is older was never completed (unsignalled).
constexpr std::size_t kMostOpen = 4096;

Status failed(const std::string& path, int error) {
  return {error == EACCES ? Code::permission : Code::system,
          fmt::format("writing the timeline {} failed: {}", path,
                      std::generic_category().message(error)),
          error};
}

// Only what a JSON string holds as it is.
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    out += u < 0x20 || u >= 0x7f || c == '"' || c == '\\' ? '?' : c;
  }
  return out;
}

// By hca::Trace::Kind; a post has none.
constexpr const char* kMarks[] = {"",
                                  "departs",
                                  "arrives",
                                  "completion",
                                  "DC connect",
                                  "DC connect refused",
                                  "context miss",
                                  "no receive (RNR)",
                                  "fault"};

std::string microseconds(hca::Picoseconds time) {
  return fmt::format("{}.{:06}", time / hca::kMicrosecond, time % hca::kMicrosecond);
}

}  // namespace

Timeline::Timeline(std::string path, std::FILE* file, std::uint64_t limit)
    : path_(std::move(path)), file_(file), limit_(std::max<std::uint64_t>(limit, 4 * kReserve)) {}

Timeline::~Timeline() {
  if (file_ != nullptr) std::fclose(file_);
}

Result<std::unique_ptr<Timeline>> Timeline::create(const std::string& path,
                                                   const std::string& title, std::uint64_t limit) {
  std::FILE* const file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return failed(path, errno);
  std::unique_ptr<Timeline> timeline(new Timeline(path, file, limit));
  timeline->write(
      fmt::format("{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"title\":\"{}\"}},"
                  "\"traceEvents\":[\n{{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\","
                  "\"args\":{{\"name\":\"{}\"}}}}",
                  plain(title), plain(title)));
  return timeline;
}

void Timeline::write(std::string_view text) {
  written_ += text.size();
  buffer_.append(text);
  if (buffer_.size() >= kBuffer) flush();
}

void Timeline::flush() {
  if (!failed_ && std::fwrite(buffer_.data(), 1, buffer_.size(), file_) != buffer_.size()) {
    failed_ = true;
    error_ = errno;
  }
  buffer_.clear();
}

void Timeline::name_track(hca::ProcessIndex process) {
  if (process >= named_.size()) {
    named_.resize(process + 1);
    under_way_.resize(process + 1);
  }
  if (named_[process]) return;
  named_[process] = true;
  write(
      fmt::format(",\n{{\"ph\":\"M\",\"pid\":1,\"tid\":{},\"name\":\"thread_name\",\"args\":{{"
                  "\"name\":\"rank {}\"}}}}",
                  process, process));
}

void Timeline::counter(hca::ProcessIndex process, hca::Picoseconds time) {
  write(
      fmt::format(",\n{{\"ph\":\"C\",\"pid\":1,\"tid\":{},\"name\":\"under way, rank {}\","
                  "\"ts\":{},\"args\":{{\"requests\":{}}}}}",
                  process, process, microseconds(time), under_way_[process]));
}

void Timeline::post(const hca::Trace& t) {
  std::deque<Open>& open = open_[std::uint64_t{t.process} << 32 | t.qp];
  if (open.size() == kMostOpen) {
    open.pop_front();
    --under_way_[t.process];
  }
  open.push_back({number_++, t.time, t.peer, t.bytes});
  ++under_way_[t.process];
  counter(t.process, t.time);
}

void Timeline::complete(const hca::Trace& t) {
  const auto found = open_.find(std::uint64_t{t.process} << 32 | t.qp);
  if (found == open_.end() || found->second.empty()) {
    return mark(t, kMarks[static_cast<std::size_t>(t.kind)]);
  }
  const Open o = found->second.front();
  found->second.pop_front();
  --under_way_[t.process];
  const std::string name = fmt::format("{} B to rank {}", o.bytes, o.peer);
  for (const bool begins : {true, false}) {
    write(
        fmt::format(",\n{{\"ph\":\"{}\",\"cat\":\"request\",\"id\":{},\"pid\":1,\"tid\":{},"
                    "\"name\":\"{}\",\"ts\":{},\"args\":{{\"qp\":{}}}}}",
                    begins ? 'b' : 'e', o.number, t.process, name,
                    microseconds(begins ? o.time : t.time), t.qp));
  }
  counter(t.process, t.time);
}

void Timeline::mark(const hca::Trace& t, std::string_view name) {
  write(
      fmt::format(",\n{{\"ph\":\"i\",\"s\":\"t\",\"pid\":1,\"tid\":{},\"name\":\"{}\",\"ts\":{},"
                  "\"args\":{{\"peer\":{},\"qp\":{},\"bytes\":{}}}}}",
                  t.process, name, microseconds(t.time), t.peer, t.qp, t.bytes));
}

void Timeline::add(const hca::Trace& t) {
  using Kind = hca::Trace::Kind;
  if (cut_ || finished_) return;
  // One event writes at most some lines.
  if (written_ + 2 * kReserve > limit_) {
    mark(t, "timeline truncated: the file reached its size limit");
    cut_ = true;
    return;
  }
  name_track(t.process);
  if (t.kind == Kind::post) return post(t);
  if (t.kind == Kind::complete) return complete(t);
  mark(t, kMarks[static_cast<std::size_t>(t.kind)]);
}

Status Timeline::finish() {
  if (finished_) return {};
  finished_ = true;
  write("\n]}\n");
  flush();
  if (std::fclose(std::exchange(file_, nullptr)) != 0 && !failed_) {
    failed_ = true;
    error_ = errno;
  }
  return failed_ ? failed(path_, error_) : Status{};
}

std::string timeline_path(const std::string& path, const std::string& policy, bool several) {
  if (!several) return path;
  std::string name = policy;
  std::replace(name.begin(), name.end(), ':', '-');
  std::replace(name.begin(), name.end(), '/', '-');
  const auto folder = path.rfind('/'), point = path.rfind('.');
  const bool has_ending =
      point != std::string::npos && (folder == std::string::npos || point > folder + 1);
  return has_ending ? fmt::format("{}-{}{}", path.substr(0, point), name, path.substr(point))
                    : fmt::format("{}-{}", path, name);
}

}  // namespace turnout::sim
