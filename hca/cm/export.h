// SPDX-License-Identifier: BSD-3-Clause
// The attribute of every function that librdmacm.so.1 exports. Names and versions: librdmacm.map.
#pragma once

#define TURNOUT_EXPORT extern "C" __attribute__((visibility("default")))
