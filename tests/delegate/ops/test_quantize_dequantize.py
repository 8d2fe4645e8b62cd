# SPDX-License-Identifier: Apache-2.0
"""DEQUANTIZE: its launches, what it refuses, and its numbers against TFLite's."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from tests.support.activations import every_value
from tests.support.cases import (
    GROUPS,
    LANES_8,
    PLAIN,
    SIMT,
    Way,
    assert_exact_way,
    changed,
    only_launch,
    quantization,
    scales,
    zero_points,
)
from tests.support.compare import RUNTIME
from tests.support.factories import drawn, exact, refused
from tests.support.model import chain_model, op, t
from tests.support.refusals import unquantised

TYPES = ("uint8", "int8", "int16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dequantization:
    """One DEQUANTIZE by its parameters."""

    shape: tuple[int, ...] = (256,)
    dtype: str = "uint8"
    scale: float = 0.1
    zero: int = 0

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape)) or "scalar"
        return f"in{shape}-{self.dtype}-scale{self.scale:g}-zero{self.zero}"

    def node(self) -> Node:
        source = t(self.shape, self.dtype, self.scale, self.zero)
        return op("DEQUANTIZE", [source], [t(self.shape)], version=2)

    def model(self) -> bytes:
        return chain_model([self.node()])


@pytest.mark.parametrize(
    ("dtype", "elem"), [("uint8", "uchar"), ("int8", "char"), ("int16", "short")]
)
def test_launch(dtype: str, elem: str) -> None:
    found = ops.lower(Dequantization(dtype=dtype).node(), LANES_8.target)
    assert [each.name for each in found] == ["product", "vector 4", "plain"]
    launch = only_launch(found[0])
    assert (launch.file, launch.kernel, launch.tiles) == ("dequantize", "dequantize", 1)
    assert launch.defines == {"ELEM": elem}


@pytest.mark.parametrize(("size", "aligned"), [(256, {"IS_ALIGNED": 1}), (1027, {})])
def test_vectors_on_gpus(size: int, aligned: dict[str, int]) -> None:
    node = Dequantization(shape=(size,)).node()
    launch = only_launch(ops.lower(node, SIMT.target)[0])
    assert launch.kernel == "dequantize_vector"
    assert launch.defines == {"ELEM": "uchar", "LANES": 4, **aligned}
    assert (launch.params["items"], launch.params["tile_items"]) == (-(-size // 4), 64)


def test_no_product_below_the_least_normal_float() -> None:
    found = ops.lower(Dequantization(scale=2.0**-127).node(), SIMT.target)
    assert [each.name for each in found] == ["vector 4", "plain"]


NODE = Dequantization().node()
REFUSALS: dict[str, tuple[Node, str]] = {
    "to_float16": (changed(NODE, -1, dtype="float16"), "uint8 to float16: only float32 comes out"),
    "from_int32": (
        changed(NODE, 0, dtype="int32"),
        "int32: only uint8 and int8 and int16 are implemented",
    ),
    "without_quantisation": unquantised(NODE, 0),
    "per_channel": (
        changed(NODE, 0, quantization=quantization([0.5] * 256)),
        "256 scales: only one per tensor here",
    ),
    "shape_changes": (changed(NODE, -1, shape=(16, 16)), "256 -> 16x16: the shape must stay"),
    "int4_below_the_least_normal_float": (
        changed(changed(NODE, 0, dtype="int4"), 0, quantization=quantization(2.0**-127)),
        "int4 with scale 5.877471754111438e-39: products may be zero on a device",
    ),
    "int4_per_channel": (
        changed(changed(NODE, 0, dtype="int4"), 0, quantization=quantization([0.5] * 256)),
        "256 scales: only one per tensor here",
    ),
    "int2": (changed(NODE, 0, dtype="int2"), "int2: only uint8 and int8 and int16 are implemented"),
    "empty": (changed(changed(NODE, 0, shape=(0,)), -1, shape=(0,)), "shape 0: it is empty"),
    "no_input": (replace(NODE, inputs=()), "0 inputs: 1 expected"),
    "no_output": (replace(NODE, outputs=()), "0 outputs: 1 is expected"),
}

test_refusal = refused(REFUSALS)

CASES = [
    *(
        Dequantization(dtype=dtype, zero=zero, scale=scale)
        for dtype, zero in (("uint8", 255), ("int8", -128))
        for scale in (0.1, 1e30, 2.0**-126)
    ),
    *(Dequantization(shape=shape) for shape in [(), (1,), (3,), (63,), (4097,), (2, 3, 5)]),
]
EVERY_WAY = (*GROUPS, PLAIN, replace(LANES_8, name="lanes8-plain", alternative="plain"))

test_dequantize = exact(CASES, EVERY_WAY)


@pytest.mark.parametrize("alternative", ["product", "vector", "plain"])
@pytest.mark.parametrize("way", GROUPS, ids=str)
@pytest.mark.parametrize("dtype", TYPES)
def test_every_value(dtype: str, way: Way, alternative: str, device: DeviceInfo) -> None:
    every = every_value(dtype)
    case = Dequantization(shape=every.shape, dtype=dtype, scale=0.0374)
    (name,) = assert_exact_way(
        case.model(), device, replace(way, alternative=alternative), inputs=[[every]]
    )
    assert name.split()[0] == alternative


@pytest.mark.parametrize("way", GROUPS, ids=str)
def test_every_half(way: Way, device: DeviceInfo) -> None:
    every = np.arange(65536).astype(np.uint16).view(np.float16)
    model = chain_model([op("DEQUANTIZE", [t(every.shape, "float16")], [t(every.shape)])])
    assert_exact_way(model, device, way, inputs=[[every]])


@pytest.mark.parametrize("way", GROUPS, ids=str)
@pytest.mark.parametrize("name", ["DEQUANTIZE", "CAST"])
@pytest.mark.parametrize("size", [1, 2, 15, 4097])
def test_int4(size: int, name: str, way: Way, device: DeviceInfo) -> None:
    if RUNTIME.name == "tflite-runtime":
        pytest.skip("tflite-runtime has no floats of int4")
    source = replace(t((size,), "int8", 0.0374, -5), dtype="int4")
    model = chain_model([op(name, [source], [t((size,))], version=6)])
    every = [np.resize(np.arange(-8, 8), size).astype(np.int8)]
    assert_exact_way(model, device, way, inputs=[every])


@st.composite
def dequantizations(draw: st.DrawFn) -> Dequantization:
    dtype = draw(st.sampled_from(TYPES))
    return Dequantization(
        shape=tuple(draw(st.lists(st.integers(1, 11), max_size=4))),
        dtype=dtype,
        scale=draw(scales(-100, 60)),
        zero=0 if dtype == "int16" else draw(zero_points(dtype)),
    )


test_drawn_dequantize = drawn(dequantizations(), EVERY_WAY)

NODES = {"DEQUANTIZE": NODE}
BUILT = [
    *(Dequantization(dtype=dtype).node() for dtype in TYPES),
    op("DEQUANTIZE", [t((5, 40), "float16")], [t((5, 40))]),
    op("DEQUANTIZE", [replace(t((5, 41), "int8", 0.1), dtype="int4")], [t((5, 41))]),
]
