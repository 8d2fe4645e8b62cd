# SPDX-License-Identifier: Apache-2.0
"""Floats that become halves, and halves that become floats: as NumPy rounds them."""

from __future__ import annotations

import numpy as np
import pytest

from delegate import DeviceInfo, Unsupported, ops
from delegate.guard.probing.probe import examine
from delegate.inspect import Node, Tensor
from delegate.isa import FP16_STORAGE
from delegate.launch import Schedule, Step
from delegate.plan.dispatch.kernels import Kernels
from delegate.plan.dispatch.planned import planned_executor
from delegate.run.device import Device
from delegate.target import Target


def node_of(op: str, source: str, result: str, shape: tuple[int, ...]) -> Node:
    tensors = [Tensor(i, "", shape, dtype) for i, dtype in enumerate((source, result))]
    return Node(0, op, 1, (tensors[0],), (tensors[1],))


SHAPE = (41, 25, 7)  # several tiles
TO_FP16 = node_of("to_halves", "float32", "float16", SHAPE)
TO_FLOAT32 = node_of("to_floats", "float16", "float32", SHAPE)
BUILT = (TO_FP16, TO_FLOAT32)


def run(device: DeviceInfo, node: Node, values: np.ndarray) -> np.ndarray:
    proven = examine(device).isa
    if FP16_STORAGE not in proven:
        pytest.skip(f"{device.name} was not proven to store halves")
    opened = Device(device, proven=proven)
    (strategy,) = ops.lower(node, Target(device_type=opened.type, isa=frozenset(proven)))
    step = Step(0, node.op, strategy)
    source, result = node.inputs[0], node.outputs[0]
    assert source is not None
    executor = planned_executor(opened, Kernels(opened), Schedule((step,), (source,), (result,)))
    out = np.zeros(result.shape, result.dtype)
    executor.run([values.reshape(-1).view(np.uint8)], [out.reshape(-1).view(np.uint8)])
    executor.close()
    return out


def test_floats_become_the_nearest_halves(device: DeviceInfo) -> None:
    rng = np.random.default_rng(1)
    values = (rng.standard_normal(7175) * 10.0 ** rng.integers(-4, 5, 7175)).astype(np.float32)
    # Ties to even, the largest half, what rounds to it and what is beyond.
    values[:8] = 1 + 2**-11, 1 + 3 * 2**-11, -0.0, 65504, 65519, 65520, np.inf, -np.inf
    values[8] = np.nan
    with np.errstate(over="ignore"):
        expected = values.astype(np.float16)
    found = run(device, TO_FP16, values.reshape(SHAPE)).reshape(-1)
    # A device may take the least halves for zeros, and round into them otherwise.
    normal = ~(np.abs(values) < 2.0**-14)
    np.testing.assert_array_equal(found[normal], expected[normal])
    assert np.abs(found[~normal] - expected[~normal]).max(initial=0) <= 2.0**-14


def test_halves_become_the_floats_that_they_are(device: DeviceInfo) -> None:
    halves = np.random.default_rng(2).integers(0, 1 << 16, 7175).astype(np.uint16).view(np.float16)
    halves = np.where(np.abs(halves) < 2.0**-14, np.float16(1.5), halves).astype(np.float16)
    found = run(device, TO_FLOAT32, halves.reshape(SHAPE)).reshape(-1)
    np.testing.assert_array_equal(found, halves.astype(np.float32))


@pytest.mark.parametrize(
    "node",
    [
        node_of("to_halves", "float16", "float32", (4,)),
        node_of("to_floats", "float32", "float16", (4,)),
    ],
)
def test_other_types_are_refused(node: Node) -> None:
    with pytest.raises(Unsupported, match="only float"):
        ops.lower(node, Target())
