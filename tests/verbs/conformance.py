#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares the behaviour of adapters with tests/verbs/outcomes.tsv, and checks that each difference has a reason.

    conformance.py BUILD_DIR                 the two profiles of the virtual adapter, and the page in docs/
    conformance.py BUILD_DIR --guest FOLDER  Soft-RoCE, in the guest built by tests/guest/build.sh
    --update                                 write the outcomes into the table, and the page (reasons are kept)

A row of the table is a case: its outcome on each adapter, and where they differ, which one the IBTA specification
backs, and why they differ. A difference without a reason fails the check, and so does a reason without a difference.
"""
import argparse
import csv
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TABLE = HERE / "outcomes.tsv"
PAGE = ROOT / "docs" / "verbs-conformance.md"
SOFT = "Soft-RoCE"
PROFILES = ("rxe", "connectx-5")
COLUMNS = ("case", SOFT, *PROFILES, "backed", "why")


def outcomes(text):
    lines = [line.split("\t") for line in text.splitlines()]
    found = dict(lines)
    if len(found) != len(lines):
        sys.exit("two cases have the same name")
    return found


def of_profile(build, profile):
    command = [build / "bin" / "turnout", "verbs", "--fabric", f"conform-{os.getpid()}", "--profile", profile,
               "--", build / "bin" / "verbs_conform"]
    return outcomes(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=300).stdout)


def of_guest(build, guest):
    with tempfile.TemporaryDirectory(prefix="turnout-conform-") as scratch:
        command = [ROOT / "tests/guest/run.sh", "-c", "2", "-t", "500", guest, f"{build}/bin/verbs_conform --device rxe0"]
        done = subprocess.run(command, cwd=scratch, stdout=subprocess.PIPE, text=True, check=True, timeout=560)
        return outcomes(done.stdout)


def load():
    if not TABLE.exists():
        return {}
    with TABLE.open(newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {row["case"]: row for row in rows}


def save(table):
    with TABLE.open("w", newline="") as file:
        rows = csv.DictWriter(file, COLUMNS, delimiter="\t", quoting=csv.QUOTE_NONE, lineterminator="\n", quotechar=None)
        rows.writeheader()
        rows.writerows(table.values())


def differs(row):
    return len({row[SOFT], *(row[name] for name in PROFILES)}) > 1


def wrong_reasons(table):
    for row in table.values():
        if differs(row) and not (row["why"] and row["backed"]):
            yield f"{row['case']}: the outcomes differ, but the table lacks the reason or the adapter that the IBTA backs"
        if not differs(row) and (row["why"] or row["backed"]):
            yield f"{row['case']}: all outcomes are equal, but the table gives a reason for a difference"


def wrong_outcomes(table, name, found):
    for case in table.keys() | found.keys():
        expected = table[case][name] if case in table else "no such case"
        got = found.get(case, "not run")
        if expected != got:
            yield f"{case}: on {name}\n    {got}\n  expected\n    {expected}"


def page(table):
    different = [row for row in table.values() if differs(row)]
    ours = [row for row in different if row["backed"] == "virtual"]
    theirs = [row for row in different if row["backed"] == SOFT]
    lines = [
        "# Verbs conformance: Soft-RoCE and the virtual adapter",
        f"`verbs_conform` runs {len(table)} cases on an adapter. [outcomes.tsv](../tests/verbs/outcomes.tsv) holds the",
        "outcomes of Linux's Soft-RoCE (Debian's kernel 6.1, from `make test-guest`) and of the virtual adapter's profiles",
        "`rxe` and `connectx-5` (from `make test`). `tests/verbs/conformance.py --update` writes this page from it.",
        "**No real adapter was tested.** To test one: `build/release/bin/verbs_conform --device NAME`.",
        "",
        f"In {len(different)} cases Soft-RoCE and the virtual adapter differ; the reason for each is below. The IBTA",
        "specification (for libibverbs' own calls, the behaviour of rdma-core's mlx5) backs the virtual adapter in",
        f"{len(ours)} and Soft-RoCE in {len(theirs)}; it leaves {len(different) - len(ours) - len(theirs)} open. The two "
        f"profiles differ in {sum(row[PROFILES[0]] != row[PROFILES[1]] for row in different)} cases.",
        "",
        "In the outcomes, a is the initiator's queue pair and b the target's. Numbers such as 9.7.1 are sections of the",
        "IBTA specification.",
        "",
        "| case | Soft-RoCE | virtual adapter | specification backs | why |",
        "|---|---|---|---|---|",
    ]
    for row in different:
        virtual = row["rxe"]
        if row["connectx-5"] != virtual:
            virtual = f"rxe: {virtual}; connectx-5: {row['connectx-5']}"
        lines.append(f"| {row['case']} | {row[SOFT]} | {virtual} | {row['backed']} | {row['why']} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--guest", type=pathlib.Path)
    parser.add_argument("--update", action="store_true")
    asked = parser.parse_args()
    build = asked.build.resolve()
    if asked.guest:
        found = {SOFT: of_guest(build, asked.guest.resolve())}
    else:
        found = {name: of_profile(build, name) for name in PROFILES}
    table = load()
    if asked.update:
        cases = next(iter(found.values()))
        table = {case: table.get(case, dict.fromkeys(COLUMNS, "") | {"case": case}) for case in cases}
        for name, answers in found.items():
            for case, answer in answers.items():
                table[case][name] = answer
        save(table)
        PAGE.write_text(page(table))
    wrong = list(wrong_reasons(table))
    for name, answers in found.items():
        print(f"== {name}")
        for case, answer in answers.items():
            print(f"{case:60} {answer}")
        wrong += wrong_outcomes(table, name, answers)
    if PAGE.read_text() != page(table):
        wrong.append(f"{PAGE.relative_to(ROOT)} does not match the table; run conformance.py --update")
    print("\n".join(wrong))
    print(f"{len(table)} cases, {sum(differs(row) for row in table.values())} differ, {len(wrong)} unexpected")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
