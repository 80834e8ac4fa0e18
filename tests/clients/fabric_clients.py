#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What clients of libfabric ask of a provider, after the programs of fabtests: each test over Turnout and over
libfabric's own shared memory and TCP, as a table.

    fabric_clients.py BUILD [--only REGEX] [--providers NAME,NAME] [--libraries 1.17,2.5]
                      [--modes out-of-band,by-port] [--standard] [--markdown]

A test is one process or a server and a client on loopback. In the mode out-of-band names go over a socket beside
the fabric; in the mode by-port fi_getinfo gets host and port. Two outcomes beside "pass" and "fail": "-", where
both sides find that the provider does not offer it (fabtests calls that "Notrun"). Exits with 1 when Turnout fails,
or does not offer what another provider passes.
"""
import argparse
import concurrent.futures
import errno
import os
import pathlib
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

PROVIDERS = ["turnout", "shm", "tcp;ofi_rxm"]
MODES = ["out-of-band", "by-port"]
LIMIT = 20  # seconds of a quick test on a core of its own
STANDARD_LIMIT = 180


def libraries():
    """Folders for LD_LIBRARY_PATH by version; the system's needs none."""
    found = {"1.17": ""}
    wheel = pathlib.Path(__file__).parents[2] / ".venv/lib/mpich"
    if (wheel / "libfabric.so.1").exists():
        found["2.5"] = str(wheel)
    return found


class Ports:
    """Numbers of free ports, below those that the system gives to who connects."""

    def __init__(self):
        self.next = 10000 + os.getpid() * 613 % 9000
        self.lock = threading.Lock()

    def take(self):
        with self.lock:
            return self.find()

    def find(self):
        while True:
            self.next += 2  # a test may use the one behind it
            with socket.socket() as probe:
                try:
                    probe.bind(("127.0.0.1", self.next))
                    return self.next
                except OSError:
                    continue


def wait_ready(server, limit):
    """Until it says that a client may start, or ends."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        ready, _, _ = select.select([server.stdout], [], [], 0.5)
        if ready:
            return os.read(server.stdout.fileno(), 64).startswith(b"ready")
        if server.poll() is not None:
            return False
    return False


def limit_of(options):
    """Seconds: many times what a test takes, also where it has only a small part of a core."""
    limit = STANDARD_LIMIT if options.standard else LIMIT
    return round(limit * max(1, os.getloadavg()[0] / os.cpu_count() / 4))


class Side:
    """A process of a test, in a session of its own, which ends with it. Its words go to a file: a pipe would stay
    open for as long as any process that it has started."""

    def __init__(self, command, env):
        self.words = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=self.words, start_new_session=True)

    def end(self, limit):
        """Its exit status and its words, at the latest after so many seconds."""
        more = b""
        try:
            self.process.wait(limit)
        except subprocess.TimeoutExpired:
            more = b"ended from outside"
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.process.stdout.close()
        with self.words as words:
            words.seek(0)
            return self.process.returncode, (words.read() + more).decode(errors="replace").strip()


def run(program, name, processes, provider, folder, mode, port, options):
    """pass, -, or fail, with the words of who failed."""
    limit = limit_of(options)
    command = [program, "--test", name, "--provider", provider, "--port", str(port), "--limit", str(limit)]
    if mode == "out-of-band":
        command.append("--out-of-band")
    if options.standard:
        command.append("--standard")
    env = dict(os.environ, FI_PROVIDER_PATH=str(options.build / "lib"), TURNOUT_FABRIC=f"clients-{os.getpid()}-{port}",
               TURNOUT_DEVICE="virtual")
    if folder:
        env["LD_LIBRARY_PATH"] = folder

    if processes == 1:
        ends = [Side(command, env).end(limit + 5)]
    else:
        server = Side(command + ["--server"], env)
        wait_ready(server.process, limit)
        ends = [Side(command, env).end(limit + 5)]
        # Where the client has failed, the server has a moment for words of its own.
        ends.append(server.end(limit + 5 if ends[0][0] in (0, errno.ENODATA) else 1))
    codes = {code for code, _ in ends}
    text = "; ".join(f"{who}: {words or code}" for who, (code, words) in zip(("client", "server"), ends) if code)
    if codes == {0}:
        return "pass", ""
    return ("-", text) if codes == {errno.ENODATA} else ("fail", text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--only", default="", help="regular expression of the names")
    parser.add_argument("--providers", default=",".join(PROVIDERS))
    parser.add_argument("--libraries", default=",".join(libraries()))
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--standard", action="store_true", help="all sizes, more iterations")
    parser.add_argument("--jobs", type=int, default=1, help="tests at once")
    parser.add_argument("--markdown", action="store_true", help="print the page docs/clients.md")
    options = parser.parse_args()
    options.build = options.build.resolve()
    program = str(options.build / "bin" / "fabric_clients")
    listed = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout
    tests = [(name, int(count)) for count, name in (line.split("\t") for line in listed.splitlines())
             if re.search(options.only, name)]
    ports = Ports()
    columns = [(library, provider) for library in options.libraries.split(",")
               for provider in options.providers.split(",")]
    outcomes = {}

    def fill(key, processes):
        name, mode, library, provider = key
        began = time.monotonic()
        outcomes[key], why = run(program, name, processes, provider, libraries()[library], mode, ports.take(), options)
        print(f"{name} | {mode} | {library} {provider}: {outcomes[key]} {time.monotonic() - began:.1f} s"
              + (f" ({why})" if why else ""), file=sys.stderr, flush=True)

    modes = options.modes.split(",")
    rows = [(name, mode) for name, processes in tests for mode in (modes if processes == 2 else [""])]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        counts = dict(tests)
        for done in [pool.submit(fill, row + column, counts[row[0]]) for row in rows for column in columns]:
            done.result()
    troubles = [trouble for row in rows for library in options.libraries.split(",")
                if (trouble := judge(*row, library, outcomes))]
    for trouble in troubles:
        print(trouble, file=sys.stderr)
    if options.markdown:
        print_page(tests, columns, outcomes)
    for column in columns:
        counts = {kind: sum(outcome == kind for key, outcome in outcomes.items() if key[2:] == column)
                  for kind in ("pass", "-", "fail")}
        print(f"libfabric {column[0]} {column[1]}: {counts['pass']} passed, {counts['-']} not supported, "
              f"{counts['fail']} failed", file=sys.stderr)
    print(f"{len(tests)} tests, {len(outcomes)} runs, {len(troubles)} wrong", file=sys.stderr)
    return 1 if troubles or not outcomes else 0


def judge(name, mode, library, outcomes):
    """What is wrong with Turnout's outcome, or ''."""
    mine = outcomes.get((name, mode, library, "turnout"))
    others = [key[3] for key, outcome in outcomes.items()
              if key[:3] == (name, mode, library) and key[3] != "turnout" and outcome == "pass"]
    if mine == "fail":
        return f"wrong: {name}, {mode}, {library}: Turnout fails"
    if mine == "-" and others:
        return f"wrong: {name}, {mode}, {library}: Turnout has not what {' and '.join(others)} pass"
    return ""


def print_page(tests, columns, outcomes):
    print("""# Clients of libfabric

Programs that use a libfabric provider as those of libfabric's test suite fabtests do, named after them, over Turnout
and over what libfabric has itself. `tests/clients/fabric_clients.py build/release --markdown` writes this page.

- pass: server and client both exited with 0. Where two words stand, the first is of addresses that go over a socket
  beside the fabric, the second of `fi_getinfo` with host and port.
- dash: the provider does not offer it, as `fi_getinfo` or the opening of an object says. fabtests calls this "Notrun".
- **fail**: anything else.

Connected endpoints of "tcp;ofi_rxm" are those of "tcp", its datagrams those of "udp".
""")
    print("| | " + " | ".join(f"{library} {provider}" for library, provider in columns) + " |")
    print("|---|" + "---|" * len(columns))
    totals = {column: {} for column in columns}
    for name, processes in tests:
        cells = []
        for column in columns:
            words = [outcomes[key] for mode in ["", *MODES] if (key := (name, mode, *column)) in outcomes]
            for word in words:
                totals[column][word] = totals[column].get(word, 0) + 1
            words = ["**fail**" if word == "fail" else word for word in words]
            cells.append(words[0] if len(set(words)) == 1 else " / ".join(words))
        print(f"| {name} | " + " | ".join(cells) + " |")
    for kind, title in (("pass", "passed"), ("-", "not offered"), ("fail", "failed")):
        print(f"| **{title}** | " + " | ".join(str(totals[column].get(kind, 0)) for column in columns) + " |")


if __name__ == "__main__":
    sys.exit(main())
