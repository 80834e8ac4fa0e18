// SPDX-License-Identifier: BSD-3-Clause
// World: a fabric of one process with objects of every kind on it, for tables_fuzz, and their
// records.
//
// Made and destroyed through verbs alone, so that a destruction in damaged tables is tested, too.
// Afterwards the fabric is gone: the next world owes nothing to this one.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "hca/live/fabric.h"

namespace turnout::hca::fuzz {

inline constexpr std::size_t kPieceBytes = 4096;
inline constexpr std::uint32_t kQkey = 0x1234;
inline constexpr std::uint64_t kDcKey = 0x1122'3344'5566'7788ULL;

// Registered memory.
struct Piece {
  enum class Kind : std::uint8_t { heap, file, read_only };
  Kind kind = Kind::heap;
  std::uint8_t* data = nullptr;
  int fd = -1;
  ibv_mr* mr = nullptr;  // null: could not be registered anew
};

// Bytes of the shared state that may be damaged.
struct Range {
  std::byte* start = nullptr;
  std::size_t size = 0;
};

class World {
 public:
  World();
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  enum Which : std::uint8_t {
    rc_a,
    rc_b,
    uc_a,
    uc_b,
    ud,
    dci,
    dct,
    initiator,
    target,
    rc_shared,
    kQps
  };
  ibv_context* context = nullptr;
  ibv_comp_channel* channel = nullptr;
  std::array<ibv_pd*, 2> pds{};
  std::array<ibv_cq*, 3> cqs{};  // with the channel, without, with time stamps
  std::array<ibv_qp*, kQps> qps{};
  std::array<Piece, 5> pieces{};
  std::array<ibv_mw*, 2> windows{};
  std::array<ibv_srq*, 2> srqs{};  // basic, XRC
  ibv_xrcd* xrcd = nullptr;
  ibv_ah *ah = nullptr, *group_ah = nullptr;
  ibv_gid group{};
  std::uint32_t dct_number = 0;
  std::shared_ptr<Fabric> fabric;

  // Whatever their states were: as far as the tables let it.
  void connect(Which which);
  // Ends the region, gives its memory back and makes another.
  void replace(Piece& piece);
  void register_piece(Piece& piece);

  // Records of this kind, and rings.
  enum class Area : std::uint8_t {
    header,
    process,
    hazard,
    qp,
    cq,
    srq,
    mr,
    xrcd,
    handle,
    multicast,
    tag,
    ring,
    kAreas
  };
  [[nodiscard]] Range range(Area area, std::uint32_t choice) const;
  [[nodiscard]] const std::vector<Lock*>& locks() const { return locks_; }
  [[nodiscard]] const std::vector<Range>& rings() const { return rings_; }

 private:
  void make_queue_pairs();
  void note_rings();
  std::byte* base_ = nullptr;
  std::vector<Range> rings_;
  std::vector<Lock*> locks_;
};

// Ends the run: what must not happen did.
[[noreturn]] void broken(const char* what);

}  // namespace turnout::hca::fuzz
