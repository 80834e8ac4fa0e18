# SPDX-License-Identifier: BSD-3-Clause
"""What Turnout is compared with: how each contender is started, and the tables of ratios.

Contenders of libfabric's level are providers of Debian's libfabric; those of MPI's level are transports of PyPI's MPICH.
`verbs` (verbs;ofi_rxm), `ucx_rc` and `ucx_ud` (UCX's rc_verbs and ud_verbs) use Turnout's virtual adapter; `ucx_shm` is
UCX's shared memory (posix and cma), `native` MPICH's own.
"""

import math
import os
import statistics

LIBFABRIC = {"turnout": "turnout", "shm": "shm", "tcp": "tcp", "verbs": "verbs;ofi_rxm"}
_OFI = {"MPIR_CVAR_CH4_NETMOD": "ofi", "MPIR_CVAR_NOLOCAL": "1"}
_UCX = {"MPIR_CVAR_CH4_NETMOD": "ucx", "MPIR_CVAR_NOLOCAL": "1"}
MPI = {
    "turnout": {**_OFI, "FI_PROVIDER": "turnout"},
    "shm": {**_OFI, "FI_PROVIDER": "shm"},
    "tcp": {**_OFI, "FI_PROVIDER": "tcp"},
    "ucx_shm": {**_UCX, "UCX_TLS": "self,posix,cma"},
    "ucx_rc": {**_UCX, "UCX_TLS": "self,rc_verbs,ud_verbs", "UCX_NET_DEVICES": "turnout0:1"},
    "ucx_ud": {**_UCX, "UCX_TLS": "self,ud_verbs", "UCX_NET_DEVICES": "turnout0:1"},
    "native": {**_OFI, "MPIR_CVAR_NOLOCAL": "0"},
}
ON_OUR_ADAPTER = {"verbs", "ucx_rc", "ucx_ud"}
NAMES = {"turnout": "Turnout", "verbs": "verbs;ofi_rxm", "ucx_shm": "UCX shm", "ucx_rc": "UCX rc", "ucx_ud": "UCX ud",
         "native": "MPICH's own"}


def name(contender):
    return NAMES.get(contender, contender)


def environment(build, contender, fabric):
    """Of a contender of MPI's level; one of libfabric's level names its provider itself."""
    env = dict(os.environ, TURNOUT_FABRIC=fabric)
    env["FI_PROVIDER_PATH"] = str((build / "lib").resolve())
    env.setdefault("FI_TCP_IFACE", "lo")
    return env | MPI.get(contender, {})


def command(build, contender, *words):
    """The words, run on the virtual adapter if the contender needs it."""
    prefix = [build / "bin" / "turnout", "verbs", "--"] if contender in ON_OUR_ADAPTER else []
    return [*prefix, *words]


def in_turn(contenders, number):
    """The order of a round: another one is first in each."""
    first = number % len(contenders)
    return contenders[first:] + contenders[:first]


def _ratios(rounds, row, peers):
    return [r["turnout"][row] / min(r[p][row] for p in peers) for r in rounds]


def table(rounds, best_of=(), unit=("us", 1e3), head="", row_name=str, mean=False):
    """A table of Markdown: Turnout's median, and its ratios to the others, the medians of the rounds' ratios.

    rounds: of each round, by contender and row, nanoseconds. `best_of`: the ratio to the best of these in each round
    comes first, with its range over the rounds.
    """
    peers = [p for p in rounds[0] if p != "turnout"]
    best_of = [p for p in best_of if p in peers]
    columns = [f"Turnout ({unit[0]})"] + (["/ best", "range"] if best_of else []) + [f"/ {name(p)}" for p in peers]
    lines = [f"| {head} | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    logs = {}

    def ratio(row, *of):
        value = statistics.median(_ratios(rounds, row, of))
        logs.setdefault(of, []).append(math.log(value))
        return f"{value:.2f}"

    for row in rounds[0]["turnout"]:
        cells = [f"{statistics.median(r['turnout'][row] for r in rounds) / unit[1]:.2f}"]
        if best_of:
            each = _ratios(rounds, row, best_of)
            cells += [ratio(row, *best_of), f"{min(each):.2f} to {max(each):.2f}"]
        cells += [ratio(row, p) for p in peers]
        lines.append(f"| {row_name(row)} | " + " | ".join(cells) + " |")
    if mean:
        means = [f"{math.exp(statistics.fmean(values)):.2f}" for values in logs.values()]
        if best_of:
            means.insert(1, "")
        lines.append("| geometric mean | | " + " | ".join(means) + " |")
    return "\n".join(lines)
