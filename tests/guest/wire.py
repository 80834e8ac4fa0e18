# SPDX-License-Identifier: BSD-3-Clause
"""A wire between two guests that can be cut: it takes the frames of one network card to the other.

Both guests connect to one socket (run.sh -w SOCKET:1 and -w SOCKET:2, which find it there). QEMU's
`-netdev stream` puts the length of each frame before it, 4 bytes, the highest first.
"""
import pathlib
import socket
import struct
import threading

LENGTH = struct.Struct(">I")


class Wire:
    """Listens at `path` from its creation on; frames that come while it is cut are gone."""

    def __init__(self, path: pathlib.Path):
        self.carried = self.dropped = 0
        self._cut = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(2)
        self._ends = []
        threading.Thread(target=self._serve, daemon=True).start()

    def cut(self):
        self._cut.set()

    def mend(self):
        self._cut.clear()

    def close(self):
        for end in [self._listener, *self._ends]:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()

    def _serve(self):
        try:
            while len(self._ends) < 2:
                self._ends.append(self._listener.accept()[0])
        except OSError:
            return  # closed
        for source, sink in (self._ends, self._ends[::-1]):
            threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source, sink):
        left = b""  # of a frame whose end has not come
        try:
            while piece := source.recv(1 << 18):
                left += piece
                whole = frames = 0
                while len(left) >= whole + 4:
                    end = whole + 4 + LENGTH.unpack_from(left, whole)[0]
                    if end > len(left):
                        break
                    whole, frames = end, frames + 1
                if self._cut.is_set():
                    self.dropped += frames
                elif whole:
                    sink.sendall(left[:whole])
                    self.carried += frames
                left = left[whole:]
        except OSError:
            pass  # closed, or a guest is gone
