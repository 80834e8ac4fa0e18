// SPDX-License-Identifier: BSD-3-Clause
// The verbs symbols that the core's objects refer to, forwarded to the library that load() chose.
// Hidden: they are seen by nobody outside the object the core is linked into.
#include "core/verbs/library.h"

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

using turnout::verbs::functions;

extern "C" {

#define HIDDEN __attribute__((visibility("hidden")))
#define VERB(library, result, symbol, parameters, arguments) \
  HIDDEN result symbol parameters {                          \
    return functions().symbol##_fn arguments;                \
  }
#define OWN_VERB(library, symbol)
#define OPTIONAL_VERB(library, symbol)
#include "core/verbs/functions.def"
#undef OPTIONAL_VERB
#undef OWN_VERB
#undef VERB

HIDDEN bool mlx5dv_is_supported(struct ibv_device* device) {
  const auto supported = functions().mlx5dv_is_supported_fn;
  return supported != nullptr && supported(device);
}

}  // extern "C"
