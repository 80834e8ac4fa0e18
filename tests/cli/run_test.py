#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`turnout run`: MPI jobs as a user starts them, with nothing set.

    run_test.py BUILD_DIR MPI PREFIX/bin [unittest's options]     MPI: open_mpi or mpich
"""

import os
import subprocess

import mpi_commands

LIMIT = 120  # seconds after which a job counts as hung


class Run(mpi_commands.JobTest):
    source = "../../examples/ring.c"

    def setUp(self):
        super().setUp()
        del self.env["XDG_RUNTIME_DIR"]  # a user may have none

    def run_job(self, *words, code=0):
        done = subprocess.run([self.turnout, "run", *words], text=True,
                              env=self.env, capture_output=True, timeout=LIMIT, cwd=self.scratch)
        self.assertEqual(done.returncode, code, f"{words}\n{done.stdout}{done.stderr}")
        return done

    def test_every_process_uses_turnout(self):
        done = self.run_job("--", self.launcher, "-n", "4", self.program, "100")
        self.assertIn("the token is 400: right", done.stdout)
        self.assertIn("turnout run: 4 of 4 processes used Turnout\n", done.stderr)
        self.assertNotIn("No message used it", done.stderr)

    def test_report(self):
        done = self.run_job("--report", "--", self.launcher, "-n", "2", self.program)
        self.assertIn("2 of 2 processes used Turnout.", done.stdout)
        self.assertIn("rank 0 -> rank 1", done.stdout)
        self.assertIn("DC-sendrecv", done.stdout)
        summary = done.stdout[done.stdout.index("-- turnout report"):]
        self.assertLessEqual(len(summary.splitlines()), 25)
        done = self.run_job("--full", "--", self.launcher, "-n", "2", self.program)
        self.assertIn("rank 1 of 2", done.stdout)
        self.run_job("--report=run.html", "--", self.launcher, "-n", "2", self.program)
        self.assertIn("<!doctype html>", (self.scratch / "run.html").read_text()[:20].lower())
        self.run_job("--report=run.txt", "--", self.launcher, "-n", "2", self.program)
        self.assertIn("-- turnout report", (self.scratch / "run.txt").read_text())
        self.assertNotEqual(self.run_job("--report=/nonexistent/run.txt", "--", self.launcher, "-n", "2",
                                         self.program, code=1).stderr.find("writing the report failed"), -1)
        done = self.run_job("--report=kept", "--budget", "64MiB", "--policy", "aqps",
                            self.launcher, "-n", "2", self.program)
        self.assertEqual(len(list((self.scratch / "kept").glob("*.json"))), 2)
        self.assertIn("policy aqps", done.stdout)

    def test_root(self):
        words = ("--", self.launcher, "-n", "2", self.program)
        if self.mpi == "open_mpi" and os.getuid() == 0:  # it refuses to run as root unless that is allowed
            del self.env["OMPI_ALLOW_RUN_AS_ROOT"]
            self.assertIn("set OMPI_ALLOW_RUN_AS_ROOT=1", self.run_job(*words, code=1).stderr)
            self.env["OMPI_ALLOW_RUN_AS_ROOT"] = "1"
        self.assertIn("2 of 2 processes used Turnout", self.run_job(*words).stderr)

    def test_dry_run(self):
        done = self.run_job("--dry-run", "--", self.launcher, "-n", "2", self.program)
        self.assertIn("export FI_PROVIDER_PATH=", done.stdout)
        out = subprocess.run(["sh"], input=done.stdout, text=True, env={**self.env, "TURNOUT_REPORT": "1"},
                             capture_output=True, timeout=LIMIT)
        self.assertIn("turnout report", out.stdout + out.stderr)

    def test_who_does_not_use_it(self):
        self.env["FI_PROVIDER" if self.mpi == "mpich" else "OMPI_MCA_pml"] = \
            "tcp" if self.mpi == "mpich" else "ob1"
        done = self.run_job("--", self.launcher, "-n", "2", self.program)
        self.assertIn("turnout run: 0 of 2 processes used Turnout\n", done.stderr)
        self.assertIn("FI_PROVIDER is set to tcp" if self.mpi == "mpich" else "OMPI_MCA_pml is set to ob1",
                      done.stderr)

    def test_ends_as_the_job_does(self):
        self.assertIn("turnout run: ", self.run_job("--", "no-such-launcher", code=127).stderr)
        self.run_job("--", self.launcher, "-n", "2", "false", code=1)
        self.assertIn("a command is missing", self.run_job(code=2).stderr)


if __name__ == "__main__":
    mpi_commands.main()
