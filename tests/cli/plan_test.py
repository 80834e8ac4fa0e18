#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`turnout plan` as a user runs it: plan_test.py TURNOUT_SIM

Traces of a workload at three sizes, a plan for a fourth that equals a run of it, the page and the data, and wrong use.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop()


def call(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, check=False)


class PlanTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="turnout-plan-test-")
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.traces = []
        for ranks in (8, 16, 32):
            path = cls.folder / f"cg-{ranks}.trace"
            done = call("sim", "nas-cg", "--ranks", ranks, "--no-check", "--write-trace", path)
            assert done.returncode == 0, done.stderr
            cls.traces.append(path)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def plan(self, *more):
        return call("plan", *self.traces, *more)

    def test_equals_the_whole_program(self):
        page, data, whole = self.folder / "page.html", self.folder / "plan.json", self.folder / "whole.json"
        done = self.plan("--ranks", 64, "--samples", 2, "--policies", "turnout,dc-rdma-od", "--html", page, "--json", data)
        self.assertEqual(done.returncode, 0, done.stderr)
        for text in ("recursive doubling", "transposition", "export TURNOUT_MEMORY_BUDGET=", "Own error: 32 ranks"):
            self.assertIn(text, done.stdout)
        self.assertNotIn("less than the interval between two decisions", done.stdout)
        plan = json.loads(data.read_text())
        run = call("sim", "nas-cg", "--ranks", 64, "--no-check", "--set", "memory_budget=1TiB", "--json", whole)
        self.assertEqual(run.returncode, 0, run.stderr)
        real = json.loads(whole.read_text())["results"][0]
        free = plan["choices"][0]["runs"][0]
        self.assertAlmostEqual(free["time_ps"] / real["time_ps"], 1, delta=0.01)
        self.assertAlmostEqual(free["memory"] / real["memory_peak"], 1, delta=0.01)
        self.assertEqual(plan["uncertainty"]["samples"], 2)
        html = page.read_text()
        self.assertIn("<svg", html)
        self.assertNotIn("<script", html)

    def test_warns_of_a_run_without_decisions(self):
        done = self.plan("--ranks", 64, "--samples", 0, "--policies", "aqps", "--budgets", "32MiB")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("less than the interval between two decisions", done.stdout)

    def test_equal_seeds_give_equal_plans(self):
        texts = []
        for _ in range(2):
            done = self.plan("--ranks", 64, "--samples", 1, "--budgets", "16MiB,8MiB")
            self.assertEqual(done.returncode, 0, done.stderr)
            texts.append(done.stdout.split("\nThis took")[0])
        self.assertEqual(*texts)

    def test_plays_a_long_program_in_part(self):
        done = self.plan("--ranks", 64, "--samples", 0, "--budgets", "16MiB", "--messages", 5000)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("of the repetitions were played", done.stdout)

    def test_wrong_use_names_the_option(self):
        for arguments, named in ((("--ranks", 1), "--ranks 1"), (("--ranks", 64, "--budgets", "x"), "--budgets x"),
                                 (("--ranks", 64, "--ranks-per-node", "0"), "--ranks-per-node 0"),
                                 (("--ranks", 64, "--policies", "turnot"), "turnot"),
                                 (("--ranks", 64, "--set", "memory_budget=1MiB"), "--budgets"),
                                 (("--ranks", 64, "--profile", "nothing"), "nothing")):
            done = self.plan(*arguments)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(named, done.stderr)

    def test_a_damaged_trace_names_its_line(self):
        path = self.folder / "damaged.trace"
        path.write_text(self.traces[0].read_text().replace("end\n", "s 1 99 8 0 0\n"))
        done = call("plan", path, self.traces[1], "--ranks", 64)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("damaged.trace", done.stderr)

    def test_two_traces_of_one_size(self):
        done = call("plan", self.traces[0], self.traces[0], "--ranks", 64)
        self.assertEqual(done.returncode, 2)
        self.assertIn("two traces have 8 ranks", done.stderr)


if __name__ == "__main__":
    unittest.main()
