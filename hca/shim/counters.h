// SPDX-License-Identifier: BSD-3-Clause
// The counters of the adapter's port: files of the tree that must say what is so now.
//
// The value is asked of libibverbs.so.1, which `turnout verbs` preloads too. Any thread; not from
// signal handlers, as the library allocates. errno is kept.
#pragma once

namespace turnout::shim {

// `place`: a path in the tree. Writes its file anew, where it is that of a counter: whoever opens
// it next reads the value of now, and who has it open keeps the one it had.
void renew_counter(const char* place) noexcept;

}  // namespace turnout::shim
