#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""check_docs.py finds each kind of fault, and none in a sound tree."""
import os
import subprocess
import sys
import tempfile
import unittest

CHECKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "check_docs.py")
SOUND = {
    "README.md": "# T\n[a](docs/a.md), [part](docs/a.md#is-it-used), [all](docs/more/)\n",
    "CONTRIBUTING.md": "# C\n[source](src/x.c)\n",
    "src/x.c": "",
    "mkdocs.yml": "site_name: T\nnav:\n  - a.md\n  - Group:\n      - Nav only: nav.md\n      - more/index.md\n"
    "      - more/*.md\n      - CONTRIBUTING.md\nextra: x\n",
    "docs/a.md": "# A\n## Is it used?\n## Twice\n## Twice\n[b](#twice-1) `[no](no.md)` <https://x.y/z>\n"
    "```sh\n[no](no.md)\n# not a heading\n```\n[two\nlines](nav.md)\n[ref][r]\n\n[r]: more/m.md \"title\"\n",
    "docs/nav.md": "# `Code` and *more*\n[self](#code-and-more)\n",
    "docs/more/m.md": "# M\n![picture](p.svg) [up](../a.md)\n",
    "docs/more/p.svg": "",
}


def run(changes):
    with tempfile.TemporaryDirectory() as root:
        for name, text in {**SOUND, **changes}.items():
            if text is None:
                continue
            path = os.path.join(root, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        done = subprocess.run([sys.executable, CHECKER, root], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout


class CheckDocs(unittest.TestCase):
    def finds(self, changes, expected):
        code, output = run(changes)
        self.assertEqual(code, 1, output)
        self.assertIn(expected, output)
        self.assertIn(", 1 faults", output)

    def test_a_sound_tree_passes(self):
        self.assertEqual(run({}), (0, "5 pages, 0 faults\n"))

    def test_a_link_to_a_missing_file(self):
        self.finds({"docs/nav.md": "# N\n\n[x](gone.md)\n"}, "docs/nav.md:3: link gone.md: docs/gone.md does not exist")

    def test_a_missing_picture(self):
        self.finds({"docs/more/p.svg": None}, "docs/more/m.md:2: link p.svg")

    def test_a_missing_source_file(self):
        self.finds({"src/x.c": None}, "CONTRIBUTING.md:2: link src/x.c")

    def test_a_missing_anchor_of_another_page(self):
        self.finds({"README.md": SOUND["README.md"] + "[x](docs/a.md#not-there)"}, "README.md:3: link docs/a.md#not-there")

    def test_an_anchor_inside_a_fence_is_none(self):
        self.finds({"docs/nav.md": "# N\n[x](a.md#not-a-heading)"}, "docs/nav.md:2: link a.md#not-a-heading")

    def test_a_missing_anchor_of_the_page_itself(self):
        self.finds({"docs/nav.md": "# N\n[x](#m)\n"}, "docs/nav.md:2: link #m")

    def test_a_missing_definition(self):
        self.finds({"docs/nav.md": "# N\n[x][y]\n\n[y]: gone.md\n"}, "docs/nav.md:4: link gone.md")

    def test_an_orphan(self):
        self.finds({"docs/lonely.md": "# L\n[self](lonely.md)\n"}, "docs/lonely.md:1: no page leads here")

    def test_a_nav_entry_without_a_page(self):
        self.finds({"mkdocs.yml": SOUND["mkdocs.yml"].replace("- a.md", "- a.md\n  - gone.md")},
                   "mkdocs.yml:4: nav: docs/gone.md does not exist")

    def test_a_pattern_without_a_page(self):
        self.finds({"mkdocs.yml": SOUND["mkdocs.yml"].replace("- a.md", "- a.md\n  - none/*.md")},
                   "mkdocs.yml:4: nav: no page matches docs/none/*.md")

    def test_figures_without_a_commit(self):
        page = "docs/experiments/e.md"
        nav = SOUND["mkdocs.yml"].replace("- a.md", "- a.md\n  - experiments/e.md")
        self.finds({"mkdocs.yml": nav, page: "# E\n| 1 | 2 |\n"}, page + ":1: has figures, but not the commit")
        self.assertEqual(run({"mkdocs.yml": nav, page: "# E\nMade at commit `0123456789`.\n"}),
                         (0, "6 pages, 0 faults\n"))

    def test_the_glossary(self):
        def page(*rows):
            return {"README.md": SOUND["README.md"] + "[g](docs/glossary.md)\n",
                    "docs/glossary.md": "# G\n| term | meaning |\n|---|---|\n" + "".join(f"| {row} |\n" for row in rows)}

        self.assertEqual(run(page("DC | x", "DCI switch | x", "RC, reliable | x", "ring | x")), (0, "6 pages, 0 faults\n"))
        self.finds(page("ring | x", "RC | x"), "docs/glossary.md:5: RC: out of alphabetical order")
        self.finds(page("RC | x", "RC | y"), "docs/glossary.md:5: RC: out of alphabetical order")
        self.finds(page("RC | "), "docs/glossary.md:4: RC: has no meaning")

    def test_a_link_out_of_the_repository(self):
        self.finds({"docs/nav.md": "# N\n[x](../../etc/passwd)\n"}, "leads out of the repository")


if __name__ == "__main__":
    unittest.main()
