#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Libraries of others over verbs on the virtual adapter: UCX through ucx_perftest, with rc_verbs and ud_verbs, and with
rc_mlx5, dc_mlx5 and ud_mlx5 on the emulated mlx5; libfabric's own verbs provider through fi_pingpong; qperf, which waits
for events unless it is told to poll; fio's engine rdma; the programs of rsocket(7); ucmatose, which connects by GIDs.

    verbs_users.py BUILD [--only REGEX]

Each line is a server and a client that must both end with 0 (and ucx_perftest, qperf fio and the streams must have measured, with what they verify).
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys

import verbs_pair

LIMIT = 60  # seconds of a pair
UCX_TESTS = ["tag_lat", "tag_bw", "tag_sync_lat", "ucp_put_lat", "ucp_put_bw", "ucp_get", "ucp_add", "ucp_fadd",
             "ucp_swap", "ucp_cswap", "stream_lat", "stream_bw", "ucp_am_lat", "ucp_am_bw"]
# Of these, messages of both kinds: in one piece, and by rendezvous.
UCX_LARGE = ["tag_bw", "ucp_put_bw", "stream_bw", "ucp_am_bw"]
# Of four bytes by masked atomics.
ATOMICS = ["ucp_add", "ucp_fadd", "ucp_swap", "ucp_cswap"]
QPERF_TESTS = ["rc_lat", "rc_bw", "rc_bi_bw", "uc_lat", "uc_bw", "uc_bi_bw", "ud_lat", "ud_bw", "ud_bi_bw",
               "rc_rdma_read_lat", "rc_rdma_read_bw", "rc_rdma_write_lat", "rc_rdma_write_bw",
               "rc_rdma_write_poll_lat", "uc_rdma_write_lat", "uc_rdma_write_bw", "uc_rdma_write_poll_lat",
               "rc_compare_swap_mr", "rc_fetch_add_mr", "ver_rc_compare_swap", "ver_rc_fetch_add"]
GID = "/sys/class/infiniband/turnout0/ports/1/gids/0"
# What the programs print with what they have measured.
MEASURED = {"ucx_perftest": "Final:", "qperf": " = ", "fio": "BW=", "rstream": "usec/xfer", "riostream": "usec/xfer",
            "ucmatose": "data transfers complete"}
FABRICS = [("verbs", "msg"), ("verbs", "dgram"), ("verbs;ofi_rxm", "rdm"), ("verbs;ofi_rxd", "rdm")]


def cases():
    # rc_mlx5 connects by ud_mlx5. Those of mlx5 drive the emulated mlx5 with the system's libmlx5.
    for transport, all_of_it in (("rc_v", "rc_v"), ("ud_v", "ud_v"), ("rc_mlx5", "rc_mlx5,ud_mlx5:aux"),
                                 ("dc_mlx5", "dc_mlx5"), ("ud_mlx5", "ud_mlx5")):
        device = "mlx5_0" if transport.endswith("mlx5") else "turnout0"
        env = {"UCX_TLS": f"{all_of_it},self", "UCX_NET_DEVICES": f"{device}:1", "UCX_LOG_LEVEL": "warn"}
        for test in UCX_TESTS:
            # UD answers an atomic or a get when its timer says so, a thousand times a second at most.
            count = "200" if transport.startswith("ud") else "2000"
            yield (f"ucx {transport} {test} 8 B", env, ["ucx_perftest", "-p"], ["-p"],
                   ["localhost", "-t", test, "-n", count, "-s", "8"])
        for test in UCX_LARGE:
            yield (f"ucx {transport} {test} 1 MiB", env, ["ucx_perftest", "-p"], ["-p"],
                   ["localhost", "-t", test, "-n", "100", "-s", str(1 << 20)])
        for test in ATOMICS if transport in ("rc_mlx5", "dc_mlx5") else []:
            yield (f"ucx {transport} {test} 4 B", env, ["ucx_perftest", "-p"], ["-p"],
                   ["localhost", "-t", test, "-n", "2000", "-s", "4"])
    for provider, kind in FABRICS:
        program = ["fi_pingpong", "-p", provider, "-e", kind, "-c"]
        yield (f"libfabric {provider} {kind}", {}, program + ["-B"], ["-P"], ["localhost"])
    for mode, polls in (("events", []), ("polling", ["-cp1"])):
        for test in QPERF_TESTS:
            # A second each, the shortest it has; "quit" ends the server.
            yield (f"qperf {test} {mode}", {}, ["qperf", "-lp"], ["-lp"],
                   ["localhost", "-t", "1"] + polls + [test, "quit"])


    for verb in ("write", "read", "send"):
        # fio asks for no RNR retries: of sends no more than the receiver has posted receives for.
        size = ["--bs=4k", "--size=64k"] if verb == "send" else ["--bs=64k", "--size=64m"]
        common = ["--ioengine=rdma", f"--verb={verb}", "--iodepth=16"] + size
        yield (f"fio {verb}", {}, ["fio", "--name=receiver", "--rw=read"] + common + ["--port"], ["--port"],
               ["--hostname=127.0.0.1", "--rw=write"])
    # All of them compare the contents (-T v). udpong's server never ends: hca.rsocket_programs.
    for program, modes in (("rstream", {"": [], "blocking": ["-T", "b"], "nonblocking": ["-T", "n"],
                                        "by event": ["-T", "a"], "resolved": ["-T", "r"], "forked": ["-T", "f"]}),
                           ("riostream", {"": [], "nonblocking": ["-T", "n"]})):
        for mode, options in modes.items():
            for size in ("64", "65536", "1000000"):
                yield (f"{program} {mode} {size} B", {},
                       [program, "-T", "v", *options, "-S", size, "-C", "20", "-I", "10", "-p"], ["-p"],
                       ["-s", "127.0.0.1"])
    # AF_IB: the address is a GID, which depends on the fabric.
    for space in ("tcp", "ib"):
        for name, bound in (("", []), (" bound", ["-b", GID])):
            yield (f"ucmatose gid {space}{name}", {},
                   ["ucmatose", "-f", "gid", "-P", space, *bound, "-C", "10", "-c", "4", "-p"], ["-p"], ["-s", GID])
    yield ("ucmatose ip ib", {}, ["ucmatose", "-P", "ib", "-C", "10", "-c", "4", "-p"], ["-p"], ["-s", "127.0.0.1"])


def run(turnout, number, variables, server_words, port_option, client_words):
    """'' or what went wrong."""
    port = 23000 + os.getpid() % 5000 + number
    env = dict(os.environ, **variables)
    adapter = ["--mlx5"] if variables.get("UCX_NET_DEVICES", "").startswith("mlx5") else []
    verbs = [turnout, "verbs", "--fabric", f"users-{os.getpid()}-{number}", *adapter, "--"]
    command = verbs + server_words + [str(port)]
    client = verbs + server_words[:-1] + port_option + [str(port)] + client_words
    if GID in client:
        gid = subprocess.run(verbs + ["cat", GID], env=env, text=True, capture_output=True, timeout=LIMIT,
                             check=True).stdout.strip()
        command, client = ([gid if word == GID else word for word in words] for words in (command, client))
    ended = verbs_pair.run(command, client, LIMIT, env)
    if not ended.good:
        return f"{ended.text}\n(client {ended.client}, server {ended.server})"
    return "" if MEASURED.get(server_words[0], "") in ended.text else ended.text


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--only", default="", help="regular expression of the names")
    options = parser.parse_args()
    turnout = str(options.build / "bin" / "turnout")
    wrong = ran = 0
    for number, (name, *case) in enumerate(cases()):
        if not re.search(options.only, name):
            continue
        problem = run(turnout, number, *case)
        ran += 1
        wrong += problem != ""
        print(f"{name}: {'wrong' if problem else 'ok'}", flush=True)
        if problem:
            print("    " + "\n    ".join(problem.splitlines()[-12:]), flush=True)
    print(f"{ran} ran, {wrong} wrong")
    return 1 if wrong or ran == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
