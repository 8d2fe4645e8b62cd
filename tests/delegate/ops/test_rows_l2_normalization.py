# SPDX-License-Identifier: Apache-2.0
"""L2_NORMALIZATION: its launches, what it refuses, and its numbers against TFLite's."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from tests.support.cases import (
    DTYPES,
    GROUPS,
    SEEDS,
    SIMT,
    Way,
    assert_exact_or_refused,
    assert_exact_way,
    changed,
    only_launch,
    quantization,
    retyped,
    zero_points,
)
from tests.support.compare import Arrays
from tests.support.factories import exact, refused
from tests.support.floats import assert_float_or_refused, assert_float_ways
from tests.support.model import chain_model, op, t
from tests.support.refusals import unquantised


@dataclass(frozen=True, slots=True, kw_only=True)
class Norm:
    """One L2_NORMALIZATION by its parameters; TFLite's output scale is always 1/128."""

    shape: tuple[int, ...] = (3, 11)
    dtype: str = "uint8"
    zero: int = 3

    def __str__(self) -> str:
        return f"in{'x'.join(map(str, self.shape))}-{self.dtype}-zero{self.zero}"

    def node(self) -> Node:
        is_float = self.dtype == "float32"
        source = t(self.shape, self.dtype, None if is_float else 0.1, self.zero)
        out_zero = 128 if self.dtype == "uint8" else 0
        result = t(self.shape, self.dtype, None if is_float else 1 / 128, out_zero)
        return op("L2_NORMALIZATION", [source], [result], {"fused_activation_function": "NONE"})

    def model(self) -> bytes:
        return chain_model([self.node()])


def test_launches() -> None:
    (plain,) = ops.lower(Norm(shape=(65, 3), dtype="int8").node(), SIMT.target)
    launch = only_launch(plain)
    assert (launch.kernel, launch.tiles) == ("l2_normalization_quant8", 2)
    assert launch.defines == {"ELEM": "char", "IS_SIGNED": 1}
    (plain,) = ops.lower(Norm(dtype="float32").node(), SIMT.target)
    assert only_launch(plain).kernel == "l2_normalization_float"


NODE = Norm().node()
REFUSALS: dict[str, tuple[Node, str]] = {
    "types_differ": (changed(NODE, -1, dtype="int8"), "uint8 in, int8 out: they must be equal"),
    "int16": (retyped(NODE, "int16"), "int16: only float32, uint8, int8"),
    "shape_changes": (changed(NODE, -1, shape=(33,)), "3x11 -> 33: the shape must stay"),
    "scalar": (
        changed(changed(NODE, 0, shape=()), -1, shape=()),
        "shape scalar: at least rank 1 is needed",
    ),
    "empty": (changed(changed(NODE, 0, shape=(0,)), -1, shape=(0,)), "shape 0: it is empty"),
    "long_rows": (Norm(shape=(2, 32001)).node(), "rows of 32001: at most 32000"),
    "fused": (
        changed(NODE, options={"fused_activation_function": "RELU"}),
        "fused activation RELU: only NONE",
    ),
    "output_scale": (
        changed(NODE, -1, quantization=quantization(0.5, 128)),
        f"output scale 0.5, zero point 128: TFLite's is {1 / 128}, 128",
    ),
    "without_quantisation": unquantised(NODE, 0),
    "no_input": (replace(NODE, inputs=()), "0 inputs: 1 expected"),
    "no_output": (replace(NODE, outputs=()), "0 outputs: 1 is expected"),
}

test_refusal = refused(REFUSALS)

SHAPES = [(1, 1), (1, 2), (63, 3), (64, 3), (65, 3), (2, 3, 5, 7), (17,), (3, 1001)]
CASES = [
    *(
        Norm(shape=shape, dtype=dtype, zero=zero)
        for shape in SHAPES
        for dtype, zero in (("uint8", 128), ("int8", -128))
    ),
    *(Norm(shape=(500, 4), zero=zero) for zero in (0, 255)),
    *(Norm(shape=(500, 4), dtype="int8", zero=zero) for zero in (0, 127)),
]

test_l2_normalization = exact(CASES, GROUPS)


@pytest.mark.parametrize("way", GROUPS, ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_sums_of_all_sizes(dtype: str, way: Way, device: DeviceInfo) -> None:
    zero = 128 if dtype == "uint8" else 0
    rng = np.random.default_rng(0)
    reach = np.exp2(rng.uniform(0, 7, (4000, 1)))
    values = np.clip(rng.uniform(-1, 1, (4000, 3)) * reach + zero, *_limits(dtype)).astype(dtype)
    case = Norm(shape=values.shape, dtype=dtype, zero=zero)
    assert_exact_way(case.model(), device, way, inputs=[[values]])


def _limits(dtype: str) -> tuple[int, int]:
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)


def bounds(inputs: Arrays) -> list[NDArray[np.float64]]:
    # Each side rounds c sums, of which the root takes half; then the root and the quotient.
    values = inputs[0].astype(np.float64)
    norms = np.maximum(np.sqrt((values**2).sum(-1, keepdims=True)), 1e-6)
    return [np.abs(values / norms) * (values.shape[-1] + 4) * 2.0**-24 + 2e-38]


@pytest.mark.parametrize("way", GROUPS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_floats(shape: tuple[int, ...], way: Way, device: DeviceInfo) -> None:
    assert_float_ways(Norm(shape=shape, dtype="float32", zero=0).node(), device, way, bounds)


@st.composite
def norms(draw: st.DrawFn) -> Norm:
    dtype = draw(DTYPES)
    shape = draw(st.lists(st.integers(1, 7), max_size=3))
    return Norm(
        shape=(*shape, draw(st.integers(1, 300))), dtype=dtype, zero=draw(zero_points(dtype))
    )


@given(case=norms(), way=st.sampled_from(GROUPS), seed=SEEDS)
def test_drawn_l2_normalization(device: DeviceInfo, case: Norm, way: Way, seed: int) -> None:
    assert_exact_or_refused(case.model(), device, way, seed)
    case = replace(case, dtype="float32", zero=0)
    assert_float_or_refused(case.node(), device, way, bounds)


NODES = {"L2_NORMALIZATION": NODE}
BUILT = [Norm(dtype=dtype).node() for dtype in ("float32", "uint8", "int8")]
