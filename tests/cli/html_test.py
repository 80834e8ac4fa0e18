#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`turnout report --html` of a real run of 4 processes and of 1,024 made-up ones, opened in headless Chromium:
everything is drawn, nothing goes wrong, nothing is asked for from outside of the page.

    html_test.py BUILD_DIR [unittest's options]

Chromium's own log tells of errors and of what was asked for. KEEP=FOLDER keeps the pages and screenshots, in
light and dark.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import synthetic_reports

BUILD = pathlib.Path()
LIMIT = 120  # seconds
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
           "--disable-background-networking", "--no-first-run", "--virtual-time-budget=10000"]


def requests(net_log):
    """Addresses that the page asked for: requests that a renderer made, not those of the browser itself."""
    text = net_log.read_text(encoding="utf-8", errors="replace")
    return {url for url in re.findall(r'"url":"([a-z]+:[^"]*)"', text)
            if not re.search(r"google|gvt1|chrome|^devtools:|^data:", url)}


class Page(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="turnout-html-")
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(os.environ.get("KEEP") or scratch.name)
        self.scratch.mkdir(parents=True, exist_ok=True)

    def page(self, folder, name):
        out = self.scratch / f"{name}.html"
        done = subprocess.run([BUILD / "bin" / "turnout", "report", folder, "--html", out], text=True,
                              capture_output=True, timeout=LIMIT)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, "")
        return out

    def chromium(self, page, *options):
        profile = tempfile.TemporaryDirectory(prefix="turnout-chromium-")
        self.addCleanup(profile.cleanup)
        done = subprocess.run([CHROMIUM, *OPTIONS, f"--user-data-dir={profile.name}", "--enable-logging=stderr",
                               *options, page.as_uri()], text=True, capture_output=True, timeout=LIMIT)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn(":CONSOLE", done.stderr, "errors and warnings of the page")
        return done.stdout

    def check(self, page, *words):
        net_log = page.with_suffix(".net.json")
        dom = self.chromium(page, "--dump-dom", f"--log-net-log={net_log}")
        for section in ("findings", "timeline", "matrix", "memory", "sizes", "decisions"):
            self.assertIn(f'<section id="{section}">', dom)
        for section in ("timeline", "matrix", "memory", "sizes"):
            part = dom.split(f'<section id="{section}">')[1].split("</section>")[0]
            self.assertRegex(part.split('class="chart')[1], r"<svg.*<(rect|path)", section)
        for word in words:
            self.assertIn(word, dom)
        self.assertLessEqual({url for url in requests(net_log)}, {page.as_uri()})
        if os.environ.get("KEEP"):
            for theme, option in (("light", []), ("dark", ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"])):
                self.chromium(page, *option, f"--screenshot={page.with_suffix('')}-{theme}.png",
                              "--window-size=1280,3000")
        return dom

    def test_a_run_of_four(self):
        folder = self.scratch / "four"
        shutil.rmtree(folder, ignore_errors=True)
        env = {k: v for k, v in os.environ.items() if not k.startswith("TURNOUT_")}
        env.update(FI_PROVIDER_PATH=str(BUILD / "lib"), TURNOUT_FABRIC=f"html-{os.getpid()}",
                   TURNOUT_INTERVAL="100ms")
        subprocess.run([BUILD / "bin" / "fi_stress", "traffic", "--ranks", "4", "--messages", "20000",
                        "--report", folder], env=env, check=True, capture_output=True, timeout=LIMIT)
        reports = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
        self.assertEqual(len(reports), 4)
        for report in reports:
            self.assertGreater(report["started_unix_ns"], 1_600_000_000_000_000_000)
            points = report["memory_over_time"]
            self.assertGreater(len(points), 1)
            self.assertLessEqual(len(points), 256)
            self.assertTrue(all(sum(p[1:]) <= report["peak"] for p in points))
            # The last point is what the account held at the end.
            self.assertEqual(points[-1][1:], [line["now"] for line in report["memory"]])
        self.check(self.page(folder, "four-page"), "used Turnout", "Memory stayed within the budget")

    def test_1024_processes(self):
        folder = self.scratch / "many"
        synthetic_reports.write(folder, 1024)
        page = self.page(folder, "many-page")
        self.assertLess(page.stat().st_size, 10 << 20)
        dom = self.check(page, "1,024 of 1,024 processes used Turnout", "are left out", "each is one node",
                         "node031")
        self.assertLessEqual(dom.count("<tr>"), 502)
        # Without a script the findings are there.
        static = page.read_text().split("<noscript>")[0]
        self.assertIn("1,024 of 1,024 processes used Turnout", static)

    def test_text_of_reports_stays_text(self):
        folder = self.scratch / "evil"
        folder.mkdir(exist_ok=True)
        evil = "</script><script>document.title='broken'</script><img src='http://example.com/x'>"
        for rank in range(4):
            report = synthetic_reports.report(rank, 4)
            report["host"] = report["job"] = report["policy"] = evil
            for decision in report["decisions"]:
                decision["reason"] = decision["outcome"] = evil
            (folder / f"{rank}.json").write_text(json.dumps(report))
        dom = self.check(self.page(folder, "evil-page"))
        self.assertIn("<title>Turnout report</title>", dom)
        self.assertNotIn("<img", dom)


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    if CHROMIUM is None:
        sys.exit("no chromium: make deps-all installs it")
    unittest.main()
