# SPDX-License-Identifier: Apache-2.0
"""`python -m delegate.guard.isolated_child PARENT`: the child process of delegate.guard.isolation.

It opens a device, creates executors of plans, and runs them. A request is pickled: a method of
_IsolationHandler and its arguments. A run is only a number; its tensors are in shared memory.
"""

from __future__ import annotations

import contextlib
import logging
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from delegate.errors import DelegateError, DeviceError
from delegate.graph.ir import Tensor
from delegate.guard.children import process, progress
from delegate.guard.children.channel import Channel, serving
from delegate.guard.isolation.executor import ACTIONS, RUN, SUBMIT, WAIT
from delegate.guard.isolation.shared_memory import Bytes, open_arrays
from delegate.guard.probing.opening import open_device
from delegate.options import Options
from delegate.plan.codec import UnreadablePlan, decode
from delegate.plan.contents import ContentSource, MissingContent
from delegate.plan.record import PartitionPlan
from delegate.run.context import is_failed
from delegate.run.executor import Executor
from delegate.run.local_backend import LocalBackend
from delegate.run.state import State
from delegate.run.weights import Lease

_log = logging.getLogger("delegate")


def main() -> int:
    """Handle requests until the parent is gone."""
    process.die_with(int(sys.argv[1]))
    with serving() as parent:
        _log.addHandler(_LogForwarder(parent))
        _log.propagate = False
        performer = _IsolationHandler(parent)
        runs = performer.runs
        with contextlib.suppress(EOFError):  # the parent is gone
            while True:
                try:
                    number = parent.number()  # the most frequent message, in the least time
                    while number is not None:
                        runs[number]()
                        parent.send_number(number)
                        number = parent.number()
                    performer.answer(parent.receive() or {})
                except (DelegateError, MissingContent, UnreadablePlan) as error:
                    told = [type(error).__name__, str(error)]
                    parent.send(error=told, is_lost=is_failed(error))
    return 0


class _LogForwarder(logging.Handler):
    """Forwards log records to the parent."""

    def __init__(self, parent: Channel) -> None:
        super().__init__()
        self._parent = parent

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record."""
        self._parent.send(log=record.getMessage(), level=record.levelno)


@dataclass(frozen=True, slots=True)
class _ExecutorSlot:
    """An executor, and the tensors of its runs."""

    executor: Executor
    inputs: tuple[Bytes, ...]
    outputs: tuple[Bytes, ...]

    def run(self) -> None:
        self.executor.run(self.inputs, self.outputs)

    def submit(self) -> None:
        self.executor.submit(self.inputs, self.outputs)

    def wait(self) -> None:
        self.executor.copy_strategy.wait()


class _IsolationHandler:
    """The state of the child, and its requests.

    Attributes:
        runs: the action for each number.
    """

    def __init__(self, parent: Channel) -> None:
        self._parent = parent
        self.runs: dict[int, Callable[[], None]] = {}
        self._backend: LocalBackend | None = None
        self._constants: dict[int, tuple[PartitionPlan, Lease]] = {}
        self._executors: dict[int, Executor] = {}
        self._states: dict[int, State] = {}

    def answer(self, message: Mapping[str, Any]) -> None:
        """Handle a message, and answer."""
        if "number" in message:
            self.runs[message["number"]]()
            self._parent.send_number(message["number"])
            return
        word, *arguments = pickle.loads(message["payload"])
        with progress.forwarded_to(lambda *step: self._parent.send(progress=step)):
            answer = getattr(self, word)(*arguments) or {}
        payload = answer.pop("payload", b"")
        self._parent.send(payload, answer=answer)

    def open(self, options: Options, identity: str, level: int) -> dict[str, Any]:
        """Open the device that the options select; `identity`: the required one, "": any."""
        _log.setLevel(level)
        device = open_device(options)
        if identity not in ("", device.identity):
            raise DeviceError(f"device {options.device} is now {device.identity}")
        self._backend = LocalBackend(device)
        return {
            "info": asdict(device.info),
            "type": device.type,
            "identity": device.identity,
            "proven": sorted(device.proven),
            "vector_width": device.vector_width,
            "compute_units": device.compute_units,
            "is_far": device.is_far,
        }

    def add_constants(
        self,
        number: int,
        content: bytes,
        ends: tuple[Sequence[Tensor], Sequence[Tensor]],
        source: ContentSource,
    ) -> None:
        """Load the programs and constants of a plan."""
        answer = decode(content, ends, source.content)
        constants = self._opened().constants(content, ends, answer, source)
        self._constants[number] = answer.plan, constants

    def drop_constants(self, number: int) -> None:
        """Release one lease of them."""
        self._constants.pop(number)[1].close()

    def add_executor(
        self,
        number: int,
        constants: int,
        state: int | None,
        own_queue: bool,
        path: str,
        sizes: Sequence[int],
    ) -> None:
        """Create an executor; `path`, `sizes`: of the tensors in shared memory."""
        try:
            tensors = open_arrays(path, sizes)
        except OSError as error:
            raise DeviceError(f"no shared memory: {error.strerror or error}") from error
        plan, held = self._constants[constants]
        kept = None if state is None else self._states[state]
        executor = self._opened().executor(plan, held.weights.acquire(held), kept, own_queue)
        count = len(executor.inputs)
        made = _ExecutorSlot(executor, tensors[:count], tensors[count:])
        self._executors[number] = executor
        for action, call in ((RUN, made.run), (SUBMIT, made.submit), (WAIT, made.wait)):
            self.runs[number * ACTIONS + action] = call

    def drop_executor(self, number: int) -> None:
        """Free an executor."""
        self._executors.pop(number).close()
        for action in range(ACTIONS):
            self.runs.pop(number * ACTIONS + action, None)

    def add_state(self, number: int, about: Sequence[Any], more: Mapping[str, Any]) -> None:
        """Create a State; arguments as PersistentTensors."""
        self._states[number] = self._opened().state(*about, **more)

    def call_state(self, number: int, call: str, *arguments: Any) -> dict[str, Any] | None:
        """Call a method of a State; return its result."""
        found = getattr(self._states[number], call)(*arguments)
        if found is None:
            return None
        return {
            "payload": b"".join(np.ascontiguousarray(each).tobytes() for each in found.values())
        }

    def drop_state(self, number: int) -> None:
        """Free a State."""
        self._states.pop(number).close()

    def _opened(self) -> LocalBackend:
        if self._backend is None:
            raise DeviceError("no device was opened")
        return self._backend


if __name__ == "__main__":
    sys.exit(main())
