#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Pairs of perftest's programs on the emulated mlx5 (`turnout verbs --mlx5`), of which one is killed at
a random moment: the other ends with an error, and nothing is left of either.

    mlx5_kill.py BUILD_DIR [--kills 20] [--seed N]
"""
import argparse
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time

LIMIT = 120  # seconds after which a program counts as hung; its own timers take a fraction of one
# Both sides always have requests under way, so each hears of the other's end.
PROGRAMS = ("ib_write_bw", "ib_send_bw", "ib_read_bw")
LONGEST = 0.6  # seconds from the client's start to the death


def free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def listens(port):
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in pathlib.Path(name).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                return True
    return False


def wait_for(what, condition):
    deadline = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"in vain: {what}")
        time.sleep(0.01)


class Side:
    def __init__(self, turnout, words, env, out):
        self.out = out
        with out.open("w") as to:
            self.process = subprocess.Popen([turnout, "verbs", "--mlx5", "--", *words], env=env, stdin=subprocess.DEVNULL,
                                            stdout=to, stderr=subprocess.STDOUT, start_new_session=True)

    def program(self):
        """The process that `turnout verbs` has started; none, before and after."""
        pid = self.process.pid
        try:
            return next(iter(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()), None)
        except OSError:
            return None

    def kill_program(self):
        pid = self.program()
        if pid is None:
            return False
        os.kill(int(pid), signal.SIGKILL)
        return True

    def wait(self):
        return self.process.wait(timeout=LIMIT)

    def is_left(self):
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


class Round:
    """Two programs and the death of one."""

    def __init__(self, build, scratch, number, choose):
        self.scratch, self.name = scratch, f"mlx5-kill-{os.getpid()}-{number}"
        env = {k: v for k, v in os.environ.items() if not k.startswith(("TURNOUT_", "UCX_", "LD_"))}
        env.update(TMPDIR=str(scratch), XDG_RUNTIME_DIR=str(scratch), TURNOUT_FABRIC=self.name)
        port = free_port()
        words = [choose.choice(PROGRAMS), "-b", "-n", "20000000", "-s", str(choose.choice((8, 4096, 65536))),
                 "-u", "10", "-p", str(port)]
        turnout = str(build / "bin/turnout")
        kills_client, wait = choose.random() < 0.5, choose.random() * LONGEST
        sides = []
        try:
            sides.append(Side(turnout, words, env, scratch / "server"))
            wait_for(f"{words[0]} listens", lambda: listens(port))
            sides.append(Side(turnout, [*words, "localhost"], env, scratch / "client"))
            wait_for(f"{words[0]} starts", lambda: sides[1].program() is not None)
            time.sleep(wait)
            victim, survivor = sides[::-1] if kills_client else sides
            if not victim.kill_program():
                raise AssertionError("it had ended before it was killed")
            if victim.wait() != 128 + signal.SIGKILL:
                raise AssertionError(f"the killed one's `turnout verbs` ended with {victim.process.returncode}")
            self.met = not listens(port)
            if not self.met and survivor.program() is not None:
                survivor.process.send_signal(signal.SIGTERM)  # nobody comes any more
            code = survivor.wait()
            if code == 0 or (self.met and not 0 < code < 128):
                raise AssertionError(f"the survivor ended with {code}")
            self.is_nothing_left(sides)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            raise AssertionError(f"round {number}, {' '.join(words)}, {'client' if kills_client else 'server'} killed "
                                 f"after {wait:.3f} s: {error}\n" + self.texts(sides)) from error
        finally:
            for side in sides:
                side.end()

    def texts(self, sides):
        return "".join(f"--- {s.out.name}\n{s.out.read_text()[-3000:]}" for s in sides)

    def is_nothing_left(self, sides):
        wait_for("no process is left", lambda: not any(side.is_left() for side in sides))
        folders = [p.name for p in self.scratch.iterdir() if p.name.startswith("turnout")]
        if folders:
            raise AssertionError(f"left: {folders}")
        if f"@turnout/{os.getuid():x}/{self.name}/" in pathlib.Path("/proc/net/unix").read_text():
            raise AssertionError("somebody of the fabric is left")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    choose = random.Random(options.seed)
    met = 0
    with tempfile.TemporaryDirectory(prefix="mlx5-kill-") as scratch:
        for number in range(options.kills):
            try:
                met += Round(options.build.absolute(), pathlib.Path(scratch), number, choose).met
            except AssertionError as error:
                sys.exit(f"FAILED: {error}")
    print(f"{options.kills} kills, {met} of them of a pair that had met; every survivor was told, nothing is left")
    if met < options.kills // 2:
        sys.exit("FAILED: most were killed before they met; give them more time (LONGEST)")


if __name__ == "__main__":
    main()
