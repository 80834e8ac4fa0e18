#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""tools/check_layers.py finds what it is there to find."""
import importlib.util
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools/check_layers.py"


def faults_of(files):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        done = subprocess.run([sys.executable, TOOL, root], capture_output=True, text=True, check=False)
        assert done.returncode == 1, done.stdout  # most of the table is unused there
        return done.stdout


def main():
    upward = faults_of({"base/log.h": '#include "core/endpoint.h"\n'})
    assert "base/log.h: includes core, which is not below base" in upward, upward
    unknown = faults_of({"core/extra/new.h": '#  include "base/log.h"\n'})
    assert "core/extra/new.h: includes base, which is not below core/extra" in unknown, unknown
    allowed = faults_of({"core/types/address.h": '#include "base/status.h"\n#include <string>\n'})
    assert "core/types/address.h" not in allowed, allowed
    assert "core/types includes nothing of base" not in allowed, allowed
    assert "core/time includes nothing of base any more" in allowed, allowed
    private = faults_of({"core/protocol/a.cpp": '#include "core/memory/unmap_log.h"\n',
                         "core/memory/b.cpp": '#include "core/memory/unmap_log.h"\n'})
    assert "core/protocol/a.cpp: includes core/memory/unmap_log.h, a part of core/memory/unmap_monitor.h" in private, private
    assert "core/memory/b.cpp" not in private, private
    spec = importlib.util.spec_from_file_location("check_layers", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.circle_in({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b", "c", "b"]
    assert module.circle_in({"a": ["b", "c"], "b": ["c"], "c": []}) is None
    circles_are_found(module)


def circles_are_found(module):
    def circles(files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, included in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text("".join(f'#include "{one}"\n' for one in included.split()))
            return module.circles_of(module.units_of(root)), module.check_circles(root)

    pair = {"core/a/x.h": "", "core/a/x.cpp": "core/a/x.h core/b/y.h base/log.h", "core/b/y.h": "core/a/x.h"}
    assert circles(pair) == ([["core/a/x", "core/b/y"]], 0)  # two may be one
    line = {"core/a/x.h": "core/b/y.h core/c.h", "core/b/y.h": "core/c.h", "core/c.h": ""}
    assert circles(line) == ([], 0)
    three = {"core/a/x.h": "core/b/y.h", "core/b/y.h": "", "core/b/y.cpp": "core/b/y.h core/c.h", "core/c.h": "core/a/x.h",
             "core/d.h": "core/c.h"}
    circle = ["core/a/x", "core/b/y", "core/c"]
    assert circles(three) == ([circle], 1)
    eight = three | {"core/e.h": "core/f.h", "core/f.h": "core/g.h core/a/x.h", "core/g.h": "core/e.h"}
    assert circles(eight) == ([circle, ["core/e", "core/f", "core/g"]], 1)


if __name__ == "__main__":
    main()
