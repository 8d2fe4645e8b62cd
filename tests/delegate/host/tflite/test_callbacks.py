# SPDX-License-Identifier: Apache-2.0
"""TFLite's C interface with hooks in plain Python, without OpenCL."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate.errors import DeviceError
from delegate.format.writer import write_model
from delegate.host.tflite import abi, callbacks
from delegate.host.tflite.callbacks import Constants, NativeDelegate, PlannedNode, Shapes
from tests.support.compare import interpreter, invoke
from tests.support.model import chain_model, op, t
from tests.support.nets import POOL, image, net

MODEL = write_model(net([("MAX_POOL_2D", [0], 1), ("ADD", [0, 1], 2)]))


class Inverter:
    """A kernel whose output is its first input with all bits inverted."""

    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks
        self.inputs: Sequence[int] = hooks.inputs
        self.outputs: Sequence[int] = hooks.outputs
        self.prepared: list[Shapes] = []
        self.closed = 0

    def prepare(self, shapes: Shapes) -> Shapes:
        self.hooks.fail_in("prepare")
        self.prepared.append(shapes)
        return {self.outputs[0]: shapes[self.inputs[0]]}

    def invoke(
        self, inputs: Sequence[NDArray[np.uint8]], outputs: Sequence[NDArray[np.uint8]]
    ) -> None:
        self.hooks.fail_in("invoke")
        outputs[0][:] = ~inputs[0]

    def close(self) -> None:
        self.closed += 1
        self.hooks.fail_in("close")


class Hooks:
    """Claims the first node or chosen ones; fails on request."""

    def __init__(self, failing: str = "", error: BaseException | None = None) -> None:
        self.failing = failing
        self.error = error or ValueError("as told")
        self.inputs, self.outputs, self.claims = [0], [1], [0]
        self.plans: list[Sequence[PlannedNode]] = []
        self.groups: list[tuple[int, ...]] = []
        self.kernels: list[Inverter] = []
        self.failures: list[BaseException] = []
        self.native = NativeDelegate("Inverter", self)

    def _get_native_delegate_pointer(self) -> int:
        return self.native.address

    def fail_in(self, place: str) -> None:
        if place == self.failing:
            raise self.error

    def claim(
        self, context: int, plan: Sequence[PlannedNode], shapes: Shapes, constants: Constants
    ) -> Sequence[int]:
        self.fail_in("claim")
        self.plans.append(plan)
        self.shapes = shapes
        return self.claims

    def partition(self, context: int, nodes: tuple[int, ...]) -> Inverter:
        self.fail_in("partition")
        self.groups.append(nodes)
        self.kernels.append(Inverter(self))
        return self.kernels[-1]

    def failed(self, error: BaseException) -> None:
        self.failures.append(error)


def picture() -> NDArray[np.uint8]:
    return np.random.default_rng(1).integers(0, 256, (1, 3, 3, 2)).astype(np.uint8)


def made(hooks: Any, model: bytes = MODEL) -> Any:
    return interpreter(model, hooks)


def test_plan_and_shapes_are_those_of_model() -> None:
    hooks = Hooks()
    made(hooks)
    assert hooks.plans == [
        [PlannedNode(0, "MAX_POOL_2D", (0,), (1,)), PlannedNode(1, "ADD", (0, 1), (2,))]
    ]
    assert {i: hooks.shapes[i] for i in range(3)} == dict.fromkeys(range(3), (1, 3, 3, 2))
    assert hooks.groups == [(0,)]


def test_custom_op_has_name_and_missing_input_is_minus_one() -> None:
    hooks = Hooks()
    node = op("my op", [t((2,), "uint8"), None], [t((2,), "uint8")], is_custom=True)
    hooks.claims = []
    with pytest.raises(RuntimeError, match="unresolved custom op: my op"):
        made(hooks, chain_model([node]))
    hooks.claims = [0]  # TFLite does not prepare unknown ops that a delegate claims
    made(hooks, chain_model([node]))
    assert hooks.plans == [[PlannedNode(0, "my op", (0, -1), (1,))]] * 2


def test_kernel_reads_and_writes_interpreters_tensors() -> None:
    hooks = Hooks()
    ours = made(hooks)
    for _ in range(2):
        (got,) = invoke(ours, [picture()])
        left, right = picture().astype(int), (~picture()).astype(int)
        # Equal scales and zero points, so that TFLite's sum is the integers' sum.
        assert np.array_equal(got, np.clip(left + right - 128, 0, 255))


def test_kernel_is_notified_of_new_shapes() -> None:
    hooks = Hooks()
    ours = made(hooks)
    ours.allocate_tensors()
    assert {shapes[0] for shapes in hooks.kernels[0].prepared} == {(1, 3, 3, 2)}
    ours.resize_tensor_input(0, (4, 3, 3, 2))
    ours.allocate_tensors()
    assert hooks.kernels[0].prepared[-1][0] == (4, 3, 3, 2)
    (got,) = invoke(ours, [np.repeat(picture(), 4, axis=0)])
    assert got.shape == (4, 3, 3, 2)


def test_unknown_op_does_not_affect_next_interpreter() -> None:
    hooks = Hooks()
    lacking = op("my op", [t((2,), "uint8"), None], [t((2,), "uint8")], is_custom=True)
    made(hooks, chain_model([lacking]))
    ours = made(hooks)
    ours.resize_tensor_input(0, (2, 3, 3, 2))
    ours.allocate_tensors()
    assert invoke(ours, [np.repeat(picture(), 2, axis=0)])[0].shape == (2, 3, 3, 2)
    assert hooks.native._delegate.flags == abi.FLAGS


@pytest.mark.parametrize("place", ["claim", "partition", "prepare", "invoke"])
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (DeviceError("the device is on fire"), "OpenCL delegate: the device is on fire"),
        (ValueError("a % sign"), "OpenCL delegate: ValueError: a % sign"),
        (KeyboardInterrupt(), "OpenCL delegate: KeyboardInterrupt"),
    ],
    ids=["ours", "foreign", "ctrl-c"],
)
def test_exception_becomes_tflites_error(place: str, error: BaseException, text: str) -> None:
    hooks = Hooks(place, error)
    with pytest.raises(RuntimeError) as raised:
        invoke(made(hooks), [picture()])
    assert text in str(raised.value).splitlines()[0]
    assert error in hooks.failures
    assert made(Hooks()) is not None


def test_exception_while_closing_is_reported() -> None:
    hooks = Hooks("close")
    ours = made(hooks)
    del ours
    assert hooks.kernels[0].closed == 1
    assert hooks.failures == [hooks.error]


def test_run_works_after_a_failed_one() -> None:
    hooks = Hooks("invoke")
    ours = made(hooks)
    with pytest.raises(RuntimeError, match="as told"):
        invoke(ours, [picture()])
    hooks.failing = ""
    assert len(invoke(ours, [picture()])) == 1


def test_interpreter_frees_its_kernel() -> None:
    hooks = Hooks()
    first, second = made(hooks), made(hooks)
    del first
    assert [kernel.closed for kernel in hooks.kernels] == [1, 0]
    del second
    assert [kernel.closed for kernel in hooks.kernels] == [1, 1]


def test_close_is_idempotent() -> None:
    hooks = Hooks()
    ours = made(hooks)
    hooks.native.close()
    assert hooks.kernels[0].closed == 1
    del ours
    assert hooks.kernels[0].closed == 2


def test_kernel_with_dynamic_input_is_prepared_once_size_is_known() -> None:
    # PAD with computed sizes makes tensor 2 dynamic; the claimed pooling reads it.
    padded, pooled = image(1, 1, 1, 2), image(1, 1, 1, 2)
    nodes = [
        op("PAD", [image(), t((4, 2), "int32")], [padded]),
        op("MAX_POOL_2D", [padded], [pooled], POOL),
    ]
    hooks = Hooks()
    hooks.claims, hooks.inputs, hooks.outputs = [1], [2], [3]
    ours = made(hooks, chain_model(nodes))
    (kernel,) = hooks.kernels
    assert kernel.prepared == []
    for before in (1, 1, 2, 0):
        pads = np.array([[0, 0], [before, 1], [0, 0], [0, 0]], np.int32)
        (got,) = invoke(ours, [picture(), pads])
        expected = ~np.pad(picture(), pads, constant_values=128)
        np.testing.assert_array_equal(got, expected)
        assert kernel.prepared[-1][2] == expected.shape
    assert len(kernel.prepared) == 3


def test_call_of_collected_hooks_is_an_error() -> None:
    hooks = Hooks()
    native, reference = hooks.native, weakref.ref(hooks)
    del hooks
    gc.collect()
    assert reference() is None

    class Pointer:
        def _get_native_delegate_pointer(self) -> int:
            return native.address

    with pytest.raises(RuntimeError, match="the delegate object is gone"):
        made(Pointer())


def test_callbacks_live_as_long_as_interpreter() -> None:
    hooks = Hooks()
    ours = made(hooks)
    native = weakref.ref(hooks.native)
    ours._delegates = None  # TFLite's Python keeps the delegate alive by it
    del hooks
    gc.collect()
    assert native() is not None
    invoke(ours, [picture()])
    del ours
    NativeDelegate("next", Hooks())
    gc.collect()
    assert native() is None
    assert all(native._kernels for native in callbacks._in_use)


def test_model_without_claimed_nodes_runs() -> None:
    hooks = Hooks()
    hooks.claims = []
    assert np.array_equal(
        invoke(made(hooks), [picture()])[0], invoke(interpreter(MODEL), [picture()])[0]
    )
    assert hooks.groups == []
