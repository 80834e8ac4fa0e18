// SPDX-License-Identifier: BSD-3-Clause
// The attribute of every function that libibverbs.so.1 and libmlx5.so.1 export. Names and versions:
// hca/abi/libibverbs.map, libmlx5.map.
#pragma once

#define TURNOUT_EXPORT extern "C" __attribute__((visibility("default")))
