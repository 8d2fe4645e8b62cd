# SPDX-License-Identifier: Apache-2.0
"""Where a program's bytes go, without a device."""

from __future__ import annotations

import numpy as np

from delegate.graph.ir import Tensor
from delegate.launch import Alternative, Constant, Launch, Program, Step
from delegate.runtime.layout import layout_of

X, Y = Tensor(0, "", (5,), "uint8"), Tensor(1, "", (3,), "int32")
KEPT = Tensor(2, "", (2,), "uint8", data=np.array([8, 9], np.uint8))
WEIGHTS = Constant(3, lambda: np.array([1, 2, 3], np.uint8))
BIAS = Constant(8, lambda: np.array([7, -1], np.int32))


def program() -> Program:
    first = Launch("f", "f", 4, 1, {"x": X, "w": WEIGHTS, "n": 11}, (X, KEPT), (Y,))
    second = Launch("g", "g", 9, 1, {"b": BIAS, "w": WEIGHTS, "y": Y}, (Y,), (Y,))
    steps = tuple(Step(i, "", Alternative("", (each,))) for i, each in enumerate((first, second)))
    return Program(steps, (X,), (Y,))


def test_blocks_hold_tiles_the_slot_and_every_parameter() -> None:
    layout = layout_of(program(), batch=3)
    weights, bias = layout.constants[WEIGHTS], layout.constants[BIAS]
    ((x, x_bytes),), ((y, y_bytes),) = layout.inputs, layout.outputs
    slot = layout.slot_bytes
    assert layout.blocks == (4, slot, x, weights, 11, 9, slot, bias, weights, y)
    assert layout.firsts == (2, 7)
    second = np.array([9, slot, bias, weights, y], np.int32)
    assert layout.block(7, 3).tobytes() == second.tobytes()
    assert (x_bytes, y_bytes) == (5, 12)
    assert layout.arena_bytes == 3 * slot
    assert list(layout.stored) == [KEPT]


def test_constants_are_packed_at_their_offsets() -> None:
    layout = layout_of(program())
    content = layout.packed_constants()
    assert content.size == layout.constant_bytes
    for constant, expected in ((WEIGHTS, b"\1\2\3"), (BIAS, b"\7\0\0\0\xff\xff\xff\xff")):
        offset = layout.constants[constant]
        assert content[offset : offset + constant.size_bytes].tobytes() == expected
