# SPDX-License-Identifier: Apache-2.0
"""Child processes for work that may crash or hang.

`Child` takes requests and sends events, with a time limit for each. `ChildDied` says how it ended.
`ask_once` runs one for a single request. Code in the child gets its end of the channel from
`channel.serving`.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from delegate.guard.children import environment
from delegate.guard.children.channel import Channel, Payload

END_SECONDS = 2.0  # for a child that is done to exit by itself, drivers included
LAST_WAIT_SECONDS = 5.0  # a process stuck inside a driver may not even die of SIGKILL
_SLICE_SECONDS = 0.5  # interval of checks of the child, and of Ctrl-C
_ROOT = str(Path(__file__).resolve().parents[3])
_Self = TypeVar("_Self")
_VARYING_WORDS = re.compile(r"\S*[\d/]\S*")  # words that differ from process to process
# Signals by a process's own fault; every other one comes from outside, or from a limit.
_OWN_SIGNALS = {
    *(signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE),
    *(signal.SIGSEGV, signal.SIGSYS, signal.SIGPROF),
}


@dataclass(frozen=True, slots=True)
class ChildExit:
    """How a child ended."""

    code: int | None  # exit code, or minus a signal's number; None: timeout
    stderr: str = ""  # since the last request
    seconds: float = 0.0  # its time limit

    def __str__(self) -> str:
        """Return what happened, for messages: "died with SIGABRT: no such chip"."""
        if self.code is None:
            return f"gave no answer within {self.seconds:g} s"
        lines = [line.strip() for line in self.stderr.splitlines() if line.strip()]
        did = f"died with {self.signal}" if self.signal else f"ended with code {self.code}"
        return f"{did}: {lines[-1]}" if lines else did

    def resembles(self, other: ChildExit) -> bool:
        """Whether both ended alike, ignoring numbers and file names in the message."""
        return _VARYING_WORDS.sub("", str(self)) == _VARYING_WORDS.sub("", str(other))

    @property
    def signal(self) -> str | None:
        """The name of the signal that ended it."""
        if self.code is None or self.code >= 0:
            return None
        try:
            return signal.Signals(-self.code).name
        except ValueError:  # a real-time signal
            return f"signal {-self.code}"

    @property
    def is_late(self) -> bool:
        """Whether it timed out."""
        return self.code is None

    @property
    def is_self_inflicted(self) -> bool:
        """Whether it crashed or hung by itself: not killed, nor by a limit of this process."""
        is_killed = self.code is not None and self.code < 0 and -self.code not in _OWN_SIGNALS
        return not is_killed and not environment.shortages()

    @property
    def remedy(self) -> str:
        """How to fix it, for the end of a sentence; "": unknown."""
        return "" if self.is_self_inflicted else environment.remedy(was_killed=True)

    @property
    def sentence(self) -> str:
        """What "it" did, and how to fix it."""
        return f"it {self}{self.remedy}"


class ChildDied(Exception):
    """A child exited, or timed out.

    Attributes:
        exit: how.
    """

    def __init__(self, child_exit: ChildExit) -> None:
        super().__init__(child_exit.sentence)
        self.exit = child_exit


class Child:
    """A child process that takes requests and sends events; a context manager that ends it."""

    def __init__(
        self,
        command: Sequence[str],
        variables: Mapping[str, str] | None = None,
        *,
        keeps_stderr: bool = True,
        has_own_session: bool = True,
        is_awaited_stopped: bool = True,
        pipe_bytes: int = -1,
        check: Callable[[], object] = lambda: None,
    ) -> None:
        """Start it.

        Args:
            command: usually from `command_of`.
            environment: variables to set in addition to this process's.
            keeps_stderr: capture stderr for `ChildExit`; else it is this process's.
            has_own_session: `kill` then also ends every process it started. In either case Ctrl-C
                does not reach the child.
            is_awaited_stopped: time while it is stopped, as by Ctrl-Z, does not count.
            pipe_bytes: size of the pipes, as in subprocess.Popen.
            check: called repeatedly while waiting for an event; it may raise.

        Raises: OSError: it cannot start.
        """
        self._has_own_session, self._check = has_own_session, check
        self._is_awaited_stopped = is_awaited_stopped
        self._using = threading.Lock()  # guards what `close` closes
        self._mark = 0
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, () if has_own_session else (signal.SIGINT,))
        try:
            with contextlib.ExitStack() as stack:
                # In memory: the temporary folder may be missing.
                self._stderr = stack.enter_context(open(os.memfd_create("stderr"), "rb"))
                self._process = subprocess.Popen(
                    command,
                    bufsize=0,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._stderr if keeps_stderr else None,
                    env=os.environ | dict(variables or {}),
                    start_new_session=has_own_session,
                    pipesize=pipe_bytes,
                )
                assert self._process.stdin is not None
                assert self._process.stdout is not None
                self._requests = stack.enter_context(self._process.stdin)
                self._events = stack.enter_context(self._process.stdout)
                self._files = stack.pop_all()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._channel = Channel(self._events.fileno(), self._requests.fileno())

    def send(self, payload: Payload = b"", is_last: bool = False, **request: Any) -> None:
        """Write a request; if the child has died, waiting for its event reports that."""
        self._mark = os.fstat(self._stderr.fileno()).st_size
        with contextlib.suppress(BrokenPipeError):
            self._channel.send(payload, **request)
        if is_last:
            self._requests.close()

    def exchange(self, number: int, seconds: float = math.inf) -> dict[str, Any] | None:
        """Write a number; return None if the event equals it, else the event. Raises as `event`."""
        # NOTE: measurable in networks of a few microseconds.
        first = seconds if seconds == math.inf else min(_SLICE_SECONDS, seconds)
        with self._using:
            if not self._requests.closed:
                try:
                    self._channel.send_number(number)
                    if self._channel.number(first) == number:
                        return None
                except (BrokenPipeError, EOFError):  # `event` reports how it ended
                    pass
        return self.event(seconds, 0.0 if first == math.inf else first)

    def event(self, seconds: float = math.inf, waited: float = 0.0) -> dict[str, Any]:
        """Return the next event, as Channel.receive does; `waited`: seconds already spent.

        Time while this process is stopped, as by Ctrl-Z, does not count.

        Raises: ChildDied: the child exited, or timed out.
        """
        while True:
            self._check()
            part = min(_SLICE_SECONDS, max(0.0, seconds - waited))
            try:
                with self._using:
                    if self._events.closed:
                        raise EOFError
                    message = self._channel.receive(part)
            except EOFError:
                raise ChildDied(ChildExit(self.wait(), self.stderr(), seconds)) from None
            if message is not None:
                return message
            waited += 0.0 if self._is_stopped() else part
            if waited >= seconds:
                raise ChildDied(ChildExit(None, self.stderr(), seconds))

    def ask(self, seconds: float, payload: Payload = b"", **request: Any) -> dict[str, Any]:
        """Send a request and return the first event; raises as `event`."""
        self.send(payload, **request)
        return self.event(seconds)

    def stderr(self) -> str:
        """Return its stderr since the last request; "" if it is closed."""
        with self._using:
            if self._stderr.closed:
                return ""
            # Parent and child share the file offset: reading must not move it.
            count = os.fstat(self._stderr.fileno()).st_size - self._mark
            return os.pread(self._stderr.fileno(), count, self._mark).decode(errors="replace")

    def wait(self, seconds: float = LAST_WAIT_SECONDS) -> int | None:
        """Return the exit code, or minus a signal's number; None: still running."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def kill(self) -> None:
        """Kill the child, and every process it started if it has its own session."""
        if not self._has_own_session:
            self._process.kill()
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self, seconds: float = 0.0) -> int | None:
        """Let the child exit by itself within `seconds`, then kill it; return as `wait`.

        A thread that waits for an event gets ChildDied.
        """
        if seconds:
            self._requests.close()
            self.wait(seconds)
        self.kill()
        code = self.wait()
        with self._using:
            self._files.close()
        return code

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _is_stopped(self) -> bool:
        """Whether it is stopped, if that pauses its time limit."""
        if not self._is_awaited_stopped:
            return False
        try:
            text = Path(f"/proc/{self._process.pid}/stat").read_text()
        except OSError:
            return False
        return text.rpartition(")")[2].split()[0] in "tT"


def ask_once(
    module: str, seconds: float, variables: Mapping[str, str] | None = None, **request: Any
) -> tuple[list[Any], ChildExit]:
    """Run a module that serves a single request; return all its answers, and how it ended.

    `seconds`: time limit of each answer. A failure to start is reported likewise.
    """
    answers = []
    try:
        with Child(command_of(module), variables) as child:
            child.send(is_last=True, **request)
            while True:
                event = child.event(seconds)
                if "answer" in event:  # else it is driver output from before `serving`
                    answers.append(event["answer"])
    except OSError as error:
        return answers, ChildExit(1, f"it cannot be started: {error.strerror or error}")
    except ChildDied as died:
        return answers, died.exit


def command_of(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of this distribution, from any working directory."""
    # `-m` would first search the working directory. Debian's pytools has no siphash24, and says so.
    code = (
        f"import sys; sys.path[0] = {_ROOT!r}; import runpy, warnings; "
        "warnings.filterwarnings('ignore', 'Unable to import recommended hash'); "
        f"runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    )
    return [sys.executable, "-c", code, *arguments]
