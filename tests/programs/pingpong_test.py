#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""libfabric's fi_pingpong over every type of endpoint that Turnout's provider has, with its checks of the data: two
processes that know host and port of each other.

    pingpong_test.py BUILD_DIR
"""
import itertools
import os
import pathlib
import sys
import unittest

import verbs_pair

BUILD = pathlib.Path()
LIMIT = 60  # seconds for each side


class PingPong(unittest.TestCase):
    def test_types(self):
        for number, (kind, transport) in enumerate(itertools.product(("rdm", "msg", "dgram"), ("dc", "ud"))):
            with self.subTest(kind=kind, transport=transport):
                env = dict(os.environ, FI_PROVIDER_PATH=str(BUILD / "lib"), TURNOUT_DEFAULT_TRANSPORT=transport,
                           TURNOUT_FABRIC=f"pingpong-{os.getpid()}-{number}")
                port = str(28000 + os.getpid() % 4000 + number)
                words = ["fi_pingpong", "-p", "turnout", "-e", kind, "-I", "200", "-c"]
                ended = verbs_pair.run(words + ["-B", port], words + ["-P", port, "localhost"], LIMIT, env)
                self.assertTrue(ended.good, ended)
                # Datagrams end at 4 KiB.
                self.assertIn("4k      200" if kind == "dgram" else "1m      200", ended.client_text)


if __name__ == "__main__":
    BUILD = pathlib.Path(os.path.realpath(sys.argv.pop(1)))
    unittest.main()
