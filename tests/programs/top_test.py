#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`turnout top` of two processes that talk over Turnout.

    top_test.py BUILD_DIR [unittest's options]
"""

import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import termios
import time
import unittest

BUILD = pathlib.Path()
LIMIT = 60  # seconds


class Top(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="turnout-top-")
        self.addCleanup(scratch.cleanup)
        self.runtime = pathlib.Path(scratch.name)
        self.fabric = f"top-{os.getpid()}"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("TURNOUT_")}
        self.env.update(FI_PROVIDER_PATH=str(BUILD / "lib"), XDG_RUNTIME_DIR=scratch.name,
                        TURNOUT_FABRIC=self.fabric, TURNOUT_REPORT_JOB="top-test")
        self.folder = self.runtime / f"turnout-{os.geteuid()}-top"

    def start(self):
        """Two processes that talk until they are ended."""
        job = subprocess.Popen([BUILD / "bin" / "fi_stress", "traffic", "--ranks", "2",
                                "--messages", "1000000000"],
                               env=self.env, stdout=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(self.end, job)
        return job

    @staticmethod
    def end(job):
        try:
            os.killpg(job.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        job.wait()

    def top(self, *options):
        return subprocess.run([BUILD / "bin" / "turnout", "top", *options], env=self.env, text=True,
                              capture_output=True, timeout=LIMIT)

    def reports(self):
        return sorted(self.folder.glob("*.json")) if self.folder.is_dir() else []

    def wait_for(self, condition):
        end = time.monotonic() + LIMIT
        while not condition():
            self.assertLess(time.monotonic(), end, self.reports())
            time.sleep(0.1)

    def test_two_processes(self):
        job = self.start()
        done = self.top("--once", "--job", "top-test", "--wait", "40")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("All processes: 2", done.stdout)
        pids = {int(pid) for pid in re.findall(r"^process (\d+),|pid (\d+)", done.stdout, re.M)
                for pid in pid if pid}
        self.assertEqual(len(pids), 2, done.stdout)
        self.assertIn("sent by channel", done.stdout)
        # One of them alone; a process that is not there.
        one = min(pids)
        done = self.top("--once", "--pid", str(one), "--wait", "40")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("All processes: 1", done.stdout)
        self.assertIn(str(one), done.stdout)
        done = self.top("--once", "--job", "another", "--wait", "2")
        self.assertEqual(done.returncode, 1)
        self.assertIn("of job another", done.stdout)
        # Nobody watches any more: they take their reports back.
        self.wait_for(lambda: not self.reports())
        self.assertIsNone(job.poll())

    def start_on_terminal(self, kind):
        """`turnout top` on a terminal of 80 x 24, without keys; returns it and a function that waits for words of
        its output after some number of bytes, and returns the number of bytes so far."""
        leader, follower = pty.openpty()
        self.addCleanup(os.close, leader)
        termios.tcsetwinsize(follower, (24, 80))
        top = subprocess.Popen([BUILD / "bin" / "turnout", "top", "--job", "top-test"],
                               env=dict(self.env, TERM=kind), stdout=follower, stderr=follower,
                               stdin=subprocess.DEVNULL)
        os.close(follower)
        self.addCleanup(top.wait)
        self.addCleanup(top.kill)
        text = b""

        def until(words, since=0):
            nonlocal text
            end = time.monotonic() + LIMIT
            while words not in text[since:]:
                self.assertLess(time.monotonic(), end, text[-4000:])
                if select.select([leader], [], [], 0.5)[0]:
                    text += os.read(leader, 65536)
            return len(text)

        return top, until

    def test_terminal_and_dead_processes(self):
        # A terminal without cursor motion gets text, others a screen (tests/cli/top_test.py), of which only what
        # changes is written: a word onto blanks comes whole.
        for kind, words, without in (("dumb", b"turnout report", b"no process of yours of job top-test"),
                                     ("xterm", b"top-test", None)):
            with self.subTest(kind):
                job = self.start()
                top, until = self.start_on_terminal(kind)
                before = until(words)
                self.wait_for(lambda: len(self.reports()) == 2)
                # Killed: they cannot take their reports back, the watcher does.
                self.end(job)
                if without:
                    until(without, before)
                self.wait_for(lambda: not self.reports())
                top.send_signal(signal.SIGINT)
                self.assertEqual(top.wait(LIMIT), 0)
                self.assertFalse((self.folder / ".watch").exists())

    def test_damaged_reports_are_told(self):
        self.folder.mkdir(mode=0o700)
        (self.folder / f"{os.getpid()}.0000000000000001.json").write_text('{"turnout_report": 1}')
        (self.folder / "x.json").write_text("{}")
        done = self.top("--once", "--wait", "0.2")
        self.assertIn('a report without "job"', done.stdout)

    def test_a_folder_of_others_is_refused(self):
        self.folder.mkdir(mode=0o700)
        self.folder.chmod(0o777)
        done = self.top("--once", "--wait", "0.2")
        self.assertIn("accessible to others", done.stdout)
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), [])


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
