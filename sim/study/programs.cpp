// SPDX-License-Identifier: BSD-3-Clause
#include "sim/study/programs.h"

namespace turnout::sim {

Result<const Workload*> find_program(std::string_view name) {
  for (const Workload* const own :
       {&memory_workload(), &one_by_one_workload(), &everybody_workload()}) {
    if (own->name == name) return own;
  }
  return find_workload(name);
}

}  // namespace turnout::sim
