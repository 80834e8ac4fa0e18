// SPDX-License-Identifier: BSD-3-Clause
// RegisteredMemory: buffer memory of the core that the adapter may read and write.
//
// It lies in a memfd and is registered by its file descriptor where the device takes that
// (ibv_reg_dmabuf_mr, which the virtual adapter answers for any mappable file: other processes then
// write it directly), else by address. In a simulation all peers share our memory: there it comes
// from the heap, since thousands of processes' worth of mappings would be too many. Zero-filled.
// Owns memory, descriptor and region. Move-only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "core/verbs/device.h"

namespace turnout::verbs {

class RegisteredMemory {
 public:
  RegisteredMemory() = default;
  RegisteredMemory(RegisteredMemory&& other) noexcept { *this = std::move(other); }
  RegisteredMemory& operator=(RegisteredMemory&& other) noexcept;
  ~RegisteredMemory();

  // length is rounded up to pages. access: IBV_ACCESS_*.
  [[nodiscard]] static Result<RegisteredMemory> create(const Device& device, std::size_t length,
                                                       int access);

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::uint32_t lkey() const noexcept { return mr_->lkey; }
  [[nodiscard]] std::uint32_t rkey() const noexcept { return mr_->rkey; }

 private:
  Mr mr_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  int fd_ = -1;
  void* heap_ = nullptr;  // what data_ lies in, if it is no mapping
};

}  // namespace turnout::verbs
