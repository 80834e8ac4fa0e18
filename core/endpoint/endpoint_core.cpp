// SPDX-License-Identifier: BSD-3-Clause
#include "core/endpoint/endpoint_core.h"
#include "base/log.h"
#include "core/recording/recording_endpoint.h"

namespace turnout {

Result<std::unique_ptr<Endpoint>> Endpoint::create(const Settings& settings, Clock& clock,
                                                   EndpointOptions options) {
  if (Status status = settings.validate(); !status.ok()) return status;
  const bool in_virtual_time = options.simulation.processor != nullptr;
  auto endpoint = std::make_unique<EndpointCore>(settings, clock, std::move(options));
  if (Status status = endpoint->start(); !status.ok()) {
    TURNOUT_LOG(endpoint, error, "opening the endpoint failed: {}", status.text());
    return status;
  }
  if (!settings.trace.empty()) [[unlikely]] {
    return make_recording_endpoint(std::move(endpoint), settings.trace, clock, in_virtual_time);
  }
  return std::unique_ptr<Endpoint>(std::move(endpoint));
}

EndpointCore::EndpointCore(const Settings& settings, Clock& clock, EndpointOptions options)
    : parts_(settings, clock, options) {}

EndpointCore::~EndpointCore() {
  const EndpointContext& context = parts_.context;
  if (context.started) {
    while (!close()) {
    }
    if (context.settings.report != "0" && !context.settings.report.empty()) {
      if (Status s = publish(report(), context.settings.report, context.settings.report_job);
          !s.ok()) {
        TURNOUT_LOG(endpoint, warn, "writing the report failed: {}; check TURNOUT_REPORT",
                    s.text());
      }
    }
  }
  if (context.domain != nullptr) context.domain->forget_queue(parts_.resources.data_srq.get());
}

// What lies at a known distance from here: what a pointer leads to would have to wait for it.
void EndpointCore::prepare_progress() const noexcept {
  const auto fetch = [](const auto&... parts) { (__builtin_prefetch(&parts), ...); };
  const EndpointContext& context = parts_.context;
  const TransportResources& resources = parts_.resources;
  fetch(parts_.progress_loop, parts_.receive_dispatch, parts_.send_completions, parts_.call_time);
  fetch(context.clock, context.ticks, context.delivered);
  fetch(resources.receive_cq, resources.receive_pool, resources.unsignalled_data,
        resources.to_post);
  fetch(parts_.peer_table, parts_.records, parts_.rings, parts_.operations.receive_engine,
        parts_.operations.unexpected);
  fetch(parts_.registration, parts_.live_report, parts_.memory_history, parts_.flow,
        parts_.eviction, parts_.messaging.ud, parts_.messaging.shared_receives,
        parts_.channels.selector, parts_.channels.keep_alive);  // what is due when
}

Nanoseconds EndpointCore::next_deadline() const noexcept {
  return std::min({parts_.channels.selector.next_decision(),
                   parts_.channels.keep_alive.next_keepalive(), parts_.messaging.ud.next_ud_timer(),
                   parts_.flow.next_sweep(), parts_.operations.put.deferred_until(),
                   parts_.eviction.next_service()});
}

}  // namespace turnout
