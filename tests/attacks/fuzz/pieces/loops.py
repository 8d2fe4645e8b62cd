# SPDX-License-Identifier: Apache-2.0
"""WHILE and IF over earlier tensors, which are inlined."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from delegate.inspect import Node, Tensor
from tests.attacks.fuzz.drawing import Pen, numbers_of
from tflite_opencl.conformance.cases.loops import choice, loop, recurrent
from tflite_opencl.models.build import constant, node, numbers, tensor

_VERSIONS = {"int8": 2, "int16": 3}


def counted(pen: Pen) -> None:
    """A loop over two tensors, which are swapped, stay, or are transposed and compared."""
    x = pen.source()
    y = pen.operand(x.shape, x.dtype, numbers_of(x))
    rounds, start = pen.one_of((0, 1, 2, 3, 7)), pen.one_of((0, 0, 1))
    steps = [pen.one_of(("larger", "smaller", "turned", "swapped", "none")) for _ in range(3)]
    axis = pen.random.randrange(len(x.shape))
    version = _VERSIONS.get(x.dtype, 1)

    def body(_: Tensor, own: Sequence[Tensor]) -> tuple[Sequence[Node], Sequence[Tensor]]:
        one, other = own
        nodes: list[Node] = []
        for step in steps:
            result = tensor(x.shape, x.dtype, *numbers_of(x))
            if step in ("larger", "smaller"):
                op = "MAXIMUM" if step == "larger" else "MINIMUM"
                nodes.append(node(op, [one, other], [result], version=version))
            elif step == "turned":
                nodes.append(node("REVERSE_V2", [one, numbers([axis])], [result]))
            if step in ("larger", "smaller", "turned"):
                one = result
            elif step == "swapped":
                one, other = other, one
        return nodes, [one, other]

    pen.join(loop(rounds, [x, y], body, start))


def branch(pen: Pen) -> None:
    """An IF with a constant condition."""
    x = pen.source()
    y = pen.operand(x.shape, x.dtype, numbers_of(x))
    pen.join(choice(constant(np.array(pen.may(0.5))), [x, y], x.dtype))


def layer(pen: Pen) -> None:
    """An LSTM or a GRU of Keras 3."""
    steps, depth, width = pen.one_of((1, 2, 5)), *(pen.one_of((1, 3, 8, 17)) for _ in range(2))
    pen.join(recurrent(pen.one_of(("lstm", "gru")), steps, depth, width).nodes[0])


OFTEN = ((2, counted), (1, branch), (1, layer))
