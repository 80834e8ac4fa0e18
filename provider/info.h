// SPDX-License-Identifier: BSD-3-Clause
// The provider's capabilities, and the answer of fi_getinfo to the hints of a program.
//
// Pure except for allocation through the running libfabric. Any thread. Source: fi_getinfo(3),
// fi_endpoint(3), fi_domain(3) and the hints that MPI libraries use.
#pragma once

#include <rdma/fabric.h>

#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/settings.h"
#include "core/endpoint.h"
#include "core/protocol/operation_limits.h"
#include "core/types/completion.h"

namespace turnout::provider {

// Turnout's version in fi_version's form.
extern const std::uint32_t kProviderVersion;

// Both have the provider-specific bit set; the rest is the address's magic number and version.
inline constexpr std::uint32_t kAddressFormat = FI_PROV_SPECIFIC | Address::kMagic;
inline constexpr std::uint32_t kProtocol = FI_PROV_SPECIFIC | Address::kMagic;

inline constexpr std::uint64_t kModifiers =
    FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
inline constexpr std::uint64_t kCapabilities =
    FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | kModifiers | FI_MULTI_RECV | FI_DIRECTED_RECV |
    FI_SOURCE | FI_LOCAL_COMM | FI_REMOTE_COMM | FI_RMA_EVENT | FI_TRIGGER | FI_PEER |
    FI_AV_USER_ID | FI_SHARED_AV;
// Of endpoints that have one peer, and of those that send datagrams.
inline constexpr std::uint64_t kConnectedCapabilities =
    kCapabilities & ~(FI_DIRECTED_RECV | FI_SOURCE | FI_PEER | FI_AV_USER_ID | FI_SHARED_AV);
inline constexpr std::uint64_t kDatagramCapabilities =
    FI_MSG | FI_SEND | FI_RECV | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE | FI_LOCAL_COMM |
    FI_REMOTE_COMM | FI_TRIGGER | FI_AV_USER_ID | FI_SHARED_AV;
[[nodiscard]] constexpr std::uint64_t capabilities_of(fi_ep_type type) noexcept {
  return type == FI_EP_MSG     ? kConnectedCapabilities
         : type == FI_EP_DGRAM ? kDatagramCapabilities
                               : kCapabilities;
}
// Of these, what costs a message for each operation, and what says how the program will use the
// objects: who does not ask for it does not get it.
inline constexpr std::uint64_t kOnlyIfAsked = FI_RMA_EVENT | FI_TRIGGER | FI_PEER | FI_AV_USER_ID;
inline constexpr std::uint64_t kTxCapabilities =
    FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_READ | FI_WRITE | FI_TRIGGER;
inline constexpr std::uint64_t kRxCapabilities =
    FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE |
    FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE | FI_RMA_EVENT | FI_TRIGGER;
// Atomics of one endpoint to another are carried out in order; RDMA passes them and each other.
inline constexpr std::uint64_t kAtomicOrder =
    FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW;
inline constexpr std::uint64_t kDomainCapabilities =
    FI_LOCAL_COMM | FI_REMOTE_COMM | FI_AV_USER_ID | FI_SHARED_AV;

// Registration as verbs has it: the region exists, is addressed by its virtual address, and the
// adapter chooses the key. Never FI_MR_LOCAL: the core registers local buffers itself.
inline constexpr int kMrMode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

inline constexpr std::uint64_t kCompletionLevels =
    FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE;
inline constexpr std::uint64_t kTxOpFlags = FI_COMPLETION | FI_INJECT | kCompletionLevels;
inline constexpr std::uint64_t kRxOpFlags = FI_COMPLETION | FI_MULTI_RECV;

inline constexpr std::size_t kIovLimit =
    8;  // entries of one message; the core would take any number
inline constexpr std::size_t kRmaIovLimit = 1;
inline constexpr std::size_t kMaxRegions =
    std::numeric_limits<std::uint32_t>::max();  // verbs' keys have 32 bits
// Open MPI's MTL does not cut messages: no bound of our own below what a length can say.
inline constexpr std::size_t kMaxMessage = std::numeric_limits<std::ptrdiff_t>::max();
// Of a datagram: InfiniBand's largest MTU, as libfabric's verbs provider answers.
inline constexpr std::size_t kMaxDatagram = 4096;
inline constexpr std::size_t kRemoteDataSize = sizeof(Completion::data);
inline constexpr std::size_t kMaxErrorText = 1024;  // bytes of an error's text that are kept

// The settings of this process, read once; a failure is logged once.
[[nodiscard]] const Result<Settings>& process_settings();

// What a program asked fi_getinfo.
struct Question {
  std::uint32_t api = 0;
  const char* node = nullptr;     // a host, or the text of an Address (fi_av_straddr)
  const char* service = nullptr;  // a port
  std::uint64_t flags = 0;
  const fi_info* hints = nullptr;
};

// fi_getinfo's work. *result is null unless 0 is returned. Errors: -FI_ENODATA when it asks for
// what is not offered (the reason goes to the log at level info), -FI_ENOMEM.
[[nodiscard]] int answer(const Settings& settings, const Question& question, fi_info** result);

}  // namespace turnout::provider
