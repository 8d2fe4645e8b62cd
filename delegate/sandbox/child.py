# SPDX-License-Identifier: Apache-2.0
"""Child processes for work inside drivers: a driver that crashes or hangs ends only the child.

`ask` runs a child for one question. `Child` is one that serves requests. Both run a module of this
distribution in a process of its own; `answer` and `stdout_kept_apart` are for that module.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TextIO

from delegate.sandbox import surroundings

LAST_WAIT_SECONDS = 5.0  # a process inside a hung driver may not even end by SIGKILL
_ANSWER = "answer: "  # begins each answer's line: drivers write lines of their own to stdout
_ROOT = str(Path(__file__).resolve().parents[2])


# What a process does to itself; every other signal comes from outside, or from a limit.
_OWN_SIGNALS = {
    *(signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE),
    *(signal.SIGSEGV, signal.SIGSYS, signal.SIGPROF),
}


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended."""

    code: int | None  # its exit code, minus a signal's number; None: it was ended at the time limit
    stderr: str

    @property
    def is_own(self) -> bool:
        """Whether it ended itself, or hung: nobody killed it, and no limit of this process."""
        is_killed = self.code is not None and self.code < 0 and -self.code not in _OWN_SIGNALS
        return not is_killed and not surroundings.shortages()

    @property
    def signal(self) -> str | None:
        """The name of the signal that ended the child."""
        return None if self.code is None else signal_name(self.code)

    @property
    def told(self) -> str:
        """The last line of stderr, as ": line" for the end of a sentence; "" if there is none."""
        lines = [line.strip() for line in self.stderr.splitlines() if line.strip()]
        return f": {lines[-1]}" if lines else ""

    def words(self, seconds: float) -> str:
        """Return what it did, for people; `seconds`: the limit that it had."""
        if self.code is None:
            return f"gave no answer within {seconds} s"
        if self.signal is not None:
            return f"died with {self.signal}{self.told}"
        return f"ended with code {self.code}{self.told}"


@dataclass(frozen=True, slots=True)
class Answers(Ended):
    """What a child answered, and how it ended."""

    texts: tuple[str, ...] = ()  # a child that died may have answered in part
    stdout: str = ""  # what it wrote there beside its answers

    def end(self, seconds: float) -> str:
        """Return how it ended and what to do, for people; `seconds`: the limit that it had."""
        remedy = "" if self.is_own else surroundings.remedy(was_killed=True)
        return f"it {self.words(seconds)}{remedy}"


class Child:
    """A child process that reads requests on its stdin and writes answers to its stdout.

    Attributes:
        answers: the child's stdout.
    """

    answers: IO[bytes]

    def __init__(
        self,
        command: Sequence[str],
        stderr: int | IO[bytes] | None = None,
        environment: Mapping[str, str] | None = None,
        has_own_session: bool = True,
        pipe_bytes: int = -1,
    ) -> None:
        """Start it.

        Args:
            command: mostly what `command_of` returns.
            stderr: None: this process's; a file; or subprocess.PIPE, for `communicate`.
            environment: variables to set beside this process's own.
            has_own_session: `kill` then ends all that the child started, too. Either way Ctrl-C
                does not reach the child.
            pipe_bytes: the size of the pipes, as in subprocess.Popen.

        Raises: OSError: it cannot start.
        """
        self._has_own_session = has_own_session
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, () if has_own_session else (signal.SIGINT,))
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=os.environ | dict(environment or {}),
                start_new_session=has_own_session,
                pipesize=pipe_bytes,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self.answers = self._process.stdin, self._process.stdout

    def send(self, request: bytes, is_last: bool = False) -> None:
        """Write a request; a child that has died is noticed where its answer is missing."""
        with contextlib.suppress(BrokenPipeError):
            self._requests.write(request)
            self._requests.flush()
            if is_last:
                self._requests.close()

    def communicate(self, request: bytes, seconds: float) -> tuple[bytes, bytes, bool]:
        """Return stdout, stderr (b"" where it is no pipe), and whether the child ended in time."""
        try:
            answer, errors = self._process.communicate(request, seconds)
        except subprocess.TimeoutExpired as late:
            return late.stdout or b"", late.stderr or b"", False
        return answer, errors or b"", True

    def wait(self, seconds: float = LAST_WAIT_SECONDS) -> int | None:
        """Return the exit code, minus a signal's number; None: the child has not ended yet."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    @property
    def is_stopped(self) -> bool:
        """Whether somebody has stopped it, as Ctrl-Z does."""
        try:
            text = Path(f"/proc/{self._process.pid}/stat").read_text()
        except OSError:
            return False
        return text.rpartition(")")[2].split()[0] in "tT"

    def kill(self) -> None:
        """End the child, and all that it started if it has a session of its own."""
        if not self._has_own_session:
            self._process.kill()
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> int | None:
        """Kill the child, close its pipes and return its exit code, as `wait` does."""
        self.kill()
        code = self.wait()
        for pipe in (self._requests, self.answers, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        return code


class Lines:
    """Lines of a pipe, with a time limit each."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._held = b""
        self._selector = selectors.DefaultSelector()
        self._selector.register(handle, selectors.EVENT_READ)

    def next(self, seconds: float) -> bytes | None:
        """Return a line, b"" at the end, None if none came in time."""
        until = time.monotonic() + seconds
        while b"\n" not in self._held:
            if not self._selector.select(max(0.0, until - time.monotonic())):
                return None
            read = os.read(self._handle, 65536)
            if not read:
                self._selector.close()
                return b""
            self._held += read
        line, _, self._held = self._held.partition(b"\n")
        return line or b" "


def ask(module: str, *arguments: str, seconds: float, **environment: str) -> Answers:
    """Run `python -m module arguments`, wait for its end and return what it gave to `answer`."""
    try:
        child = Child(command_of(module, *arguments), subprocess.PIPE, environment)
    except OSError as error:
        return Answers(1, f"it cannot be started: {error.strerror or error}")
    try:
        output, errors, is_in_time = child.communicate(b"", seconds)
    finally:
        code = child.close()
    lines = output.decode(errors="replace").splitlines()
    texts = tuple(line.removeprefix(_ANSWER) for line in lines if line.startswith(_ANSWER))
    others = "\n".join(line for line in lines if not line.startswith(_ANSWER))
    return Answers(code if is_in_time else None, errors.decode(errors="replace"), texts, others)


def answer(text: str) -> None:
    """Give one line of text to the process that called `ask`."""
    sys.stdout.write(f"\n{_ANSWER}{text}\n")
    sys.stdout.flush()  # the driver may end the process next


def command_of(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of this distribution in any current folder.

    `-m` would look in the current folder first, and find another package of the same name there.
    """
    code = (
        f"import sys; sys.path[0] = {_ROOT!r}; import runpy; "
        f"runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    )
    return [sys.executable, "-c", code, *arguments]


def signal_name(code: int) -> str | None:
    """Return the name of the signal that ended a process with this exit code; None: none did."""
    if code >= 0:
        return None
    try:
        return signal.Signals(-code).name
    except ValueError:  # a real-time signal
        return f"signal {-code}"


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
