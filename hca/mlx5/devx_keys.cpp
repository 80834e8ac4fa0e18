// SPDX-License-Identifier: BSD-3-Clause
// The commands of DevX that make memory keys: of pages, and of pieces of other keys.
#include <algorithm>
#include <vector>

#include "hca/device/rules.h"
#include "hca/mlx5/devx_commands.h"

namespace turnout::hca {
namespace {

using prm::Answer;
using prm::get;
namespace mkey = prm::mkey;

unsigned rights_of(prm::In context) noexcept {
  unsigned rights = 0;
  const auto allow = [&](prm::Field flag, unsigned right) {
    if (get(context, flag) != 0) rights |= right;
  };
  allow(mkey::kAtomic, IBV_ACCESS_REMOTE_ATOMIC);
  allow(mkey::kRemoteWrite, IBV_ACCESS_REMOTE_WRITE);
  allow(mkey::kRemoteRead, IBV_ACCESS_REMOTE_READ);
  allow(mkey::kLocalWrite, IBV_ACCESS_LOCAL_WRITE);
  return rights;
}

}  // namespace

DevxCommands::Refusal DevxCommands::create_key(prm::In in, Object& object) {
  if (in.size() < mkey::kBytes) return {Answer::bad_input_length, "memory key"};
  const prm::In context = prm::behind(in, mkey::kContext);
  Pd* const pd = domain(get(context, mkey::kPd));
  if (pd == nullptr) return {Answer::bad_resource, "no such protection domain"};
  if (get(context, mkey::kSigns) != 0 || get(context, mkey::kSignatures) != 0) {
    return {Answer::bad_parameter, "there are no signatures"};
  }
  if (get(context, mkey::kQpn) != mkey::kAnyQp) {
    return {Answer::bad_parameter, "a key is not of one queue pair"};
  }
  switch (get(context, mkey::kAccessModeHigh) << 2 | get(context, mkey::kAccessMode)) {
    case mkey::kPages:
      return create_page_key(in, *pd, object);
    case mkey::kList:
      return create_list_key(in, *pd, false, object);
    case mkey::kFixedList:
      return create_list_key(in, *pd, true, object);
    default:
      return {Answer::bad_parameter, "no such access mode of a memory key"};
  }
}

DevxCommands::Refusal DevxCommands::create_list_key(prm::In in, Pd& pd, bool fixed,
                                                    Object& object) {
  const prm::In context = prm::behind(in, mkey::kContext);
  IndirectKeys::Description key;
  key.slots = get(context, mkey::kTranslations);
  if (key.slots == 0) return {Answer::bad_parameter, "a list without entries"};
  if (key.slots > kMaxKeyEntries) return {Answer::exceeds_limit, "entries of a memory key"};
  const std::uint32_t given = get(in, mkey::kEntries);
  if (given > key.slots) return {Answer::bad_parameter, "more entries than the list has"};
  const prm::In list = prm::behind(in, mkey::kBytes);
  if (list.size() / mkey::kEntryBytes < given) {
    return {Answer::bad_input_length, "entries of a memory key"};
  }
  std::vector<KeyEntry> entries(given);
  for (std::size_t i = 0; i < given; ++i) {
    entries[i] = read_key_entry(list.data() + i * mkey::kEntryBytes);
  }
  if (fixed) {
    key.log_entry = static_cast<std::uint8_t>(get(context, mkey::kLogEntry));
    if (key.log_entry == 0) return {Answer::bad_parameter, "entries without a length"};
  } else if (!is_well_formed(entries)) {
    return {Answer::bad_parameter, "a block that repeats is not whole"};
  }
  key.entries = entries;
  const bool all = get(context, mkey::kLength64) != 0;
  key.start = prm::get64(context, mkey::kStart);
  key.length = all ? UINT64_MAX : prm::get64(context, mkey::kLength);
  key.access = rights_of(context);
  key.tag = static_cast<std::uint8_t>(get(context, mkey::kLowByte));
  key.free = get(context, mkey::kFree) != 0;
  key.reconfigures = get(context, mkey::kUmrEnabled) != 0;
  key.remote_end = get(context, mkey::kRemoteEnd) != 0;
  object.key = objects_.engine->indirect_keys().create(pd, key);
  if (object.key == nullptr) return {Answer::no_resources, "memory key"};
  object.number = object.key->index;
  return {};
}

DevxCommands::Refusal DevxCommands::create_page_key(prm::In in, Pd& pd, Object& object) {
  const prm::In context = prm::behind(in, mkey::kContext);
  if (get(context, mkey::kFree) != 0 || get(context, mkey::kUmrEnabled) != 0 ||
      get(context, mkey::kLength64) != 0) {
    return {Answer::bad_parameter, "a key of pages is of memory from its beginning to its end"};
  }
  const std::uint64_t start = prm::get64(context, mkey::kStart);
  const std::uint64_t length = prm::get64(context, mkey::kLength);
  const unsigned access = rights_of(context);
  if (!valid_access(access)) return {Answer::bad_parameter, "remote writes without local ones"};
  __u64 address = 0;
  if (const Refusal r =
          place(get(in, mkey::kUmem), prm::get64(in, mkey::kUmemOffset), length, object, address);
      r.refused()) {
    return r;
  }
  if ((address ^ start) % kPage != 0) {
    return {Answer::bad_parameter, "an address has another place in its page"};
  }
  object.region = objects_.engine->regions().add(
      pd, reinterpret_cast<void*>(address), length, start, access,  // NOLINT: the program's
      static_cast<std::uint8_t>(get(context, mkey::kLowByte)));
  if (object.region == nullptr) return {Answer::no_resources, "memory key"};
  object.number = object.region->index;
  return {};
}

}  // namespace turnout::hca
