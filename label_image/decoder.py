# SPDX-License-Identifier: Apache-2.0
"""Pictures decoded and resized in child processes, handed over in the order they were asked for.

`python -m label_image.decoder` is such a child: what the model wants as one line of JSON on stdin,
then a picture's path a line; for each an answer line on stdout, with the tensor's bytes after it.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from label_image.image import PictureError, load_picture, to_input

# Names a child knows beyond the one it works on: few enough to fit into a pipe, so that neither
# side ever waits for the other to read.
_AHEAD = 3
_PIPE_BYTES = 1 << 20  # where the system allows it, so that a child can finish some tensors ahead
# Decoding fills the time that the model's own threads leave.
_NICE = 10
_LAST_WAIT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Format:
    """The tensor every picture becomes."""

    shape: Sequence[int]  # (1, h, w, c)
    dtype: str
    mean: float = 127.5  # for float32 and int16
    std: float = 127.5
    scale: float = 0.0  # the tensor's own, for int16
    zero_point: int = 0


@dataclass(frozen=True, slots=True)
class Decoded:
    """What came of one picture."""

    path: str
    seconds: float = 0.0  # of one process
    error: str = ""  # one line; "" = the tensor is there
    warnings: Sequence[str] = ()


class DecoderFailed(Exception):
    """No picture at all can be decoded; the text is one line that says why."""


class Decoders:
    """The child processes, started as they are needed."""

    def __init__(
        self,
        paths: Iterable[str],
        format: Format,
        processes: int | None = None,
        command: Sequence[str] | None = None,
    ) -> None:
        """`processes`: None: as many as this process may use cores."""
        self._paths = iter(paths)
        self._request = json.dumps(asdict(format) | {"folder": _current_folder()})
        self._command = command or [sys.executable, "-m", "label_image.decoder"]
        self._children: list[_Child | None] = [None] * (processes or core_count())
        self._sent = self._received = 0  # pictures; number n is child n % len's
        self.is_closed = False

    @property
    def processes(self) -> int:
        """Count the children that were started."""
        return sum(child is not None for child in self._children)

    def next_into(self, tensor: NDArray[Any]) -> Decoded | None:
        """Fill the tensor with the next picture; None after the last.

        Raises:
            DecoderFailed: a child cannot even start, or talks nonsense.
        """
        most = self._received + len(self._children) * (1 + _AHEAD)
        while self._sent < most and (path := next(self._paths, None)) is not None:
            self._child(self._sent).send(path)
            self._sent += 1
        if self._received == self._sent:
            return None
        child = self._child(self._received)
        self._received += 1
        decoded = child.receive(tensor.reshape(-1).view(np.uint8).data)
        if decoded is None:
            decoded = self._lost(child)
        return decoded

    def close(self) -> None:
        """End the children; whoever waits in `next_into`, in another thread, gets an error."""
        self.is_closed = True
        children = [child for child in self._children if child is not None]
        for child in children:
            child.kill()
        for child in children:
            child.wait()

    def _child(self, number: int) -> _Child:
        place = number % len(self._children)
        child = self._children[place]
        if child is None:
            child = self._children[place] = _Child(self._command, self._request)
        return child

    def _lost(self, child: _Child) -> Decoded:
        """Blame the picture a child died of, and let a new child go on after it."""
        code = child.wait()
        path, *waiting = child.waiting
        if self.is_closed or code >= 0:
            raise DecoderFailed(f"a picture decoder ended with code {code} at {path}")
        again = _Child(self._command, self._request)
        self._children[self._children.index(child)] = again
        for each in waiting:
            again.send(each)
        name = signal.Signals(-code).name
        return Decoded(path, error=f"cannot read picture {path}: its decoder died ({name})")


class _Child:
    def __init__(self, command: Sequence[str], request: str) -> None:
        self.waiting: deque[str] = deque()  # sent, not yet received
        # Ctrl-C is the parent's business. A session of its own would tell the child so, too, but
        # Linux shares the cores between sessions first: niceness would count for nothing.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pipesize=_PIPE_BYTES,
                # As in worker.py: `-m` must find this package and no other.
                cwd=Path(__file__).resolve().parent.parent,
                # numpy's library would start a thread a core in each child, and use none.
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            )
        except OSError as error:
            raise DecoderFailed(f"a picture decoder cannot start: {error}") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        assert self._process.stdin is not None
        assert isinstance(self._process.stdout, io.BufferedReader)
        self._names, self._answers = self._process.stdin, self._process.stdout
        self._write(request)

    def send(self, path: str) -> None:
        self.waiting.append(path)
        self._write(json.dumps(path))

    def receive(self, tensor: memoryview) -> Decoded | None:
        """Return the outcome of the first picture that waits; None where the child is gone."""
        line = self._answers.readline()
        if not line.endswith(b"\n"):
            return None
        try:
            decoded = Decoded(path=self.waiting[0], **json.loads(line))
        except (ValueError, TypeError) as error:
            raise DecoderFailed(f"a picture decoder says {line[:80]!r}") from error
        if not decoded.error and self._answers.readinto(tensor) < len(tensor):
            return None
        self.waiting.popleft()
        return decoded

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> int:
        """Return the exit code of a child that has ended, or is about to."""
        try:
            return self._process.wait(_LAST_WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
        finally:
            for pipe in (self._names, self._answers):
                with contextlib.suppress(OSError):
                    pipe.close()

    def _write(self, line: str) -> None:
        # That a child has died is noticed where its answer is missing.
        with contextlib.suppress(BrokenPipeError):
            self._names.write(line.encode() + b"\n")
            self._names.flush()


def core_count() -> int:
    """Count the cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _current_folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was removed: only absolute paths mean something
        return None


def main() -> int:
    """Decode the pictures named on stdin until it ends."""
    # Whatever a library prints goes to stderr.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    if hasattr(os, "nice"):
        os.nice(_NICE)
    request = json.loads(sys.stdin.buffer.readline())
    folder = request.pop("folder")
    if folder is not None:
        os.chdir(folder)
    format = Format(**request)
    warnings = _Collector()
    logging.getLogger("label_image").addHandler(warnings)
    logging.getLogger("label_image").propagate = False
    with contextlib.suppress(BrokenPipeError):  # nobody wants to know any more
        for line in sys.stdin.buffer:
            _answer(json.loads(line), format, warnings.texts, answers)
    with contextlib.suppress(BrokenPipeError):
        answers.close()
    return 0


def _answer(path: str, format: Format, warnings: list[str], answers: IO[bytes]) -> None:
    warnings.clear()
    begin_s = time.perf_counter()
    error, tensor = "", None
    try:
        picture = load_picture(path)
        tensor = to_input(picture, **asdict(format))
    except FileNotFoundError:
        error = f"input file {path} not found"
    except PictureError as refusal:
        error = str(refusal)
    except Exception as unexpected:
        error = f"cannot read picture {path}: {type(unexpected).__name__}: {unexpected}"
    answer = {"seconds": time.perf_counter() - begin_s, "error": error, "warnings": warnings}
    answers.write(json.dumps(answer).encode() + b"\n")
    if tensor is not None:
        answers.write(np.ascontiguousarray(tensor).data.cast("B"))
    answers.flush()


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


if __name__ == "__main__":
    sys.exit(main())
