// SPDX-License-Identifier: BSD-3-Clause
// Forwards Turnout's log lines to libfabric's log, filtered by FI_LOG_LEVEL, FI_LOG_PROV and
// FI_LOG_SUBSYS.
#pragma once

#include <rdma/providers/fi_prov.h>

namespace turnout::provider {

// Nothing where the library has no fi_log. libfabric settles what it wants of a provider after the
// provider is loaded, and fi_import_log changes it: to be called again at each fi_getinfo.
// `provider` stays valid until leave_fabric_log().
void join_fabric_log(const fi_provider& provider);
// Before the library goes.
void leave_fabric_log();

}  // namespace turnout::provider
