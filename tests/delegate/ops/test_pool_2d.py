# SPDX-License-Identifier: Apache-2.0
"""The poolings: their launch, what they refuse, and their numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, OpenCLDelegate, ops
from delegate.inspect import Node, sum_bound
from tests.support.cases import (
    DRAWN_WAYS,
    DTYPES,
    FUSED,
    LANES_4,
    LANES_8,
    LANES_16,
    PLAIN,
    SIMT,
    WAYS,
    Way,
    assert_exact_way,
    changed,
    forced,
    only_launch,
    output_size,
    quantization,
    retyped,
    scales,
    zero_points,
)
from tests.support.compare import (
    Arrays,
    Bounds,
    assert_close,
    assert_within,
    interpreter,
    invoke,
    refusals,
)
from tests.support.factories import drawn, refused
from tests.support.floats import assert_float_or_refused, assert_float_ways, exact_doubles
from tests.support.model import chain_model, op, t
from tests.support.nodes import CHANNELS, SIZES
from tests.support.refusals import activated, unquantised

OPS = ("AVERAGE_POOL_2D", "MAX_POOL_2D")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """One pooling by its parameters."""

    op: str = "AVERAGE_POOL_2D"
    size: tuple[int, int, int] = (7, 5, 3)  # h, w, c
    window: tuple[int, int] = (3, 3)
    batch: int = 1
    stride: tuple[int, int] = (1, 1)  # h, w
    padding: str = "SAME"
    fused: str = "NONE"
    dtype: str = "uint8"
    scale: float = 0.04
    zero: int | None = None

    def __str__(self) -> str:
        parts = {
            self.op.split("_")[0].lower(): True,
            "in" + "x".join(map(str, self.size)): True,
            "k{}x{}".format(*self.window): True,
            f"batch{self.batch}": self.batch > 1,
            "stride{}x{}".format(*self.stride): self.stride != (1, 1),
            self.padding.lower(): True,
            self.fused.lower(): self.fused != "NONE",
            f"zero{self.zero}": self.zero is not None,
            self.dtype: True,
        }
        return "-".join(part for part, is_said in parts.items() if is_said)

    def out_size(self) -> list[int]:
        sizes = zip(self.size[:2], self.window, self.stride, strict=True)
        return [output_size(*along, 1, self.padding) for along in sizes]

    def node(self) -> Node:
        scale = None if self.dtype == "float32" else self.scale
        zero = (128 if self.dtype == "uint8" else 0) if self.zero is None else self.zero
        zero = 0 if self.dtype == "int16" else zero
        return op(
            self.op,
            [t((self.batch, *self.size), self.dtype, scale, zero)],
            [t((self.batch, *self.out_size(), self.size[2]), self.dtype, scale, zero)],
            {
                "padding": self.padding,
                "filter_height": self.window[0],
                "filter_width": self.window[1],
                "stride_h": self.stride[0],
                "stride_w": self.stride[1],
                "fused_activation_function": self.fused,
            },
            version=1 if self.op == "L2_POOL_2D" else 2,
        )

    def model(self) -> bytes:
        return chain_model([self.node()])


@pytest.mark.parametrize(("op", "takes_max"), [("AVERAGE_POOL_2D", 0), ("MAX_POOL_2D", 1)])
def test_launch(op: str, takes_max: int) -> None:
    node = Pool(op=op, stride=(2, 1), batch=2, dtype="int8", fused="RELU6", scale=0.05).node()
    (plain,) = ops.lower(node, SIMT.target)
    launch = only_launch(plain)
    assert (plain.name, launch.file, launch.kernel) == ("plain", "pool_2d", "pool_2d_quant8")
    assert (launch.tiles, launch.group_items) == (2, 64)  # 2 x 4 x 5 x 3 elements
    assert launch.defines == {"ELEM": "char", "TAKES_MAX": takes_max}
    assert launch.params == {
        "input": node.inputs[0], "output": node.outputs[0], "in_h": 7, "in_w": 5, "out_h": 4,
        "out_w": 5, "kernel_h": 3, "kernel_w": 3, "stride_h": 2, "stride_w": 1, "dilation_h": 1,
        "dilation_w": 1, "pad_top": 1, "pad_left": 1, "depth": 3, "output_min": 0,
        "output_max": 120, "elements": 120, "tile_items": 64,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("way", "depth", "dtype", "names"),
    [
        (SIMT, 3, "int8", ["plain"]),
        (SIMT, 64, "int8", ["vector 4", "plain"]),
        (LANES_4, 5, "uint8", ["vector 4", "plain"]),
        (LANES_16, 7, "float32", ["vector 4", "plain"]),
        (LANES_16, 64, "uint8", ["vector 8", "plain"]),
        (LANES_16, 64, "float32", ["vector 16", "plain"]),
    ],
    ids=str,
)
def test_alternatives(way: Way, depth: int, dtype: str, names: list[str]) -> None:
    node = Pool(size=(7, 5, depth), dtype=dtype).node()
    assert [alternative.name for alternative in ops.lower(node, way.target)] == names


def test_the_greatest_of_16_bytes_at_once() -> None:
    node = Pool(op="MAX_POOL_2D", size=(7, 5, 24)).node()
    names = [alternative.name for alternative in ops.lower(node, LANES_16.target)]
    assert names == ["vector 16", "plain"]


def test_a_tile_visits_no_more_pixels_than_a_window_may_have() -> None:
    node = Pool(size=(200, 300, 64), window=(200, 300), padding="VALID").node()
    launch = only_launch(ops.lower(node, LANES_8.target)[0])
    assert (launch.params["items"], launch.params["tile_items"]) == (8, 1)
    node = Pool(size=(20, 30, 640), window=(20, 30)).node()
    launch = only_launch(ops.lower(node, LANES_8.target)[0])
    assert launch.params["tile_items"] == 100


def test_float_launch() -> None:
    node = Pool(op="MAX_POOL_2D", size=(7, 5, 9), dtype="float32", fused="RELU6").node()
    vector, plain = (only_launch(found) for found in ops.lower(node, LANES_8.target))
    assert (vector.file, vector.kernel) == ("pool_2d", "pool_2d_vector_float")
    assert (plain.file, plain.kernel) == ("pool_2d", "pool_2d_float")
    assert vector.defines == {"TAKES_MAX": 1, "IS_L2": 0, "LANES": 8}
    assert plain.defines == {"TAKES_MAX": 1, "IS_L2": 0}
    assert (vector.params["output_min"], vector.params["output_max"]) == (0, 0x40C00000)
    assert (vector.params["items"], vector.params["channel_blocks"]) == (7 * 5 * 2, 2)
    assert vector.group_items == 1


NODE = Pool().node()
FLOAT_NODE = Pool(dtype="float32").node()
REFUSALS: dict[str, tuple[Node, str]] = {
    "rank_3": (changed(NODE, 0, shape=(7, 5, 3)), "shapes 7x5x3 -> 1x7x5x3: only rank 4 (NHWC)"),
    "empty": (changed(NODE, 0, shape=(1, 7, 5, 0)), "shapes 1x7x5x0 -> 1x7x5x3: they are empty"),
    "absent_options_table": (
        replace(
            NODE, options=dict.fromkeys(NODE.options, 0) | {"fused_activation_function": "NONE"}
        ),
        "kernel 0x0, stride 0x0, dilation 1x1: each must be at least 1",
    ),
    "text_as_filter": (
        changed(NODE, options={"filter_width": "3"}),
        "filter_width is '3': an int32 is needed",
    ),
    "huge_filter": (
        changed(NODE, options={"filter_width": 2**31}),
        f"filter_width is {2**31}: an int32 is needed",
    ),
    "no_options": (
        replace(NODE, options={}),
        "kernel 0x0, stride 0x0, dilation 1x1: each must be at least 1",
    ),
    # TFLite clamps by numbers that it never set.
    "bound": (
        replace(
            changed(NODE, options={"fused_activation_function": "RELU6"}),
            inputs=(replace(NODE.inputs[0], quantization=quantization(2.0**-33, 3)),),
            outputs=(replace(NODE.outputs[0], quantization=quantization(2.0**-33, 3)),),
        ),
        f"activation bound 6.0 at scale {2.0**-33}: beyond 32 bits",
    ),
    "padding": (changed(NODE, options={"padding": 2}), "padding 2: only SAME and VALID exist"),
    "channels": (changed(NODE, -1, shape=(1, 7, 5, 4)), "3 channels in, 4 out: they must be equal"),
    "batch": (changed(NODE, -1, shape=(2, 7, 5, 3)), "batch 1 in, 2 out: they must be equal"),
    "output_size": (changed(NODE, -1, shape=(1, 6, 5, 3)), "output 6x5: the window gives 7x5"),
    "window_too_large": (
        changed(NODE, options={"padding": "VALID", "filter_height": 9}),
        "output 7x5: the window gives 0x3",
    ),
    "int32": (retyped(NODE, "int32"), "int32: only uint8 and int8 and int16 are implemented"),
    "l2_of_bytes": (Pool(op="L2_POOL_2D").node(), "uint8: only float32 is implemented"),
    "large_window": (
        Pool(size=(300, 300, 3), window=(300, 201)).node(),
        "a window of 60300 pixels: at most 60000 are implemented",
    ),
    "from_float32": (
        changed(NODE, 0, dtype="float32"),
        "float32 in, uint8 out: they must be equal",
    ),
    "float_fused_tanh": activated(FLOAT_NODE, "TANH"),
    "signedness_changes": (
        changed(NODE, -1, dtype="int8"),
        "uint8 in, int8 out: they must be equal",
    ),
    "scale_changes": (
        changed(NODE, -1, quantization=quantization(0.5, 128)),
        "the scale or zero point changes: TFLite's kernel would not rescale",
    ),
    "without_quantisation": unquantised(NODE, 0),
    "fused_tanh": activated(NODE, "TANH"),
    "no_input": (replace(NODE, inputs=()), "0 inputs: 1 expected"),
    "two_inputs": (replace(NODE, inputs=NODE.inputs * 2), "2 inputs: 1 expected"),
    "no_output": (replace(NODE, outputs=()), "0 outputs: 1 is expected"),
}

test_refusal = refused(REFUSALS)

GEOMETRY = [
    Pool(size=size, window=window, stride=stride, padding=padding, batch=batch)
    for size, window, stride, padding, batch in [
        ((7, 5, 3), (3, 3), (1, 1), "SAME", 1),
        ((7, 5, 3), (3, 3), (2, 2), "SAME", 2),
        ((7, 5, 3), (2, 3), (1, 2), "VALID", 1),
        ((7, 7, 11), (7, 7), (1, 1), "VALID", 1),
        ((3, 2, 5), (7, 7), (1, 1), "SAME", 1),
        ((13, 11, 1), (2, 2), (3, 5), "SAME", 3),
        ((1, 1, 1), (1, 1), (1, 1), "SAME", 1),
        ((1, 1, 64), (1, 1), (1, 1), "VALID", 1),
        ((1, 1, 63), (1, 1), (1, 1), "VALID", 1),
        ((1, 1, 65), (1, 1), (1, 1), "VALID", 2),
    ]
]
UINT8 = [
    *GEOMETRY,
    *(Pool(fused=fused) for fused in FUSED[1:]),
    *(Pool(zero=zero, fused=fused) for zero in (0, 255) for fused in ("RELU", "RELU_N1_TO_1")),
]
INT8 = [
    *(replace(case, dtype="int8") for case in [*GEOMETRY, *UINT8[len(GEOMETRY) :][:3]]),
    *(Pool(zero=zero, fused="RELU_N1_TO_1", dtype="int8") for zero in (-128, 127)),
]
INT16 = [
    *(replace(case, dtype="int16", scale=0.001) for case in GEOMETRY[1:6:2]),
    *(Pool(fused=fused, dtype="int16", scale=0.001) for fused in FUSED[1:]),
]
CASES = [replace(case, op=op) for case in (*UINT8, *INT8, *INT16) for op in OPS]


WIDE = [
    Pool(op=op, size=(5, 3, depth), dtype=dtype, zero=zero, batch=2)
    for op in OPS
    for dtype, zero in (("uint8", 0), ("int8", 127), ("int16", 0))
    for depth in (4, 8, 17)
]


@pytest.mark.parametrize("way", [PLAIN, SIMT, LANES_4, LANES_16], ids=str)
@pytest.mark.parametrize("case", [*CASES, *WIDE], ids=str)
def test_pool_2d(case: Pool, way: Way, device: DeviceInfo) -> None:
    taken = assert_exact_way(case.model(), device, way)
    has_vector = way is not PLAIN and case.size[2] >= 4
    assert {name.split()[0] for name in taken} == {"vector" if has_vector else "plain"}


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16"])
def test_every_average(dtype: str, device: DeviceInfo) -> None:
    # Every sum of windows of 1 to 15 pixels a side, as far as one picture has them; ties, too.
    for side in range(1, 16):
        size = (15 + side, 64, 8)
        model = Pool(size=size, window=(side, side), padding="VALID", dtype=dtype).model()
        for way in (LANES_4, LANES_16):
            assert_exact_way(model, device, way, seed=side)


FLOATS = [
    replace(case, op=op, dtype="float32", size=(*case.size[:2], depth))
    for op in OPS
    for case in (*GEOMETRY, *(Pool(fused=fused) for fused in FUSED[1:]))
    for depth in {case.size[2], 19}
]


@pytest.mark.parametrize("way", [SIMT, LANES_4, LANES_8, LANES_16], ids=str)
@pytest.mark.parametrize("case", FLOATS, ids=str)
def test_pool_2d_float(case: Pool, way: Way, device: DeviceInfo) -> None:
    assert_float_ways(case.node(), device, way)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("alternative", ["vector", "plain"])
def test_nan_and_infinity(op: str, alternative: str, device: DeviceInfo) -> None:
    # NaN is no maximum, but makes an average NaN.
    node = Pool(op=op, size=(7, 9, 8), dtype="float32").node()
    values = np.ones((1, 7, 9, 8), np.float32)
    values[0, 1, 1], values[0, 5, 5], values[0, 1, 7] = np.nan, np.inf, -np.inf
    model = chain_model([node])
    with forced(replace(LANES_8, alternative=alternative)):
        delegate = OpenCLDelegate(model, device.index, tune="off")
        ours, reference = interpreter(model, delegate), interpreter(model)
    assert refusals(delegate) == {}
    got, expected = invoke(ours, [values])[0], invoke(reference, [values])[0]
    assert np.isnan(expected).any() == (op == "AVERAGE_POOL_2D")
    assert_close(got, expected, 1e-6, op)


L2 = [
    replace(case, op="L2_POOL_2D", dtype="float32", size=(*case.size[:2], 19))
    for case in (*GEOMETRY[:7], *(Pool(fused=fused) for fused in FUSED[1:]))
]


def l2_bounds(case: Pool) -> Callable[[Arrays], Bounds]:
    """Return how far roots may lie apart: their squares are averages of squares."""
    average = replace(case, op="AVERAGE_POOL_2D", fused="NONE").node()

    def bounds(inputs: Arrays) -> Bounds:
        squares = inputs[0].astype(np.float64) ** 2
        roots = np.sqrt(exact_doubles(average, squares)[0])
        # Squares of less than 2^-63 are no normal floats.
        return [sum_bound(roots, case.window[0] * case.window[1]) + 2.0**-62]

    return bounds


@pytest.mark.parametrize("way", [LANES_4, LANES_16], ids=str)
@pytest.mark.parametrize("case", L2, ids=str)
def test_l2_pool_2d(case: Pool, way: Way, device: DeviceInfo) -> None:
    assert_float_ways(case.node(), device, way, l2_bounds(case))


@pytest.mark.parametrize("alternative", ["vector", "plain"])
def test_roots_of_squares(alternative: str, device: DeviceInfo) -> None:
    # A window of one: the root of a square, within two places of the number itself.
    case = Pool(op="L2_POOL_2D", size=(64, 64, 8), window=(1, 1), dtype="float32")
    rng = np.random.default_rng(0)
    values = (rng.uniform(1, 2, (1, 64, 64, 8)) * 2.0 ** rng.integers(-60, 60)).astype(np.float32)
    values[0, 0, 0, :3] = 0, np.inf, -np.inf
    with forced(replace(LANES_8, alternative=alternative)):
        assert_within(
            case.model(), device, lambda inputs: [2 * np.spacing(inputs[0]).astype(float)],
            inputs=[[values]],
        )  # fmt: skip


@st.composite
def pools(draw: st.DrawFn) -> Pool:
    dtype = draw(DTYPES | st.just("int16"))
    case = Pool(
        op=draw(st.sampled_from(OPS)),
        size=(draw(st.integers(1, 13)), draw(st.integers(1, 13)), draw(st.integers(1, 19))),
        window=(draw(st.integers(1, 5)), draw(st.integers(1, 5))),
        batch=draw(st.integers(1, 3)),
        stride=(draw(st.integers(1, 6)), draw(st.integers(1, 6))),
        padding="VALID",
        fused=draw(st.sampled_from(FUSED)),
        dtype=dtype,
        scale=draw(scales()),
        zero=0 if dtype == "int16" else draw(zero_points(dtype)),
    )
    fits = min(case.out_size()) > 0 and draw(st.booleans())
    return case if fits else replace(case, padding="SAME")


test_drawn_pool_2d = drawn(pools(), WAYS)


@given(case=pools(), way=DRAWN_WAYS)
def test_drawn_pool_2d_float(device: DeviceInfo, case: Pool, way: Way) -> None:
    assert_float_or_refused(replace(case, dtype="float32").node(), device, way)


@given(case=pools(), way=DRAWN_WAYS)
def test_drawn_l2_pool_2d(device: DeviceInfo, case: Pool, way: Way) -> None:
    case = replace(case, op="L2_POOL_2D", dtype="float32")
    assert_float_or_refused(case.node(), device, way, l2_bounds(case))


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [
        *(Pool(op=op, size=(size, size, channels), dtype=dtype).node() for op in OPS),
        Pool(op="L2_POOL_2D", size=(size, size, channels), dtype="float32").node(),
    ]


NODES = {f"{op}_float": Pool(op=op, dtype="float32").node() for op in OPS}
BUILT = [
    *(Pool(op=op, size=(5, 5, 17), dtype="int16").node() for op in OPS),
    *(
        Pool(op=op, size=(size, size, channels), window=(2, 2), dtype="float32").node()
        for op in OPS
        for size in SIZES
        for channels in CHANNELS
    ),
]
