// SPDX-License-Identifier: BSD-3-Clause
#include "tests/hca/kill_state.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <unordered_set>

#include "hca/live/directory.h"

namespace turnout::hca::kill_test {

std::string Census::text() const {
  return fmt::format(
      "{} processes, {} queue pairs, {} CQs, {} SRQs with {} receives, {} regions, {} pages, {} "
      "others; {} of a dead owner",
      processes, qps, cqs, srqs, receives, mrs, pages, others, foreign);
}

StateView::StateView(const std::string& fabric, pid_t pid) {
  auto members = list_members(fabric);
  int fd = -1;
  if (members) {
    for (const Member& member : *members) {
      if (member.pid == pid && fd < 0) fd = open_memory(fabric, member).release();
    }
  }
  struct stat st {};
  if (fd < 0 || fstat(fd, &st) != 0) {
    throw std::runtime_error(fmt::format("cannot open the memory of fabric {}", fabric));
  }
  size_ = static_cast<std::uint64_t>(st.st_size);
  void* mapped = mmap(nullptr, size_, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
  const int error = errno;
  close(fd);
  if (mapped == MAP_FAILED) {
    throw std::runtime_error(fmt::format("cannot map fabric {}: {}", fabric, std::strerror(error)));
  }
  base_ = static_cast<const std::byte*>(mapped);
}

StateView::~StateView() {
  munmap(const_cast<std::byte*>(base_), size_);  // NOLINT: munmap takes no const
}

Census StateView::count(const std::vector<pid_t>& living) const {
  const Header& header = *at<Header>(0);
  Census census;
  std::unordered_set<Token> tokens;
  const auto* processes = at<ProcessRecord>(Layout::processes);
  const std::uint32_t high = std::min(header.process_high.load(), kMaxProcesses);
  for (std::uint32_t slot = 0; slot < high; ++slot) {
    const Token token = processes[slot].token.load();
    if (token == 0) continue;
    ++census.processes;
    if (std::find(living.begin(), living.end(), static_cast<pid_t>(processes[slot].pid)) ==
        living.end()) {
      ++census.foreign;
    } else {
      tokens.insert(token);
    }
  }
  const auto add = [&](std::uint64_t& counter, Token owner) {
    if (owner == 0) return false;
    ++counter;
    if (!tokens.contains(owner)) ++census.foreign;
    return true;
  };
  const auto* qps = at<QpRecord>(Layout::qps);
  for (std::uint32_t i = 0; i < std::min(header.qp_high.load(), kMaxQps); ++i) {
    add(census.qps, qps[i].owner.load());
  }
  const auto* cqs = at<CqRecord>(Layout::cqs);
  for (std::uint32_t i = 0; i < std::min(header.cq_high.load(), kMaxCqs); ++i) {
    add(census.cqs, cqs[i].owner.load());
  }
  const auto* srqs = at<SrqRecord>(Layout::srqs);
  for (std::uint32_t i = 0; i < std::min(header.srq_high.load(), kMaxSrqs); ++i) {
    if (add(census.srqs, srqs[i].owner.load())) {
      census.receives += srqs[i].rq.tail - srqs[i].rq.head;
    }
  }
  const auto* mrs = at<MrRecord>(Layout::mrs);
  for (std::uint32_t i = 0; i < std::min(header.mr_high.load(), kMaxMrs); ++i) {
    add(census.mrs, mrs[i].owner.load());
  }
  const auto* handles = at<XrcHandleRecord>(Layout::xrc_handles);
  for (std::uint32_t i = 0; i < std::min(header.xrc_handle_high.load(), kMaxXrcHandles); ++i) {
    add(census.others, handles[i].owner.load());
  }
  const auto* groups = at<MulticastRecord>(Layout::multicasts);
  for (std::uint32_t i = 0; i < std::min(header.multicast_high.load(), kMaxMulticasts); ++i) {
    add(census.others, groups[i].owner.load());
  }
  const auto* tags = at<PageTag>(Layout::tags);
  for (std::uint64_t i = 0; i < std::min(header.heap_high, Layout::heap_pages(size_)); ++i) {
    add(census.pages, tags[i]);
  }
  return census;
}

std::uint64_t open_files(pid_t pid) {
  const std::filesystem::directory_iterator files(fmt::format("/proc/{}/fd", pid));
  return static_cast<std::uint64_t>(std::distance(begin(files), end(files)));
}

std::uint64_t mappings(pid_t pid) {
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  std::uint64_t lines = 0;
  for (std::string line; std::getline(maps, line);) ++lines;
  return lines;
}

}  // namespace turnout::hca::kill_test
