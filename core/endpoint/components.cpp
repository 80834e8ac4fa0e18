// SPDX-License-Identifier: BSD-3-Clause
#include "core/endpoint/components.h"

namespace turnout {

Components::Components(const Settings& settings, Clock& clock, EndpointOptions& options,
                       EndpointParts& parts)
    : EndpointState(settings, clock, options, parts),
      call_time(context.simulation.processor != nullptr),
      channels{*this, messaging, operations,
               options.background      ? std::move(options.background)
               : settings.setup_thread ? make_background_thread()
                                       : make_foreground()} {
  resources.shutting_down.reserve(kPollBatch);
}

}  // namespace turnout
