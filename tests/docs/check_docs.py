#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks the documentation: README.md, the other pages of the root and docs/**/*.md.

- Every relative link leads to a file or folder, and its anchor to a heading.
- Every page below docs/ is reached from README.md or from mkdocs.yml's nav.
- Every page that the nav names exists.
- Every page with measured or modelled figures names the commit at which it was made.
- The terms of the glossary are in alphabetical order, each once and with its meaning.

    tests/docs/check_docs.py [ROOT]

Prints FILE:LINE: MESSAGE for each fault and ends with 1 if there is one.
"""
import fnmatch
import os
import re
import sys
import urllib.parse

ROOT_PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
# Pages with figures: all of this folder, and these.
FIGURES = "docs/experiments"
FIGURE_PAGES = ("docs/benchmarks.md", "docs/micro.md", "docs/threads.md", "docs/verbs-speed.md")
COMMIT = re.compile(r"\bcommit\s+`[0-9a-f]{7,40}`")
GLOSSARY = "docs/glossary.md"
FENCE = re.compile(r"^\s*(```+|~~~+)")
CODE = re.compile(r"(`+)(?:(?!`).|(?<!`)`(?!`))*?\1(?!`)")
LINK = re.compile(r"\]\(\s*<?([^()\s<>]*(?:\([^()\s]*\)[^()\s<>]*)*)>?(?:\s+[\"'][^()]*[\"'])?\s*\)")
DEFINITION = re.compile(r"^ {0,3}\[[^\]^]+\]:\s+<?([^\s>]+)>?")
HTML = re.compile(r"<(?:a|img)\b[^>]*?\b(?:href|src)=[\"']([^\"']+)[\"']")
HTML_ID = re.compile(r"<[a-z][^>]*?\b(?:id|name)=[\"']([^\"']+)[\"']")
HEADING = re.compile(r"^ {0,3}#{1,6}\s+(.*?)\s*#*\s*$")
SCHEME = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]*:")


def lines_of(text):
    """(number, line) of everything outside of fenced code."""
    fence = ""
    for number, line in enumerate(text.split("\n"), 1):
        match = FENCE.match(line)
        if fence:
            if match and match.group(1).startswith(fence):
                fence = ""
            continue
        if match:
            fence = match.group(1)[:3]
            continue
        yield number, line


def slug(heading):
    """The anchor that GitHub, and mkdocs.yml's slugify, give a heading."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"<[^>]*>", "", text).replace("`", "").replace("*", "")
    text = re.sub(r"[^\w\- ]", "", text.strip().lower())
    return text.replace(" ", "-")


def links_of(text):
    """(line number, target) of every link."""
    found = []
    # A link's text may go on in the next line; its target does not.
    for number, line in lines_of(text):
        plain = CODE.sub(lambda m: "x" * len(m.group()), line)
        definition = DEFINITION.match(plain)
        if definition:
            found.append((number, definition.group(1)))
        found += [(number, m.group(1)) for m in LINK.finditer(plain) if m.group(1)]
        found += [(number, m.group(1)) for m in HTML.finditer(plain)]
    return found


def anchors_of(text):
    anchors, seen = set(), {}
    for _, line in lines_of(text):
        match = HEADING.match(line)
        if match:
            name = slug(match.group(1))
            count = seen.get(name, 0)
            seen[name] = count + 1
            anchors.add(name if count == 0 else f"{name}-{count}")
        anchors.update(HTML_ID.findall(line))
    return anchors


def nav_of(text):
    """(line number, page) of mkdocs.yml's nav. One page a line, as that file is written."""
    inside = False
    for number, line in enumerate(text.split("\n"), 1):
        if re.match(r"^\S", line) and not line.startswith("#"):
            inside = line.startswith("nav:")
            continue
        match = re.match(r"^\s*-\s+(?:[^#]*:\s+)?[\"']?([^\s\"':]+\.md)[\"']?\s*$", line)
        if inside and match:
            yield number, match.group(1)


class Checker:
    def __init__(self, root):
        self.root = os.path.abspath(root)
        self.faults = []
        self.texts = {}  # page, relative to the root -> text
        self.anchors = {}
        self.reached = {}  # page -> pages it leads to

    def fault(self, page, number, message):
        self.faults.append(f"{page}:{number}: {message}")

    def path(self, name):
        return os.path.join(self.root, name)

    def read_pages(self):
        names = [name for name in ROOT_PAGES if os.path.exists(self.path(name))]
        for folder, _, files in os.walk(self.path("docs")):
            for name in sorted(files):
                if name.endswith(".md"):
                    names.append(os.path.relpath(os.path.join(folder, name), self.root))
        for name in names:
            with open(self.path(name), encoding="utf-8") as file:
                self.texts[name] = file.read()
            self.anchors[name] = anchors_of(self.texts[name])

    def pages_in(self, folder):
        return {name for name in self.texts if os.path.dirname(name) == folder}

    def check_links(self, page):
        leads_to = self.reached.setdefault(page, set())
        for number, link in links_of(self.texts[page]):
            if SCHEME.match(link) or link.startswith("//"):
                continue
            name, _, anchor = urllib.parse.unquote(link).partition("#")
            if name.startswith("/"):
                self.fault(page, number, f"link {link}: is absolute; a relative one is needed")
                continue
            target = os.path.normpath(os.path.join(os.path.dirname(page), name)) if name else page
            if target.startswith(".."):
                self.fault(page, number, f"link {link}: leads out of the repository")
            elif not os.path.exists(self.path(target)):
                self.fault(page, number, f"link {link}: {target} does not exist")
            elif os.path.isdir(self.path(target)):
                leads_to |= self.pages_in(target)
            elif target in self.texts:
                leads_to.add(target)
                if anchor and anchor not in self.anchors[target]:
                    self.fault(page, number, f"link {link}: {target} has no heading #{anchor}")

    def check_nav(self):
        """The pages that the nav names."""
        pages = set()
        file = self.path("mkdocs.yml")
        if not os.path.exists(file):
            return pages
        with open(file, encoding="utf-8") as text:
            entries = list(nav_of(text.read()))
        if not entries:
            self.fault("mkdocs.yml", 1, "its nav names no page")
        for number, entry in entries:
            page = f"docs/{entry}"
            if "*" in entry:
                matched = {name for name in self.texts if fnmatch.fnmatch(name, page)}
                if not matched:
                    self.fault("mkdocs.yml", number, f"nav: no page matches {page}")
                pages |= matched
            elif page in self.texts:
                pages.add(page)
            elif not self.is_made(entry):
                self.fault("mkdocs.yml", number, f"nav: {page} does not exist")
        return pages

    def is_made(self, entry):
        """Whether tools/site_hooks.py makes the page: from a file of the root, or as a folder's index."""
        stem = entry[: -len(".md")]
        if os.path.basename(entry) == "index.md":
            return os.path.dirname(entry) != "" and os.path.isdir(self.path(f"docs/{os.path.dirname(entry)}"))
        return any(os.path.isfile(self.path(stem + end)) for end in (".md", "", ".cff"))

    def check_orphans(self, nav):
        reached, todo = set(), [name for name in ROOT_PAGES if name in self.texts] + sorted(nav)
        while todo:
            page = todo.pop()
            if page not in reached:
                reached.add(page)
                todo += self.reached[page]
        for page in sorted(set(self.texts) - reached):
            self.fault(page, 1, "no page leads here: add it to mkdocs.yml's nav, or link it from a page")

    def check_commits(self):
        for page in sorted(self.texts):
            if os.path.dirname(page) != FIGURES and page not in FIGURE_PAGES:
                continue
            if not COMMIT.search(self.texts[page]):
                self.fault(page, 1, "has figures, but not the commit at which it was made: make pages")

    def check_glossary(self):
        before = ""
        rows = [(number, [cell.strip() for cell in line.strip().strip("|").split("|")])
                for number, line in lines_of(self.texts.get(GLOSSARY, "")) if line.startswith("|")]
        for number, (term, *meaning) in rows[2:]:
            name = term.partition(",")[0].casefold()
            if name <= before:
                self.fault(GLOSSARY, number, f"{term}: out of alphabetical order")
            if not meaning or not meaning[0]:
                self.fault(GLOSSARY, number, f"{term}: has no meaning")
            before = name

    def run(self):
        self.read_pages()
        if not any(page.startswith("docs/") for page in self.texts):
            self.fault("docs", 1, "there is no page")
        for page in sorted(self.texts):
            self.check_links(page)
        self.check_orphans(self.check_nav())
        self.check_commits()
        self.check_glossary()
        return self.faults


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "..")
    checker = Checker(root)
    faults = checker.run()
    for fault in faults:
        print(fault)
    print(f"{len(checker.texts)} pages, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
