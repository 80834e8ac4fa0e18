# SPDX-License-Identifier: BSD-3-Clause
"""A server and a client of verbs programs, as perftest's and ucx_perftest's: started, met, and both ended."""
import re
import subprocess
import time
import typing

PATIENCE = 20  # seconds, for a server to listen


class Ended(typing.NamedTuple):
    """Exit codes (None: it took too long), and what client and server printed."""
    server: int | None
    client: int | None
    client_text: str
    text: str

    @property
    def good(self):
        return self.server == 0 and self.client == 0


def run(server, client, limit, env=None, pause=0.2):
    """Runs the two commands; `limit`: seconds for each."""
    ours = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": env}
    serving = subprocess.Popen(server, **ours)
    text, code = "", None
    try:
        # A client that comes before the server listens ends at once.
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            time.sleep(pause)
            done = subprocess.run(client, timeout=limit, **ours)
            text, code = done.stdout, done.returncode
            if code == 0 or serving.poll() is not None or not re.search(
                    "(?i)couldn't connect|refused|failed to connect", text):
                break
        served = serving.communicate(timeout=limit if code == 0 else 10)[0]
    except subprocess.TimeoutExpired:
        serving.terminate()  # `turnout verbs` hands it on
        return Ended(None, None, text, text + serving.communicate()[0] + "\n(took too long)")
    return Ended(serving.returncode, code, text, text + served)
