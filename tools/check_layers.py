#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Which folder may include which: check_layers.py [--circles] ROOT

A folder that is not named here may include nothing but itself. Tests, benchmarks and examples are free. Exit 1 with
each include that is against the table or of a private header, each entry of the table that nothing uses, and each
circle of folders.

With --circles: circles of files of the core. A unit is a header with its source file; units that reach each other by
includes are a circle. Exit 1 for a circle of more than two units that is not in CIRCLES, and for one in CIRCLES that is
not there any more.
"""
import pathlib
import re
import sys

# Lower layers first. `core` is endpoint.h, the interface that provider and sim use.
ALLOWED = {
    "base": [],
    "core/types": ["base"],
    "core/time": ["base"],
    "core/report": ["base", "core/types", "core/time"],
    "core": ["base", "core/types", "core/time", "core/report"],
    "core/verbs": ["base"],
    "core/memory": ["base", "core/types", "core/time", "core/verbs"],
    "core/transport": ["base", "core/types", "core/verbs", "core/memory"],
    "core/receive": ["core/verbs", "core/memory"],
    "core/flow": ["core/types", "core/time", "core/memory", "core/transport"],
    "core/protocol": ["base", "core/types", "core/time", "core", "core/memory", "core/transport"],
    "core/selection": ["base", "core/types"],  # pure
    "core/connection": ["base", "core/types", "core/time", "core/report", "core/memory", "core/transport",
                        "core/selection"],
    "core/state": ["base", "core/types", "core/report", "core", "core/verbs", "core/memory", "core/transport",
                   "core/receive", "core/flow", "core/protocol", "core/selection", "core/connection"],
    "core/messaging": ["base", "core/transport", "core/connection", "core/state"],
    "core/operations": ["base", "core/memory", "core/protocol", "core/state", "core/messaging"],
    "core/channels": ["base", "core/time", "core/selection", "core/connection", "core/state", "core/messaging",
                      "core/operations"],
    "core/recording": ["base", "core/types", "core/time", "core"],
    "core/endpoint": ["base", "core/types", "core/report", "core/verbs", "core/memory", "core/state", "core/messaging",
                      "core/operations", "core/channels", "core/recording"],
    "hca/device": ["base"],
    "hca/live": ["base", "hca/device"],
    "hca/virtual": ["base", "hca/device"],
    "hca/engines": ["base", "hca/device", "hca/live", "hca/virtual"],
    "hca/abi": ["base", "hca/device"],
    "hca/mlx5": ["base", "hca/device", "hca/live"],
    "hca/cm": ["base"],
    "hca/shim": ["hca/mlx5"],  # the interface of the device that it loads
    "provider": ["base", "core/types", "core/time", "core/report", "core", "core/memory", "core/protocol"],
    "record": ["core/recording"],
    "record/libfabric": ["record"],
    "record/ucx": ["record"],
    "sim/formats": ["base", "hca/virtual"],
    "sim/runtime": ["base", "core/types", "core/report", "core", "core/verbs", "core/memory", "hca/virtual"],
    "sim/workloads": ["base", "sim/formats", "sim/runtime"],
    "sim/study": ["base", "core/report", "sim/formats", "sim/runtime", "sim/workloads"],
    "sim/analysis": ["base", "core/report", "sim/formats", "sim/study"],
    "sim/calibration": ["base", "core/transport", "core/verbs", "core/selection", "hca/virtual", "sim/formats",
                        "sim/runtime", "sim/workloads", "sim/study"],
    "sim/experiments": ["base", "core/types", "core/report", "core/memory", "core/selection", "sim/runtime",
                        "sim/workloads", "sim/study", "sim/analysis", "sim/calibration"],
    "sim/plan": ["base", "sim/formats", "sim/workloads", "sim/study"],
    "cli/html": ["base", "core/report"],
    "cli": ["base", "core/report", "core", "core/verbs", "core/memory", "core/selection", "sim/formats", "sim/runtime",
            "sim/workloads", "sim/study", "sim/analysis", "sim/calibration", "sim/experiments", "sim/plan", "cli/html"],
}
LARGEST_CIRCLE = 2
# Parts of another header, for their own folder only.
PRIVATE = {
    "core/memory/syscall_patch.h": "core/memory/unmap_monitor.h",
    "core/memory/unmap_log.h": "core/memory/unmap_monitor.h",
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def folder_of(path):
    return path.rpartition("/")[0]


def edges_of(root):
    """(file, folder, included header) of all includes of the repository's own headers by path."""
    for top in sorted({name.split("/")[0] for name in ALLOWED}):
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in (".h", ".cpp", ".c", ".def"):
                continue
            name = path.relative_to(root).as_posix()
            for included in INCLUDE.findall(path.read_text(encoding="utf-8")):
                if folder_of(included) not in ("", folder_of(name)):
                    yield name, folder_of(name), included


def circle_in(allowed):
    """Folders that may include each other, or nothing."""
    state = {}

    def visit(folder, path):
        if state.get(folder) == "done":
            return None
        if folder in path:
            return path[path.index(folder):] + [folder]
        for lower in allowed.get(folder, []):
            found = visit(lower, path + [folder])
            if found:
                return found
        state[folder] = "done"
        return None

    return next((found for folder in allowed if (found := visit(folder, []))), None)


def units_of(root):
    """The units of the core, each with those that it includes."""
    units = {}
    for path in sorted((root / "core").rglob("*")):
        if path.suffix in (".h", ".cpp"):
            included = INCLUDE.findall(path.read_text(encoding="utf-8"))
            unit = units.setdefault(path.relative_to(root).with_suffix("").as_posix(), set())
            unit.update(name.rpartition(".")[0] for name in included)
    return {unit: sorted(included & units.keys() - {unit}) for unit, included in units.items()}


def circles_of(units):
    """Strongly connected components with more than one unit (Kosaraju)."""
    def gather(start, edges, seen):
        found, stack = [], [(start, iter(edges[start]))]
        seen.add(start)
        while stack:
            unit, rest = stack[-1]
            following = next((one for one in rest if one not in seen), None)
            if following is None:
                found.append(unit)
                stack.pop()
            else:
                seen.add(following)
                stack.append((following, iter(edges[following])))
        return found

    seen, order = set(), []
    for unit in units:
        if unit not in seen:
            order += gather(unit, units, seen)
    includers = {unit: [one for one, included in units.items() if unit in included] for unit in units}
    seen, circles = set(), []
    for unit in reversed(order):
        if unit not in seen:
            circles.append(sorted(gather(unit, includers, seen)))
    return sorted(circle for circle in circles if len(circle) > 1)


def check_circles(root):
    circles = circles_of(units_of(root))
    for circle in circles:
        print(f"a circle of {len(circle)} files: {' '.join(circle)}")
    large = [circle for circle in circles if len(circle) > LARGEST_CIRCLE]
    print(f"{len(circles)} circles of files, {len(large)} larger than {LARGEST_CIRCLE}")
    return 1 if large else 0


def main(root):
    faults, used = [], set()
    for file, folder, header in edges_of(root):
        included = folder_of(header)
        if header in PRIVATE:
            faults.append(f"{file}: includes {header}, a part of {PRIVATE[header]}")
        if included in ALLOWED.get(folder, []):
            used.add((folder, included))
        else:
            faults.append(f"{file}: includes {included}, which is not below {folder}")
    for folder, lower in ALLOWED.items():
        faults += [f"ALLOWED: {folder} includes nothing of {one} any more" for one in lower if (folder, one) not in used]
    circle = circle_in(ALLOWED)
    if circle:
        faults.append(f"ALLOWED: a circle: {' -> '.join(circle)}")
    print("\n".join(faults) if faults else
          f"{len(ALLOWED)} folders, {len(used)} edges")
    return 1 if faults else 0


if __name__ == "__main__":
    if sys.argv[1] == "--circles":
        sys.exit(check_circles(pathlib.Path(sys.argv[2])))
    sys.exit(main(pathlib.Path(sys.argv[1])))
