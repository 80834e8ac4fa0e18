#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds and tests, step by step, and ends with one line: N passed, N failed.
#
#   tools/test.sh quick            the release build (`make test`)
#   tools/test.sh sanitizers       the address and thread sanitizers
#   tools/test.sh programs         whole programs of others: MPI suites, perftest, pyverbs, HPCC
#   tools/test.sh headers          each header compiles alone
#   tools/test.sh long             clang, long suites, fuzzing, checks of the sources
#   tools/test.sh quick sanitizers long    all of these (`make test-all`)
#   tools/test.sh guest            in an emulated guest with Soft-RoCE (`make test-guest`)
#   tools/test.sh guest-brief      a part of that, of some minutes
#
# BEGIN_WITHIN, if set: no further step is begun after so many seconds.
# LEAVE_OUT, if set: long tests whose names match it are not run.
set -uo pipefail
cd "$(dirname "$0")/.."
passed=0
failed=0
skipped=0
trouble=()

begin() {
  if [ -n "${BEGIN_WITHIN:-}" ] && [ "$SECONDS" -ge "$BEGIN_WITHIN" ]; then
    printf '== %s: left out, the time is up\n' "$1"
    return 1
  fi
  printf '\n== %s (after %d min)\n' "$1" $((SECONDS / 60))
}

# What is no test but must succeed counts as one when it fails.
step() {
  local name=$1
  shift
  begin "$name" || return 1
  if "$@"; then return 0; fi
  failed=$((failed + 1))
  trouble+=("$name")
  return 1
}

# ctest in build/PRESET; its closing line tells how many tests passed and failed.
run_ctest() {
  local preset=$1
  shift
  begin "tests of build/$preset" || return 0
  local log=build/$preset.tests.log
  # Whole programs, which take all cores, are RUN_SERIAL.
  ctest --test-dir "build/$preset" --parallel "$(nproc)" --output-on-failure --no-tests=error \
    --timeout 600 "$@" 2>&1 |
    tee "$log"
  local status=${PIPESTATUS[0]}
  local line
  line=$(grep -E '^[0-9]+% tests passed, [0-9]+ tests failed out of [0-9]+' "$log" | tail -n 1)
  if [[ $line =~ ([0-9]+)\ tests\ failed\ out\ of\ ([0-9]+) ]]; then
    failed=$((failed + BASH_REMATCH[1]))
    passed=$((passed + BASH_REMATCH[2] - BASH_REMATCH[1]))
    if [ "${BASH_REMATCH[1]}" -ne 0 ]; then
      trouble+=("build/$preset: see $log")
      # Their names and ends, once more: whoever sees only the end of this output sees why.
      local name
      while read -r name; do
        trouble+=("  $name")
        mapfile -t -O "${#trouble[@]}" trouble < <(
          awk -v name="$name" 'index($0, " Test ") && / #[0-9]+: / { on = index($0, ": " name " ") > 0 }
                               /^ *Start +[0-9]+: / { on = 0 } on { print "    | " $0 }' "$log" |
            tail -n 25 | cut -c 1-300
        )
      done < <(sed -n '/^The following tests FAILED:/,$ s/^[\t ]*[0-9]* - \([^ ]*\) .*(.*/\1/p' "$log" | head -n 10)
    fi
  elif [ "$status" -ne 0 ]; then
    failed=$((failed + 1))
    trouble+=("build/$preset: ctest ended with $status, see $log")
  fi
}

# Reports of the sanitizers end the test; what the libraries of others do at exit is not ours.
# Of memory of threads in libraries that are loaded late, the leak check reads sizes that glibc did not write, and crashes.
export ASAN_OPTIONS="${ASAN_OPTIONS:-abort_on_error=0:detect_leaks=1:intercept_tls_get_addr=0}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"
export TSAN_OPTIONS="${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1}"

quick() {
  step "release build" tools/build.sh release && run_ctest release -LE "long|whole"
}

sanitizers() {
  step "build with address and undefined-behaviour sanitizers" tools/build.sh asan sanitize_tests &&
    run_ctest asan -L sanitize -LE long
  # Its subject is one process's threads; whole programs of many processes are left to the other.
  step "build with the thread sanitizer" tools/build.sh tsan threads_tests &&
    run_ctest tsan -L threads -LE "long|programs"
}

programs() {
  step "release build" tools/build.sh release all extras && run_ctest release -L whole -LE long
}

# Also a test of the long suites; here for who runs only `make test` and this.
headers() {
  step "headers compile alone" tools/check_headers.sh && passed=$((passed + 1))
}

long() {
  step "release build" tools/build.sh release all extras
  run_ctest release -L "long|whole" -LE guest ${LEAVE_OUT:+-E "$LEAVE_OUT"}
  step "random schedules in virtual time" build/release/bin/sim_soak --count 10000 &&
    passed=$((passed + 1))
  step "random schedules with little memory" build/release/bin/sim_soak --scarce --count 1000 &&
    passed=$((passed + 1))
  step "all with address and undefined-behaviour sanitizers" tools/build.sh asan &&
    run_ctest asan -L wide -LE long
  step "all with the thread sanitizer" tools/build.sh tsan &&
    run_ctest tsan -L "wide|sanitize" -LE "long|programs"
  step "clang build" tools/build.sh clang all extras && run_ctest clang -LE "long|programs"
  step "checks of the sources" tools/check.sh && passed=$((passed + 1))
}

guest() {
  if ! command -v qemu-system-x86_64 >/dev/null; then
    printf '\n== tests in the guest: SKIPPED, there is no QEMU (Debian package qemu-system-x86)\n'
    skipped=1
    return
  fi
  step "release build" tools/build.sh release all extras && step "tests of the guest" cmake build/release >/dev/null &&
    run_ctest release -L guest "$@"
}
# What needs little of its time, where the guest can be had.
guest-brief() {
  if command -v qemu-system-x86_64 >/dev/null && ! tests/guest/build.sh build/guest; then
    printf '\n== tests in the guest: SKIPPED, it cannot be made (see above)\n'
    skipped=1
    return
  fi
  guest -R '^guest\.(build|doctor|conformance|stress)$'
}

for part in "$@"; do "$part"; done

if [ ${#trouble[@]} -gt 0 ]; then
  printf '\n== failed:\n'
  printf '     %s\n' "${trouble[@]}"
fi
printf '\n%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ] && [ $((passed + skipped)) -gt 0 ]
