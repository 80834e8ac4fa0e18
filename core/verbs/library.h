// SPDX-License-Identifier: BSD-3-Clause
// Which libibverbs the core's verbs calls reach (design.md, seam 1).
//
// The core calls the public verbs API and links with no verbs library. load() opens libibverbs.so.1
// and libmlx5.so.1, the system's or the virtual adapter's, and the ibv_* symbols linked into the
// core (shim.cpp) forward to the one loaded. A system without libmlx5 has no DC:
// mlx5dv_is_supported says so, and the other mlx5dv_* are not called then. One library serves a
// process at a time: loading another is refused while contexts of the first are open. The system's
// may be present in the process for other users at the same time; neither is disturbed.
//
// load() may be called from any thread; afterwards reading is lock-free. Libraries stay loaded.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <string>

#include "base/settings.h"
#include "base/status.h"

namespace turnout::verbs {

enum class Library { system, virtual_adapter };

struct Functions {
#define OWN_VERB(library, symbol) decltype(&::symbol) symbol##_fn = nullptr;
#define OPTIONAL_VERB OWN_VERB
#define VERB(library, result, symbol, parameters, arguments) OWN_VERB(library, symbol)
#include "core/verbs/functions.def"
#undef VERB
#undef OPTIONAL_VERB
#undef OWN_VERB
};

// The functions in use; null entries until load() succeeded.
[[nodiscard]] const Functions& functions() noexcept;

// Errors: no_device (library not found; the text says where it was looked for), unsupported (a
// symbol is missing), invalid (another library is in use).
[[nodiscard]] Status load(Library library, const Settings& settings);

// A further symbol of the libibverbs in use; null when it has none of that name.
[[nodiscard]] void* symbol(const char* name) noexcept;

// Contexts keep the library in use; core/verbs/device.cpp calls these.
void retain() noexcept;
void release() noexcept;

// Folder the virtual adapter's libraries are taken from, for messages and `turnout info`.
[[nodiscard]] std::string virtual_folder(const Settings& settings);

}  // namespace turnout::verbs
