#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A folder of reports as a large job would leave them: ranks on nodes of 32, in a ring of neighbours, with
rank 0 sent to by all. Deterministic.

    synthetic_reports.py FOLDER RANKS
"""

import json
import pathlib
import sys

KINDS = ["queue pairs", "completion and receive queues", "rings", "receive buffers", "send buffers",
         "unexpected messages", "peer records", "operations", "statistics", "decisions"]
BUDGET = 64 << 20
POINTS = 128
BEGAN = 1_700_000_000_000_000_000
LIFETIME = 20_000_000_000


def direction(rank, peer, busy):
    spans = [{"channel": "DC-sendrecv", "since_ns": 0, "messages": 400, "bytes": 400 << 10}]
    if busy:
        spans.append({"channel": "RC-RDMA", "since_ns": 1_000_000_000 * (1 + (rank + peer) % 7),
                      "messages": 90_000 + rank, "bytes": 90_000 << 10})
        if (rank + peer) % 5 == 0:
            spans.append({"channel": "DC-RDMA", "since_ns": 15_000_000_000, "messages": 5_000,
                          "bytes": 5_000 << 10})
    return {"switches": len(spans) - 1, "spans": spans}


def memory(rank):
    """Every kind grows to its peak and shrinks a little."""
    peaks = [(k + 1) * (200_000 + 500 * rank % 90_000) for k in range(len(KINDS))]
    points = [[LIFETIME * i // POINTS] + [int(p * min(1, (i + 1) / 40) * (1 if i < 110 else 0.8))
                                         for p in peaks] for i in range(POINTS)]
    return peaks, points


def report(rank, ranks):
    peers = sorted({(rank + d) % ranks for d in (-16, -4, -1, 1, 4, 16)} | ({0} if rank else
                   set(range(1, ranks))) - {rank})
    peaks, points = memory(rank)
    reason = "message rate justifies the channel (76 messages/s)"
    return {
        "turnout_report": 1, "job": "synthetic", "rank": rank, "ranks": ranks,
        "host": f"node{rank // 32:03}", "pid": 4000 + rank, "endpoint": f"0x{0xabc000000000 + rank:016x}",
        "device": "turnout0", "policy": "turnout", "lifetime_ns": LIFETIME, "budget": BUDGET,
        "started_unix_ns": BEGAN + 1_000_000 * (rank % 50), "used": sum(peaks) * 4 // 5,
        "peak": sum(peaks), "unexpected": 17, "rendezvous": 3, "offers": 0, "puts": 0, "puts_told": 0,
        "credit_messages": 99, "refusals": 0, "rc_queue_pairs_peak": 6,
        "memory": [{"kind": kind, "now": peak * 4 // 5, "peak": peak} for kind, peak in zip(KINDS, peaks)],
        "memory_over_time": points,
        "peers": [{
            "peer": peer, "endpoint": f"0x{0xabc000000000 + peer:016x}", "pid": 4000 + peer,
            "send": direction(rank, peer, peer != 0 and rank != 0),
            "receive": direction(peer, rank, peer != 0 and rank != 0),
            "reason": reason, "predicted_gain_ns": 126.0, "bytes": 110_000, "lost": False,
        } for peer in peers],
        "decisions": [{"time_ns": 1_000_000_000 * (i + 1), "peer": peers[i % len(peers)],
                       "from": "DC-sendrecv", "to": "RC-RDMA", "reason": reason,
                       "outcome": "done in 120 us"} for i in range(8)],
        "decisions_dropped": 0,
        "profile": {
            "sent": {"data": [{"below": 64, "messages": 5000, "bytes": 200_000},
                              {"below": 2048, "messages": 90_000, "bytes": 92_160_000}],
                     "control": [{"below": 128, "messages": 3000, "bytes": 216_000}],
                     "read": [{"below": 2 << 20, "messages": 100, "bytes": 104_857_600}], "write": []},
            "unexpected": [{"below": 64, "messages": 17, "bytes": 400}], "low_watermark_events": 2,
            "rnr_retries": rank % 3, "calls": 100_000, "calls_measured": 400,
            "library_time_ns": 2_000_000_000 + rank, "library_time_error_ns": 1_000_000},
    }


def write(folder, ranks):
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(ranks):
        (folder / f"synthetic.rank-{rank}.json").write_text(json.dumps(report(rank, ranks)))


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
