// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer target: entries of an mlx5's send and receive queues and of the lists of its keys,
// which a program writes as it likes.
//
// Whatever lies in the ring: nothing is read outside it, what is told of a request is within the
// limits, and pieces of inline data are bytes of the ring.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

#include "hca/device/key_list.h"
#include "hca/device/mlx5_format.h"
#include "hca/device/rules.h"

namespace turnout::hca {
namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void send(const std::uint8_t* data, std::size_t size) {
  struct {
    std::uint8_t kind, log_blocks;
    std::uint16_t position, available;
  } head{};
  std::memcpy(&head, data, std::min(sizeof head, size));
  data += std::min(sizeof head, size);
  size -= std::min(sizeof head, size);
  const std::uint32_t blocks = 1U << head.log_blocks % 6;
  const std::size_t bytes = std::size_t{blocks} * kMlx5BlockBytes;
  const std::unique_ptr<std::byte[]> ring(new std::byte[bytes]());
  std::memcpy(ring.get(), data, std::min(bytes, size));
  static SendWqe wqe;
  const auto kind = static_cast<QpKind>(1 + head.kind % 7);
  const std::uint32_t available = std::max<std::uint32_t>(1, head.available);
  const Mlx5Request request =
      parse_send({ring.get(), blocks}, head.position, available, kind, 0x123456, wqe);
  require(request.blocks >= 1 && request.blocks <= available);
  require(wqe.num_sge <= kMaxSge);
  require(!wqe.is_inline || wqe.length <= kMaxInline);
  require((request.fault != Mlx5Fault::none) == (wqe.opcode == kMalformed));
  require(unpack(wqe.wr_id).index == head.position);
  const auto begin = reinterpret_cast<std::uint64_t>(ring.get());
  if (wqe.opcode == kChangeKey) {
    require(wqe.num_sge == 0 && wqe.change.pieces <= 2);
    for (std::uint32_t i = 0; i < wqe.change.pieces; ++i) {
      const ibv_sge& piece = wqe.list[i];
      require(piece.length % kMlx5UnitBytes == 0);
      if (piece.lkey == kMlx5InlineKey) require(covers(begin, bytes, piece.addr, piece.length));
    }
    return;
  }
  for (std::uint32_t i = 0; i < wqe.num_sge && !wqe.is_inline; ++i) {
    const ibv_sge& piece = wqe.sge[i];
    if (piece.lkey == kMlx5InlineKey) require(covers(begin, bytes, piece.addr, piece.length));
  }
}

void receive(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return;
  const bool linked = (data[0] & 1) != 0;
  const std::size_t stride = std::size_t{16} << (data[0] >> 1) % 6;
  const std::unique_ptr<std::byte[]> entry(new std::byte[stride]());
  std::memcpy(entry.get(), data + 1, std::min(stride, size - 1));
  const Mlx5Receive receive = parse_receive({entry.get(), stride}, linked);
  require(receive.num_sge <= std::min<std::size_t>(kMaxSge, stride / kMlx5UnitBytes));
}

// A list of a key that anybody may have damaged: it comes to an end, and is not longer than asked.
void list(const std::uint8_t* data, std::size_t size) {
  struct {
    std::uint64_t offset;
    std::uint32_t limit;
    std::uint8_t log_entry, runs;
  } head{};
  std::memcpy(&head, data, std::min(sizeof head, size));
  data += std::min(sizeof head, size);
  size -= std::min(sizeof head, size);
  const std::size_t count = size / kKeyEntryBytes;
  const std::unique_ptr<KeyEntry[]> entries(new KeyEntry[count]);
  for (std::size_t i = 0; i < count; ++i) {
    entries[i] = read_key_entry(reinterpret_cast<const std::byte*>(data) + i * kKeyEntryBytes);
  }
  const std::span<const KeyEntry> all(entries.get(), count);
  (void)is_well_formed(all);
  KeyCursor cursor(all, head.log_entry % 64);
  if (!cursor.seek(head.offset)) return;
  KeyRun runs[8];
  std::uint64_t left = head.limit % 4096;
  while (left > 0) {
    const std::size_t found = cursor.next(left, std::span(runs).first(1 + head.runs % 8));
    if (found == 0) return;
    for (std::size_t i = 0; i < found; ++i) {
      require(runs[i].length != 0 && runs[i].length <= left);
      left -= runs[i].length;
    }
  }
}

}  // namespace
}  // namespace turnout::hca

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  if (data[0] % 4 == 2) {
    turnout::hca::list(data + 1, size - 1);
  } else if ((data[0] & 1) != 0) {
    turnout::hca::send(data + 1, size - 1);
  } else {
    turnout::hca::receive(data + 1, size - 1);
  }
  return 0;
}
