#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`turnout top` on a terminal of 80 x 24 (tmux) while four processes talk over Turnout: what it shows, its keys,
that it follows the terminal's size, and that it leaves the terminal as it was.

    top_test.py BUILD_DIR [unittest's options]
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import synthetic_reports

BUILD = pathlib.Path()
LIMIT = 60  # seconds
COLUMNS, ROWS = 80, 24
JOB = "top-terminal"


class Terminal:
    """A shell in a tmux server of its own, in `folder`."""

    def __init__(self, folder, env):
        # `folder` is short: the socket's path must be.
        self.command = ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null"]
        self.env = env
        self.tmux("new-session", "-d", "-c", str(folder), "-x", str(COLUMNS), "-y", str(ROWS), "env PS1='$ ' sh")

    def tmux(self, *words):
        return subprocess.run([*self.command, *words], env=self.env, text=True, capture_output=True, check=True,
                              timeout=LIMIT).stdout

    def close(self):
        subprocess.run([*self.command, "kill-server"], env=self.env, capture_output=True, timeout=LIMIT, check=False)

    def type(self, text):
        self.tmux("send-keys", "-l", text)

    def key(self, *names):
        self.tmux("send-keys", *names)

    def screen(self, *options):
        return self.tmux("capture-pane", "-p", *options)

    def state(self):
        """Whether a full-screen program is on, whether the cursor is seen, whether keys are sent as an application
        wants them."""
        return self.tmux("display-message", "-p",
                         "#{alternate_on} #{cursor_flag} #{keypad_flag} #{keypad_cursor_flag}").split()

    def resize(self, columns, rows):
        self.tmux("resize-window", "-x", str(columns), "-y", str(rows))


class Top(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="top-")
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        self.folder = self.scratch / f"turnout-{os.geteuid()}-top"
        env = {k: v for k, v in os.environ.items()
               if not k.startswith("TURNOUT_") and k not in ("NO_COLOR", "TMUX", "COLUMNS", "LINES", "TERM")}
        self.env = dict(env, TERM="xterm-256color", FI_PROVIDER_PATH=str(BUILD / "lib"),
                        XDG_RUNTIME_DIR=str(self.scratch), TURNOUT_FABRIC=f"top-terminal-{os.getpid()}",
                        TURNOUT_REPORT_JOB=JOB, TURNOUT_INTERVAL="500ms", LC_ALL="C.UTF-8")
        self.terminal = Terminal(self.scratch, self.env)
        self.addCleanup(self.terminal.close)
        self.until(r"^\$ $")

    def start_job(self):
        job = subprocess.Popen([BUILD / "bin" / "fi_stress", "traffic", "--ranks", "4", "--messages", "1000000000"],
                               env=self.env, stdout=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(self.end_job, job)
        return job

    @staticmethod
    def end_job(job):
        try:
            os.killpg(job.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        job.wait()

    def start_top(self, options="", variables=""):
        """Between two lines with the terminal's settings, which must be the same; then the exit code."""
        self.terminal.type(f"clear; stty -g >before; {variables} {BUILD}/bin/turnout top --job {JOB} {options}; "
                           "code=$?; stty -g >after; echo; cmp before after && echo settings kept; echo code=$code")
        self.terminal.key("Enter")

    def until(self, pattern, columns=COLUMNS):
        """Waits for a screen with the pattern; returns its lines, none longer than the terminal is wide."""
        end = time.monotonic() + LIMIT
        while True:
            screen = self.terminal.screen()
            if re.search(pattern, screen.rstrip("\n") + " " if pattern == r"^\$ $" else screen, re.M):
                break
            self.assertLess(time.monotonic(), end, f"no {pattern!r} in:\n{screen}")
            time.sleep(0.1)
        rows = screen.split("\n")
        self.assertLessEqual(max(len(row) for row in rows), columns)
        return rows

    def ended(self, code=0):
        rows = self.until(rf"^code={code}$")
        self.assertIn("settings kept", rows)
        self.assertEqual(self.terminal.state(), ["0", "1", "0", "0"])
        self.assertFalse((self.folder / ".watch").exists())
        return "\n".join(rows)

    def pid_of_top(self):
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0] == str(BUILD / "bin" / "turnout").encode() and words[3:4] == [JOB.encode()]:
                yield int(folder.name)

    def test_keys(self):
        self.start_job()
        self.start_top()
        # Rates take a second report of each.
        rows = self.until(r"Traffic +[0-9.]+[kM]? messages/s.*(.*\n)+ *pid")
        self.assertEqual(self.terminal.state()[:2], ["1", "0"])
        self.assertEqual(rows[0].split("  ")[0], f"turnout top - job {JOB}")
        for i, label in enumerate(("Processes", "Traffic", "Memory", "Pairs"), 1):
            self.assertTrue(rows[i].startswith(label + " "), rows[i])
        self.assertRegex(rows[1], r"4 processes on host \S+, policy turnout, running \d+ s")
        self.assertRegex(rows[3], r"\[\|.*\] [\d.]+ MiB used, [\d.]+ MiB peak, [\d.]+ [MG]iB budget")
        self.assertRegex(rows[4], r"^Pairs +\d+ (DC|RC|UD)-\w+")
        table = next(i for i, row in enumerate(rows) if row.split()[:1] == ["pid"])
        self.assertRegex(rows[table], r"msg/s +bytes/s memory +last decision$")
        ranks = rows[table + 1:table + 5]
        pids = [row.split()[0] for row in ranks]
        self.assertEqual(pids, sorted(pids, key=int))
        for row in ranks:
            self.assertRegex(row, r"^ *\d+ +[\d-].* [\d.]+ [KMG]?i?B +\[.*\] +<?\d+%")
        self.assertTrue(rows[ROWS - 1].startswith("Up/Down select  Enter open"), rows[ROWS - 1])

        # The selected line is shown in reverse video.
        def selected():
            return [re.sub(r"\x1b\[[0-9;]*m|\x0f", "", line).split()[0]
                    for line in self.terminal.screen("-e").split("\n") if re.search(r"\x1b\[([0-9;]*;)?7m", line)]

        self.assertEqual(selected(), [pids[0]])
        for key, expected in (("Down", 1), ("j", 2), ("k", 1), ("NPage", 3), ("Up", 2), ("PPage", 0)):
            self.terminal.key(key)
            end = time.monotonic() + LIMIT
            while selected() != [pids[expected]]:
                self.assertLess(time.monotonic(), end, key)
                time.sleep(0.1)

        # A rank's page, by each key that opens it and each that leaves it.
        self.terminal.key("Down")
        for into, back in (("Enter", "Escape"), ("Right", "Left"), ("Enter", "BSpace")):
            self.terminal.key(into)
            rows = self.until(rf"^turnout top - job {JOB} - pid {pids[1]}$")
            text = "\n".join(rows)
            self.assertRegex(text, rf"Process +pid {pids[1]} on host")
            self.assertIn("Peers: 3, busiest first", text)
            self.assertRegex(text, r"(?m)^peer +channel over time +msg/s messages +bytes +memory$")
            self.assertRegex(text, r"(?m)^pid \d+ +tx \S+")
            self.assertRegex(text, r"(?m)^ +rx \S+")
            self.terminal.key("End")
            self.until(r"^Memory by kind$(.*\n)+queue pairs +[\d.]+ [KM]iB")
            self.terminal.key(back)
            self.until(r"^Up/Down select")

        for order in ("rate", "memory", "rank"):
            self.terminal.key("s")
            self.until(rf"sorted by {order}$")
        self.terminal.key("?")
        self.until(r"^Keys$(.*\n)+Columns$")
        self.terminal.key("?")
        self.until(r"^Up/Down select")
        self.terminal.key("Space")
        self.until(r"paused, sorted by rank$")
        before = self.terminal.screen()
        time.sleep(2.5)
        self.assertEqual(self.terminal.screen(), before)
        self.terminal.key("Space")
        self.until(r" sorted by rank$")

        # Another size, and back.
        for columns, rows in ((120, 30), (40, 12), (COLUMNS, ROWS)):
            self.terminal.resize(columns, rows)
            shown = self.until(r"(Enter open(.*)q quit\n?)\Z", columns)
            self.assertEqual(len(shown) - 1, rows)
            self.until(r"^ *pid ", columns)
            time.sleep(1.2)  # another refresh
            self.until(r"^ *pid ", columns)
        self.terminal.key("q")
        self.ended()

    def test_processes_come_stop_and_go(self):
        self.start_top()
        self.until(r"^No reports yet\.")
        job = self.start_job()
        self.until(r"^ *pid .*msg/s")
        os.killpg(job.pid, signal.SIGSTOP)
        self.until(r"no calls for [4-9]s")
        self.until(r"^Warning +4 processes have not called the library for 3 s or more")
        os.killpg(job.pid, signal.SIGCONT)
        self.until(r"^ *\d+ +[\d-].* [\d.]+ [KMG]?i?B +\[.*\] +<?\d+%")
        self.end_job(job)
        self.until(r"^No reports yet\.")
        self.terminal.key("q")
        self.ended()

    def test_signals_restore_the_terminal(self):
        for number, sent in (("INT", lambda: self.terminal.key("C-c")),
                             ("TERM", lambda: [os.kill(pid, signal.SIGTERM) for pid in self.pid_of_top()])):
            with self.subTest(number):
                self.start_top()
                self.until(r"^No reports yet\.")
                sent()
                self.ended()

    def test_an_error_is_printed_after_the_terminal_is_restored(self):
        self.start_top()
        self.until(r"^No reports yet\.")
        for file in self.folder.iterdir():
            file.unlink()
        self.folder.rmdir()
        text = self.ended(1)
        self.assertRegex(text, r"(?m)^turnout top: .*")

    def test_colours(self):
        self.start_job()
        for variables, coloured in (("", True), ("NO_COLOR=1", False), ("TERM=vt100", False)):
            with self.subTest(variables or "none"):
                self.start_top(variables=variables)
                self.until(r"^ *pid .*msg/s")
                colours = re.findall(r"\x1b\[(?:[0-9;]*;)?3[0-7]m", self.terminal.screen("-e"))
                self.assertEqual(bool(colours), coloured, colours)
                self.terminal.key("q")
                self.ended()

    def test_without_a_terminal_it_can_draw_on(self):
        """A terminal of unknown kind, and one without cursor motion: text once a second."""
        for kind in ("nonsense", "dumb"):
            with self.subTest(kind):
                self.start_top(variables=f"TERM={kind}")
                # Not what the run before it has left on the screen, which is cleared when the shell comes to it.
                self.until(rf"\A(?![\s\S]*^code=\d)[\s\S]*?(no process of yours of job {JOB} [^$]*?){{2}}")
                self.terminal.key("C-c")
                self.ended()

    def test_text_of_reports_stays_text(self):
        """A report with escape sequences, of this process, which is alive."""
        self.folder.mkdir(mode=0o700)
        report = synthetic_reports.report(0, 4)
        evil = "\x1b]0;title\x07\x1b[2J\r\n\u202e" + 200 * "w"
        report.update(job=JOB, host=evil, device=evil, policy=evil, pid=os.getpid())
        for peer in report["peers"]:
            peer["reason"] = evil
        path = self.folder / f"{os.getpid()}.0000000000000001.json"
        path.write_text(json.dumps(report))
        self.start_top()
        rows = self.until(r"^Processes +1 of 4 ranks on host \?\]0;title\?\?\[2J\?\?\?w+~,")
        self.assertEqual(rows[0].split("  ")[0], f"turnout top - job {JOB}")
        self.terminal.key("Enter")
        self.until(r"why: \?\]0;title")
        self.terminal.key("q")
        self.ended()


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
