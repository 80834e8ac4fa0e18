#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`turnout stuck` says of real MPI jobs that hang (hang.c) who waits for whom, and why.

    stuck_test.py BUILD_DIR MPI PREFIX/bin [unittest's options]     MPI: open_mpi or mpich

The command is repeated until it explains the hang, up to a generous limit: processes that share two cores may be late.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time

import mpi_commands

LIMIT = 120  # seconds
LINES = 40  # one screen
HANGS = 3  # exit code
NAME = {"mpich": "MPICH", "open_mpi": "Open MPI"}


class Job:
    def __init__(self, test, way, ranks, settings, *words):
        self.name = f"hang-{way}-{os.getpid()}"  # another run of this test has jobs of its own
        env = dict(test.env, TURNOUT_FABRIC=f"stuck-{os.getpid()}-{way}", TURNOUT_REPORT_JOB=self.name, **settings)
        more = ["--oversubscribe"] if test.mpi == "open_mpi" else []
        self.errors = test.scratch / "errors"
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(
                [test.turnout, "run", *words, "--", test.launcher, *more, "-n", str(ranks), test.program, way], env=env,
                cwd=test.scratch, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True)
        self.pids = {}
        test.addCleanup(self.end)
        while len(self.pids) < ranks:
            line = self.process.stdout.readline()
            if not line:
                raise AssertionError(f"{way} ended: {self.errors.read_text()}")
            if found := re.match(r"rank (\d+) is process (\d+)$", line):
                self.pids[int(found[1])] = int(found[2])

    def end(self):
        for pid in self.pids.values():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.stdout.close()
        self.process.wait()


class Stuck(mpi_commands.JobTest):
    source = "hang.c"

    def stuck(self, *words):
        return subprocess.run([self.turnout, "stuck", *map(str, words)], env=self.env, text=True,
                              capture_output=True, timeout=LIMIT, check=False)

    def explained(self, way, ranks, *patterns, settings=None, prepare=lambda job: None, code=HANGS):
        """Starts the job, and repeats the command until its text has all patterns; blanks and line breaks count as
        one blank."""
        job = Job(self, way, ranks, settings or {})
        prepare(job)
        end = time.monotonic() + LIMIT
        while True:
            done = self.stuck("--job", job.name)
            text = re.sub(r"\s+", " ", done.stdout)
            missing = [one for one in patterns if not re.search(one, text)]
            if done.returncode == code and not missing:
                break
            self.assertLess(time.monotonic(), end, f"{way}: no {missing}, exit {done.returncode} in\n{done.stdout}"
                                                   f"{done.stderr}{job.errors.read_text()}")
        self.assertLessEqual(len(done.stdout.splitlines()), LINES, done.stdout)
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 110, done.stdout)
        if os.environ.get("STUCK_TEST_SHOWS"):
            print(f"--- {way}\n{done.stdout}", flush=True)
        return job, done.stdout

    def tag(self, tag):
        return rf"MPI tag {tag} \({NAME[self.mpi]}\)"

    def call(self, name):
        return rf"{name} \({NAME[self.mpi]}\)"

    def test_both_receive_first(self):
        job, _ = self.explained(
            "cycle", 2,
            r"2 of 2 processes report; 2 have waited",
            r"Deadlock: ranks 0 and 1 wait for each other",
            rf"rank 0 \(pid \d+\) waits for rank 1: receive, {self.tag(5)}, at most 4 B; for \d+ s or more "
            r"rank 1 has sent no such message",
            rf"rank 1 \(pid \d+\) waits for rank 0: receive, {self.tag(5)}")
        done = self.stuck("--job", job.name, "--json")
        found = json.loads(done.stdout)["jobs"][0]
        self.assertEqual((done.returncode, found["hangs"], found["cycles"]), (HANGS, True, [[0, 1]]))
        self.assertEqual({one["pid"] for one in found["processes"]}, set(job.pids.values()))

    def test_wrong_tag(self):
        self.explained(
            "wrong_tag", 2,
            rf"rank 0 \(pid \d+\) waits for rank 1: receive, {self.tag(5)}",
            rf"rank 1 sent {self.tag(6)}, 8 B, instead")

    def test_large_sends_in_a_ring(self):
        self.explained(
            "ring", 3,
            r"Deadlock: ranks 0, 1 and 2 wait for each other in a circle",
            rf"rank 0 \(pid \d+\) waits for rank 1: send, {self.tag(7)}, 1.00 MiB; "
            r"for \d+ s or more rank 1 has posted no receive for it",
            r"rank 2 \(pid \d+\) waits for rank 0: send")

    def test_one_computes(self):
        self.explained(
            "computes", 4,
            r"3 of 4 processes report",
            r"Cause: rank 1 \(pid \d+\) does not call the library[^:]*: it computes \(\d+ % of a core\); "
            r"ranks 0, 2 and 3 wait for it",
            rf"waits for (rank 1|any process): (receive|send), {self.call('MPI_Barrier')}")

    def test_one_sleeps(self):
        self.explained(
            "sleeps", 4,
            r"Cause: rank 1 \(pid \d+\) does not call the library[^:]*: it sleeps[^;]*; ranks 0, 2 and 3 wait for it")

    def test_one_is_stopped(self):
        self.explained(
            "stopped", 2,
            r"Cause: rank 1 \(pid (\d+)\) does not call the library[^:]*: it is stopped by a signal; "
            r"kill -CONT \1 continues it; rank 0 waits for it",
            rf"rank 0 \(pid \d+\) waits for rank 1: receive, {self.tag(3)}",
            prepare=lambda job: os.kill(job.pids[1], signal.SIGSTOP))

    def test_a_window_stays_locked(self):
        """MPI takes locks by messages of its own: nothing of them is pending in the library."""
        self.explained(
            "lock", 3,
            r"Cause: rank 2 \(pid \d+\) calls the library, but has no operation pending that could end: it waits for "
            r"something else, such as a probe, a test, or a lock or fence of a window; ranks 0 and 1 wait for it",
            rf"rank 0 \(pid \d+\) waits for rank 2: receive, {self.tag(4)}")

    if "open_mpi" not in sys.argv:  # only MPICH sends these operations as messages of its own
        def test_a_passive_target_computes(self):
            """Nothing is pending in the library: MPI waits for the answer to a message that has arrived."""
            self.explained(
                "atomic", 2,
                r"Note: rank 1 \(pid \d+\) does not call the library[^:]*: it computes \(\d+ % of a core\)",
                r"Note: rank 0 \(pid \d+\) calls the library, but has no operation pending that could end: it waits for "
                r"something else",
                code=0)

    def test_flood(self):
        self.explained(
            "flood", 3,
            r"Deadlock: ranks 0, 1 and 2|Deadlock: ranks 0, 2 and 1",
            rf"rank 1 \(pid \d+\) waits for rank 0: send, {self.tag(1)}, 1.00 KiB: "
            r"(the peer's ring is full|no receive credit of the peer is left)",
            r"rank 0 has at least 64 unexpected messages of rank 1 \(64.0 KiB\) and posts no receive for them",
            settings={"TURNOUT_UNEXPECTED_MEMORY": "1MiB"})

    def test_different_collective_operations(self):
        self.explained(
            "collectives", 3,
            rf"rank 0 \(pid \d+\) waits for rank \d: receive, {self.call('MPI_Allreduce')}",
            rf"rank [12] \(pid \d+\) waits for rank \d: receive, {self.call('MPI_Barrier')}")

    def test_nobody_sends_to_any_source(self):
        self.explained(
            "any_source", 3,
            r"Deadlock: ranks 0, 1 and 2 can only go on with messages of each other",
            rf"rank 2 \(pid \d+\) waits for any process: receive, {self.tag(2)}")

    def test_synchronous_send(self):
        self.explained(
            "synchronous", 2,
            rf"rank 0 \(pid \d+\) waits for rank 1: receive, answer to MPI_Ssend, {self.tag(8)}",
            rf"rank 1 has posted no receive for it; it receives {self.tag(9)} instead")

    def test_a_job_that_moves_does_not_hang(self):
        self.explained("busy", 2, "2 of 2 processes report; no operation of a process that makes no progress", code=0)

    def test_saved_reports(self):
        """TURNOUT_STUCK: the endpoints say it by themselves, and leave their reports."""
        folder = self.scratch / "reports"
        job = Job(self, "cycle", 2, {"TURNOUT_STUCK": "1500ms"}, f"--report={folder}")
        end = time.monotonic() + LIMIT
        while len(list(folder.glob("*.json"))) < 2:
            self.assertLess(time.monotonic(), end, job.errors.read_text())
            time.sleep(0.1)
        done = self.stuck(folder)
        self.assertEqual(done.returncode, HANGS, done.stdout + done.stderr)
        self.assertIn("Deadlock: ranks 0 and 1 wait for each other", done.stdout)
        line = r"receive is pending: turnout://\S+: tag 0x5, 4 bytes, for \d+ s: no matching message has arrived"
        self.assertEqual(len(re.findall(line, job.errors.read_text())), 2)

    def test_no_job(self):
        done = self.stuck("--job", "no-such-job", "--wait", 1)
        self.assertEqual(done.returncode, 1)
        self.assertIn("no process of yours of job no-such-job runs over Turnout", done.stderr)
        self.assertEqual(self.stuck("--wait", 0).returncode, 2)
        self.assertEqual(self.stuck(self.scratch / "nothing").returncode, 1)


if __name__ == "__main__":
    mpi_commands.main()
