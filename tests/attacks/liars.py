# SPDX-License-Identifier: Apache-2.0
"""Delegates with one fault each, and one without, for the conformance suite to find.

They run nodes on TFLite's reference kernels, in their own interpreter.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from delegate import OpenCLDelegate, ops
from delegate.host.tflite.callbacks import Constants, NativeDelegate, PlannedNode, Shapes
from delegate.inspect import Node, NodeAlternatives, read_model
from delegate.launch import Alternative, Launch
from delegate.target import Target
from tflite_opencl.interpreters.runtime import find_runtime

Bytes = NDArray[np.uint8]

_leaked: list[Any] = []
_lower = ops.lower


class PassThrough:
    """Claims every node and computes TFLite's results; subclasses add a fault."""

    def __init__(self, model: bytes, options: dict[str, str]) -> None:
        self.model, self.options = model, options
        self._native = NativeDelegate("PassThrough", self)

    def _get_native_delegate_pointer(self) -> int:
        return self._native.address

    def claim(
        self, context: int, plan: Sequence[PlannedNode], shapes: Shapes, constants: Constants
    ) -> Sequence[int]:
        return [node.index for node in plan]

    def partition(self, context: int, nodes: tuple[int, ...]) -> Any:
        return self.kernel()(self.model)

    def failed(self, error: BaseException) -> None:
        self.failure = str(error)

    def kernel(self) -> type[Kernel]:
        """Return the class that runs the nodes."""
        return Kernel


class Kernel:
    """The whole model on the reference kernels."""

    def __init__(self, model: bytes) -> None:
        self.graph = read_model(model)
        self.inputs = [tensor.index for tensor in self.graph.inputs]
        self.outputs = [tensor.index for tensor in self.graph.outputs]
        self.ops = {node.op for node in self.graph.nodes}
        self.runs = 0
        self._model = model
        self._made = self.new_interpreter()

    def new_interpreter(self) -> Any:
        """Return the interpreter of the reference kernels."""
        new_interpreter = find_runtime().interpreter(self._model, 1, "reference")
        new_interpreter.allocate_tensors()
        return new_interpreter

    def prepare(self, shapes: Shapes) -> Shapes:
        for index in self.inputs:
            self._made.resize_tensor_input(index, shapes[index])
        self._made.allocate_tensors()
        return {
            detail["index"]: tuple(int(n) for n in detail["shape"])
            for detail in self._made.get_output_details()
        }

    def invoke(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        self.runs += 1
        for detail, given in zip(self._made.get_input_details(), inputs, strict=True):
            values = np.array(given).view(detail["dtype"]).reshape(detail["shape"])
            self._made.set_tensor(detail["index"], values)
        self._made.invoke()
        for detail, memory in zip(self._made.get_output_details(), outputs, strict=True):
            values = self.spoil(self._made.get_tensor(detail["index"]).copy())
            memory[...] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)

    def spoil(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the values to write instead of the right ones."""
        return values

    def close(self) -> None:
        pass


class _OffByOne(Kernel):
    def spoil(self, values: NDArray[Any]) -> NDArray[Any]:
        if "ADD" in self.ops:
            middle = values.flat[values.size // 2]
            values.flat[values.size // 2] = middle - 1 if middle > 0 else middle + 1
        return values


class _Batch2(Kernel):
    def spoil(self, values: NDArray[Any]) -> NDArray[Any]:
        values[1:] = values[:1]
        return values


class _ZeroPoint(Kernel):
    def spoil(self, values: NDArray[Any]) -> NDArray[Any]:
        return values + np.asarray(3).astype(values.dtype)


class _Crash(Kernel):
    def spoil(self, values: NDArray[Any]) -> NDArray[Any]:
        if "ADD" in self.ops:
            os.write(2, b"the driver's last words\n")
            os.kill(os.getpid(), signal.SIGSEGV)
        return values


class _Hang(Kernel):
    def spoil(self, values: NDArray[Any]) -> NDArray[Any]:
        while "ADD" in self.ops:
            time.sleep(1)
        return values


class _PastTheOutput(Kernel):
    def invoke(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        super().invoke(inputs, outputs)
        as_strided(outputs[-1], (outputs[-1].size + 4,), (1,))[-4:] = 1


class _ChangesInputs(Kernel):
    def invoke(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        super().invoke(inputs, outputs)
        as_strided(inputs[0], inputs[0].shape, (1,), writeable=True)[0] ^= 1


class _LeaksMemory(Kernel):
    def __init__(self, model: bytes) -> None:
        super().__init__(model)
        _leaked.append(bytearray(os.urandom(1)) * 200_000)


class _LeaksHandles(Kernel):
    def __init__(self, model: bytes) -> None:
        super().__init__(model)
        _leaked.append(os.open(os.devnull, os.O_RDONLY))


class _StalePointers(Kernel):
    _first: list[int] | None = None

    def invoke(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        now = [memory.__array_interface__["data"][0] for memory in outputs]
        self._first = self._first or now
        # Outputs written to stale memory are lost.
        super().invoke(inputs, outputs if now == self._first else [np.array(m) for m in outputs])


class _Nothing(Kernel):
    def invoke(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        pass


class _Differs(Kernel):
    def spoil(self, values: NDArray[Any]) -> NDArray[Any]:
        if self.runs % 3 == 0:
            values.flat[0] += np.asarray(1).astype(values.dtype)
        return values


class _Shared(Kernel):
    _held: ClassVar[dict[str, Any]] = {}  # shared by all interpreters

    def invoke(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        self._held["inputs"] = [np.array(values) for values in inputs]
        time.sleep(0.01)
        super().invoke(self._held["inputs"], outputs)


class _Forgets(Kernel):
    def invoke(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        self._made = self.new_interpreter()  # with initial variables
        super().invoke(inputs, outputs)


class _BeginsAgain(Kernel):
    def prepare(self, shapes: Shapes) -> Shapes:
        self._made = self.new_interpreter()
        return super().prepare(shapes)


class _SharedState(Kernel):
    _every: ClassVar[dict[bytes, Any]] = {}

    def new_interpreter(self) -> Any:
        if self._model not in self._every:
            self._every[self._model] = super().new_interpreter()
        return self._every[self._model]


def _liar(kind: type[Kernel]) -> type[PassThrough]:
    class Liar(PassThrough):
        def kernel(self) -> type[Kernel]:
            return kind

    return Liar


class takes_nothing(PassThrough):
    """Claims no node."""

    def claim(
        self, context: int, plan: Sequence[PlannedNode], shapes: Shapes, constants: Constants
    ) -> Sequence[int]:
        return []


class dies_in_the_second(PassThrough):
    """Reports two alternatives for each node; the second one ends the process."""

    @property
    def alternatives(self) -> list[NodeAlternatives]:
        taken = self.options.get("alternative", "first")
        return [NodeAlternatives(0, "ADD", ("first", "second"), taken)]

    def kernel(self) -> type[Kernel]:
        return _Crash if self.alternatives[0].taken == "second" else Kernel


class refuses(PassThrough):
    """Fails in its claim."""

    def claim(
        self, context: int, plan: Sequence[PlannedNode], shapes: Shapes, constants: Constants
    ) -> Sequence[int]:
        raise RuntimeError("the firmware is missing")


pass_through = PassThrough
off_by_one = _liar(_OffByOne)
batch_2 = _liar(_Batch2)
zero_point = _liar(_ZeroPoint)
crash = _liar(_Crash)
hang = _liar(_Hang)
past_the_output = _liar(_PastTheOutput)
changes_inputs = _liar(_ChangesInputs)
leaks_memory = _liar(_LeaksMemory)
leaks_handles = _liar(_LeaksHandles)
stale_pointers = _liar(_StalePointers)
nothing = _liar(_Nothing)
differs = _liar(_Differs)
shared = _liar(_Shared)
forgets = _liar(_Forgets)
begins_again = _liar(_BeginsAgain)
shared_state = _liar(_SharedState)


def plain_is_wrong(model: bytes, options: dict[str, str]) -> OpenCLDelegate | None:
    """Return the OpenCL delegate with a fault only in each node's alternative "plain"."""

    def spoiled(launch: Launch) -> Launch:
        zero = launch.params["output_zero"]
        assert isinstance(zero, int)
        return replace(launch, params={**launch.params, "output_zero": zero + 1})

    def with_a_fault(node: Node, target: Target) -> tuple[Alternative, ...]:
        return tuple(
            replace(each, launches=tuple(map(spoiled, each.launches)))
            if each.name == "plain" else each
            for each in _lower(node, target)
        )  # fmt: skip

    if not model:  # the suite checks whether the delegate exists
        return None
    # The worker process has only this delegate; a child process would lack the fault.
    given: dict[str, Any] = {"tune": "off", "min_nodes_per_partition": 1, "in_child_first": False}
    ops.lower = with_a_fault
    return OpenCLDelegate(model, **given, **options)


def flaky(model: bytes, options: dict[str, str]) -> PassThrough:
    """Return a delegate that is wrong in the first process only."""
    mark = options["mark"]
    if model and not os.path.exists(mark):
        with open(mark, "w"):
            return zero_point(model, options)
    return PassThrough(model, options)
