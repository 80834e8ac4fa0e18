// SPDX-License-Identifier: BSD-3-Clause
// AddressVector: libfabric's fid_av. 64 bytes per address; each endpoint looks up the peer of an
// address at its first use. A fi_addr_t is the index of its address, for FI_AV_TABLE and FI_AV_MAP
// alike. One with a name has its addresses in memory that processes share (SharedAddresses), and
// here a copy of those it has looked at. Owned by the program; closing it is refused while
// endpoints are bound. Calls hold the domain's lock. Addresses come from other processes, so each
// is validated when inserted. Source: fi_av(3).
#pragma once

#include <rdma/fi_domain.h>

#include <cassert>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/types/address.h"
#include "provider/domain.h"
#include "provider/shared_addresses.h"

namespace turnout::provider {

struct EventQueue;
class PeerResolver;

struct AddressVector final : ObjectOfDomain<AddressVector, fid_av> {
  using ObjectOfDomain::ObjectOfDomain;
  ~AddressVector() { assert(!in_use()); }

  std::vector<PeerResolver*> resolvers;  // of bound endpoints: they forget what is removed
  EventQueue* events = nullptr;
  std::unique_ptr<SharedAddresses> shared;  // null: without a name
  bool asynchronous = false;                // opened with FI_EVENT: insertions report to `events`
  std::uint64_t index_mask = ~std::uint64_t{0};  // without the bits of fi_rx_addr

  [[nodiscard]] bool in_use() const noexcept { return !resolvers.empty(); }
  // 0, or FI_E* of a shared one: FI_ENOMEM, FI_EACCES of one that is read-only and does not have
  // it, FI_EIO of one whose content is damaged, or why it could not be locked.
  [[nodiscard]] int add(const Address& address, std::uint64_t& index) {
    if (shared != nullptr) return insert_shared(address, index);
    index = insert(address);
    return 0;
  }
  // Of one that is not shared, in the lowest free place, or a new one.
  std::uint32_t insert(const Address& address) {
    std::uint32_t index = 0;
    if (!free_.empty()) {
      index = free_.back();
      free_.pop_back();
      addresses_[index] = address;
    } else {
      index = static_cast<std::uint32_t>(addresses_.size());
      addresses_.push_back(address);
    }
    if (!buckets_.empty()) {
      if (addresses_.size() * 2 > buckets_.size()) {
        buckets_.clear();  // rebuilt, larger, by the next find()
      } else {
        enter(index);
      }
    }
    return index;
  }
  // What other processes have inserted into a shared one or removed from it is known here now.
  void refresh() {
    if (shared != nullptr &&
        (shared->count() > addresses_.size() || shared->removals() != removals_)) {
      copy_shared();
    }
  }
  // 0 or -FI_E*: -FI_EINVAL when none is there, -FI_EACCES, or as add().
  [[nodiscard]] int remove(std::uint64_t index);
  // FI_AV_USER_ID: what completions name it by instead of its index.
  void set_user_id(std::uint64_t index, fi_addr_t id) {
    if (index >= user_ids_.size()) user_ids_.resize(index + 1, FI_ADDR_NOTAVAIL);
    user_ids_[index] = id;
  }
  [[nodiscard]] fi_addr_t user_id_of(std::uint64_t index) const noexcept {
    return index < user_ids_.size() && user_ids_[index] != FI_ADDR_NOTAVAIL ? user_ids_[index]
                                                                            : index;
  }
  // Null when nothing is there.
  [[nodiscard]] const Address* at(fi_addr_t address) const noexcept {
    const std::uint64_t index = address & index_mask;
    if (index >= addresses_.size() || addresses_[index].magic == 0) return nullptr;
    return &addresses_[index];
  }
  // The first index of this address, FI_ADDR_NOTAVAIL when it was never inserted. The first call
  // builds a table of 4 to 16 bytes per address.
  [[nodiscard]] fi_addr_t find(const Address& address);
  [[nodiscard]] std::size_t size() const noexcept { return addresses_.size(); }
  [[nodiscard]] std::span<const Address> addresses() const noexcept { return addresses_; }
  // Of internet addresses: as which an index was inserted.
  void set_name(std::uint64_t index, const Name& name) {
    if (!domain.format.is_internet()) return;
    if (names_.size() <= index) names_.resize(index + 1);
    names_[index] = std::get<ServiceAddress>(name);
  }
  // What fi_av_lookup tells. Precondition: at(address) is there.
  [[nodiscard]] std::vector<std::byte> name_of(fi_addr_t address) const {
    if (domain.format.is_internet()) return domain.format.encode(names_[address & index_mask]);
    return domain.format.encode(*at(address));
  }

  static int open(Domain& domain, fi_av_attr* attr, fid_av** av, void* context);

 private:
  [[nodiscard]] int insert_shared(const Address& address, std::uint64_t& index);
  void copy_shared();
  void forget(std::uint64_t index);
  void rehash();
  void enter(std::uint32_t index) noexcept;

  std::vector<Address> addresses_;      // magic 0: free
  std::uint64_t removals_ = 0;          // of the shared ones, known here
  std::vector<fi_addr_t> user_ids_;     // FI_ADDR_NOTAVAIL, or none: the index
  std::vector<ServiceAddress> names_;   // by index, where addresses are internet addresses
  std::vector<std::uint32_t> free_;     // lowest on top
  std::vector<std::uint32_t> buckets_;  // open addressing by Address::id; index + 1, 0 is empty
};

}  // namespace turnout::provider
