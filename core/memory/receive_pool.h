// ReceivePool: the registered buffers of the shared data receive queue.
//
// It begins with one chunk, grows by chunks within the budget and lets go of them again. A chunk
// that shall go keeps the buffers that come back until it has all of them; until then it can be
// called back. Buffers are named by chunk and place in it: 16 bits each. Who posts them is the
// owner's business. The first chunk is accounted by the owner and stays. Sizes are bytes; one
// thread.
#pragma once

#include <cstdint>
#include <vector>

#include "core/memory/account.h"
#include "core/verbs/registered_memory.h"

namespace turnout {

class ReceivePool {
 public:
  ReceivePool() = default;
  // The numbers of the new buffers are appended to `fresh`.
  [[nodiscard]] static Result<ReceivePool> create(const verbs::Device& device, std::uint32_t count,
                                                  std::uint32_t size,
                                                  std::vector<std::uint32_t>* fresh);
  // Errors: over_budget (leaving `spare` bytes of it), system; nothing has changed then.
  [[nodiscard]] Status grow(const verbs::Device& device, MemoryAccount& account,
                            std::uint32_t count, std::uint64_t spare,
                            std::vector<std::uint32_t>* fresh);

  [[nodiscard]] std::byte* data(std::uint32_t buffer) const noexcept {
    return chunks_[buffer >> 16].memory.data() + std::size_t{buffer & 0xffffu} * size_;
  }
  [[nodiscard]] std::uint32_t lkey(std::uint32_t buffer) const noexcept {
    return chunks_[buffer >> 16].memory.lkey();
  }
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  // Buffers that serve; those of a chunk that shall go do not count.
  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }

  // Lets the youngest chunk go. False: there is only the first, or one is going already.
  [[nodiscard]] bool begin_shrink() noexcept;
  // Of that chunk; 0: there is none to let go.
  [[nodiscard]] std::uint32_t would_shrink_by() const noexcept;
  [[nodiscard]] bool shrinking() const noexcept { return going_ != 0; }
  // The chunk that was to go serves again; what it has kept is appended to `fresh`.
  void call_back(std::vector<std::uint32_t>* fresh);
  // While shrinking(): true if the buffer, which came back, is kept; the chunk goes with its last.
  [[nodiscard]] bool keep(std::uint32_t buffer);
  [[nodiscard]] std::uint64_t chunks_gone() const noexcept { return gone_; }

 private:
  struct Chunk {
    verbs::RegisteredMemory memory;
    Reservation reservation;
    std::uint32_t count = 0;  // 0: gone, its place is free
    std::vector<std::uint32_t> kept;
  };
  [[nodiscard]] std::size_t youngest() const noexcept;
  std::vector<Chunk> chunks_;
  std::uint32_t size_ = 0;
  std::uint32_t count_ = 0;
  std::size_t going_ = 0;  // the chunk that shall go; the first never does
  std::uint64_t gone_ = 0;
};

}  // namespace turnout
