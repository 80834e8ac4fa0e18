// SPDX-License-Identifier: BSD-3-Clause
// SharedAddresses: the addresses of an address vector that processes of one user and host open by
// the same name. Appended to, never reused: an index means one address for as long as the name
// lives, which is until the last process has closed it.
//
// A file in the user's runtime folder, mapped by all; record locks of its open file descriptions
// say who is there and who changes it, and end with a process. What processes leave behind that
// end without closing it, whoever opens a name next removes. Owned by an AddressVector, which
// copies from it what it uses; reading takes no lock of the file. Calls hold the domain's lock. The
// content is untrusted input: counts are bounded, and addresses are checked by who takes them.
// Source: fi_av(3) (name, map_addr, FI_READ), fcntl(2).
#pragma once

#include <rdma/fabric.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/file_descriptor.h"
#include "base/status.h"
#include "core/types/address.h"

namespace turnout::provider {

class SharedAddresses {
 public:
  static constexpr std::uint64_t kMost = std::uint64_t{1} << 20;

  // `scope`: what the name belongs to. Errors: invalid (no such name, of a read-only one; too
  // long), permission, version, system.
  [[nodiscard]] static Result<std::unique_ptr<SharedAddresses>> open(const std::string& scope,
                                                                     const std::string& name,
                                                                     bool read_only);
  ~SharedAddresses();
  SharedAddresses(const SharedAddresses&) = delete;
  SharedAddresses& operator=(const SharedAddresses&) = delete;

  const bool read_only;

  [[nodiscard]] std::uint64_t count() const noexcept;
  [[nodiscard]] std::uint64_t removals() const noexcept;
  // The bytes of an address, perhaps of a removed one, whose magic is 0; index < kMost.
  [[nodiscard]] Address at(std::uint64_t index) const noexcept;
  // Index i holds i: what processes that were told map_addr find there.
  [[nodiscard]] void* names() const noexcept;

  // Holds others off for as long as it lives.
  class Hold {
   public:
    explicit Hold(const SharedAddresses& of) noexcept;
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    // 0, or the errno for which it does not.
    [[nodiscard]] int error() const noexcept { return error_; }

   private:
    const int fd_;
    const int error_;
  };
  // Both with a Hold, and not read-only. 0, or FI_E*: FI_ENOMEM without room.
  [[nodiscard]] int append(const Address& address) noexcept;
  void remove(std::uint64_t index) noexcept;  // index < kMost

 private:
  struct Header;
  SharedAddresses(Descriptor folder, Descriptor file, std::string file_name, void* memory,
                  bool readable_only) noexcept;
  [[nodiscard]] Header& header() const noexcept { return *static_cast<Header*>(memory_); }
  [[nodiscard]] std::byte* place(std::uint64_t index) const noexcept;

  Descriptor folder_, file_;
  std::string file_name_;
  void* memory_;
};

}  // namespace turnout::provider
