# SPDX-License-Identifier: Apache-2.0
"""A stand-in for systemd: a socket for sd_notify's messages, or for the journal's entries."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path


class Manager:
    """What commands told it, in order."""

    def __init__(self, path: Path) -> None:
        self.path, self.messages = str(path), list[dict[str, str]]()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)

    def read(self) -> list[dict[str, str]]:
        """Return all messages so far, each as names and values."""
        with contextlib.suppress(BlockingIOError):
            while True:
                text = self._socket.recv(1 << 16, socket.MSG_DONTWAIT).decode()
                pairs = (line.partition("=") for line in text.splitlines())
                self.messages.append({name: value for name, _, value in pairs})
        return self.messages

    def wait_for(
        self, name: str, count: int = 1, alive: Callable[[], bool] = lambda: True
    ) -> dict[str, str]:
        """Return the message of this number with that name, once it came."""
        end = time.monotonic() + 120
        while len(found := [each for each in self.read() if name in each]) < count:
            assert time.monotonic() < end, self.messages
            assert alive(), self.messages
            time.sleep(0.02)
        return found[count - 1]

    def close(self) -> None:
        self._socket.close()


@contextlib.contextmanager
def manager(folder: Path, name: str = "notify") -> Iterator[Manager]:
    """Yield a manager that listens in a folder."""
    made = Manager(folder / name)
    with contextlib.closing(made):
        yield made
