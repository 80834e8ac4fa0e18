// SPDX-License-Identifier: BSD-3-Clause
#include "provider/av.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "provider/eq.h"
#include "provider/errors.h"
#include "provider/info.h"
#include "provider/ops.h"
#include "provider/peer_receives.h"
#include "provider/peer_resolver.h"
#include "provider/service_address.h"

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

// How long a call waits for endpoints that are named by host and port: servers that were started
// together with their client may take some seconds.
std::chrono::steady_clock::time_point end_of_wait() noexcept {
  return std::chrono::steady_clock::now() + std::chrono::seconds(10);
}

int* errors_of(std::uint64_t flags, void* context) noexcept {
  return (flags & FI_SYNC_ERR) != 0 ? static_cast<int*>(context) : nullptr;
}

// What the log says of an address that was not inserted: why, and what to do.
std::pair<std::string_view, std::string_view> explain(const Result<Address>& address, int error) {
  constexpr std::string_view kNames =
      "pass the name that fi_getname gave at the peer, or the host and port of an endpoint that is "
      "enabled";
  if (!address.ok()) return {address.status().text(), kNames};
  switch (error) {
    case FI_EINVAL:
      return {"not an internet address", kNames};
    case FI_EACCES:
      return {"the vector is read-only and does not have it",
              "insert it where it was opened without FI_READ"};
    case FI_ENOMEM:
      return {"the address vector is full", "remove unused addresses, or do without a name"};
    default:
      return {provider_error_text(error), "close the vector in all processes and open it again"};
  }
}

// What was inserted, one after another; the addresses may be unknown.
class Insertion {
 public:
  Insertion(AddressVector& av, std::size_t count, fi_addr_t* out, std::uint64_t flags,
            void* context)
      : av_(av),
        count_(count),
        out_(out),
        errors_(errors_of(flags, context)),
        named_((flags & FI_AV_USER_ID) != 0) {}

  // `at`: which of `count` it is.
  void add(std::size_t at, const Result<Address>& address, const Result<Name>& given) {
    int error = address.ok() ? 0 : fi_error(address.status());
    // An internet address is asked for again by fi_av_lookup.
    if (error == 0 && av_.domain.format.is_internet() &&
        !std::holds_alternative<ServiceAddress>(given.value()))
      error = FI_EINVAL;
    if (error == 0 && av_.size() >= kMaxAddresses) error = FI_ENOMEM;
    std::uint64_t index = 0;
    if (error == 0) error = -contain([&] { return -av_.add(address.value(), index); });
    if (error == 0) error = set_names(at, index, given);
    if (error == 0) {
      if (out_ != nullptr) out_[at] = index;
      ++inserted_;
    } else {
      const auto [reason, remedy] = explain(address, error);
      TURNOUT_LOG(provider, warn, "fi_av_insert failed: address {} of {}: {}; {}", at, count_,
                  reason, remedy);
      if (out_ != nullptr) out_[at] = FI_ADDR_NOTAVAIL;
      failed_.emplace_back(at, error);
    }
    if (errors_ != nullptr) errors_[at] = error;
  }
  // The answer of the call.
  [[nodiscard]] int end(void* context) {
    for (PeerResolver* resolver : av_.resolvers) resolver->expect(av_.addresses());
    ++av_.domain.names_known;
    if (!av_.asynchronous) return inserted_;
    av_.events->push_insertion(&av_.fid, context, static_cast<std::uint64_t>(inserted_), failed_);
    return 0;
  }

 private:
  // 0, or FI_ENOMEM, and it is not inserted.
  int set_names(std::size_t at, std::uint64_t index, const Result<Name>& given) {
    const int error = contain([&] {
      if (named_) av_.set_user_id(index, out_[at]);
      av_.set_name(index, given.value());
      return 0;
    });
    if (error != 0) static_cast<void>(contain([&] { return av_.remove(index); }));
    return -error;
  }

  AddressVector& av_;
  const std::size_t count_;
  fi_addr_t* const out_;
  int* const errors_;
  const bool named_;  // out_ has the names before it is written
  std::vector<std::pair<std::uint64_t, int>> failed_;
  int inserted_ = 0;
};

// 0, or what is wrong with the arguments of an insertion.
int check_insertion(const AddressVector& av, const fi_addr_t* out, std::uint64_t flags) noexcept {
  if ((flags & ~(FI_MORE | FI_SYNC_ERR | FI_AV_USER_ID)) != 0) return -FI_EBADFLAGS;
  if ((flags & FI_AV_USER_ID) != 0 && av.shared != nullptr) return -FI_EOPNOTSUPP;
  if ((flags & FI_AV_USER_ID) != 0 && out == nullptr) return -FI_EINVAL;
  return av.asynchronous && av.events == nullptr ? -FI_ENOEQ : 0;
}

// A name, and the address of who has it.
struct Found {
  Result<Name> name;
  Result<Address> address;
};

// Asks, if it is the name of a service.
Found find(Result<Name>&& name, std::chrono::steady_clock::time_point end) {
  if (!name.ok()) return {name.status(), name.status()};
  const auto* const service = std::get_if<ServiceAddress>(&name.value());
  Result<Address> address =
      service != nullptr ? service->ask(end) : Result<Address>(std::get<Address>(name.value()));
  return {std::move(name), std::move(address)};
}

// `found_at(i)`: the Found in each place.
template <class FoundAt>
int insert_each(AddressVector& av, std::size_t count, fi_addr_t* out, std::uint64_t flags,
                void* context, FoundAt&& found_at) {
  int answer = 0;
  {
    const LateSignals signals;
    const Guard guard(av.domain.lock);
    Insertion insertion(av, count, out, flags, context);
    for (std::size_t i = 0; i < count; ++i) {
      const Found& found = found_at(i);
      insertion.add(i, found.address, found.name);
    }
    answer = insertion.end(context);
  }
  PeerReceives::name_sources(av.domain);
  return answer;
}

int insert_found(AddressVector& av, const std::vector<Found>& found, fi_addr_t* out,
                 std::uint64_t flags, void* context) {
  return insert_each(av, found.size(), out, flags, context,
                     [&](std::size_t i) -> const Found& { return found[i]; });
}

int insert_addresses(fid_av* f, const void* addresses, std::size_t count, fi_addr_t* out,
                     std::uint64_t flags, void* context) {
  AddressVector& av = AddressVector::of(f);
  if (const int error = check_insertion(av, out, flags); error != 0) return error;
  if (count != 0 && addresses == nullptr) return -FI_EINVAL;
  return contain([&] {
    const AddressFormat& format = av.domain.format;
    // Those that must be asked for, by position: without the lock, as it may take long. The others,
    // of which a large job has many, are decoded once more instead of kept.
    std::vector<std::pair<std::size_t, Found>> asked;
    const auto end = end_of_wait();
    for (std::size_t i = 0; i < count; ++i) {
      Result<Name> name = format.decode_at(addresses, i);
      if (!name.ok() || std::holds_alternative<ServiceAddress>(name.value()))
        asked.emplace_back(i, find(std::move(name), end));
    }
    return insert_each(av, count, out, flags, context,
                       [&, next = std::size_t{0}](std::size_t i) mutable {
                         if (next < asked.size() && asked[next].first == i)
                           return std::move(asked[next++].second);
                         return find(format.decode_at(addresses, i), end);
                       });
  });
}

// Of the endpoint that listens there, or whose text the node is.
Found look_up_service(const AddressVector& av, const std::string& node, const char* service,
                      std::chrono::steady_clock::time_point end) {
  const AddressFormat& format = av.domain.format;
  if (is_address_text(node.c_str()) || service == nullptr)
    return find(AddressFormat::decode_text(node, format.family()), end);
  const auto name = ServiceAddress::look_up(node.c_str(), service, {.family = format.family()});
  return find(name.ok() ? Result<Name>(Name(name.value())) : Result<Name>(name.status()), end);
}

int insert_service(fid_av* f, const char* node, const char* service, fi_addr_t* out,
                   std::uint64_t flags, void* context) {
  AddressVector& av = AddressVector::of(f);
  if (const int error = check_insertion(av, out, flags); error != 0) return error;
  if (node == nullptr) return -FI_EINVAL;
  return contain([&] {
    return insert_found(av, {look_up_service(av, node, service, end_of_wait())}, out, flags,
                        context);
  });
}

// A name counts on: the address of a host as a number, 10.0.0.255 to 10.0.1.0; another one by the
// digits at its end, node9 to node10. None: there are no such digits.
std::optional<std::string> counted_on(const std::string& name, std::size_t by) {
  if (by == 0) return name;
  for (const int family : {AF_INET, AF_INET6}) {
    std::array<unsigned char, sizeof(in6_addr)> bytes{};
    if (inet_pton(family, name.c_str(), bytes.data()) != 1) continue;
    std::size_t carry = by;
    for (std::size_t i = family == AF_INET ? sizeof(in_addr) : sizeof(in6_addr); i-- > 0;) {
      carry += bytes[i];
      bytes[i] = static_cast<unsigned char>(carry & 0xff);
      carry >>= 8;
    }
    char text[INET6_ADDRSTRLEN];
    if (inet_ntop(family, bytes.data(), text, sizeof text) != nullptr) return text;
  }
  constexpr std::size_t kMostDigits = 9;
  std::size_t digits = 0;
  while (digits < std::min(name.size(), kMostDigits) &&
         std::isdigit(static_cast<unsigned char>(name[name.size() - digits - 1])) != 0) {
    ++digits;
  }
  if (digits == 0) return std::nullopt;
  const std::size_t number = std::stoul(name.substr(name.size() - digits)) + by;
  return fmt::format("{}{:0{}}", name.substr(0, name.size() - digits), number, digits);
}

int insert_symmetric(fid_av* f, const char* node, std::size_t nodes, const char* service,
                     std::size_t services, fi_addr_t* out, std::uint64_t flags, void* context) {
  AddressVector& av = AddressVector::of(f);
  if (const int error = check_insertion(av, out, flags); error != 0) return error;
  if (node == nullptr || service == nullptr) return -FI_EINVAL;
  return contain([&] {
    std::vector<std::pair<std::string, std::string>> names;
    for (std::size_t n = 0; n < nodes; ++n) {
      for (std::size_t s = 0; s < services; ++s) {
        auto host = counted_on(node, n), port = counted_on(service, s);
        if (!host.has_value() || !port.has_value()) return -FI_EINVAL;
        names.emplace_back(std::move(*host), std::move(*port));
      }
    }
    std::vector<Found> found;
    const auto end = end_of_wait();
    for (const auto& [host, port] : names)
      found.push_back(look_up_service(av, host, port.c_str(), end));
    return insert_found(av, found, out, flags, context);
  });
}

int remove_addresses(fid_av* f, fi_addr_t* addresses, std::size_t count, std::uint64_t flags) {
  AddressVector& av = AddressVector::of(f);
  if (flags != 0) return -FI_EBADFLAGS;
  return contain([&] {
    const Guard guard(av.domain.lock);
    for (std::size_t i = 0; i < count; ++i) {
      if (const int error = av.remove(addresses[i] & av.index_mask); error != 0) return error;
    }
    return 0;
  });
}

int look_up(fid_av* f, fi_addr_t address, void* out, std::size_t* length) {
  AddressVector& av = AddressVector::of(f);
  return contain([&] {
    const Guard guard(av.domain.lock);
    av.refresh();
    if (av.at(address) == nullptr) return -FI_EINVAL;
    const std::vector<std::byte> name = av.name_of(address);
    if (out != nullptr) std::memcpy(out, name.data(), std::min(*length, name.size()));
    *length = name.size();
    return 0;
  });
}

std::string describe(const AddressFormat& format, const void* address) {
  if (format.is_text()) return static_cast<const char*>(address);
  const Result<Name> name = format.decode(address);
  if (name.ok()) return format.describe(name.value());
  return ServiceAddress::is_one(address) ? name.status().text()
                                         : "not a Turnout address: " + name.status().text();
}

const char* address_text(fid_av* f, const void* address, char* buffer, std::size_t* length) {
  std::string text;
  try {
    text = describe(AddressVector::of(f).domain.format, address);
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
    .insertsvc = insert_service,
    .insertsym = insert_symmetric,
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
  if ((attr->flags & ~(FI_EVENT | FI_SYMMETRIC | FI_READ)) != 0) return -FI_EBADFLAGS;
  const bool read_only = (attr->flags & FI_READ) != 0;
  if (read_only && attr->name == nullptr) return -FI_EINVAL;
  // What is shared has no room for the names of internet addresses.
  if (attr->name != nullptr && domain.format.is_internet()) return -FI_EOPNOTSUPP;
  if (attr->rx_ctx_bits < 0 || attr->rx_ctx_bits > 32) return -FI_EINVAL;
  auto made = std::make_unique<AddressVector>(domain);
  made->fid = {FI_CLASS_AV, context, &av_fid_ops};
  made->ops = &av_ops;
  made->asynchronous = (attr->flags & FI_EVENT) != 0;
  if (attr->name != nullptr) {
    const Settings& settings = process_settings().value();
    auto opened =
        SharedAddresses::open(settings.device + '/' + settings.fabric, attr->name, read_only);
    if (!opened.ok()) {
      TURNOUT_LOG(provider, info, "{}", opened.status().text());
      return -fi_error(opened.status());
    }
    made->shared = std::move(opened).value();
    if (attr->map_addr == nullptr) attr->map_addr = made->shared->names();
    made->refresh();
  }
  if (attr->rx_ctx_bits > 0) made->index_mask >>= attr->rx_ctx_bits;
  if (attr->type == FI_AV_UNSPEC) attr->type = FI_AV_TABLE;
  // `count` comes from the program and is only a hint: no more than a guess is reserved.
  constexpr std::size_t kMostReserved = std::size_t{1} << 16;
  made->addresses_.reserve(std::min(attr->count, kMostReserved));
  *av = made.release();
  return 0;
}

int AddressVector::remove(std::uint64_t index) {
  refresh();
  if (index >= addresses_.size() || addresses_[index].magic == 0) return -FI_EINVAL;
  if (shared == nullptr) {
    const auto place = static_cast<std::uint32_t>(index);
    free_.insert(std::upper_bound(free_.begin(), free_.end(), place, std::greater<>()), place);
    forget(index);
    return 0;
  }
  if (shared->read_only) return -FI_EACCES;
  {
    const SharedAddresses::Hold hold(*shared);
    if (hold.error() != 0) return -hold.error();
    if (shared->at(index).magic != 0) shared->remove(index);  // or another process was first
  }
  refresh();
  return 0;
}

void AddressVector::forget(std::uint64_t index) {
  addresses_[index].magic = 0;
  buckets_.clear();
  for (PeerResolver* resolver : resolvers) resolver->forget(index, user_id_of(index));
  if (index < user_ids_.size()) user_ids_[index] = FI_ADDR_NOTAVAIL;
}

// In one that is read-only an address is looked for instead.
int AddressVector::insert_shared(const Address& address, std::uint64_t& index) {
  if (shared->read_only) {
    refresh();
    index = find(address);
    return index == FI_ADDR_NOTAVAIL ? FI_EACCES : 0;
  }
  {
    const SharedAddresses::Hold hold(*shared);
    if (hold.error() != 0) return hold.error();
    index = shared->count();
    if (index < addresses_.size()) return FI_EIO;  // of another address
    if (const int error = shared->append(address); error != 0) return error;
    refresh();
  }
  return index < addresses_.size() && addresses_[index] == address ? 0 : FI_EIO;
}

// Without the lock of the file: a count or removals are stored after what they tell of. What
// changes meanwhile is seen by the next look.
void AddressVector::copy_shared() {
  const std::uint64_t removals = shared->removals();
  for (std::uint64_t i = 0; removals != removals_ && i < addresses_.size(); ++i) {
    if (addresses_[i].magic != 0 && shared->at(i).magic == 0) forget(i);
  }
  removals_ = removals;
  while (addresses_.size() < shared->count()) {
    Address address = shared->at(addresses_.size());
    if (!Address::decode(&address, sizeof address).ok()) address.magic = 0;  // or of a removed one
    if (address.magic != 0) {
      (void)insert(address);
    } else {
      addresses_.push_back(address);
    }
  }
  for (PeerResolver* resolver : resolvers) resolver->expect(addresses());
  ++domain.names_known;
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
