// SPDX-License-Identifier: BSD-3-Clause
#include "core/state/endpoint_context.h"
#include "core/memory/node_share.h"

namespace turnout {

EndpointContext::EndpointContext(const Settings& wanted, Clock& time, EndpointOptions& options)
    : settings(wanted),
      clock(time),
      simulation(options.simulation),
      born(time.now()),
      account(budget_of_process(wanted).bytes, wanted.break_rule != "over-budget"),
      domain(std::static_pointer_cast<DeviceDomain>(std::move(options.memory))),
      placement(wanted.ring_order) {
  address.id = options.id;
  if (settings.data_qps == 0) settings.data_qps = settings.policy == "dc-rdma-od" ? 28 : 4;
}

void EndpointContext::fail(const Report& report, const Completion& completion, Status status,
                           std::size_t overflow) {
  if (closing) return;
  CompletionQueue* const queue = report.errors != nullptr ? report.errors : report.queue;
  if (queue != nullptr) {
    ErrorCompletion error;
    static_cast<Completion&>(error) = completion;
    error.overflow = overflow;
    error.status = std::move(status);
    queue->push_error(std::move(error));
  }
  if (report.counter != nullptr) {
    report.counter->errors.fetch_add(1, std::memory_order_release);
  }
}

}  // namespace turnout
