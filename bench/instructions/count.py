#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Instructions of a tagged message, both ends in one process, by library, counted by callgrind.

    bench/instructions/count.py BUILD_DIR [--contender turnout ...] [--functions N]
    bench/instructions/count.py BUILD_DIR --check TABLE     exit 1 if Turnout's are more than 2 % above it
    bench/instructions/count.py BUILD_DIR --write TABLE

Counted is what many messages of a pair that is settled take beyond a few. `above verbs` is everything but the program itself and, for those that use one, the virtual adapter
(libibverbs, libmlx5); `adapter` is that one. System calls count nothing. With one core for both ends no
processor waits for the other: figures compare what code has to do, not how long a message takes.
Built by: tools/build.sh release fi_message.
"""

import argparse
import collections
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import callgrind  # noqa: E402  (of the tools)

FEW, MANY = 2000, 22000  # so many apart: what is due by time weighs little
TOLERANCE = 1.02
# What a message is; a row of the table each.
CASES = {
    "8 B, fi_tinject": ["--inject"],
    "8 B, fi_tsend": [],
    "1 KiB, fi_tsend": ["--size", "1024"],
    "empty poll": ["--empty"],
}
ADAPTER = ("libibverbs", "libmlx5", "librdmacm")
HEAD = "# Instructions of a message over Turnout: above verbs, adapter; see count.py.\n"


class Contender:
    def __init__(self, build, name):
        self.provider = {"verbs": "verbs;ofi_rxm"}.get(name, name)
        self.program = build / "bin" / "fi_message"
        # Under callgrind there is no room for more.
        self.env = dict(os.environ, TURNOUT_FABRIC=f"instructions-{os.getpid()}", TURNOUT_FABRIC_SIZE="256MiB")
        if name == "turnout":
            # The channel that pairs of much traffic get; by itself it is chosen after a second.
            self.env |= {"FI_PROVIDER_PATH": str(build / "lib"), "TURNOUT_POLICY": "static:rc-rdma"}
        elif name == "verbs":
            self.env["LD_LIBRARY_PATH"] = str(build / "lib" / "turnout")

    def costs(self, options):
        command = [str(self.program), "--provider", self.provider, *options, "--count"]
        return callgrind.each(lambda count: [*command, str(count)], FEW, MANY, self.env)

    def sums(self, options, functions=0):
        costs = self.costs(options)
        above, adapter = 0, 0
        by_function = collections.Counter()
        for (library, function), count in costs.items():
            if pathlib.Path(library).name == self.program.name:
                continue
            of_adapter = pathlib.Path(library).name.startswith(ADAPTER)
            adapter += count if of_adapter else 0
            above += 0 if of_adapter else count
            by_function[pathlib.Path(library).name, function.removeprefix("decltype (").split("(")[0][:60]] += count
        for (library, function), count in by_function.most_common(functions):
            print(f"{count:8.0f}  {library}  {function}")
        return round(above), round(adapter)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--contender", action="append")
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--functions", type=int, default=0, help="so many of each, by instructions")
    parser.add_argument("--check", type=pathlib.Path)
    parser.add_argument("--write", type=pathlib.Path)
    args = parser.parse_args()
    build = args.build.resolve()
    table = args.check or args.write
    if table is not None:
        args.contender, args.case = ["turnout"], None
    counts = {}
    print(f"{'':10} {'':18} above verbs  adapter")
    for name in args.contender or ["turnout", "shm", "tcp", "verbs"]:
        contender = Contender(build, name)
        for case, options in CASES.items():
            if args.case and case not in args.case:
                continue
            try:
                above, adapter = contender.sums(options, args.functions)
            except callgrind.CallgrindError as error:
                if name == "turnout":
                    sys.exit(str(error))
                print(f"{name:10} {case:18} not counted: {str(error).splitlines()[-1]}")
                continue
            counts[case] = (above, adapter)
            print(f"{name:10} {case:18} {above:11} {adapter or '-':>8}", flush=True)
    if args.write:
        args.write.write_text(HEAD + "".join(f"{case}\t{above}\t{adapter}\n"
                                             for case, (above, adapter) in counts.items()))
    if args.check:
        rows = [line.split("\t") for line in args.check.read_text().splitlines() if not line.startswith("#")]
        before = {case: (int(above), int(adapter)) for case, above, adapter in rows}
        if set(before) != set(counts):
            sys.exit(f"{args.check}: expected rows for {', '.join(counts)}")
        worse = [f"{case}: {what} takes {now} instructions, {then} in {args.check}" for case in counts
                 for what, now, then in zip(("above verbs", "adapter"), counts[case], before[case])
                 if now > then * TOLERANCE]
        if worse:
            sys.exit("\n".join(worse) + "\nIf that is meant, write the table anew (--write).")


if __name__ == "__main__":
    main()
