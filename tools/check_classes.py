#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How large classes are: check_classes.py ROOT

Prints the ten largest classes of core, hca, provider, record and sim by methods and by fields. Exit 1 if a class has
more than 40 methods or 30 fields.

A method is a function declared in the body of the class, overloads included; constructors, destructors and operators
are none. A field is a data member; static constants are none. What is in a nested class counts for that class only.
Universal Ctags reads the sources (Debian: universal-ctags); macros are not expanded.
"""
import collections
import json
import pathlib
import re
import subprocess
import sys

FOLDERS = ["core", "hca", "provider", "record", "sim"]
MOST = {"methods": 40, "fields": 30}
CTAGS = ["ctags", "--options=NONE", "--languages=C++", "--langmap=C++:.h.cpp", "--kinds-C++=csumfp", "--fields=+aenzZ",
         "--fields-C++=+{properties}", "--pseudo-tags=", "--output-format=json", "-L", "-", "-f", "-"]
ANONYMOUS = re.compile(r"__anon\w+::")


class Class:
    def __init__(self, name, path, line, end):
        self.name, self.path, self.line, self.end = name, path, line, end
        self.size = {"methods": 0, "fields": 0}


def tags_of(root):
    """What ctags finds in the classes of the folders, and in which line."""
    files = [path.relative_to(root).as_posix() for folder in FOLDERS for path in sorted((root / folder).rglob("*"))
             if path.suffix in (".h", ".cpp")]
    try:
        done = subprocess.run(CTAGS, cwd=root, input="\n".join(files), capture_output=True, text=True, check=True)
    except FileNotFoundError:
        sys.exit("check_classes.py: ctags not found; install the Debian package universal-ctags")
    except subprocess.CalledProcessError as error:
        sys.exit(f"check_classes.py: ctags failed: {error.stderr.strip()}; universal-ctags 5.9 is needed")
    return [json.loads(line) for line in done.stdout.splitlines()]


def is_constant(root, tag):
    if "static" not in tag.get("properties", "").split(","):
        return False
    lines = (root / tag["path"]).read_text(encoding="utf-8").splitlines()[:tag["line"]]
    declaration = re.split(r"[;{}]|\b(?:public|protected|private):", "\n".join(lines[-4:]).rpartition(tag["name"])[0])
    return re.search(r"\bconst(?:expr|init)?\b", declaration[-1]) is not None


def kind_of(root, tag):
    """methods, fields, or nothing that is counted."""
    name = tag["name"]
    if "access" not in tag or name.startswith(("~", "operator ")):  # no access: defined outside of the body
        return None
    if tag["kind"] == "member":
        return None if is_constant(root, tag) else "fields"
    if tag["kind"] in ("function", "prototype"):
        return None if name == tag["scope"].rpartition("::")[2] else "methods"
    return None


def classes_of(root):
    tags = tags_of(root)
    classes = collections.defaultdict(list)
    for tag in tags:
        if tag["kind"] in ("class", "struct", "union"):
            name = f"{tag['scope']}::{tag['name']}" if "scope" in tag else tag["name"]
            shown = ANONYMOUS.sub("", name).removeprefix("turnout::")
            classes[tag["path"], name].append(Class(shown, tag["path"], tag["line"], tag.get("end", tag["line"])))
    for tag in tags:
        kind = kind_of(root, tag)
        for one in classes[tag["path"], tag.get("scope")] if kind else []:  # several: specializations
            if one.line <= tag["line"] <= one.end:
                one.size[kind] += 1
    return [one for same in classes.values() for one in same]


def faults_of(classes):
    for kind, most in MOST.items():
        for one in classes:
            if one.size[kind] > most:
                yield f"{one.path}:{one.line}: {one.name} has {one.size[kind]} {kind}; at most {most} are allowed"


def main(root):
    classes = classes_of(root)
    for kind in MOST:
        print(f"{len(classes)} classes by {kind}:")
        for one in sorted(classes, key=lambda one: -one.size[kind])[:10]:
            print(f"{one.size[kind]:5}  {one.name}  {one.path}:{one.line}")
    faults = list(faults_of(classes))
    print("\n".join(faults), end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
