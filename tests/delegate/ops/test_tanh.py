# SPDX-License-Identifier: Apache-2.0
"""TANH: what it refuses, and its numbers against TFLite's."""

from __future__ import annotations

import numpy as np

from delegate import ops
from delegate.inspect import Node
from tests.support.activations import (
    Activation,
    activations,
    assert_drawn,
    assert_every_value,
    common_refusals,
    floats,
    shapes_of_floats,
)
from tests.support.cases import GROUPS, SIMT, changed, only_launch, quantization, retyped
from tests.support.factories import drawn, exact, refused

FIXED = {"uint8": (1 / 128, 128), "int8": (1 / 128, 0), "int16": (2.0**-15, 0)}


def tanh(dtype: str, scale: float = 0.1, zero: int = 3) -> Activation:
    out_scale, out_zero = FIXED.get(dtype, (1, 0))
    return Activation(
        op="TANH", dtype=dtype, scales=(scale, out_scale), zeros=(zero, out_zero), version=2
    )


NODE = tanh("uint8").node()
REFUSALS: dict[str, tuple[Node, str]] = {
    **common_refusals(NODE),
    "int32": (retyped(NODE, "int32"), "int32: only float32, uint8, int8, int16"),
    "wide": (
        tanh("int16", 5.4).node(),
        "input scale 5.4: TFLite's products pass 32 bits from 16/3 on",
    ),
    "output_scale": (
        changed(NODE, -1, quantization=quantization(0.5)),
        f"output scale 0.5, zero point 0: TFLite's is {1 / 128}, 128",
    ),
    "output_zero": (
        changed(tanh("int8").node(), -1, quantization=quantization(1 / 128, 5)),
        f"output scale {1 / 128}, zero point 5: TFLite's is {1 / 128}, 0",
    ),
}

test_refusal = refused(REFUSALS)


def test_launches() -> None:
    (plain,) = ops.lower(tanh("float32").node(), SIMT.target)
    assert only_launch(plain).defines == {"IS_TANH": 1}
    vector, plain = ops.lower(tanh("int16").node(), SIMT.target)
    assert (only_launch(vector).kernel, only_launch(plain).kernel) == ("lookup_vector", "lookup")


CASES = [
    *(tanh(dtype, scale) for dtype in ("uint8", "int8") for scale in (0.1, 0.03, 1.0, 20.0)),
    *(tanh("int16", scale) for scale in (2.0**-12, 2.0**-11, 2.0**-13, 0.0003, 1e-6, 5.3)),
]

test_every_value = exact(CASES, GROUPS, assert_every_value)

test_floats = floats(tanh("float32"), np.tanh)
test_shapes_of_floats = shapes_of_floats(tanh("float32"), np.tanh)

test_drawn_tanh = drawn(
    activations("TANH", ["uint8", "int8", "int16"], FIXED), GROUPS, assert_drawn
)

NODES = {"TANH": NODE}
BUILT = [tanh(dtype).node() for dtype in ("float32", "int16")]
