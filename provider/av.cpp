// SPDX-License-Identifier: BSD-3-Clause
#include "provider/av.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "base/log.h"
#include "provider/eq.h"
#include "provider/errors.h"
#include "provider/ops.h"
#include "provider/peer_resolver.h"

namespace turnout::provider {
namespace {

constexpr std::uint32_t kMaxAddresses = 0xfffffffe;  // an index + 1 has 32 bits

// Multiplicative hashing with 2^64 / golden ratio (Knuth, TAOCP 3, 6.4); the high half is the good
// one.
std::size_t spread(std::uint64_t id) noexcept {
  return id * 0x9e3779b97f4a7c15ull >> 32;
}

int bind_vector(fid* f, fid* other, std::uint64_t /*flags*/) {
  if (other->fclass != FI_CLASS_EQ) return -FI_EINVAL;
  AddressVector::of(f).events = &EventQueue::of(other);
  return 0;
}

int insert_addresses(fid_av* f, const void* addresses, std::size_t count, fi_addr_t* out,
                     std::uint64_t flags, void* context) {
  AddressVector& av = AddressVector::of(f);
  if ((flags & ~(FI_MORE | FI_SYNC_ERR)) != 0) return -FI_EBADFLAGS;
  if (av.asynchronous && av.events == nullptr) return -FI_ENOEQ;
  if (count != 0 && addresses == nullptr) return -FI_EINVAL;
  return contain([&] {
    const Guard guard(av.domain.lock);
    const auto* bytes = static_cast<const std::byte*>(addresses);
    int* errors = (flags & FI_SYNC_ERR) != 0 ? static_cast<int*>(context) : nullptr;
    std::vector<std::pair<std::uint64_t, int>> failed;
    int inserted = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const Result<Address> address = Address::decode(bytes + i * sizeof(Address), sizeof(Address));
      int error = address.ok() ? 0 : fi_error(address.status());
      if (error == 0 && av.size() >= kMaxAddresses) error = FI_ENOMEM;
      if (error == 0) {
        const std::uint64_t index = av.insert(address.value());
        if (out != nullptr) out[i] = index;
        ++inserted;
      } else {
        TURNOUT_LOG(provider, warn, "fi_av_insert failed: address {} of {}: {}; {}", i, count,
                    address.ok() ? "the address vector is full" : address.status().text(),
                    address.ok() ? "remove unused addresses"
                                 : "pass the name that fi_getname gave at the peer");
        if (out != nullptr) out[i] = FI_ADDR_NOTAVAIL;
        failed.emplace_back(i, error);
      }
      if (errors != nullptr) errors[i] = error;
    }
    for (PeerResolver* resolver : av.resolvers) resolver->expect(av.size());
    if (!av.asynchronous) return inserted;
    av.events->push_insertion(&av.fid, context, static_cast<std::uint64_t>(inserted), failed);
    return 0;
  });
}

int remove_addresses(fid_av* f, fi_addr_t* addresses, std::size_t count, std::uint64_t flags) {
  AddressVector& av = AddressVector::of(f);
  if (flags != 0) return -FI_EBADFLAGS;
  return contain([&] {
    const Guard guard(av.domain.lock);
    for (std::size_t i = 0; i < count; ++i) {
      if (!av.remove(addresses[i] & av.index_mask)) return -FI_EINVAL;
    }
    return 0;
  });
}

int look_up(fid_av* f, fi_addr_t address, void* out, std::size_t* length) {
  AddressVector& av = AddressVector::of(f);
  const Guard guard(av.domain.lock);
  const Address* found = av.at(address);
  if (found == nullptr) return -FI_EINVAL;
  if (out != nullptr) std::memcpy(out, found, std::min(*length, sizeof(Address)));
  *length = sizeof(Address);
  return 0;
}

const char* address_text(fid_av*, const void* address, char* buffer, std::size_t* length) {
  std::string text;
  try {
    const Result<Address> decoded = Address::decode(address, sizeof(Address));
    text = decoded.ok() ? decoded.value().to_string()
                        : "not a Turnout address: " + decoded.status().text();
  } catch (const std::exception&) {
    text.clear();
  }
  static_cast<void>(put_text(text, buffer, *length));
  *length = text.size() + 1;
  return buffer;
}

fi_ops av_fid_ops = object_ops(AddressVector::close, bind_vector);

fi_ops_av av_ops = {
    .size = sizeof(fi_ops_av),
    .insert = insert_addresses,
    .insertsvc = kNotHere,  // nodes and services do not name endpoints of an adapter
    .insertsym = kNotHere,
    .remove = remove_addresses,
    .lookup = look_up,
    .straddr = address_text,
    .av_set = kNotHere,
};

}  // namespace

int AddressVector::open(Domain& domain, fi_av_attr* attr, fid_av** av, void* context) {
  if (attr == nullptr) return -FI_EINVAL;
  if (attr->type != FI_AV_UNSPEC && attr->type != FI_AV_MAP && attr->type != FI_AV_TABLE) {
    return -FI_EINVAL;
  }
  if (attr->name != nullptr || (attr->flags & FI_READ) != 0) return -FI_ENOSYS;  // shared by name
  if ((attr->flags & ~(FI_EVENT | FI_SYMMETRIC)) != 0) return -FI_EBADFLAGS;
  if (attr->rx_ctx_bits < 0 || attr->rx_ctx_bits > 32) return -FI_EINVAL;
  auto made = std::make_unique<AddressVector>(domain);
  made->fid = {FI_CLASS_AV, context, &av_fid_ops};
  made->ops = &av_ops;
  made->asynchronous = (attr->flags & FI_EVENT) != 0;
  if (attr->rx_ctx_bits > 0) made->index_mask >>= attr->rx_ctx_bits;
  if (attr->type == FI_AV_UNSPEC) attr->type = FI_AV_TABLE;
  // `count` comes from the program and is only a hint: no more than a guess is reserved.
  constexpr std::size_t kMostReserved = std::size_t{1} << 16;
  made->addresses_.reserve(std::min(attr->count, kMostReserved));
  *av = made.release();
  return 0;
}

bool AddressVector::remove(std::uint64_t index) {
  if (index >= addresses_.size() || addresses_[index].magic == 0) return false;
  const auto place = static_cast<std::uint32_t>(index);
  free_.insert(std::upper_bound(free_.begin(), free_.end(), place, std::greater<>()), place);
  addresses_[index].magic = 0;
  buckets_.clear();
  for (PeerResolver* resolver : resolvers) resolver->forget(index);
  return true;
}

fi_addr_t AddressVector::find(const Address& address) {
  if (buckets_.empty()) rehash();
  const std::size_t mask = buckets_.size() - 1;
  for (std::size_t at = spread(address.id) & mask; buckets_[at] != 0; at = (at + 1) & mask) {
    const std::uint32_t index = buckets_[at] - 1;
    if (addresses_[index] == address) return index;
  }
  return FI_ADDR_NOTAVAIL;
}

void AddressVector::rehash() {
  std::size_t size = 16;
  while (size < addresses_.size() * 2 + 2) size *= 2;
  buckets_.assign(size, 0);
  for (std::uint32_t i = 0; i < addresses_.size(); ++i) {
    if (addresses_[i].magic != 0) enter(i);
  }
}

// At most half of the buckets are in use, so an empty one is always found.
void AddressVector::enter(std::uint32_t index) noexcept {
  assert(addresses_.size() * 2 <= buckets_.size());
  const std::size_t mask = buckets_.size() - 1;
  std::size_t at = spread(addresses_[index].id) & mask;
  while (buckets_[at] != 0) at = (at + 1) & mask;
  buckets_[at] = index + 1;
}

}  // namespace turnout::provider
