# SPDX-License-Identifier: BSD-3-Clause
"""Hooks of mkdocs.yml.

- Pages of the repository's root (CONTRIBUTING.md and others) become pages of the site.
- A pattern in the nav (decisions/*.md) stands for the pages it matches.
- A folder that pages link to (decisions/) gets an index page.
- Links to files outside docs/ lead to those pages; other such links become the file's name.
- Lists and tables may follow a paragraph without a blank line, as on GitHub.
"""
import fnmatch
import os
import posixpath
import re

from mkdocs.structure.files import File

# page of the site -> file of the repository
ROOT_PAGES = {
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "SECURITY.md": "SECURITY.md",
    "LICENSE.md": "LICENSE",
    "CITATION.md": "CITATION.cff",
}
# folder -> title and introduction of its index page
INDEXES = {
    "decisions": ("Decisions", "Why things are as they are, in the order in which they were decided."),
    "experiments": (
        "Experiments",
        "Results of the model: figures of the papers again, and comparisons of the policies. "
        "`turnout sim --experiment NAME` makes a page again.",
    ),
}
LINK = re.compile(r"(\[(?:[^\[\]]|\[[^\[\]]*\])*\])\(([^()\s]+)((?:\s+\"[^\"]*\")?)\)")
FENCE = re.compile(r"^\s*(```|~~~)")
LIST_ITEM = re.compile(r"^([-*+]|\d+\.) ")


def _root(config):
    return os.path.dirname(os.path.abspath(config["config_file_path"]))


def _pages(folder, docs):
    return sorted(f"{folder}/{name}" for name in os.listdir(os.path.join(docs, folder)) if name.endswith(".md"))


def _title(path):
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith("# "):
                return line[2:].strip()
    return os.path.basename(path)


def on_config(config):
    docs = config["docs_dir"]

    def expand(items):
        out = []
        for item in items:
            if isinstance(item, dict):
                for title, value in item.items():
                    out.append({title: expand(value) if isinstance(value, list) else value})
            elif "*" in item:
                out += fnmatch.filter(_pages(posixpath.dirname(item), docs), item)
            else:
                out.append(item)
        return out

    config["nav"] = expand(config["nav"])
    return config


def on_files(files, config):
    root, docs = _root(config), config["docs_dir"]
    for page, source in ROOT_PAGES.items():
        with open(os.path.join(root, source), encoding="utf-8") as file:
            text = file.read()
        if not source.endswith(".md"):
            text = f"# {'Licence' if source == 'LICENSE' else 'Citing Turnout'}\n\n```text\n{text}```\n"
        files.append(File.generated(config, page, content=text))
    for folder, (title, introduction) in INDEXES.items():
        lines = [f"# {title}", "", introduction, ""]
        for page in _pages(folder, docs):
            lines.append(f"- [{_title(os.path.join(docs, page))}]({posixpath.basename(page)})")
        files.append(File.generated(config, f"{folder}/index.md", content="\n".join(lines) + "\n"))
    return files


def _target(page, link):
    """What a link of `page` becomes; None: there is nothing on the site that it could lead to."""
    path, _, anchor = link.partition("#")
    anchor = f"#{anchor}" if anchor else ""
    if re.match(r"[a-z]+:", link) or not path:
        return link
    here = posixpath.dirname(page)
    in_root = page in ROOT_PAGES  # its links are those of the repository's root
    target = posixpath.normpath(posixpath.join("" if in_root else posixpath.join("docs", here), path))
    for name, source in ROOT_PAGES.items():
        if target == source:
            return posixpath.relpath(name, here or ".") + anchor
    if target == "README.md":
        return posixpath.relpath("index.md", here or ".") + anchor
    if target != "docs" and not target.startswith("docs/"):
        return None
    inside = posixpath.relpath(target, "docs")
    if inside == ".":
        inside = "index.md"
    elif inside in INDEXES:
        inside += "/index.md"
    return posixpath.relpath(inside, here or ".") + anchor


def on_page_markdown(markdown, page, config, files):
    uri = page.file.src_uri

    def replace(match):
        text, link, title = match.groups()
        target = _target(uri, link)
        if target is None:  # a source file: its name is all that the site can show
            folder = "" if uri in ROOT_PAGES else posixpath.join("docs", posixpath.dirname(uri))
            name, file = text[1:-1], posixpath.normpath(posixpath.join(folder, link))
            return name if name.startswith("`") else f"{name} (`{file}`)"
        return f"{text}({target}{title})"

    out, prose, fence, before = [], [], False, ""

    def flush():  # a link's text may be broken into lines
        if prose:
            out.append(LINK.sub(replace, "\n".join(prose)))
            prose.clear()

    for line in markdown.split("\n"):
        if FENCE.match(line):
            flush()
            fence = not fence
            out.append(line)
        elif fence:
            out.append(line)
        else:
            paragraph = before.strip() and not before.startswith((" ", "|", ">", "#", ":", "`"))
            if paragraph and not LIST_ITEM.match(before) and (LIST_ITEM.match(line) or line.startswith("|")):
                prose.append("")
            prose.append(line)
        before = line
    flush()
    return "\n".join(out)
