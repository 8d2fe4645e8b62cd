# SPDX-License-Identifier: Apache-2.0
"""Messages between a child process and its parent, through two pipes.

A message is a line of JSON, followed by as many bytes as its "bytes" says:

    the parent's requests    {"path": "a.png"}
    the child's events       {"error": "", "bytes": 12} and the 12 bytes of a tensor

Frequent messages are a line with only a number, which is several times faster.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import pickle
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO

Buffer = bytes | memoryview | pickle.PickleBuffer
Payload = bytes | memoryview | list[Buffer]  # a list if in several parts
_NUMBER_BYTES = 64  # at least; longer messages are read in full
_READ_BYTES = 1 << 16  # at once: malloc maps larger blocks anew each time
_LONG_READ_BYTES = 1 << 20


class Channel:
    """One end of a pair of pipes for messages."""

    def __init__(self, source: int, sink: int) -> None:
        self._source, self._sink = source, sink
        self._held = bytearray()
        self._begun: tuple[dict[str, Any], int] | None = None  # a message and its missing bytes
        self._poll = select.poll()  # needs no file descriptor, unlike epoll
        self._poll.register(source, select.POLLIN)

    def send(self, payload: Payload = b"", **message: Any) -> None:
        """Write a message; raises BrokenPipeError if there is no reader."""
        given: list[Buffer] = payload if isinstance(payload, list) else [payload]
        views = [memoryview(part) for part in given]
        parts = [view for view in views if view.nbytes]
        count = sum(part.nbytes for part in parts)
        counted = {**message, "bytes": count} if count else message
        line = memoryview(json.dumps(counted).encode() + b"\n")
        for part in (line, *parts):
            view = part.cast("B")
            while view:
                view = view[os.write(self._sink, view) :]

    def send_number(self, number: int) -> None:
        """Write a number, which the other side receives as {"number": number}."""
        os.write(self._sink, b"%d\n" % number)  # atomic for a short line

    def number(self, seconds: float = math.inf) -> int | None:
        """Return the next message if it is a number that arrived by itself.

        Otherwise, or on timeout, return None: `receive` returns what arrived.

        Raises: EOFError: the other end was closed.
        """
        if self._held or self._begun is not None:
            return None
        if seconds != math.inf and not self._poll.poll(math.ceil(seconds * 1000)):
            return None
        read = os.read(self._source, _NUMBER_BYTES)
        if not read:
            raise EOFError
        if read.endswith(b"\n") and read[:-1].isdigit():
            return int(read)
        self._held += read
        return None

    def receive(self, seconds: float = math.inf) -> dict[str, Any] | None:
        """Return the next message, with its bytes as its "payload"; None: timeout.

        Lines that are not JSON objects are skipped: they are driver output.

        Raises: EOFError: the other end was closed.
        """
        until = time.monotonic() + seconds
        while True:
            if self._begun is None and (end := self._held.find(b"\n")) >= 0:
                line = self._taken(end + 1)
                with contextlib.suppress(ValueError):
                    if line[:-1].isdigit():
                        return {"number": int(line)}
                    message = json.loads(line)
                    if isinstance(message, dict):
                        self._begun = message, message.pop("bytes", 0)
            elif self._begun is not None and len(self._held) >= self._begun[1]:
                (message, count), self._begun = self._begun, None
                return {**message, "payload": self._taken(count)} if count else message
            elif not self._read(max(0.0, until - time.monotonic())):
                return None

    def messages(self, seconds: float = math.inf) -> Iterator[dict[str, Any]]:
        """Yield messages until the other end is closed, or none arrives in time."""
        with contextlib.suppress(EOFError):
            while (message := self.receive(seconds)) is not None:
                yield message

    def _read(self, seconds: float) -> bool:
        """Read available data; return whether any arrived in time."""
        if not self._poll.poll(None if seconds == math.inf else math.ceil(seconds * 1000)):
            return False
        size = _READ_BYTES if self._begun is None else _LONG_READ_BYTES
        read = os.read(self._source, size)
        if not read:
            raise EOFError
        self._held += read
        return True

    def _taken(self, count: int) -> bytes:
        taken = bytes(memoryview(self._held)[:count])
        del self._held[:count]
        return taken


@contextlib.contextmanager
def serving() -> Iterator[Channel]:
    """Yield a child's end of the channel; meanwhile other output to stdout goes to stderr."""
    with stdout_kept_apart() as stream:
        stream.write("\n")  # a driver may have written a partial line during import
        stream.flush()
        yield Channel(sys.stdin.fileno(), stream.fileno())


def serve(answers: Callable[..., Iterable[Any]]) -> int:
    """Answer each request with the values this yields for it; return the child's exit code."""
    with serving() as parent:
        for request in parent.messages():
            for answer in answers(**request):
                parent.send(answer=answer)
    return 0


@contextlib.contextmanager
def stdout_kept_apart() -> Iterator[TextIO]:
    """Yield a private stdout; meanwhile all other output to stdout goes to stderr."""
    sys.stdout.flush()
    own = os.dup(1)
    os.dup2(2, 1)
    try:
        with open(os.dup(own), "w", encoding="utf-8") as stream:
            yield stream
    finally:
        sys.stdout.flush()
        os.dup2(own, 1)
        os.close(own)
