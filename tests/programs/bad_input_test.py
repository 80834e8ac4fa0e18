#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What users get wrong, as whole programs see it: a clear message that says what to do, never a hang,
never a crash.

    bad_input_test.py BUILD_DIR [unittest's options]
"""

import os
import pathlib
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = pathlib.Path()
LIMIT = 60  # seconds after which a program counts as hung


class Finished:
    def __init__(self, code, out):
        self.code, self.out = code, out


class BadInput(unittest.TestCase):
    def setUp(self):
        self.fabric = f"bad-{os.getpid()}-{self.id().rsplit('.', 1)[1]}"[:60]

    def members(self):
        """Of the fabric: where each process has the shared memory (hca/live/directory.h)."""
        begin = f"@turnout/{os.geteuid():x}/{self.fabric}/"
        # Twice: the kernel may leave out a name when another goes away while it is read.
        text = "".join(pathlib.Path("/proc/net/unix").read_text(encoding="utf-8") for _ in range(2))
        names = {line.split()[-1] for line in text.splitlines() if begin in line}
        parts = [name[len(begin):].split("/") for name in sorted(names)]
        return [pathlib.Path(f"/proc/{int(part[1], 16)}/fd/{int(part[2], 16)}") for part in parts
                if part[0] != "lock"]

    def wait_until_nobody_is_there(self):
        """The ranks of a job that was killed end a moment after it, and only it can wait for them."""
        deadline = time.monotonic() + LIMIT
        while self.members():
            self.assertLess(time.monotonic(), deadline, "somebody stays in the fabric")
            time.sleep(0.01)

    def claim(self, content, name=None):
        """Says that memory with this content is the fabric's, as an attached process does."""
        memory = os.memfd_create(name or f"turnout-{self.fabric}")
        self.addCleanup(os.close, memory)
        os.write(memory, content)
        says = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(says.close)
        space = os.stat("/proc/self/ns/pid").st_ino
        says.bind(f"\0turnout/{os.geteuid():x}/{self.fabric}/{space:x}/{os.getpid():x}/{memory:x}/0")

    def environment(self, settings):
        env = {k: v for k, v in os.environ.items() if not k.startswith("TURNOUT_")}
        env["FI_PROVIDER_PATH"] = str(BUILD / "lib")
        env["TURNOUT_FABRIC"] = self.fabric
        env.update(settings)
        return env

    def run_program(self, command, **settings):
        """Output and exit code; fails when the program hangs or is ended by a signal."""
        process = subprocess.Popen(command, env=self.environment(settings), text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        try:
            out, _ = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, _ = process.communicate()
            self.fail(f"hung: {command}\n{out}")
        self.assertGreaterEqual(process.returncode, 0, f"ended by a signal\n{out}")
        self.assertNotIn("ended by signal", out)
        return Finished(process.returncode, out)

    def traffic(self, messages=200, **settings):
        return self.run_program(
            [BUILD / "bin" / "fi_stress", "traffic", "--ranks", "2", "--messages", str(messages),
             "--seed", "1", "--stall", "30"], **settings)

    def assert_fails_with(self, done, *words):
        self.assertNotEqual(done.code, 0, done.out)
        for word in words:
            self.assertIn(word.lower(), done.out.lower())

    def start_live_job(self):
        """Two ranks that exchange messages until they are killed."""
        self.wait_until_nobody_is_there()
        process = subprocess.Popen(
            [BUILD / "bin" / "fi_stress", "traffic", "--ranks", "2", "--messages", "1000000000",
             "--stall", "1000"], env=self.environment({}), stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True)

        def end():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

        self.addCleanup(end)
        deadline = time.monotonic() + LIMIT
        while not self.members():
            self.assertIsNone(process.poll(), "the live job ended")
            self.assertLess(time.monotonic(), deadline, "the live job did not join")
            time.sleep(0.01)
        time.sleep(0.5)
        self.assertIsNone(process.poll(), "the live job ended")
        return process

    # -- settings ------------------------------------------------------------------------------------
    def test_unknown_variable_is_warned_about(self):
        done = self.traffic(TURNOUT_MEMORY_BUDGTE="1GiB")
        self.assertEqual(done.code, 0, done.out)
        self.assertIn("TURNOUT_MEMORY_BUDGTE", done.out)
        self.assertIn("TURNOUT_MEMORY_BUDGET", done.out)

    def test_malformed_value_is_named(self):
        done = self.traffic(TURNOUT_INTERVAL="banana")
        self.assert_fails_with(done, "TURNOUT_INTERVAL", "banana")

    def test_value_out_of_range_is_named(self):
        done = self.traffic(TURNOUT_RING_ENTRIES="17")
        self.assert_fails_with(done, "TURNOUT_RING_ENTRIES", "17")

    def test_unknown_policy_is_named(self):
        done = self.traffic(TURNOUT_POLICY="fastest")
        self.assert_fails_with(done, "TURNOUT_POLICY", "fastest")

    def test_missing_configuration_file_is_named(self):
        done = self.traffic(TURNOUT_CONFIG="/nowhere/turnout.toml")
        self.assert_fails_with(done, "/nowhere/turnout.toml")

    def test_malformed_configuration_file_is_named(self):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write("memory_budget = [\n")
            file.flush()
            done = self.traffic(TURNOUT_CONFIG=file.name)
        self.assert_fails_with(done, file.name)

    def test_tiny_budget_is_refused_with_a_hint(self):
        for budget in ("1", "4KiB", "1MiB"):
            with self.subTest(budget=budget):
                done = self.traffic(TURNOUT_MEMORY_BUDGET=budget)
                self.assert_fails_with(done, "TURNOUT_MEMORY_BUDGET")

    def test_missing_device_is_named(self):
        done = self.traffic(TURNOUT_DEVICE="mlx5_77")
        self.assert_fails_with(done, "mlx5_77", "TURNOUT_DEVICE")

    def test_missing_device_does_not_break_fi_info(self):
        done = self.run_program(["fi_info", "-l"], TURNOUT_DEVICE="mlx5_77")
        self.assertEqual(done.code, 0, done.out)

    def test_bad_fabric_name_is_refused(self):
        for name in ("../../etc/x", "a b", "x" * 100):
            with self.subTest(name=name):
                self.assert_fails_with(self.traffic(TURNOUT_FABRIC=name), "TURNOUT_FABRIC")

    def test_small_fabric_is_refused(self):
        self.assert_fails_with(self.traffic(TURNOUT_FABRIC_SIZE="4KiB"), "TURNOUT_FABRIC_SIZE")

    # -- the shared state ----------------------------------------------------------------------------
    def test_nothing_is_left_of_killed_processes(self):
        job = self.start_live_job()
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        self.wait_until_nobody_is_there()
        done = self.traffic()
        self.assertEqual(done.code, 0, done.out)
        self.assertEqual(self.members(), [])

    def test_name_of_something_else_is_not_followed(self):
        self.claim(random.Random(1).randbytes(100_000), "precious")
        self.assertIn("200 messages received", self.traffic().out)

    def test_damaged_state_in_use(self):
        self.claim(random.Random(2).randbytes(100_000))
        self.assert_fails_with(self.traffic(), self.fabric, "damaged")

    def test_truncated_state_in_use(self):
        self.claim(b"\0" * 16)
        self.assert_fails_with(self.traffic(), self.fabric, "damaged")

    def test_two_versions_in_one_job(self):
        self.start_live_job()
        with self.members()[0].open("r+b", buffering=0) as file:
            # 8 bytes magic, then the version of the layout (hca/device/layout.h)
            old = os.pread(file.fileno(), 4, 8)
            os.pwrite(file.fileno(), struct.pack("<I", struct.unpack("<I", old)[0] + 1), 8)
            done = self.traffic()
            os.pwrite(file.fileno(), old, 8)
        self.assert_fails_with(done, "version", "TURNOUT_FABRIC")

    def test_header_damaged_at_random(self):
        seed = random.randrange(1 << 32)
        chance = random.Random(seed)
        for _ in range(6):
            job = self.start_live_job()
            with self.subTest(seed=seed), self.members()[0].open("r+b", buffering=0) as file:
                for _ in range(20):
                    os.pwrite(file.fileno(), chance.randbytes(4), chance.randrange(256))
                self.traffic(messages=20)  # any exit code, but an exit
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()

    # -- the program around us -----------------------------------------------------------------------
    def test_missing_virtual_adapter_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.traffic(TURNOUT_DEVICE="virtual", TURNOUT_VERBS_PATH=folder)
        self.assert_fails_with(done, folder)

    def test_report_folder_that_cannot_be_written(self):
        done = self.traffic(TURNOUT_REPORT="/proc/nowhere")
        self.assertEqual(done.code, 0, done.out)  # the messages matter more than the report
        self.assertIn("/proc/nowhere", done.out)

    def test_closed_standard_error(self):
        program = f'exec "{BUILD}/bin/fi_stress" traffic --ranks 2 --messages 200 --seed 1 2>&-'
        done = self.run_program(["sh", "-c", program], TURNOUT_LOG="debug", TURNOUT_REPORT="1")
        self.assertEqual(done.code, 0, done.out)


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
