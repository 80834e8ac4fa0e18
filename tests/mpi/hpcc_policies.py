#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs HPCC over Turnout under every policy, with a change of channel every 200 messages, and with
every way of large messages.

    hpcc_policies.py BUILD_DIR [--ranks 8] [--order 400] [--only NAME ...]

HPCC runs on Debian's Open MPI; its own residual checks must pass. In the reports of the processes every
other rank is named, and what one rank says it sent to another is what that one says it received.
"""

import argparse
import collections
import json
import pathlib
import re
import tempfile

from hpcc_replay import ROOT, run_hpcc


def names(of):
    """A list of base/settings.h: a new name is tested here without anybody's help."""
    text = (ROOT / "base" / "settings.h").read_text(encoding="utf-8")
    return re.findall(r'"([^"]+)"', re.search(of + r" = \{(.*?)\};", text, re.S).group(1))


def all_runs():
    """Name of a run -> its settings: the policies, forced switches, both kinds without DC, and the
    ways of large messages, among them many that are small."""
    runs = {p: {"TURNOUT_POLICY": p, "TURNOUT_INTERVAL": "200ms"} for p in names("kPolicyNames")}
    for way in names("kRendezvousNames"):
        runs[f"rendezvous {way}"] = {"TURNOUT_RENDEZVOUS": way, "TURNOUT_RENDEZVOUS_THRESHOLD": "256"}
    runs["switching"] = {"TURNOUT_TUNING": "test_switch_every=200"}
    for name in ("turnout", "switching"):
        runs[f"{name} without DC"] = {**runs[name], "TURNOUT_DEFAULT_TRANSPORT": "ud"}
    return runs


def run(build, folder, ranks, order, settings):
    summary, reports = run_hpcc(build, ranks, order, folder, settings)
    passed = len(re.findall(r"\.\.\.+ PASSED", summary))
    failed = len(re.findall(r"\.\.\.+ FAILED", summary))
    if failed or not passed:
        raise SystemExit(f"HPCC: {passed} residual checks passed, {failed} failed")
    return passed, [json.loads(p.read_text(encoding="utf-8")) for p in reports.glob("*.json")]


def check(reports, ranks):
    """Messages by channel; every pair's two ends agree."""
    if len(reports) != ranks:
        raise SystemExit(f"{len(reports)} reports of {ranks} processes")
    rank_of = {r["endpoint"]: r["rank"] for r in reports}
    sent, received, channels = {}, {}, collections.Counter()
    for report in reports:
        me = report["rank"]
        for peer in report["peers"]:
            other = rank_of.get(peer["endpoint"])
            if other is None or other == me:
                continue
            if not peer["reason"] and any(s["messages"] for s in peer["receive"]["spans"]):
                raise SystemExit(f"rank {me} gives no reason for rank {other}")
            sent[me, other] = sum(s["messages"] for s in peer["send"]["spans"])
            received[other, me] = sum(s["messages"] for s in peer["receive"]["spans"])
            for span in peer["send"]["spans"]:
                channels[span["channel"]] += span["messages"]
    for pair in sorted(set(sent) | set(received)):
        if sent.get(pair, 0) != received.get(pair, 0):
            raise SystemExit(f"ranks {pair[0]} to {pair[1]}: {sent.get(pair, 0)} messages sent, "
                             f"{received.get(pair, 0)} received")
    if sum(sent.values()) != sum(channels.values()):
        raise SystemExit("the channels' messages do not add up")
    return len(sent), channels


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--order", type=int, default=400)
    parser.add_argument("--only", action="append", help="a policy, or the name of another run")
    args = parser.parse_args()
    runs = all_runs()
    for name in args.only or []:
        if name not in runs:
            parser.error(f"--only {name}: not one of {', '.join(runs)}")
    for name in args.only or runs:
        settings = runs[name]
        with tempfile.TemporaryDirectory(prefix="turnout-hpcc-") as folder:
            passed, reports = run(args.build.resolve(), pathlib.Path(folder), args.ranks, args.order,
                                  settings)
            pairs, channels = check(reports, args.ranks)
        told = ", ".join(f"{count} over {channel}" for channel, count in sorted(channels.items()))
        print(f"{name}: {passed} residual checks passed, {pairs} pairs agree: {told}", flush=True)


if __name__ == "__main__":
    main()
