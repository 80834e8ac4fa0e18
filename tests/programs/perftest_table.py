#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""perftest over the virtual adapter: every operation, service and variant that perftest offers.

    perftest_table.py BUILD [--mlx5] [--only REGEX] [--jobs N] [--markdown]

Each cell is a pair of processes, server and client, under `turnout verbs`, with --mlx5 by the system's own
libmlx5 on the emulated mlx5; it passes when both exit with 0. A combination that perftest itself refuses (a usage error, not a failed verb) is a dash. With
--markdown the page docs/perftest.md is printed. Exits with 1 when a cell fails.
"""
import argparse
import concurrent.futures
import itertools
import os
import pathlib
import re
import subprocess
import sys

import verbs_pair

OPERATIONS = ["send", "write", "read", "atomic"]
KINDS = ["lat", "bw"]
SERVICES = ["RC", "UC", "UD", "XRC", "DC"]
# Name, arguments. -n is small: the table shows what works, not how fast.
VARIANTS = [
    ("one size", ["-n", "1000"]),
    ("all sizes", ["-a", "-n", "20"]),
    ("events", ["-e", "-n", "200"]),
    ("SRQ", ["--use-srq", "-n", "500"]),
    ("16 queue pairs", ["-q", "16", "-n", "500"]),
    ("bidirectional", ["-b", "-n", "500"]),
    ("rdma_cm", ["-R", "-n", "500"]),
    ("ibv_post_send", ["--use_old_post_send", "-n", "500"]),
    ("inline", ["-I", "128", "-s", "64", "-n", "500"]),
    ("on-demand paging", ["--odp", "-n", "500"]),
]
# perftest's messages when it does not support a combination, on any adapter.
REFUSALS = [
    r"UD connection only possible in SEND verb",
    r"UC connection not possible in",
    r"does not support RDMA_CM",
    r"ODP does not support",
    r"Message size cannot be changed for Atomic",
    r"DC does not support old post send flow",
    r"feature not available on",
    r"Using SRQ only avavilible in SEND tests",
    r"is not supported",
    r"(?:available|supported|possible|relevant) only",
    r"only (?:available|supported|possible|relevant)",
    r"Multiple QPs only available",
    r"Invalid Command line",
    r"(?:unrecognized|invalid) option",
]
# perftest's own errors after the measurement, on any adapter: with -e it leaves one of a DC queue pair's
# completion queues on the channel, and rdma-core's ibv_destroy_comp_channel refuses that as well.
FAULTS = [("DC", "events", "Failed to close event channel")]
LIMIT = 120  # seconds of a pair


def not_offered(output):
    for pattern in REFUSALS:
        found = re.search(".*(?:" + pattern + ").*", output)
        if found:
            return found.group(0).strip()
    return None


def pair(verbs, operation, kind, service, variant, arguments, number):
    # Below 32768: from there on the system gives ports to those who connect (ip_local_port_range).
    program = [f"ib_{operation}_{kind}", "-c", service, "-p", str(20000 + os.getpid() * 7 % 12000 + number), *arguments]
    env = dict(os.environ, TURNOUT_ADAPTER="connectx-5")
    command = [*verbs, "--fabric", f"perftest-{os.getpid()}-{number}", "--", *program]
    ended = verbs_pair.run(command, command + ["localhost"], LIMIT, env)
    text = ended.text
    if ended.good:
        return "ok", text
    if ended.client is None:
        return "wrong", text
    if any((service, variant) == fault[:2] and fault[2] in text for fault in FAULTS):
        return "fault", text
    refusal = not_offered(text)
    return ("refused", refusal) if refusal and "ailed to" not in text else ("wrong", text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--only", default="", help="of 'operation kind service variant', a regular expression")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--mlx5", action="store_true", help="on the emulated mlx5")
    options = parser.parse_args()
    verbs = [str(options.build / "bin" / "turnout"), "verbs", "--mlx5" if options.mlx5 else "--mlx5dv"]

    cells = [(o, k, s, v) for (o, k), s, v in
             itertools.product(itertools.product(OPERATIONS, KINDS), SERVICES, VARIANTS)
             if re.search(options.only, f"{o} {k} {s} {v[0]}")]
    outcomes = {}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        running = {pool.submit(pair, verbs, o, k, s, v[0], v[1], n): (o, k, s, v[0])
                   for n, (o, k, s, v) in enumerate(cells)}
        for done in concurrent.futures.as_completed(running):
            outcomes[running[done]] = done.result()
            outcome, why = done.result()
            print(f"{' '.join(running[done])}: {outcome}" + (f" ({why})" if outcome == "refused" else ""),
                  file=sys.stderr, flush=True)

    wrong = [cell for cell, (outcome, _) in outcomes.items() if outcome == "wrong"]
    if options.markdown:
        print_page(outcomes)
    for cell in wrong:
        print(f"\n== {' '.join(cell)}\n" + "\n".join(outcomes[cell][1].splitlines()[-12:]), file=sys.stderr)
    count, faults = (sum(outcome == kind for outcome, _ in outcomes.values()) for kind in ("ok", "fault"))
    print(f"{count} ran, {len(wrong)} wrong, {faults} measured and then ended by a fault of perftest's, "
          f"{len(outcomes) - count - len(wrong) - faults} not offered by it", file=sys.stderr)
    return 1 if wrong or count == 0 else 0


def print_page(outcomes):
    version = subprocess.run(["ib_send_lat", "-V"], capture_output=True, text=True).stdout.split()[-1:]
    print("# perftest on the virtual adapter\n")
    print(f"perftest {' '.join(version)}. `tests/programs/perftest_table.py build/release --markdown` writes this page.\n\n"
          "- ok: server and client both exited with 0.\n"
          "- dash: perftest does not support the combination.\n"
          "- *leak*: the measurement runs, but perftest exits with 1: it leaves a completion queue on an event channel, and\n"
          "  rdma-core also refuses to destroy such a channel.\n")
    signs = {"ok": "ok", "refused": "-", "wrong": "**failed**", "fault": "*leak*"}
    print("| | " + " | ".join(name for name, _ in VARIANTS) + " |")
    print("|---|" + "---|" * len(VARIANTS))
    for operation, kind, service in itertools.product(OPERATIONS, KINDS, SERVICES):
        row = [outcomes.get((operation, kind, service, name)) for name, _ in VARIANTS]
        if all(cell is None or cell[0] == "refused" for cell in row):
            continue
        print(f"| ib_{operation}_{kind} -c {service} | "
              + " | ".join(signs[cell[0]] if cell else "" for cell in row) + " |")


if __name__ == "__main__":
    sys.exit(main())
