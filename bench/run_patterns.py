#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""onetoall, alltoone and repeat (bench/mpi/patterns.c) over Turnout, under one policy after the other.

    bench/run_patterns.py BUILD_DIR [--policy aqps --policy rc-rdma-od ...] [--ranks 8]

Runs on PyPI's MPICH, all messages over Turnout. In every round each policy runs once, in an order that
changes from round to round; the figure is the median of the rounds. Prints a table with the ratios to
the first policy. Every run checks that each message came, in order.
"""

import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
POLICIES = ["aqps", "rc-rdma-od", "static:dc-sendrecv"]
PATTERNS = ["onetoall", "alltoone", "repeat"]


def compile_program(folder):
    mpicc = pathlib.Path(sys.executable).parent / "mpicc"
    program = folder / "patterns"
    subprocess.run([mpicc, "-O2", "-o", program, ROOT / "bench" / "mpi" / "patterns.c"], check=True)
    return program


def environment(build, policy, fabric):
    env = dict(os.environ)
    env.update(FI_PROVIDER_PATH=str((build / "lib").resolve()), FI_PROVIDER="turnout",
               TURNOUT_FABRIC=fabric, TURNOUT_POLICY=policy,
               MPIR_CVAR_CH4_NETMOD="ofi", MPIR_CVAR_NOLOCAL="1",
               MPIR_CVAR_CH4_PROGRESS_THROTTLE="1",
               MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT="16")
    return env


def run(args, program, pattern, policy, number):
    mpiexec = pathlib.Path(sys.executable).parent / "mpiexec"
    command = [mpiexec, "-launcher", "fork", "-n", str(args.ranks), program, "--json",
               "--messages", str(args.messages), "--messages-in", str(args.messages_in),
               "--repeats", str(args.repeats), "--warm-up", str(args.warm_up), pattern]
    command = [str(word) for word in command]
    env = environment(args.build, policy, f"patterns-{os.getpid()}-{number}")
    done = subprocess.run(command, env=env, timeout=args.timeout, capture_output=True, text=True)
    line = next((l for l in done.stdout.splitlines() if l.startswith("{")), None)
    if done.returncode != 0 or line is None:
        raise SystemExit(f"{shlex.join(command)} under {policy}: exit code {done.returncode}\n"
                         f"{done.stdout}{done.stderr}")
    result = json.loads(line)
    # The program checked it too; this makes sure that it ran what was asked for.
    sent = {"onetoall": args.messages, "alltoone": args.messages_in,
            "repeat": 5 * (args.messages + args.messages_in)}[pattern]
    if (result["messages"], result["received"], result["wrong"]) != (sent, sent * args.repeats, 0):
        raise SystemExit(f"{pattern} under {policy}: {line}: expected {sent} messages")
    return result


def table(results, policies, patterns):
    """Medians of the rounds, and ratios to the first policy."""
    lines = ["| pattern | policy | ns per send | time (s) | against " + policies[0] + " |",
             "|---|---|---:|---:|---:|"]
    for pattern in patterns:
        median = {p: statistics.median(r["seconds"] for r in results[pattern, p]) for p in policies}
        for policy in policies:
            messages = results[pattern, policy][0]["messages"]
            lines.append(f"| {pattern} | {policy} | {median[policy] * 1e9 / messages:.1f} | "
                         f"{median[policy]:.3f} | {median[policy] / median[policies[0]]:.2f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--policy", action="append", help=f"repeatable; {', '.join(POLICIES)}")
    parser.add_argument("--pattern", action="append", choices=PATTERNS)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--messages", type=int, default=320000, help="of one onetoall")
    parser.add_argument("--messages-in", type=int, default=48000, help="of one alltoone")
    parser.add_argument("--repeats", type=int, default=3, help="in one run of the program")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up", type=float, default=3.0,
                        help="seconds; longer than TURNOUT_INTERVAL, so that channels are chosen")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds for one run")
    parser.add_argument("--json", type=pathlib.Path, help="write the results of all runs there")
    args = parser.parse_args()
    policies, patterns = args.policy or POLICIES, args.pattern or PATTERNS
    results = {(pattern, policy): [] for pattern in patterns for policy in policies}
    with tempfile.TemporaryDirectory(prefix="turnout-patterns-") as folder:
        program = compile_program(pathlib.Path(folder))
        number = 0
        for r in range(args.rounds):
            for pattern in patterns:
                for policy in policies[r % len(policies):] + policies[:r % len(policies)]:
                    number += 1
                    result = run(args, program, pattern, policy, number)
                    results[pattern, policy].append(result)
                    print(f"round {r + 1}/{args.rounds} {pattern:9} {policy:20} "
                          f"{result['ns_per_send']:10.1f} ns per send, {result['seconds']:.3f} s, "
                          f"{result['received']} messages received", flush=True)
    if args.json:
        listed = [{"pattern": pattern, "policy": policy, "runs": runs}
                  for (pattern, policy), runs in results.items()]
        args.json.write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
    print(f"\n{args.ranks} ranks on {len(os.sched_getaffinity(0))} cores, median of {args.rounds} "
          f"rounds\n\n{table(results, policies, patterns)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
