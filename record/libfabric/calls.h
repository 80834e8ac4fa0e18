// SPDX-License-Identifier: BSD-3-Clause
// replace_calls(): puts the calls that record an operation into an endpoint's tables.
//
// The tables' owner is their Ep, and outlives them. The thread that enables the endpoint; the calls
// themselves come from any. No errors. Source: fi_msg(3), fi_tagged(3), fi_rma(3), fi_atomic(3).
#pragma once

#include <rdma/fi_atomic.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include "record/libfabric/table.h"

namespace turnout::record::libfabric {

void replace_calls(Table<fi_ops_msg>* table);
void replace_calls(Table<fi_ops_tagged>* table);
void replace_calls(Table<fi_ops_rma>* table);
void replace_calls(Table<fi_ops_atomic>* table);

}  // namespace turnout::record::libfabric
