// SPDX-License-Identifier: BSD-3-Clause
// What every function that librdmacm.so.1 exports is marked with. Names and versions:
// librdmacm.map.
#pragma once

#define TURNOUT_EXPORT extern "C" __attribute__((visibility("default")))
