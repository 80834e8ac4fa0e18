// SPDX-License-Identifier: BSD-3-Clause
#include "sim/plan/all_to_all.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <span>

#include "sim/plan/lockstep.h"

namespace turnout::sim::plan {
namespace {

using Kind = TraceEvent::Kind;

struct Found {
  std::size_t begin = 0, end = 0;
  AllToAll what;
  double bytes = 0;
};

// Of one rank.
class Finder {
 public:
  Finder(const std::vector<Start>& list, std::uint32_t rank, std::uint32_t n)
      : list_(list), rank_(rank), n_(n), sent_(n), received_(n) {}

  std::vector<Found> find() {
    std::vector<Found> found;
    const std::size_t length = 2 * (std::size_t{n_} - 1);
    for (std::size_t at = 0; at + length <= list_.size();) {
      const std::optional<AllToAll> what = at_place(at, length);
      if (!what) {
        ++at;
        continue;
      }
      found.push_back({at, at + length, *what, list_[at].bytes});
      at += length;
    }
    return found;
  }

 private:
  std::optional<AllToAll> at_place(std::size_t at, std::size_t length) {
    const std::span<const Start> window(list_.data() + at, length);
    ++mark_;
    for (const Start& one : window) {
      if (one.kind != Kind::send && one.kind != Kind::receive) return std::nullopt;
      if (one.bytes != window.front().bytes || one.tag != window.front().tag) return std::nullopt;
      if (one.peer >= n_ || one.waited == Start::kNever) return std::nullopt;
      std::uint32_t& mark = (one.kind == Kind::send ? sent_ : received_)[one.peer];
      if (mark == mark_) return std::nullopt;
      mark = mark_;
    }
    if (is_pairwise(window, at)) return AllToAll{Exchange::pairwise, 0};
    return scattered(window, at);
  }

  [[nodiscard]] bool is_pairwise(std::span<const Start> window, std::size_t at) const {
    for (std::size_t i = 0; i < window.size(); i += 2) {
      const auto k = static_cast<std::uint32_t>(i / 2 + 1);
      const bool power = std::has_single_bit(n_);
      const std::uint32_t from = power ? rank_ ^ k : (rank_ + n_ - k) % n_;
      const std::uint32_t to = power ? rank_ ^ k : (rank_ + k) % n_;
      if (!is_waited(window.subspan(i, 2), at + i + 1)) return false;
      if (window[i].kind != Kind::receive || window[i].peer != from) return false;
      if (window[i + 1].kind != Kind::send || window[i + 1].peer != to) return false;
    }
    return true;
  }

  // Before an operation behind the one at `last`.
  static bool is_waited(std::span<const Start> some, std::size_t last) {
    return std::all_of(some.begin(), some.end(),
                       [&](const Start& one) { return one.waited <= last; });
  }

  [[nodiscard]] std::optional<AllToAll> scattered(std::span<const Start> window,
                                                  std::size_t at) const {
    const auto first_send = std::find_if(window.begin(), window.end(),
                                         [](const Start& one) { return one.kind == Kind::send; });
    const auto of_first = static_cast<std::uint32_t>(first_send - window.begin());
    // The first group has one partner less: oneself.
    const std::uint32_t group = of_first + 1 == n_ ? n_ : of_first + 1;
    std::size_t i = 0;
    for (std::uint32_t first = 1, end = 0; first < n_; first = end) {
      end = std::min(first / group * group + group, n_);
      const std::size_t begin = i;
      for (std::uint32_t k = first; k < end; ++k, ++i) {
        if (window[i].kind != Kind::receive || window[i].peer != (rank_ + k) % n_)
          return std::nullopt;
      }
      for (std::uint32_t k = first; k < end; ++k, ++i) {
        if (window[i].kind != Kind::send || window[i].peer != (rank_ + n_ - k) % n_)
          return std::nullopt;
      }
      if (!is_waited(window.subspan(begin, i - begin), at + i - 1)) return std::nullopt;
    }
    return AllToAll{Exchange::scattered, group == n_ ? 0 : group};
  }

  const std::vector<Start>& list_;
  std::uint32_t rank_, n_;
  std::vector<std::uint32_t> sent_, received_;  // by peer: the place that was looked at last
  std::uint32_t mark_ = 0;
};

void join(const std::vector<Found>& found, RankStarts* rank) {
  std::vector<Start> joined;
  std::vector<std::uint32_t> number(rank->list.size());  // of what an operation became
  std::size_t next = 0;
  for (std::size_t at = 0; at < rank->list.size();) {
    const auto becomes = static_cast<std::uint32_t>(joined.size());
    joined.push_back(rank->list[at]);
    if (next == found.size() || found[next].begin != at) {
      number[at++] = becomes;
      continue;
    }
    Start& one = joined.back();
    one.kind = Kind::send;
    one.peer = kEveryPeer;
    one.all_to_all = found[next].what;
    one.waited = static_cast<std::uint32_t>(found[next].end - 1);
    number[at++] = becomes;
    for (; at < found[next].end; ++at) {
      one.inside += rank->list[at].early + rank->list[at].compute;
      number[at] = becomes;
    }
    ++next;
  }
  for (Start& one : joined) {
    if (one.waited != Start::kNever) one.waited = number[one.waited];
  }
  rank->list = std::move(joined);
}

}  // namespace

std::string_view name_of(Exchange exchange) noexcept {
  switch (exchange) {
    case Exchange::scattered:
      return "sends to all at once";
    case Exchange::pairwise:
      return "pairwise exchange";
    case Exchange::bruck:
      return "Bruck's algorithm";
    case Exchange::none:
      break;
  }
  return "none";
}

Exchange usual_exchange(std::uint32_t ranks, double bytes) noexcept {
  if (bytes <= kMostOfBruck && ranks >= kLeastRanksOfBruck) return Exchange::bruck;
  return bytes <= kMostOfScattered ? Exchange::scattered : Exchange::pairwise;
}

void join_all_to_all(std::vector<RankStarts>* ranks) {
  constexpr std::uint32_t kFewest = 4;  // of fewer, many an exchange is one with all
  const auto n = static_cast<std::uint32_t>(ranks->size());
  if (n < kFewest) return;
  std::vector<std::vector<Found>> found;
  for (std::uint32_t rank = 0; rank < n; ++rank) {
    found.push_back(Finder((*ranks)[rank].list, rank, n).find());
    const bool same = std::equal(
        found.front().begin(), found.front().end(), found.back().begin(), found.back().end(),
        [](const Found& a, const Found& b) { return a.what == b.what && a.bytes == b.bytes; });
    if (!same) return;
  }
  if (found.front().empty()) return;
  for (std::uint32_t rank = 0; rank < n; ++rank) join(found[rank], &(*ranks)[rank]);
}

}  // namespace turnout::sim::plan
