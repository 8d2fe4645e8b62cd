# SPDX-License-Identifier: Apache-2.0
"""What a child process and the one that started it say to each other, through two pipes.

A message is a line of JSON, with bytes after it where its "bytes" counts them:

    the parent's requests    {"path": "a.png"}
    the child's events       {"error": "", "bytes": 12} and the 12 bytes of a tensor

What is said often is a line with a number alone, which takes a fraction of the time.
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
Payload = bytes | memoryview | list[Buffer]  # in parts, where it is not in one
_NUMBER_BYTES = 64  # and more: what is longer is read on
_READ_BYTES = 1 << 16  # at once: larger memory is asked of the operating system each time
_LONG_READ_BYTES = 1 << 20


class Channel:
    """One end of two pipes that messages go through."""

    def __init__(self, source: int, sink: int) -> None:
        self._source, self._sink = source, sink
        self._held = bytearray()
        self._begun: tuple[dict[str, Any], int] | None = None  # a message and its missing bytes
        self._poll = select.poll()  # which needs no file of its own, as epoll does
        self._poll.register(source, select.POLLIN)

    def send(self, payload: Payload = b"", **message: Any) -> None:
        """Write a message; raises BrokenPipeError where nobody reads any more."""
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
        os.write(self._sink, b"%d\n" % number)  # a pipe takes a line as a whole

    def number(self, seconds: float = math.inf) -> int | None:
        """Return the next message if it is a number, and came by itself.

        Else return None, as when none came in time: `receive` returns what came.

        Raises: EOFError: there is no other one.
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
        """Return the next message, its bytes as its "payload"; None: none came in time.

        Lines that are no JSON object are passed over: they are a driver's.

        Raises: EOFError: there is no other one.
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
        """Yield messages until there are no more, or none came for so long."""
        with contextlib.suppress(EOFError):
            while (message := self.receive(seconds)) is not None:
                yield message

    def _read(self, seconds: float) -> bool:
        """Read what comes next; whether something came in time."""
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
    """Give a child its end of the channel; until the end, what else goes to stdout is on stderr."""
    with stdout_kept_apart() as stream:
        stream.write("\n")  # a driver may have begun a line while it was imported
        stream.flush()
        yield Channel(sys.stdin.fileno(), stream.fileno())


def serve(answers: Callable[..., Iterable[Any]]) -> int:
    """Answer each request with what this yields for it; return the child's exit code."""
    with serving() as parent:
        for request in parent.messages():
            for answer in answers(**request):
                parent.send(answer=answer)
    return 0


@contextlib.contextmanager
def stdout_kept_apart() -> Iterator[TextIO]:
    """Give a private stdout; until the end, all else written to stdout goes to stderr."""
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
