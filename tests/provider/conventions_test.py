#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""libfabric's conventions: settings that `fi_info -e` lists and FI_TURNOUT_* sets, lines in libfabric's
log. On Debian's libfabric, and on the newer one of PyPI's MPICH where that is installed.

    conventions_test.py BUILD_DIR VENV [unittest's options]
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path()
VENV = pathlib.Path()
LIMIT = 60  # seconds after which a program counts as hung
LOGGED = {"FI_LOG_LEVEL": "info", "FI_LOG_PROV": "turnout"}
# Hints that do not fit are told at level info.
NOT_OFFERED = ["-p", "turnout", "-c", "FI_MULTICAST"]
REFUSAL = "fi_getinfo failed: hints (API 1.17): capabilities; ask for"


class Conventions(unittest.TestCase):
    libfabric = None  # folder of another one than the system's

    def setUp(self):
        if self.libfabric is not None and not (self.libfabric() / "libfabric.so.1").exists():
            self.skipTest("PyPI's MPICH is not installed")
        scratch = tempfile.TemporaryDirectory(prefix="conventions-test-")
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith(("TURNOUT_", "FI_", "LD_"))}
        self.env.update(FI_PROVIDER_PATH=str(BUILD / "lib"), TURNOUT_DEVICE="virtual",
                        TURNOUT_FABRIC=f"conventions-{os.getpid()}")
        if self.libfabric is not None:
            self.env["LD_LIBRARY_PATH"] = str(self.libfabric())

    def run_program(self, *words, **variables):
        ended = subprocess.run(words, env=self.env | variables, timeout=LIMIT, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        self.assertGreaterEqual(ended.returncode, 0, f"{words} ended by a signal\n{ended.stderr}")
        return ended

    def info(self, *words, **variables):
        return self.run_program("fi_info", *words, **variables)

    def parameters(self, *words, **variables):
        """What fi_info lists: name -> (value or None, type, help)."""
        ended = self.info(*words, **variables)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        # fi_info writes a NUL on either side of a value.
        found = re.findall(r"^# (FI_\w+): (.*)\n# (.*)\n(?:\1=\W*(\w+))?", ended.stdout,
                           re.MULTILINE)
        return {name: (value or None, kind, text) for name, kind, text, value in found}

    def test_every_setting_is_listed(self):
        table = subprocess.run([BUILD / "bin" / "turnout", "info", "--config", "--markdown"],
                               stdout=subprocess.PIPE, text=True, check=True).stdout
        settings = re.findall(r"^\| `(TURNOUT_\w+)`", table, re.MULTILINE)
        self.assertIn(len(settings), range(35, 50))
        for words in (["-e"], ["-g", "turnout"]):
            with self.subTest(words=words):
                listed = self.parameters(*words)
                ours = [name for name in listed if name.startswith("FI_TURNOUT_")]
                self.assertEqual(sorted(ours), sorted("FI_" + name for name in settings))
        _, kind, text = listed["FI_TURNOUT_LOG_FILE"]
        self.assertEqual(kind, "String")
        self.assertIn("%p is the process id", text)
        self.assertEqual(listed["FI_TURNOUT_CREDITS"][1], "size_t")
        self.assertEqual(listed["FI_TURNOUT_INTERVAL"][1], "String")
        self.assertTrue(listed["FI_TURNOUT_SETUP_THREAD"][1].startswith("Boolean"), listed)
        value, _, text = listed["FI_TURNOUT_MEMORY_BUDGET"]
        self.assertIsNone(value)
        self.assertTrue(text.startswith("turnout: hard limit on what"), text)
        self.assertTrue(text.endswith("(default: 256MiB)"), text)

    def test_a_setting_that_is_set_is_shown(self):
        listed = self.parameters("-g", "turnout", FI_TURNOUT_MEMORY_BUDGET="64MiB")
        self.assertEqual(listed["FI_TURNOUT_MEMORY_BUDGET"][0], "64MiB")

    def test_settings_take_effect(self):
        small = self.context_size(FI_TURNOUT_MEMORY_BUDGET="4MiB")
        self.assertEqual(small, self.context_size(TURNOUT_MEMORY_BUDGET="4MiB"))
        self.assertNotEqual(small, self.context_size())

    def context_size(self, **variables):
        ended = self.info("-v", "-p", "turnout", "-t", "FI_EP_RDM", **variables)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return re.search(r"tx_attr.*?\n +size: (\d+)", ended.stdout, re.DOTALL)[1]

    def test_a_wrong_value_is_named(self):
        ended = self.info("-p", "turnout", FI_TURNOUT_MEMORY_BUDGET="lots")
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn('FI_TURNOUT_MEMORY_BUDGET = "lots": expected', ended.stderr)

    def test_names_that_nobody_knows_and_two_that_differ(self):
        ended = self.info("-p", "turnout", FI_TURNOUT_MEMORY_BUGET="1", TURNOUT_CREDITS="4",
                          FI_TURNOUT_CREDITS="8")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertIn("did you mean FI_TURNOUT_MEMORY_BUDGET?", ended.stderr)
        self.assertIn('TURNOUT_CREDITS = "4" overrides FI_TURNOUT_CREDITS = "8"', ended.stderr)

    def test_lines_in_libfabrics_log(self):
        text = self.info(*NOT_OFFERED, **LOGGED).stderr
        lines = [line for line in text.splitlines() if REFUSAL in line]
        self.assertEqual(len(lines), 1, text)
        self.assertRegex(lines[0], r"^libfabric:.*:turnout:fabric:provider\(\):\d+<info> fi_getinfo failed: hints")

    def test_no_line_twice(self):
        for level in ("info", "debug"):
            with self.subTest(level=level):
                text = self.info(*NOT_OFFERED, TURNOUT_LOG=level, **LOGGED).stderr
                self.assertEqual(text.count(REFUSAL), 1, text)
        # A file has its lines in any case.
        file = self.scratch / "log"
        text = self.info(*NOT_OFFERED, TURNOUT_LOG="info", TURNOUT_LOG_FILE=str(file),
                         **LOGGED).stderr
        self.assertEqual(text.count(REFUSAL), 1, text)
        self.assertEqual(file.read_text(encoding="utf-8").count(REFUSAL), 1)

    def test_each_asks_for_itself(self):
        self.assertNotIn(REFUSAL, self.info(*NOT_OFFERED).stderr)
        for nothing in ({"FI_LOG_LEVEL": "warn"}, {"FI_LOG_PROV": "tcp"}, {"FI_LOG_SUBSYS": "av"}):
            with self.subTest(nothing=nothing):
                text = self.info(*NOT_OFFERED, **(LOGGED | nothing)).stderr
                self.assertNotIn(REFUSAL, text)
                own = self.info(*NOT_OFFERED, **(LOGGED | nothing), TURNOUT_LOG="info").stderr
                self.assertRegex(own, r"turnout\[\d+\] info  provider: " + re.escape(REFUSAL))
        self.assertIn(REFUSAL, self.info(*NOT_OFFERED, TURNOUT_LOG="off", **LOGGED).stderr)

    def test_a_program_that_communicates(self):
        ended = self.run_program(str(BUILD / "bin" / "fi_regions"), "--provider", "turnout",
                                 "--runs", "2", FI_TURNOUT_MEMORY_BUDGET="32MiB", **LOGGED)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        lines = re.findall(r"^libfabric:.*:turnout:ep_ctrl:endpoint\(\):\d+<info> (.*)$",
                           ended.stderr, re.MULTILINE)
        begun = [line for line in lines if "bytes used at start" in line]
        self.assertEqual(len(begun), 2, ended.stderr)
        self.assertIn(f" of {32 << 20} bytes", begun[0])


class NewerConventions(Conventions):
    @staticmethod
    def libfabric():
        return VENV / "lib" / "mpich"


if __name__ == "__main__":
    BUILD = pathlib.Path(os.path.realpath(sys.argv.pop(1)))
    VENV = pathlib.Path(sys.argv.pop(1))
    unittest.main()
