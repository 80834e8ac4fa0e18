#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Turnout on a kernel's RDMA stack: Soft-RoCE (rdma_rxe) in an emulated guest (tests/guest/run.sh).

    guest_test.py BUILD_DIR GUEST_FOLDER [unittest's options]
"""
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests" / "mpi"))
import mpi_stress  # noqa: E402
from wire import Wire  # noqa: E402

BUILD = GUEST = pathlib.Path()
# Drops the right to lock any amount of memory, which root has.
BOUND = "setpriv --inh-caps=-ipc_lock --bounding-set=-ipc_lock "


class InGuest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="turnout-guest-")
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)

    def command(self, command, *options, seconds=120):
        settings = f"export FI_PROVIDER_PATH={BUILD}/lib PATH={BUILD}/bin:$PATH TURNOUT_LOG=warn\n"
        return [HERE / "run.sh", "-t", str(seconds), *options, GUEST, settings + command]

    def run_in_guest(self, command, *options, seconds=120):
        """What it printed; fails unless it ends with 0."""
        done = subprocess.run(self.command(command, *options, seconds=seconds), cwd=self.scratch, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds + 60,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout


class Doctor(InGuest):
    def test_soft_roce(self):
        out = self.run_in_guest("turnout doctor")
        self.assertRegex(out, r"good +rxe0 port 1 +active, RoCE")
        self.assertRegex(out, r"note +rxe0 DC +not supported; the default transport is UD")
        self.assertRegex(out, r"good +rxe0 registration")
        self.assertIn("selected: rxe0", out)
        self.assertIn("0 problems", out)

    def test_gid_is_of_the_address(self):
        """Not of the link-local one, which the adapter has without any: no router carries that."""
        out = self.run_in_guest("turnout info")
        self.assertRegex(out, r"GID +(0000:){5}ffff:0a4d:0001 \(index [1-9]")

    def test_little_memory_to_lock(self):
        out = self.run_in_guest(f"ulimit -S -l 64; {BOUND} turnout doctor && exit 1; "
                                f"TURNOUT_MEMORY_BUDGET=4MiB {BOUND} turnout doctor && exit 1; "
                                f"ulimit -S -l unlimited; {BOUND} turnout doctor")
        first, second, third = out.split("versions")[1:]
        for part, budget in ((first, "256 MiB"), (second, "4.00 MiB")):
            self.assertRegex(part, r"problem +rxe0 registration +registering .* failed: Cannot allocate memory")
            self.assertRegex(part, rf"problem +locked memory +64.0 KiB can be locked, less than the memory budget of {budget}")
            self.assertIn("ulimit -l unlimited", part)
        self.assertIn("0 problems", third)

    def test_port_that_is_down(self):
        out = self.run_in_guest("ip link set rdma_net down; turnout doctor && exit 1; exit 0")
        self.assertRegex(out, r"problem +rxe0 port 1 +down")
        self.assertIn("ip link set", out)
        self.assertRegex(out, r"warning +adapter +selected: turnout0")

    def test_no_adapter(self):
        out = self.run_in_guest("rdma link delete rxe0; turnout doctor")
        self.assertRegex(out, r"note +kernel +no RDMA device")


class Conformance(InGuest):
    def test_soft_roce_behaves_as_the_table_says(self):
        """And so differs from the virtual adapter's profile `rxe` where the table gives a reason, nowhere else."""
        done = subprocess.run([ROOT / "tests/verbs/conformance.py", BUILD, "--guest", GUEST], text=True, timeout=600,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        print(done.stdout, flush=True)
        self.assertEqual(done.returncode, 0)


class Stress(InGuest):
    def stress(self, words, *options, **environment):
        settings = " ".join(f"{name}={value}" for name, value in environment.items())
        return self.run_in_guest(f"{settings} fi_stress traffic --stall 100 --report ./reports {words}",
                                 *options, seconds=400)

    def test_four_ranks_over_ud(self):
        out = self.stress("--ranks 4 --messages 4000 --seed 11 --allow-switchless")
        self.assertIn("4000 messages received and verified", out)

    def test_channels_change_under_a_budget(self):
        """From UD to RC and back, again and again, with little memory."""
        out = self.stress("--ranks 4 --messages 6000 --seed 12 --switch-every 200", TURNOUT_MEMORY_BUDGET="8MiB")
        self.assertIn("6000 messages received and verified", out)
        switches = int(re.search(r"(\d+) channel switches", out).group(1))
        self.assertGreater(switches, 20)

    def test_queue_pairs_serve_again_on_two_processors(self):
        """Two processes at once: one puts its queue pair away and takes it again while the other still has its own."""
        out = self.stress("--ranks 2 --messages 4000 --seed 13 --switch-every 300 >out && cat out && "
                          "for n in 2 3 4 5 6 7 8 9 10 11 12; do fi_stress traffic --stall 100 --report ./reports.$n "
                          "--ranks 2 --messages 4000 --seed $((12 + n)) --switch-every 300 >out || "
                          "{ cat out; exit 1; }; done", "-c", "2")
        self.assertIn("4000 messages received and verified", out)


class Limits(InGuest):
    """Soft-RoCE's completion queues hold 32,767."""

    STRESS = "fi_stress traffic --ranks 2 --messages 1000 --seed 15 --allow-switchless"

    def test_large_settings_are_lowered(self):
        out = self.run_in_guest("export TURNOUT_MEMORY_BUDGET=512MiB TURNOUT_RECEIVE_BUFFERS=32768 "
                                "TURNOUT_MAX_ACTIVE_RC=4000 TURNOUT_TUNING=receive_first=32768,rc_pool=4000 "
                                f"TURNOUT_SEND_BUFFERS=32768\n{self.STRESS}", "-m", "3072", seconds=200)
        self.assertIn("TURNOUT_RECEIVE_BUFFERS=32768 exceeds the limit of rxe0; using 32511", out)
        self.assertIn("TURNOUT_MAX_ACTIVE_RC=4000 exceeds the limit of rxe0; using 247", out)
        self.assertIn("1000 messages received and verified", out)

    def test_what_cannot_be_lowered_is_refused(self):
        out = self.run_in_guest(f"TURNOUT_TUNING=control_buffers=32768 {self.STRESS} && exit 1; exit 0")
        self.assertRegex(out, "control_buffers=32768 in TURNOUT_TUNING: rxe0 supports .* 32767 completion queue entries; lower it")


class Waiting(InGuest):
    def test_two_processes_that_poll_share_a_processor(self):
        """Neither waits for the other's time slice to end, which would be 4 ms with each message."""
        out = self.run_in_guest("fi_pingpong --core 0 --core 0 --size 8 --warm-up 1 --duration 2 --json")
        self.assertLess(json.loads(out.splitlines()[-1])["one_way_ns"]["8"], 2e6)


class Mpi(InGuest):
    def suite(self, modules, seconds):
        out = self.run_in_guest(
            f"cd {ROOT} && .venv/bin/python tests/mpi/mpi4py_suite.py --np 2 --provider turnout --lib {BUILD}/lib "
            f"--timeout 120 --only '{modules}'", "-m", "2048", seconds=seconds)
        row = re.search(r"turnout +\d+ skip +(\d+) pass +(\d+) fail +(\d+) error +(\d+) crash +(\d+) hang", out)
        self.assertIsNotNone(row, out)
        counts = [int(word) for word in row.groups()]
        self.assertEqual(counts[1:], [0, 0, 0, 0], out)
        return counts[0]

    def test_point_to_point(self):
        self.assertGreater(self.suite("test_p2p", 900), 70)

    def test_collectives(self):
        self.assertGreater(self.suite("test_cco_buf$|test_cco_obj$", 1500), 30)


class MpiJob(InGuest):
    """tests/mpi/mpi_stress.c under MPICH."""

    SETTINGS = (f"export PATH={ROOT}/.venv/bin:$PATH FI_PROVIDER=turnout TURNOUT_REPORT=./reports "
                "MPIR_CVAR_CH4_NETMOD=ofi MPIR_CVAR_NOLOCAL=1\n")

    def setUp(self):
        super().setUp()
        mpi_stress.compile_to(self.scratch)

    def reports(self, ranks):
        found = mpi_stress.read_reports(self.scratch / "reports")
        self.assertEqual([report["rank"] for report in found], list(range(ranks)))
        for report in found:
            self.assertLessEqual(report["peak"], report["budget"])
        return found

    def channels(self, reports):
        """Messages received, by channel."""
        count = collections.Counter()
        for report in reports:
            for peer in report["peers"]:
                for span in peer["receive"]["spans"]:
                    count[span["channel"]] += span["messages"]
        return count


class MpiStress(MpiJob):
    def stress(self, words, processors, **environment):
        settings = "".join(f"export {name}={value}\n" for name, value in environment.items())
        out = self.run_in_guest(f"{self.SETTINGS}{settings}mpiexec -launcher fork -n 4 ./mpi_stress {words}",
                                "-m", "2048", "-c", str(processors), seconds=400)
        self.assertIn("all received and verified", out)
        return self.reports(4)

    def test_selection_on_four_processors(self):
        reports = self.stress("--messages 8000 --seed 21", 4, TURNOUT_MEMORY_BUDGET="8MiB",
                              TURNOUT_INTERVAL="200ms")
        used = self.channels(reports)
        self.assertGreater(used["UD-sendrecv"], 0)
        self.assertGreater(used["RC-RDMA"], 1000)

    def test_channels_change_on_one_processor(self):
        reports = self.stress("--messages 6000 --seed 22", 1, TURNOUT_MEMORY_BUDGET="8MiB",
                              TURNOUT_TUNING="test_switch_every=50")
        used = self.channels(reports)
        self.assertGreater(used["UD-sendrecv"], 500)
        self.assertGreater(used["RC-RDMA"], 500)
        self.assertEqual(sum(report["connections"]["failed"] for report in reports), 0)


class TwoGuests(MpiJob):
    """One rank in each, on one wire."""

    def start(self, number, command, seconds, *options):
        return subprocess.Popen(
            self.command(command, "-w", f"{self.scratch}/wire:{number}", *options, seconds=seconds),
            cwd=self.scratch, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def start_job(self, words, seconds, **environment):
        """mpi_stress with a rank in each; the wire, and the guests."""
        wire = Wire(self.scratch / "wire")
        self.addCleanup(wire.close)
        settings = self.SETTINGS + "".join(f"export {name}={value}\n" for name, value in environment.items())
        # mpiexec may wait for ever for what the wire took: a file `enough` ends the guests.
        first = self.start(1, f"{settings}(mpiexec -launcher rsh -launcher-exec {HERE}/remote_shell.sh "
                           "-localhost 10.77.0.1 -hosts 10.77.0.1,10.77.0.2 -n 2 -ppn 1 "
                           f"{HERE}/rank.sh ./mpi_stress {words}; echo $? >over.new; mv over.new over) &\n"
                           "until [ -s over ] || [ -e enough ]; do sleep 0.2; done; exit $(cat over || echo 9)",
                           seconds, "-m", "1536")
        second = self.start(2, "until [ -s command ] || [ -e over ]; do sleep 0.2; done\n"
                            "(sh ./command; echo $? >status.new; mv status.new command.status) &\n"
                            "until [ -s command.status ] || [ -e enough ]; do sleep 0.2; done; "
                            "exit $(cat command.status || echo 9)", seconds, "-m", "1536")
        return wire, [first, second]

    def end(self, guests, seconds):
        """What they printed."""
        outs = []
        for guest in guests:
            try:
                outs.append(guest.communicate(timeout=seconds)[0])
            except subprocess.TimeoutExpired:
                (self.scratch / "enough").touch()
                for left in guests:
                    left.communicate()
                self.fail(f"a guest did not end: {self.of_rank(0)}{self.of_rank(1)}")
        return "\n".join([*outs, self.of_rank(0), self.of_rank(1)])

    def of_rank(self, rank):
        try:
            return (self.scratch / f"rank-{rank}").read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def wait_for(self, seconds, guests):
        """Until the stress has run so long."""
        while all(guest.poll() is None for guest in guests):
            told = re.findall(r"^(\d+) s: ", self.of_rank(0), re.M)
            if told and int(told[-1]) >= seconds:
                return
            time.sleep(0.1)
        self.fail(self.end(guests, 60))

    def test_pingpong_over_the_wire(self):
        # The judge of the wire itself: rdma-core's own program.
        first = self.start(1, "ibv_rc_pingpong -e -g 1 -d rxe0 -n 200", 100)
        second = self.start(2, "for i in $(seq 30); do ibv_rc_pingpong -e -g 1 -d rxe0 -n 200 10.77.0.1 && exit 0; "
                               "sleep 1; done; exit 1", 100)
        outs = [guest.communicate(timeout=160)[0] for guest in (first, second)]
        for guest, out in zip((first, second), outs):
            self.assertEqual(guest.returncode, 0, "\n".join(outs))
            self.assertIn("bytes in", out)

    def test_stress(self):
        wire, guests = self.start_job("--messages 4000 --seed 31", 200, TURNOUT_INTERVAL="200ms")
        out = self.end(guests, 260)
        self.assertEqual([guest.returncode for guest in guests], [0, 0], out)
        self.assertIn("all received and verified", self.of_rank(0))
        reports = self.reports(2)
        self.assertGreater(self.channels(reports)["RC-RDMA"], 500)
        self.assertEqual(sum(report["connections"]["failed"] for report in reports), 0)
        self.assertGreater(wire.carried, 10000)

    def test_wire_cut_for_five_seconds(self):
        """What was lost comes again, and the connection with it."""
        wire, guests = self.start_job("--seconds 25 --seed 32", 200, TURNOUT_INTERVAL="200ms")
        self.wait_for(4, guests)
        wire.cut()
        time.sleep(5)
        wire.mend()
        out = self.end(guests, 260)
        self.assertEqual([guest.returncode for guest in guests], [0, 0], out)
        self.assertIn("all received and verified", self.of_rank(0))
        self.assertGreater(wire.dropped, 0)
        told = [int(second) for second in re.findall(r"^(\d+) s: ", self.of_rank(0), re.M)]
        self.assertGreater(max(after - before for before, after in zip(told, told[1:])), 4, out)
        reports = self.reports(2)
        for report in reports:
            self.assertGreater(report["connections"]["failed"], 0)
            self.assertGreater(report["connections"]["made"], 1)  # and again

    def test_wire_that_comes_and_goes(self):
        wire, guests = self.start_job("--seconds 20 --seed 34", 200, TURNOUT_INTERVAL="200ms")
        self.wait_for(3, guests)
        for down, up in ((0.05, 1), (0.3, 1), (1, 2), (1.5, 0.4), (0.7, 1)):
            wire.cut()
            time.sleep(down)
            wire.mend()
            time.sleep(up)
        out = self.end(guests, 260)
        self.assertEqual([guest.returncode for guest in guests], [0, 0], out)
        self.assertIn("all received and verified", self.of_rank(0))
        self.assertGreater(wire.dropped, 0)

    def test_wire_cut_for_good(self):
        """The ranks' MPI calls answer an error, without a word from outside: nobody reaches them."""
        wire, guests = self.start_job("--seconds 100 --seed 33", 200, TURNOUT_INTERVAL="200ms",
                                      TURNOUT_UD_TIMEOUT="8s")
        self.wait_for(4, guests)
        wire.cut()
        cut = time.monotonic()
        while (time.monotonic() < cut + 60 and
               not all("Connection reset by peer" in self.of_rank(rank) for rank in (0, 1))):
            time.sleep(0.1)
        (self.scratch / "enough").touch()
        out = self.end(guests, 60)
        for rank in (0, 1):
            silent = re.search(r"has not responded for (\d+) ms", self.of_rank(rank))
            self.assertIsNotNone(silent, out)
            self.assertLess(int(silent.group(1)), 12000)
            self.assertIn("Connection reset by peer", self.of_rank(rank))


if __name__ == "__main__":
    BUILD, GUEST = (pathlib.Path(os.path.realpath(word)) for word in sys.argv[1:3])
    del sys.argv[1:3]
    unittest.main(verbosity=2)
