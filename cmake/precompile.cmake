# SPDX-License-Identifier: BSD-3-Clause
# turnout_precompile(TARGET [TESTS]): what the target's files include of others is compiled once.
# turnout_quick(TARGET [TESTS]): that, and little or no optimisation, for code whose speed does not matter.
#
# One target compiles the headers for programs, one for tests, one for libraries: position-independent
# code of either kind cannot use the other's. Each file includes what it needs all the same; the presets
# that compile each file alone (clang, plain) see to it.
option(TURNOUT_PRECOMPILE "precompiled headers" ON)
set(turnout_precompiled_headers <fmt/format.h> <algorithm> <array> <functional> <map> <memory> <optional>
  <span> <string> <unordered_map> <utility> <vector>)

set(turnout_test_options $<$<CONFIG:RelWithDebInfo>:-O0>)

function(turnout_precompile target)
  if(NOT TURNOUT_PRECOMPILE)
    return()
  endif()
  get_target_property(type ${target} TYPE)
  set(headers ${turnout_precompiled_headers})
  if("TESTS" IN_LIST ARGN)
    set(from turnout_precompiled_tests)
    list(APPEND headers <gtest/gtest.h>)
  elseif(type STREQUAL EXECUTABLE)
    set(from turnout_precompiled_programs)
    list(APPEND headers <CLI/CLI.hpp>)
  else()
    set(from turnout_precompiled_libraries)
    list(APPEND headers <nlohmann/json.hpp>)
  endif()
  if(NOT TARGET ${from})
    file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/${from}.cpp CONTENT "int main() {}\n")
    if(type STREQUAL EXECUTABLE)
      add_executable(${from} EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/${from}.cpp)
    else()
      add_library(${from} STATIC EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/${from}.cpp)
    endif()
    target_link_libraries(${from} PRIVATE turnout_base)
    if("TESTS" IN_LIST ARGN)
      target_link_libraries(${from} PRIVATE GTest::gtest)
      target_compile_options(${from} PRIVATE ${turnout_test_options})
    endif()
    target_precompile_headers(${from} PRIVATE ${headers})
  endif()
  target_link_libraries(${target} PRIVATE fmt::fmt)
  target_precompile_headers(${target} REUSE_FROM ${from})
endfunction()

function(turnout_quick target)
  if("TESTS" IN_LIST ARGN)
    target_compile_options(${target} PRIVATE ${turnout_test_options})
  else()
    target_compile_options(${target} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
  endif()
  turnout_precompile(${target} ${ARGN})
endfunction()
