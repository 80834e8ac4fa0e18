// SPDX-License-Identifier: BSD-3-Clause
// Names of enumerations and rates. Texts are our own; rates are IBTA's (PortInfo, table 146).
#include <algorithm>
#include <cstddef>
#include <iterator>

#include "hca/abi/verbs.h"

namespace {

struct Rate {
  ibv_rate rate;
  int mult;  // of 2.5 Gbit/s, -1: none
  int mbps;
};
constexpr Rate kRates[] = {
    {IBV_RATE_2_5_GBPS, 1, 2500},       {IBV_RATE_5_GBPS, 2, 5000},
    {IBV_RATE_10_GBPS, 4, 10000},       {IBV_RATE_20_GBPS, 8, 20000},
    {IBV_RATE_30_GBPS, 12, 30000},      {IBV_RATE_40_GBPS, 16, 40000},
    {IBV_RATE_60_GBPS, 24, 60000},      {IBV_RATE_80_GBPS, 32, 80000},
    {IBV_RATE_120_GBPS, 48, 120000},    {IBV_RATE_14_GBPS, 6, 14062},
    {IBV_RATE_56_GBPS, 22, 56250},      {IBV_RATE_112_GBPS, 45, 112500},
    {IBV_RATE_168_GBPS, 67, 168750},    {IBV_RATE_25_GBPS, 10, 25781},
    {IBV_RATE_100_GBPS, 41, 103125},    {IBV_RATE_200_GBPS, 82, 206250},
    {IBV_RATE_300_GBPS, 123, 309375},   {IBV_RATE_28_GBPS, 11, 28125},
    {IBV_RATE_50_GBPS, 20, 53125},      {IBV_RATE_400_GBPS, 160, 425000},
    {IBV_RATE_600_GBPS, 240, 637500},   {IBV_RATE_800_GBPS, 320, 850000},
    {IBV_RATE_1200_GBPS, 480, 1275000},
};

template <std::size_t N>
const char* name(const char* const (&names)[N], int value) {
  return value >= 0 && static_cast<std::size_t>(value) < N ? names[value] : "unknown";
}

// The rate of which `member` is `value`.
template <class T>
const Rate& find(T Rate::*member, T value) {
  static constexpr Rate kNone{IBV_RATE_MAX, -1, -1};
  const auto* const found = std::ranges::find(kRates, value, member);
  return found != std::end(kRates) ? *found : kNone;
}

}  // namespace

TURNOUT_EXPORT const char* ibv_wc_status_str(ibv_wc_status status) {
  static constexpr const char* kNames[] = {"success",
                                           "local length error",
                                           "local QP operation error",
                                           "local EE context operation error",
                                           "local protection error",
                                           "work request flushed",
                                           "memory window bind error",
                                           "bad response error",
                                           "local access error",
                                           "remote invalid request error",
                                           "remote access error",
                                           "remote operation error",
                                           "transport retry counter exceeded",
                                           "receiver-not-ready retry counter exceeded",
                                           "local RDD violation error",
                                           "remote invalid RD request",
                                           "remote aborted",
                                           "invalid EE context number",
                                           "invalid EE context state",
                                           "fatal error",
                                           "response timeout error",
                                           "general error",
                                           "tag matching error",
                                           "tag matching rendezvous incomplete"};
  return name(kNames, static_cast<int>(status));
}

TURNOUT_EXPORT const char* ibv_node_type_str(ibv_node_type type) {
  static constexpr const char* kNames[] = {"unknown",           "InfiniBand channel adapter",
                                           "InfiniBand switch", "InfiniBand router",
                                           "iWARP NIC",         "usNIC",
                                           "usNIC UDP",         "unspecified"};
  return name(kNames, static_cast<int>(type));
}

TURNOUT_EXPORT const char* ibv_port_state_str(ibv_port_state state) {
  static constexpr const char* kNames[] = {
      "no state change (NOP)", "down", "init", "armed", "active", "active defer"};
  return name(kNames, static_cast<int>(state));
}

TURNOUT_EXPORT const char* ibv_event_type_str(ibv_event_type event) {
  static constexpr const char* kNames[] = {"CQ error",
                                           "local work queue catastrophic error",
                                           "invalid request local work queue error",
                                           "local access violation work queue error",
                                           "communication established",
                                           "send queue drained",
                                           "path migrated",
                                           "path migration request error",
                                           "local catastrophic error",
                                           "port active",
                                           "port error",
                                           "LID change",
                                           "P_Key change",
                                           "SM change",
                                           "SRQ catastrophic error",
                                           "SRQ limit reached",
                                           "last WQE reached",
                                           "client reregistration",
                                           "GID table change",
                                           "WQ fatal"};
  return name(kNames, static_cast<int>(event));
}

TURNOUT_EXPORT int ibv_rate_to_mult(ibv_rate rate) {
  return find(&Rate::rate, rate).mult;
}
TURNOUT_EXPORT ibv_rate mult_to_ibv_rate(int mult) {
  return find(&Rate::mult, mult).rate;
}
TURNOUT_EXPORT int ibv_rate_to_mbps(ibv_rate rate) {
  return find(&Rate::rate, rate).mbps;
}
TURNOUT_EXPORT ibv_rate mbps_to_ibv_rate(int mbps) {
  return find(&Rate::mbps, mbps).rate;
}
