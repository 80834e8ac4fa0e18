// SPDX-License-Identifier: BSD-3-Clause
#include "cli/mpi_tag.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>

namespace turnout::cli {
namespace {

// MPICH, bits from the lowest: 31 of the tag, 20 of the context, 5 of the protocol. A receive
// ignores some of the protocol's, and the tag's for MPI_ANY_TAG.
namespace mpich {
constexpr unsigned kTagBits = 31, kContextBits = 20;
constexpr std::uint64_t kTag = (std::uint64_t{1} << kTagBits) - 1;
constexpr std::uint64_t kContext = ((std::uint64_t{1} << kContextBits) - 1) << kTagBits;
constexpr std::uint64_t kProtocol = std::uint64_t{31} << (kTagBits + kContextBits);
constexpr std::uint64_t kSynchronousAnswer = std::uint64_t{1} << (kTagBits + kContextBits);
// Tags of blocking collective operations, which have contexts of their own: the lowest bit is set.
constexpr std::array<std::string_view, 31> kCollectives = {"",
                                                           "Barrier",
                                                           "Bcast",
                                                           "Gather",
                                                           "Gatherv",
                                                           "Scatter",
                                                           "Scatterv",
                                                           "Allgather",
                                                           "Allgatherv",
                                                           "Alltoall",
                                                           "Alltoallv",
                                                           "Reduce",
                                                           "",
                                                           "",
                                                           "Allreduce",
                                                           "",
                                                           "",
                                                           "Reduce_scatter",
                                                           "",
                                                           "",
                                                           "Scan",
                                                           "",
                                                           "",
                                                           "",
                                                           "Exscan",
                                                           "Alltoallw",
                                                           "",
                                                           "",
                                                           "Reduce_scatter_block",
                                                           "",
                                                           ""};
}  // namespace mpich

// Open MPI with remote completion data, which this provider has: 32 bits of the tag, negative for
// collective operations, 2 of the protocol, 30 of the communicator.
namespace open_mpi {
constexpr std::uint64_t kTag = 0xffffffff, kAnyTag = 0x7fffffff;
constexpr std::uint64_t kProtocol = std::uint64_t{3} << 32;
constexpr std::uint64_t kSynchronousAnswer = std::uint64_t{2} << 32;
constexpr unsigned kContextShift = 34;
constexpr int kFirstCollective = 10;  // -10
constexpr std::array<std::string_view, 16> kCollectives = {
    "Allgather",      "Allgatherv", "Allreduce", "Alltoall", "Alltoallv", "Alltoallw",
    "Barrier",        "Bcast",      "Exscan",    "Gather",   "Gatherv",   "Reduce",
    "Reduce_scatter", "Scan",       "Scatter",   "Scatterv"};
}  // namespace open_mpi

struct MpiTag {
  std::string what;
  std::string communicator;  // empty: MPI_COMM_WORLD
};

MpiTag mpich_tag(const WaitReport& wait) {
  using namespace mpich;
  const std::uint64_t context = (wait.tag & kContext) >> kTagBits, tag = wait.tag & kTag;
  MpiTag text;
  text.communicator =
      context <= 1 ? "" : fmt::format(" on context {}", context & ~std::uint64_t{1});
  if ((context & 1) != 0) {
    text.what = tag < kCollectives.size() && !kCollectives[tag].empty()
                    ? fmt::format("MPI_{}", kCollectives[tag])
                    : fmt::format("collective operation with tag {}", tag);
  } else if ((wait.ignore & kTag) == kTag) {
    text.what = "any MPI tag";
  } else {
    text.what = fmt::format("MPI tag {}", tag);
  }
  if ((wait.tag & kSynchronousAnswer) != 0) text.what = "answer to MPI_Ssend, " + text.what;
  return text;
}

MpiTag open_mpi_tag(const WaitReport& wait) {
  using namespace open_mpi;
  const std::uint64_t context = wait.tag >> kContextShift;
  const auto tag = static_cast<std::int32_t>(wait.tag & kTag);
  MpiTag text;
  text.communicator = context == 0 ? "" : fmt::format(" on communicator {}", context);
  if ((wait.ignore & kAnyTag) == kAnyTag) {
    text.what = "any MPI tag";
  } else if (tag >= 0) {
    text.what = fmt::format("MPI tag {}", tag);
  } else if (const std::int64_t at = -std::int64_t{tag} - kFirstCollective;
             at >= 0 && at < static_cast<std::int64_t>(kCollectives.size())) {
    text.what = fmt::format("MPI_{}", kCollectives[static_cast<std::size_t>(at)]);
  } else {
    text.what = fmt::format("collective operation with tag {}", tag);
  }
  if ((wait.tag & kSynchronousAnswer) != 0) text.what = "answer to MPI_Ssend, " + text.what;
  return text;
}

std::string hex_text(const WaitReport& wait) {
  if (wait.ignore == 0) return fmt::format("tag {:#x}", wait.tag);
  if (wait.ignore == UINT64_MAX) return "any tag";
  return fmt::format("tag {:#x}, ignoring {:#x}", wait.tag, wait.ignore);
}

// What lies outside the layout is of somebody else, or of another version.
bool fits(const WaitReport& wait, std::uint64_t tag, std::uint64_t any_tag,
          std::uint64_t protocol) {
  const std::uint64_t ignored = wait.ignore & ~protocol;
  return wait.tagged && (wait.tag & ~tag) == 0 && (ignored == 0 || ignored == any_tag);
}

bool is_mpich(const WaitReport& wait, std::string_view mpi) {
  using namespace mpich;
  return (mpi.starts_with("MPICH Version: 4") || mpi.starts_with("MPICH Version: 5")) &&
         fits(wait, kTag | kContext | kProtocol, kTag, kProtocol);
}

bool is_open_mpi(const WaitReport& wait, std::string_view mpi) {
  using namespace open_mpi;
  return (mpi.starts_with("Open MPI v4") || mpi.starts_with("Open MPI v5")) &&
         fits(wait, UINT64_MAX, kAnyTag, kProtocol);
}

}  // namespace

std::string tag_text(const WaitReport& wait, std::string_view mpi) {
  const auto known = [](const MpiTag& tag, std::string_view library) {
    return fmt::format("{}{} ({})", tag.what, tag.communicator, library);
  };
  if (!wait.tagged) return "no tag";
  if (is_mpich(wait, mpi)) return known(mpich_tag(wait), "MPICH");
  if (is_open_mpi(wait, mpi)) return known(open_mpi_tag(wait), "Open MPI");
  return hex_text(wait);
}

std::optional<std::uint64_t> answered_tag(const WaitReport& wait, std::string_view mpi) {
  if (is_mpich(wait, mpi) && (wait.tag & mpich::kSynchronousAnswer) != 0) {
    return wait.tag & ~mpich::kProtocol;
  }
  if (is_open_mpi(wait, mpi) && (wait.tag & open_mpi::kSynchronousAnswer) != 0) {
    return wait.tag & ~open_mpi::kProtocol;
  }
  return std::nullopt;
}

std::uint64_t without_protocol(const WaitReport& wait, std::string_view mpi) {
  return is_mpich(wait, mpi)      ? wait.tag & ~mpich::kProtocol
         : is_open_mpi(wait, mpi) ? wait.tag & ~open_mpi::kProtocol
                                  : wait.tag;
}

}  // namespace turnout::cli
