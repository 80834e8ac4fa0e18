#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""An MPI job that runs twice: the second time the reports of the first are its prediction (TURNOUT_PREDICTION).

    prediction_test.py BUILD_DIR MPI PREFIX/bin [unittest's options]     MPI: open_mpi or mpich

Counts only, no times: how many messages came before a source had its ring.
"""

import json
import re
import subprocess

import mpi_commands

LIMIT = 300  # seconds after which a job counts as hung
RINGS = ("DC-RDMA", "RC-RDMA", "XRC-RDMA")
RANKS = 4
FAILED = "reading the prediction failed: "


def reports_of(folder):
    """By rank, of the endpoint with the most peers."""
    found = {}
    for path in folder.glob("*.json"):
        report = json.loads(path.read_text())
        if len(report["peers"]) >= len(found.get(report["rank"], {"peers": []})["peers"]):
            found[report["rank"]] = report
    return found


def before_rings(reports):
    """Messages of each (rank, sender) that came before the sender had a ring, of those that got one."""
    rank_of = {report["endpoint"]: rank for rank, report in reports.items()}
    counts = {}
    for rank, report in reports.items():
        for peer in report["peers"]:
            spans = peer["receive"]["spans"]
            first = next((i for i, span in enumerate(spans) if span["channel"] in RINGS), None)
            if first is not None and peer["endpoint"] in rank_of:
                counts[rank, rank_of[peer["endpoint"]]] = sum(span["messages"] for span in spans[:first])
    return counts


class Prediction(mpi_commands.JobTest):
    source = "changing.c"

    def finished(self, ranks, reports, **settings):
        """What the job wrote to standard error."""
        command = [self.turnout, "run", f"--report={reports}", "--", self.launcher, "-n", str(ranks),
                   self.program, "2", "1"]
        done = subprocess.run(command, env={**self.env, **settings}, cwd=self.scratch, text=True, capture_output=True,
                              timeout=LIMIT, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_the_second_run_asks_sooner(self):
        self.finished(RANKS, "first")
        said = self.finished(RANKS, "second", TURNOUT_PREDICTION=str(self.scratch / "first"))
        self.assertNotIn(FAILED, said)
        first, second = reports_of(self.scratch / "first"), reports_of(self.scratch / "second")
        self.assertEqual(sorted(second), list(range(RANKS)))
        # Every rank's busiest source, the one at distance 1; on a loaded machine some have sent too little for a ring.
        before, now = before_rings(first), before_rings(second)
        pairs = [pair for pair in ((rank, (rank - 1) % RANKS) for rank in range(RANKS)) if pair in before and pair in now]
        self.assertGreaterEqual(len(pairs), 2, (before, now))
        print(f"messages before the ring: {[before[pair] for pair in pairs]}, with the prediction "
              f"{[now[pair] for pair in pairs]}", flush=True)
        self.assertLess(sum(now[pair] for pair in pairs), sum(before[pair] for pair in pairs) / 2, (before, now))
        predicted = {rank for rank, report in second.items()
                     for decision in report["decisions"] if "TURNOUT_PREDICTION" in decision["reason"]}
        self.assertGreaterEqual(len(predicted), len(pairs))
        for rank, report in second.items():
            self.assertLessEqual(report["peak"], report["budget"])
            self.assertEqual(int(report["endpoint"], 16) & 0xffffff, rank)

    def test_it_says_why(self):
        self.finished(RANKS, "first")
        self.finished(RANKS, "second", TURNOUT_PREDICTION=str(self.scratch / "first"))
        texts = []
        for rank in range(RANKS):
            done = subprocess.run([self.turnout, "why", str(rank), str((rank - 1) % RANKS), "second"],
                                  env=self.env, cwd=self.scratch, text=True, capture_output=True, timeout=LIMIT,
                                  check=True)
            texts.append(re.sub(r"\s+", " ", done.stdout))
        self.assertTrue(any("predicted by the last run" in text for text in texts), texts)

    def test_what_cannot_be_used_is_warned_about(self):
        self.finished(2, "first")
        for prediction, why in (("first", "there is no report of rank|the last run's is of rank"),
                                ("none", "No such file or directory")):
            said = self.finished(RANKS, f"of-{prediction}", TURNOUT_PREDICTION=str(self.scratch / prediction))
            warnings = [line for line in said.splitlines() if FAILED in line]
            self.assertEqual(len(warnings), RANKS, said)
            for line in warnings:
                self.assertRegex(line, f"{FAILED}[^:]*{prediction}: ({why}).*; set TURNOUT_PREDICTION to ")


if __name__ == "__main__":
    mpi_commands.main()
