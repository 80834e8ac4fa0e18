#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`turnout record`: what it records of a program over other transports is what TURNOUT_TRACE records over Turnout.

    record_test.py BUILD_DIR MPI PREFIX/bin [unittest's options]     MPI: open_mpi or mpich
"""

import collections
import pathlib
import subprocess
import tempfile

import mpi_commands

LIMIT = 120  # seconds after which a job counts as hung
RANKS = 4
LEAST = 1000  # bytes of the program's messages; others are the MPI library's


def messages(folder):
    """Those sent, and those received, as (source, destination, bytes); "?": the recorder was not told the source."""
    names, lines = {}, {}
    for path in folder.glob("*.recording"):
        words = [line.split() for line in path.read_text().splitlines()]
        assert words[-1] == ["end"], path
        rank = next(int(word[1]) for word in words if word[0] == "rank")
        assert rank not in lines, f"two recordings of rank {rank}"
        lines[rank] = words
        for word in words:
            if word[0] in ("endpoint", "also"):
                names[word[1]] = rank
    sent, received = collections.Counter(), collections.Counter()
    for rank, words in lines.items():
        peers = {word[1]: names[word[2]] for word in words if word[0] == "p"}
        for word in words:
            if word[0] == "s" and int(word[3]) >= LEAST:
                sent[rank, peers[word[2]], int(word[3])] += 1
            if word[0] == "m" and int(word[3]) >= LEAST:
                received["?" if word[2] == "*" else peers[word[2]], rank, int(word[3])] += 1
    return sent, received


class Record(mpi_commands.JobTest):
    source = "fixed_pattern.c"
    without, settings = ("UCX_",), {"OMPI_MCA_mpi_yield_when_idle": "1"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.launch = [cls.launcher, *(["--oversubscribe"] if cls.mpi == "open_mpi" else []), "-n", str(RANKS)]
        scratch = tempfile.TemporaryDirectory(prefix="record-")
        cls.addClassCleanup(scratch.cleanup)
        folder = pathlib.Path(scratch.name)
        done = subprocess.run([cls.turnout, "run", "--trace", str(folder / "turnout"), "--", *cls.launch, cls.program],
                              env=cls.environment_in(scratch.name), text=True, capture_output=True, timeout=LIMIT,
                              check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        cls.printed = sorted(line for line in done.stdout.splitlines() if line.startswith("rank "))
        cls.expected, received = messages(folder / "turnout")
        # Two neighbours in 20 rounds, one large message, everyone to everyone, a probed one, a derived type.
        assert sum(cls.expected.values()) == RANKS * (2 * 20 + 1 + RANKS - 1 + 1 + 1), cls.expected
        assert cls.expected == received

    def setUp(self):
        super().setUp()
        self.folder = self.scratch / "recordings"

    def record(self, *words, code=0, **settings):
        done = subprocess.run([self.turnout, "record", "--to", str(self.folder), "--", *self.launch,
                               self.program, *words], env={**self.env, **settings}, text=True, capture_output=True,
                              timeout=LIMIT, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def equal(self, *words, **settings):
        """The program's results are as without the recorder, and the recordings as over Turnout."""
        done = self.record(*words, **settings)
        if not words:
            self.assertEqual(sorted(line for line in done.stdout.splitlines() if line.startswith("rank ")), self.printed)
        self.assertIn(f"turnout record: recorded the messages of {RANKS} processes of {RANKS} in {self.folder}", done.stderr)
        sent, received = messages(self.folder)
        self.assertEqual(sent, self.expected)
        if not any(source == "?" for source, _, _ in received):
            self.assertEqual(received, self.expected)
        self.assertEqual(sum(received.values()), sum(sent.values()))
        # What a transport sends at once, a modelled one may not: the threshold says so.
        done = subprocess.run([self.turnout, "sim", "replay", "--trace", str(self.folder), "--set",
                               "rendezvous_threshold=1MiB"], env=self.env, text=True, capture_output=True, timeout=LIMIT,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        replayed = next(line.split() for line in done.stdout.splitlines() if line.strip().startswith("messages"))
        self.assertGreaterEqual(int(replayed[1].replace(",", "")), sum(sent.values()))
        return received

    def over(self, provider):
        if self.mpi == "mpich":
            return {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": provider}
        return {"OMPI_MCA_pml": "cm", "OMPI_MCA_mtl": "ofi", "OMPI_MCA_mtl_ofi_provider_include": provider}

    def test_tcp(self):
        received = self.equal(**self.over("tcp"))
        self.assertNotIn("?", {source for source, _, _ in received})

    def test_layered_provider(self):
        """The endpoints within ofi_rxm are not the program's."""
        self.equal(**self.over("tcp;ofi_rxm"))

    def test_scalable_endpoints(self):
        self.equal(**self.over("sockets"))

    def test_shm(self):
        if self.mpi == "mpich":  # Open MPI takes no provider of one host only
            self.equal(**self.over("shm"))

    def test_ucx(self):
        """UCX does not tell whose message a receive got: the replay finds out."""
        if self.mpi == "open_mpi":  # MPICH's own UCX hangs in this program over TCP, with and without the recorder
            received = self.equal(OMPI_MCA_pml="ucx", OMPI_MCA_opal_common_ucx_tls="any",
                                  OMPI_MCA_opal_common_ucx_devices="any", UCX_TLS="posix,cma,self,tcp")
            self.assertEqual({source for source, _, _ in received}, {"?"})

    def test_children_of_the_program_record_nothing(self):
        self.equal("fork", **self.over("tcp"))

    def test_what_cannot_be_recorded(self):
        self.folder.mkdir()
        (self.folder / "x.recording").touch()
        self.assertIn("has recordings already; name another folder with --to", self.record(code=1).stderr)
        (self.folder / "x.recording").unlink()
        settings = ({"OMPI_MCA_pml": "ob1"} if self.mpi == "open_mpi" else
                    {"MPIR_CVAR_NOLOCAL": "0", **self.over("tcp")})
        done = self.record(code=1, **settings)
        self.assertIn(f"recorded the messages of 0 processes of {RANKS}", done.stderr)
        self.assertIn("pass through neither libfabric nor UCX", done.stderr)


if __name__ == "__main__":
    mpi_commands.main()
