#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`turnout why` of MPI jobs whose partners change (changing.c), from reports that are saved, and while they run.

    why_test.py BUILD_DIR MPI PREFIX/bin [unittest's options]     MPI: open_mpi or mpich
"""

import json
import os
import re
import signal
import statistics
import subprocess

import mpi_commands

LIMIT = 300  # seconds after which a job counts as hung
RINGS = ("DC-RDMA", "RC-RDMA", "XRC-RDMA")


class Why(mpi_commands.JobTest):
    source = "changing.c"

    def job(self, ranks, *words):
        return [self.turnout, "run", "--report=reports", "--", self.launcher, "-n", str(ranks),
                self.program, *map(str, words)]

    def finished(self, ranks, *words):
        done = subprocess.run(self.job(ranks, *words), env=self.env, cwd=self.scratch, text=True, capture_output=True,
                              timeout=LIMIT, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def why(self, rank, peer, *words, code=0):
        done = subprocess.run([self.turnout, "why", str(rank), str(peer), *map(str, words)], env=self.env,
                              cwd=self.scratch, text=True, capture_output=True, timeout=LIMIT, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr

    def test_saved_reports(self):
        self.finished(4, 1, 1)
        text = self.why(0, 1, "reports")
        if os.environ.get("WHY_TEST_SHOWS"):
            print(text, flush=True)
        flat = re.sub(r"\s+", " ", text)
        for pattern in (r"rank 1 -> rank 0: over [A-Z]+-\w+ since ", r"rank 0 -> rank 1: over [A-Z]+-\w+ since ",
                        r"rank 0 decides, by the policy turnout", r"counted [\d,]+ messages and ",
                        r"window [\d,]+ messages of [\d,]+ from all peers in ", r"spends \d+ % of its time on messages",
                        r"DC-RDMA -?[\d.]+ [num]?s .*RC-RDMA -?[\d.]+ [num]?s", r"changes it ", r"history "):
            self.assertRegex(flat, pattern, text)
        self.assertLessEqual(max(map(len, text.splitlines())), 100)
        self.assertIn("no rank or process 9 in these reports; there are: rank 0, rank 1, rank 2, rank 3",
                      self.why(0, 9, "reports", code=2))
        self.assertIn("no reports", self.why(0, 1, "--job=other", "reports", code=1))

    def test_a_running_job(self):
        with subprocess.Popen(self.job(2, 60, 1), env=self.env, cwd=self.scratch, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, start_new_session=True) as job:
            try:
                self.assertRegex(job.stdout.readline(), "distance 1 from")
                self.assertRegex(self.why(1, 0), r"rank 0 -> rank 1: over [A-Z]+-\w+ since ")
            finally:
                os.killpg(job.pid, signal.SIGKILL)

    def test_the_new_partners_get_their_channels(self):
        """The pairs of the second part got a ring after the change. How long that took, in set-up times of this very
        run, is printed: it is wall-clock time on a machine with fewer cores than ranks."""
        out = self.finished(8, 3, 1, 3)
        change = int(re.search(r"distance 3 from (\d+)", out)[1])
        reports = [json.loads(path.read_text()) for path in (self.scratch / "reports").glob("*.json")]
        rank_of = {report["endpoint"]: report["rank"] for report in reports}
        set_ups = [int(match[1]) * 1000 for report in reports for decision in report["decisions"]
                   if decision["to"] in RINGS and (match := re.match(r"done in (\d+) us", decision["outcome"]))]
        reached, seen = [], 0
        for report in reports:
            for peer in report["peers"]:
                if (report["rank"] - rank_of[peer["endpoint"]]) % 8 != 3:
                    continue
                seen += 1
                after = [report["started_unix_ns"] + span["since_ns"] - change for span in peer["receive"]["spans"]
                         if span["channel"] in RINGS]
                if after and after[-1] > 0:
                    reached.append(min(one for one in after if one > 0))
        self.assertEqual(seen, 8)
        self.assertEqual(len(reached), 8, "a new partner has no channel of its own")
        typical = statistics.median(set_ups)
        print(f"first ring {min(reached) / 1e6:.1f} to {max(reached) / 1e6:.1f} ms after the change, median "
              f"{statistics.median(reached) / 1e6:.1f} ms: {statistics.median(reached) / typical:.0f} set-up times of "
              f"{typical / 1e3:.0f} us (of {len(set_ups)})", flush=True)


if __name__ == "__main__":
    mpi_commands.main()
