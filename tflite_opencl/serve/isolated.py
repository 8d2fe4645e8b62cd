# SPDX-License-Identifier: Apache-2.0
"""A served model on a device, in a child process: a driver that hangs or dies takes only that.

A call that hangs with Python's lock, as clEnqueueNDRangeKernel of pyopencl does, would else stop
every thread of the service. `python -m tflite_opencl.serve.isolated` is the child: the first
request opens the model, each further one is a run. Arrays cross as their bytes.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import pickle
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from delegate import DelegateError, NoDeviceError, Options
from delegate.sandbox.channel import Buffer, serving
from delegate.sandbox.child import END_SECONDS, Child, Died, command_of
from tflite_opencl.common import bars
from tflite_opencl.common.errors import (
    CommandError,
    DelegateFailed,
    OneLineError,
    RunError,
    code_of,
    reason_of,
)
from tflite_opencl.common.interpreter import read_graph
from tflite_opencl.common.logs import lines_on_stderr, routed
from tflite_opencl.common.open_sizes import Size
from tflite_opencl.common.runtime import runtime_if_any
from tflite_opencl.serve.runners import Runner, open_runner, sized
from tflite_opencl.serve.tensors import Array, Arrays

_PIPE_BYTES = 1 << 20
# What the worker of a model tells apart; all other errors of a run are the device's.
_KINDS: Mapping[str, type[Exception]] = {
    each.__name__: each for each in (NoDeviceError, RunError, DelegateFailed)
}


class Isolated:
    """A runner in a child process; see runners.Runner. Its limit of time is its worker's."""

    device: str
    sizes: Sequence[int]
    nodes: tuple[int, int]

    def __init__(
        self,
        name: str,
        path: str,
        signature: str | None,
        options: Options,
        most: int,
        size: Size | None = None,
    ) -> None:
        """Open the model there, as `open_runner` does; the child says on stderr what it has to.

        `size`: of pictures, as of `sized`.
        Raises: NoDeviceError: there is no such device. RunError: TFLite refuses the model.
        DelegateFailed: the device fails, or the child died. CommandError: all else.
        """
        level = logging.getLogger("tflite_opencl").getEffectiveLevel()
        command = command_of("tflite_opencl.serve.isolated")
        try:
            self._child = Child(command, keeps_stderr=False, pipe_bytes=_PIPE_BYTES)
        except OSError as error:
            why = error.strerror or error
            raise CommandError(f"a child process cannot be started: {why}") from error
        atexit.register(self._child.kill)  # it may hang, and then the end of its input is not seen
        self.device, self.sizes, self.nodes = "the device", (1,), (0, 0)
        try:
            asked = name, path, signature, options, most, size, level
            told, _ = self._asked([pickle.dumps(asked, protocol=5)])
        except BaseException:
            self.close()
            raise
        self.device, self.sizes = told["device"], tuple(told["sizes"])
        self.nodes = told["nodes"][0], told["nodes"][1]

    def run(self, arrays: Arrays, pictures: int) -> Arrays:
        """Return the outputs; raises as Runner, and DelegateFailed: the child died."""
        parts, forms = _packed(arrays)
        told, payload = self._asked(parts, forms=forms, pictures=pictures)
        return _unpacked(payload, told["forms"])

    def close(self) -> None:
        """End the child, also in the middle of a run, which then fails."""
        self._child.close(END_SECONDS)
        atexit.unregister(self._child.kill)  # not before: the process may end meanwhile

    def _asked(self, parts: list[Buffer], **request: Any) -> tuple[dict[str, Any], bytes]:
        try:
            told = self._child.ask(float("inf"), parts, **request)
        except Died as died:
            why = f"the process that ran the model on {self.device} {died.ended}"
            raise DelegateFailed(f"{why}{died.ended.remedy}") from None
        if (text := told.get("error")) is None:
            return told, told.get("payload", b"")
        kind = _KINDS.get(told["kind"])
        raise CommandError(text, told["code"]) if kind is None else kind(text)


def _packed(arrays: Arrays) -> tuple[list[Buffer], list[tuple[str, Sequence[int]]]]:
    """Return arrays as the bytes where they lie, and the type and shape of each."""
    whole = [np.ascontiguousarray(array) for array in arrays]
    parts: list[Buffer] = [array.reshape(-1).view(np.uint8).data for array in whole]
    return parts, [(array.dtype.name, array.shape) for array in arrays]


def _unpacked(payload: bytes, forms: Sequence[tuple[str, Sequence[int]]]) -> list[Array]:
    found, at = [], 0
    for dtype, shape in forms:
        count = int(np.prod(shape, dtype=np.int64))
        found.append(np.frombuffer(payload, dtype, count, at).reshape(shape))
        at += found[-1].nbytes
    return found


def main() -> int:
    """Answer the requests until there are no more."""
    runner: Runner | None = None
    with serving() as parent, contextlib.ExitStack() as stack:
        for message in parent.messages():
            payload = message.get("payload", b"")
            parts: list[Buffer] = []
            try:
                if runner is None:
                    *asked, level = pickle.loads(payload)
                    stack.enter_context(routed(lines_on_stderr(level)))
                    bars.be_quiet(level > logging.INFO)
                    runner = _opened(*asked)
                    stack.callback(runner.close)
                    told = {"device": runner.device, "sizes": runner.sizes, "nodes": runner.nodes}
                else:
                    arrays = _unpacked(payload, message["forms"])
                    parts, forms = _packed(runner.run(arrays, message["pictures"]))
                    told = {"forms": forms}
            except Exception as error:
                told = _error(error, is_run=runner is not None)
            parent.send(parts, **told)
    return 0


def _opened(
    name: str, path: str, signature: str | None, options: Options, most: int, size: Size | None
) -> Runner:
    graph = sized(read_graph(path, signature), size)
    return open_runner(name, graph, path, options, most, runtime_if_any())


def _error(error: Exception, is_run: bool) -> dict[str, Any]:
    """Return an error as a message; one of a run that has no kind of ours is the request's."""
    kind = next((name for name, each in _KINDS.items() if isinstance(error, each)), "")
    if is_run and not kind:
        kind = "DelegateFailed" if isinstance(error, DelegateError) else "RunError"
    if not (is_run or isinstance(error, (OneLineError, DelegateError))):
        raise error  # a fault of ours, which its traceback shows
    return {"error": reason_of(error), "kind": kind, "code": code_of(error)}


if __name__ == "__main__":
    sys.exit(main())
