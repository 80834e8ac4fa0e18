// SPDX-License-Identifier: BSD-3-Clause
#include "hca/device/fault_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <iterator>
#include <span>
#include <utility>

#include "base/split_mix.h"
#include "base/value.h"
#include "hca/device/rules.h"

namespace turnout::hca {
namespace {

enum class Key : std::uint8_t {
  probability,
  after,
  count,
  times,
  time,
  at,
  every,
  rank,
  qp,
  opcode,
  object,
  status,
  error,
  limit
};
constexpr std::array<std::string_view, 14> kKeys = {
    "probability", "after", "count",  "times",  "time",   "at",    "every",
    "rank",        "qp",    "opcode", "object", "status", "errno", "limit"};
constexpr std::uint32_t bits() {
  return 0;
}
template <class... More>
constexpr std::uint32_t bits(Key key, More... more) {
  return 1U << static_cast<unsigned>(key) | bits(more...);
}
constexpr std::uint32_t kCommonKeys = bits(Key::probability, Key::after, Key::count, Key::rank);
constexpr std::uint32_t kRequestKeys = kCommonKeys | bits(Key::qp, Key::opcode);

struct KindInfo {
  std::string_view name;
  std::uint32_t keys;   // that it has
  std::uint64_t count;  // default
  bool needs_time;
};
// In the order of FaultKind. What ends a queue pair or queue hits one of them unless told
// otherwise.
constexpr std::array<KindInfo, 11> kKinds = {{
    {"loss", kRequestKeys, 0, false},
    {"delay", kRequestKeys | bits(Key::time), 0, true},
    {"rnr", kRequestKeys | bits(Key::times), 0, false},
    {"timeout", kRequestKeys | bits(Key::times), 0, false},
    {"error", kRequestKeys | bits(Key::status), 1, false},
    {"qp_fatal", kRequestKeys, 1, false},
    {"create", kCommonKeys | bits(Key::object, Key::error, Key::limit), 0, false},
    {"slow", kCommonKeys | bits(Key::time), 0, true},
    {"cq_overrun", kCommonKeys, 1, false},
    {"link_down", bits(Key::at, Key::time, Key::every, Key::rank), 0, false},
    {"device_fatal", bits(Key::at, Key::rank), 0, false},
}};
static_assert(static_cast<std::size_t>(FaultKind::device_fatal) + 1 == kKinds.size());

template <class T>
struct Named {
  std::string_view name;
  T value;
};
constexpr Named<std::uint8_t> kQps[] = {
    {"rc", kFaultRc}, {"uc", kFaultUc}, {"ud", kFaultUd}, {"dc", kFaultDc}, {"xrc", kFaultXrc}};
constexpr Named<std::uint8_t> kOpcodes[] = {
    {"send", kFaultSend}, {"write", kFaultWrite}, {"read", kFaultRead}, {"atomic", kFaultAtomic}};
constexpr Named<FaultObject> kObjects[] = {
    {"any", FaultObject::any},  {"pd", FaultObject::pd},   {"mr", FaultObject::mr},
    {"mw", FaultObject::mw},    {"ah", FaultObject::ah},   {"channel", FaultObject::channel},
    {"cq", FaultObject::cq},    {"srq", FaultObject::srq}, {"qp", FaultObject::qp},
    {"xrcd", FaultObject::xrcd}};
// ibv_poll_cq(3), as ibv_wc_status writes them but for IBV_WC_.
constexpr Named<ibv_wc_status> kStatuses[] = {
    {"loc_len_err", IBV_WC_LOC_LEN_ERR},       {"loc_qp_op_err", IBV_WC_LOC_QP_OP_ERR},
    {"loc_prot_err", IBV_WC_LOC_PROT_ERR},     {"bad_resp_err", IBV_WC_BAD_RESP_ERR},
    {"loc_access_err", IBV_WC_LOC_ACCESS_ERR}, {"rem_inv_req_err", IBV_WC_REM_INV_REQ_ERR},
    {"rem_access_err", IBV_WC_REM_ACCESS_ERR}, {"rem_op_err", IBV_WC_REM_OP_ERR},
    {"retry_exc_err", IBV_WC_RETRY_EXC_ERR},   {"rnr_retry_exc_err", IBV_WC_RNR_RETRY_EXC_ERR},
    {"rem_abort_err", IBV_WC_REM_ABORT_ERR},   {"fatal_err", IBV_WC_FATAL_ERR},
    {"general_err", IBV_WC_GENERAL_ERR}};
constexpr Named<int> kErrors[] = {{"ENOMEM", ENOMEM}, {"EINVAL", EINVAL}, {"EFAULT", EFAULT},
                                  {"EPERM", EPERM},   {"EAGAIN", EAGAIN}, {"EIO", EIO}};

std::string_view trimmed(std::string_view text) noexcept {
  const auto first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

// Calls `each` with the trimmed parts of `text`; ends at the first failure.
template <class Each>
Status for_each_part(std::string_view text, char separator, Each&& each) {
  for (;;) {
    const auto end = text.find(separator);
    if (Status status = each(trimmed(text.substr(0, end))); !status) return status;
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 1);
  }
}

Status invalid(std::string_view item, std::string_view what) {
  return Status(Code::invalid, fmt::format("TURNOUT_FAULT: \"{}\": {}", item, what));
}

template <class T>
std::string names_of(const Named<T>* first, const Named<T>* last) {
  std::string all;
  for (; first != last; ++first) {
    if (!all.empty()) all += ", ";
    all += first->name;
  }
  return all;
}

template <class T, std::size_t N, class Out>
Status find(std::string_view item, std::string_view key, std::string_view text,
            const Named<T> (&known)[N], Out& out) {
  const auto* const found = std::find_if(std::begin(known), std::end(known),
                                         [&](const Named<T>& one) { return one.name == text; });
  if (found == std::end(known)) {
    return invalid(item, fmt::format("{}={}: expected one of {}", key, text,
                                     names_of(std::begin(known), std::end(known))));
  }
  out = found->value;
  return {};
}

Status read_probability(std::string_view item, std::string_view text, double& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc{} || end != text.data() + text.size() || !(out >= 0 && out <= 1)) {
    return invalid(item, fmt::format("probability={}: expected a number from 0 to 1", text));
  }
  return {};
}
Status read_count(std::string_view item, std::string_view key, std::string_view text,
                  std::uint64_t& out) {
  const auto parsed = value::parse_count(text);
  if (!parsed) return invalid(item, fmt::format("{}={}: {}", key, text, parsed.status().text()));
  out = parsed.value();
  return {};
}
Status read_time(std::string_view item, std::string_view key, std::string_view text,
                 std::int64_t& out) {
  constexpr std::int64_t kDay = 86'400'000'000'000;
  const auto parsed = value::parse_duration(text);
  if (!parsed) return invalid(item, fmt::format("{}={}: {}", key, text, parsed.status().text()));
  if (parsed.value() < 0 || parsed.value() > kDay) {
    return invalid(item, fmt::format("{}={}: expected 0 to 24 hours", key, text));
  }
  out = parsed.value();
  return {};
}

Status read_key(std::string_view item, Key key, std::string_view name, std::string_view text,
                Fault& fault) {
  switch (key) {
    case Key::probability:
      return read_probability(item, text, fault.probability);
    case Key::after:
      return read_count(item, name, text, fault.after);
    case Key::count:
      return read_count(item, name, text, fault.count);
    case Key::times:
      return read_count(item, name, text, fault.times);
    case Key::time:
      return read_time(item, name, text, fault.time);
    case Key::at:
      return read_time(item, name, text, fault.at);
    case Key::every:
      return read_time(item, name, text, fault.every);
    case Key::rank: {
      std::uint64_t rank = 0;
      if (Status status = read_count(item, name, text, rank); !status) return status;
      if (rank > INT32_MAX) return invalid(item, fmt::format("rank={}: expected a rank", text));
      fault.rank = static_cast<std::int64_t>(rank);
      return {};
    }
    case Key::qp:
      return find(item, name, text, kQps, fault.qp);
    case Key::opcode:
      return find(item, name, text, kOpcodes, fault.opcode);
    case Key::object:
      return find(item, name, text, kObjects, fault.object);
    case Key::status:
      return find(item, name, text, kStatuses, fault.status);
    case Key::error:
      return find(item, name, text, kErrors, fault.error);
    case Key::limit:
      return read_count(item, name, text, fault.limit);
  }
  return {};
}

// The keys of one kind, for an error.
std::string keys_of(const KindInfo& kind) {
  std::string all;
  for (std::size_t key = 0; key < kKeys.size(); ++key) {
    if ((kind.keys >> key & 1) == 0) continue;
    if (!all.empty()) all += ", ";
    all += kKeys[key];
  }
  return all;
}

Status read_keys(std::string_view item, std::string_view keys, const KindInfo& kind, Fault& fault) {
  std::uint32_t given = 0;
  return for_each_part(keys, ',', [&](std::string_view part) -> Status {
    const auto equals = part.find('=');
    const std::string_view name = trimmed(part.substr(0, equals));
    const auto* const found = std::find(kKeys.begin(), kKeys.end(), name);
    const auto index = static_cast<std::size_t>(found - kKeys.begin());
    if (equals == std::string_view::npos || found == kKeys.end() || (kind.keys >> index & 1) == 0) {
      return invalid(item, fmt::format("\"{}\": {} takes KEY=VALUE with the keys {}", part,
                                       kind.name, keys_of(kind)));
    }
    if ((given >> index & 1) != 0) return invalid(item, fmt::format("{} is given twice", name));
    given |= 1U << index;
    return read_key(item, static_cast<Key>(index), name, trimmed(part.substr(equals + 1)), fault);
  });
}

Result<Fault> read_fault(std::string_view item) {
  const auto colon = item.find(':');
  const std::string_view name = trimmed(item.substr(0, colon));
  const auto* const kind = std::find_if(kKinds.begin(), kKinds.end(),
                                        [&](const KindInfo& one) { return one.name == name; });
  if (kind == kKinds.end()) {
    std::array<std::string_view, kKinds.size()> names;
    std::transform(kKinds.begin(), kKinds.end(), names.begin(),
                   [](const KindInfo& one) { return one.name; });
    return invalid(item,
                   fmt::format("unknown fault; expected {} or seed=N", fmt::join(names, ", ")));
  }
  Fault fault;
  fault.kind = static_cast<FaultKind>(kind - kKinds.begin());
  fault.text = std::string(item);
  fault.count = kind->count;
  if (fault.kind == FaultKind::create) fault.error = ENOMEM;
  if (colon != std::string_view::npos) {
    if (Status status = read_keys(item, item.substr(colon + 1), *kind, fault); !status)
      return status;
  }
  if (kind->needs_time && fault.time == 0) return invalid(item, "time=DURATION is missing");
  if (fault.limit != 0 && !is_counted(fault.object))
    return invalid(item, "limit: expected object=mr, cq, srq or qp");
  if (fault.every != 0 && (fault.time == 0 || fault.every <= fault.time)) {
    return invalid(item, "every: expected a time= that is shorter");
  }
  return fault;
}

// The n-th number of a generator without those before it: each adds the same to the state.
std::uint64_t mixed(std::uint64_t seed, std::uint64_t n) noexcept {
  return SplitMix64(seed + n * 0x9e37'79b9'7f4a'7c15ULL).next();
}

std::uint8_t service_bit(QpKind kind) noexcept {
  switch (kind) {
    case QpKind::rc:
      return kFaultRc;
    case QpKind::uc:
      return kFaultUc;
    case QpKind::ud:
      return kFaultUd;
    case QpKind::dci:
    case QpKind::dct:
      return kFaultDc;
    case QpKind::xrc_ini:
    case QpKind::xrc_tgt:
      return kFaultXrc;
    default:
      return 0;
  }
}

}  // namespace

bool Fault::is_for(QpKind queue_pair, std::uint8_t operation) const noexcept {
  if (is_local(operation)) return false;  // nothing of it reaches the wire
  const std::uint8_t kind_bit = is_send(operation)              ? kFaultSend
                                : is_atomic(operation)          ? kFaultAtomic
                                : operation == IBV_WR_RDMA_READ ? kFaultRead
                                                                : kFaultWrite;
  if ((qp != 0 && (qp & service_bit(queue_pair)) == 0) || (opcode != 0 && (opcode & kind_bit) == 0))
    return false;
  switch (kind) {
    case FaultKind::loss:
      return is_unacknowledged(queue_pair);
    case FaultKind::rnr:
      // What takes no receive cannot miss one (IBTA 9.7.5.2.8).
      return !is_unacknowledged(queue_pair) && (is_send(operation) || has_imm(operation));
    case FaultKind::timeout:
      return !is_unacknowledged(queue_pair);
    case FaultKind::delay:
    case FaultKind::error:
    case FaultKind::qp_fatal:
      return true;
    default:
      return false;
  }
}

Result<FaultPlan> FaultPlan::parse(std::string_view text, int rank) {
  FaultPlan plan;
  if (trimmed(text).empty()) return plan;
  std::vector<Fault> all;
  const Status status = for_each_part(text, ';', [&](std::string_view item) -> Status {
    if (item.empty()) return {};
    constexpr std::string_view kSeed = "seed=";
    if (item.substr(0, kSeed.size()) == kSeed) {
      return read_count(item, "seed", item.substr(kSeed.size()), plan.seed_);
    }
    Result<Fault> fault = read_fault(item);
    if (!fault) return fault.status();
    all.push_back(std::move(fault.value()));
    return {};
  });
  if (!status) return status;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].rank >= 0 && all[i].rank != rank) continue;
    // Each process and fault draws other numbers.
    const auto process = static_cast<std::uint64_t>(rank + 1);
    plan.streams_.push_back(mixed(mixed(plan.seed_, process), i));
    plan.faults_.push_back(std::move(all[i]));
  }
  return plan;
}

bool FaultPlan::hits(std::size_t fault, std::uint64_t n) const noexcept {
  const Fault& f = faults_[fault];
  if (n < f.after) return false;
  if (f.probability >= 1) return true;
  constexpr double kOne = 9007199254740992.0;  // 2^53
  return static_cast<double>(mixed(streams_[fault], n) >> 11) < f.probability * kOne;
}

}  // namespace turnout::hca
