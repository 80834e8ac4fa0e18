// SPDX-License-Identifier: BSD-3-Clause
#include "sim/runtime/rank_environment.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "sim/runtime/content_checker.h"
#include "sim/runtime/rank_operations.h"
#include "sim/runtime/virtual_world.h"

namespace turnout::sim {
namespace {

// Endpoints of a simulation are told apart by an id whose low half is the rank, so that the pools'
// (i + j) mod n of AQPS 3.1 is that of ranks.
std::uint64_t endpoint_id(std::uint64_t seed, std::uint32_t rank) noexcept {
  return (mix(seed, rank) & 0xffff'ffff'ff00'0000ULL) | std::uint64_t{1} << 63 | rank;
}

// Connections to everyone, and a receive for everyone's request at the same time.
void make_server(std::uint32_t ranks, Settings* settings) {
  constexpr std::uint64_t kMostReceives = 32768;  // of a setting
  settings->max_conn = 0;
  settings->max_active_rc = settings->max_channels = settings->rc_pool = ranks;
  for (std::uint64_t* const receives :
       {&settings->receive_buffers, &settings->receive_first, &settings->control_buffers}) {
    *receives = std::min(std::max<std::uint64_t>(*receives, ranks), kMostReceives);
  }
}

}  // namespace

PolicyOverride policy_of(const Options& options) {
  PolicyOverride policy;
  policy.waits_for_connections = options.data_servers;
  policy.prepares = options.prepares;
  policy.flow_control = options.flow_control;
  if (options.first_channel) {
    policy.first_channel = [&options](std::uint64_t from, std::uint64_t to, ChannelKind) {
      return options.first_channel(rank_of(from), rank_of(to));
    };
  } else if (options.data_servers) {
    policy.first_channel = [&options](std::uint64_t from, std::uint64_t to, ChannelKind otherwise) {
      // What needs no connection, by whatever name the default transport has.
      return serves(options, rank_of(from)) || serves(options, rank_of(to))
                 ? otherwise
                 : ChannelKind::dc_sendrecv;
    };
  }
  return policy;
}

Result<RankSettings> rank_settings(const Options& options) {
  Result<Settings> given = virtual_settings();
  if (!given) return given.status();
  for (const auto& [name, value] : options.settings) {
    if (Status status = given.value().set(name, value); !status.ok()) return status;
  }
  RankSettings settings{given.value(), given.value()};
  if (options.data_servers) make_server(options.ranks, &settings.servers);
  for (Settings* const each : {&settings.ranks, &settings.servers}) {
    if (Status status = each->validate(); !status.ok()) return status;
    if (each->node_processes != 0) continue;
    each->node_processes = std::min(options.ranks, options.ranks_per_node);
  }
  return settings;
}

RankEnvironment::RankEnvironment(const Options& options, hca::World& world, RankSettings settings)
    : options_(options),
      world_(world),
      settings_(std::move(settings)),
      clock_(world),
      costs_(world),
      policy_(policy_of(options)) {}

Result<std::unique_ptr<Endpoint>> RankEnvironment::open(std::uint32_t rank,
                                                        RankScheduler& scheduler) {
  EndpointOptions options;
  options.simulation = {&costs_,
                        &costs_,
                        &policy_,
                        options_.make_statistics ? &options_.make_statistics : nullptr,
                        static_cast<int>(rank),
                        static_cast<int>(options_.ranks)};
  options.id = endpoint_id(options_.seed, rank);
  if (settings_.ranks.setup_thread) {
    options.background = std::make_unique<SetupThread>(world_, scheduler);
  }
  auto endpoint = Endpoint::create(serves(options_, rank) ? settings_.servers : settings_.ranks,
                                   clock_, std::move(options));
  // As MPI libraries insert all addresses.
  if (endpoint) endpoint.value()->expect_peers(options_.ranks, {});
  return endpoint;
}

void ProfileCosts::charge(Work work, std::uint64_t amount) noexcept {
  const hca::Profile& profile = world_.profile();
  const auto times = static_cast<hca::Picoseconds>(amount);
  if (work == Work::poll_ring) world_.charge(profile.processor_poll_ring * times);
  if (work == Work::match) world_.charge(profile.processor_match * times);
  if (work == Work::copy) {
    world_.charge(profile.processor_copy + hca::time_of(profile.processor_copy_rate, amount));
  }
  // All other work is charged by the adapter's driver.
}

std::uint64_t ProfileCosts::bytes(Object object, std::uint64_t count,
                                  std::uint64_t computed) const noexcept {
  const hca::Profile& p = world_.profile();
  // By Object; 0: no paper measured one, the driver's rules count.
  const std::int64_t sizes[] = {p.memory_rc_qp,
                                p.memory_dc_data_qp,
                                p.memory_dc_credit_qp,
                                p.memory_dc_establishment_qp,
                                0,
                                p.memory_cq_entry,
                                p.memory_srq_entry};
  static_assert(std::size(sizes) == static_cast<std::size_t>(Object::srq_entry) + 1);
  const std::int64_t each = sizes[static_cast<std::size_t>(object)];
  const std::int64_t fixed = object == Object::dc_data_pool ? p.memory_dc_data_fixed : 0;
  return (each == 0 ? computed : static_cast<std::uint64_t>(each) * count) +
         static_cast<std::uint64_t>(fixed);
}

}  // namespace turnout::sim
