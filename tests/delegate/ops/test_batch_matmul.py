# SPDX-License-Identifier: Apache-2.0
"""BATCH_MATMUL: what it lowers to, what it refuses, and its numbers against TFLite's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Node, sum_bound
from delegate.target import Rules
from tests.support.cases import (
    DRAWN_WAYS,
    LANES_4,
    LANES_8,
    LANES_16,
    PLAIN,
    SIMT,
    WAYS,
    Way,
    assert_exact_way,
    changed,
    integers,
    multipliers,
    only_launch,
    quantization,
    refusal,
    retyped,
    zero_points,
)
from tests.support.compare import Arrays, Bounds
from tests.support.convolution import RULES
from tests.support.factories import assert_seeded_or_refused, drawn, refused
from tests.support.floats import assert_float_or_refused, assert_float_ways
from tests.support.model import chain_model, const, op, t
from tests.support.nodes import CHANNELS
from tests.support.refusals import sparse, unquantised


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One BATCH_MATMUL by its parameters."""

    m: int = 5
    k: int = 11
    n: int = 9
    batch: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())  # of the left and the right one
    adj_x: bool = False
    adj_y: bool = False
    dtype: str = "float32"
    right_dtype: str = ""  # "": the same
    is_constant: bool = False  # the right one
    zeros: tuple[int, int, int] = (3, -5, 7)
    multiplier: float = 2.0**-9  # real: left scale * right scale / output scale

    def __str__(self) -> str:
        parts = {
            f"{self.m}x{self.k}x{self.n}": True,
            "batch{}_{}".format(*("x".join(map(str, b)) or "1" for b in self.batch)): any(
                self.batch
            ),
            "adj_x": self.adj_x,
            "adj_y": self.adj_y,
            "zeros{}_{}_{}".format(*self.zeros): self.zeros != (3, -5, 7),
            f"multiplier{self.multiplier:g}": self.multiplier != 2.0**-9,
            "constant": self.is_constant,
            self.dtype: True,
            f"times_{self.right_dtype}": bool(self.right_dtype),
        }
        return "-".join(part for part, is_said in parts.items() if is_said)

    def node(self, seed: int = 0) -> Node:
        left_shape = (*self.batch[0], *((self.k, self.m) if self.adj_x else (self.m, self.k)))
        right_shape = (*self.batch[1], *((self.n, self.k) if self.adj_y else (self.k, self.n)))
        shape = (*np.broadcast_shapes(*self.batch), self.m, self.n)
        right_dtype = self.right_dtype or self.dtype
        scales: Any = [None] * 3
        if self.dtype != "float32":
            scales = 0.0625, 0.03125, 0.0625 * 0.03125 / self.multiplier
        zeros = (0, 0, 0) if self.dtype == "int16" else self.zeros
        right = t(right_shape, right_dtype, scales[1], zeros[1])
        if self.is_constant:
            values: Any = np.random.default_rng(seed).standard_normal(right_shape)
            if self.dtype != "float32":
                values = integers(right_shape, right_dtype, seed)
            right = const(values.astype(right_dtype), scales[1], zeros[1])
        return op(
            "BATCH_MATMUL",
            [t(left_shape, self.dtype, scales[0], zeros[0]), right],
            [t(shape, self.dtype, scales[2], zeros[2])],
            {"adj_x": self.adj_x, "adj_y": self.adj_y},
            version={"float32": 1, "int8": 2, "int16": 3}[self.dtype],
        )

    def model(self, seed: int = 0) -> bytes:
        return chain_model([self.node(seed)])

    def bounds(self, inputs: Arrays) -> Bounds:
        right = inputs[1] if len(inputs) > 1 else self.node().inputs[1].data  # type: ignore[union-attr]
        left, other = np.abs(inputs[0].astype(np.float64)), np.abs(np.asarray(right, np.float64))
        left = np.swapaxes(left, -1, -2) if self.adj_x else left
        other = np.swapaxes(other, -1, -2) if self.adj_y else other
        return [sum_bound(left @ other, self.k)]


# What lower() returns.


@pytest.mark.parametrize(
    ("way", "case", "names"),
    [
        (SIMT, Product(), ["vector 4x4", "plain"]),
        (SIMT, Product(n=3), ["plain"]),
        (LANES_8, Product(dtype="int8"), ["vector 8x4", "plain"]),
        (LANES_16, Product(m=3, adj_x=True), ["vector 16x1", "plain"]),
        (LANES_8, Product(adj_y=True), ["row 8x4", "plain"]),
        (LANES_4, Product(n=3, k=8, adj_y=True, dtype="int8"), ["row 4x1", "plain"]),
        (LANES_8, Product(k=3, adj_y=True), ["plain"]),
        (LANES_8, Product(adj_x=True, adj_y=True), ["plain"]),
        (LANES_8, Product(n=1), ["row 8x1", "plain"]),
        (LANES_8, Product(m=16, adj_y=True), ["turned vector 16x4", "row 8x4", "plain"]),
        (LANES_8, Product(m=16, k=3, adj_y=True), ["turned vector 16x4", "plain"]),
        (SIMT, Product(m=16, adj_y=True), ["row 4x4", "plain"]),
        (LANES_8, Product(dtype="int16"), ["plain"]),
    ],
    ids=str,
)
def test_vectors_then_plain(way: Way, case: Product, names: list[str]) -> None:
    found = ops.lower(case.node(), way.target)
    assert [alternative.name for alternative in found] == names


def test_steps_of_broadcast_matrices() -> None:
    case = Product(batch=((2, 1, 3), (4, 1)), adj_x=True)
    fields = only_launch(ops.lower(case.node(), SIMT.target)[-1]).params
    assert [fields[f"left_batch_{i}"] for i in range(3)] == [165, 0, 55]
    assert [fields[f"right_batch_{i}"] for i in range(3)] == [0, 99, 0]
    assert (fields["batch_1"], fields["batch_2"], fields["elements"]) == (4, 3, 24 * 45)
    assert (fields["left_row"], fields["left_term"]) == (1, 5)


def test_rows_that_a_runtime_mixes_up() -> None:
    target = replace(SIMT.target, rules=Rules(batch_matmul_mixes_rows=True))
    case = Product(batch=((3, 2), (3, 1)), adj_x=True)
    reason = "adj_x with one right matrix for several: this TFLite mixes up the rows"
    assert refusal(case.node(), target) == reason
    assert ops.lower(case.node(), SIMT.target)
    for other in (
        replace(case, adj_x=False),
        replace(case, batch=((3, 1), (3, 1))),
        replace(case, batch=((3, 2), (3, 2))),
        replace(case, batch=((3, 2), ())),
    ):
        assert ops.lower(other.node(), target)


# What it refuses.

NODE = Product().node()
INT8 = Product(dtype="int8").node()
INT16 = Product(dtype="int16", right_dtype="int8").node()
REFUSALS: dict[str, tuple[Node, str]] = {
    "uint8": (
        retyped(NODE, "uint8", (0, 1, -1)),
        "uint8 x uint8 -> uint8: no such kernel",
    ),
    "hybrid": (
        changed(NODE, 1, dtype="uint8"),
        "float32 x uint8 -> float32: no such kernel",
    ),
    "int32_output": (
        changed(INT8, -1, dtype="int32"),
        "int8 x int8 -> int32: no such kernel",
    ),
    "vector": (
        changed(NODE, 0, shape=(11,)),
        "shapes 11 x 11x9 -> 5x9: 2 to 5 dimensions are implemented",
    ),
    "6_dimensions": (
        changed(NODE, 1, shape=(1, 1, 1, 1, 11, 9)),
        "shapes 5x11 x 1x1x1x1x11x9 -> 5x9: 2 to 5 dimensions are implemented",
    ),
    "empty": (changed(NODE, 0, shape=(0, 11)), "shapes 0x11 x 11x9 -> 5x9: they are empty"),
    "terms": (
        changed(NODE, options={"adj_y": True}),
        "shapes 5x11 x 11x9 -> 5x9: 11 columns of the left one, 9 rows of the right one",
    ),
    "batches": (
        changed(changed(NODE, 0, shape=(2, 5, 11)), 1, shape=(3, 11, 9)),
        "shapes 2x5x11 x 3x11x9 -> 5x9: they cannot be broadcast together",
    ),
    "output": (changed(NODE, -1, shape=(1, 5, 9)), "shapes 5x11 x 11x9 -> 1x5x9: 5x9 is computed"),
    "many_terms": (
        changed(changed(NODE, 0, shape=(5, 65001)), 1, shape=(65001, 9)),
        "shapes 5x65001 x 65001x9 -> 5x9: 65001 terms a sum, at most 65000 are implemented",
    ),
    "without_quantisation": unquantised(INT8, 1),
    "per_channel": (
        changed(INT8, 1, quantization=quantization([0.5] * 9)),
        "9 scales: only one per tensor here",
    ),
    "int16_zero_point": (
        changed(INT16, 0, quantization=quantization(0.5, 1)),
        "int16 with zero point 1: it must be 0",
    ),
    "right_zero_point_with_int16": (
        changed(INT16, 1, quantization=quantization(0.5, 1)),
        "int8 with zero point 1: it must be 0",
    ),
    "scale_ratio": (
        changed(INT8, -1, quantization=quantization(1e-30)),
        "a scale ratio of 2^91: more than 2^30",
    ),
    "scale_ratio_of_int16": (
        changed(INT16, -1, quantization=quantization(1e-6)),
        "a scale ratio of 2^11: more than 2^7",
    ),
    "scales": (
        changed(
            changed(INT8, 0, quantization=quantization(3e38)), 1, quantization=quantization(2.0)
        ),
        f"scales {float(np.float32(3e38))} * 2.0: more than a float holds",
    ),
    "sparse": sparse(NODE, 1),
    "one_input": (replace(NODE, inputs=NODE.inputs[:1]), "1 inputs: 2 expected"),
}

test_refusal = refused(REFUSALS)


# Its numbers.

SHAPES = [
    Product(),
    Product(adj_y=True),
    Product(adj_x=True),
    Product(adj_x=True, adj_y=True),
    Product(m=1, k=1, n=1),
    Product(m=4, k=16, n=16, batch=((3,), (3,))),
    Product(m=7, k=17, n=33, batch=((2, 3), (3,)), adj_y=True),
    Product(m=3, k=5, n=19, batch=((2, 1, 3), (4, 1)), is_constant=True),
    Product(m=9, k=33, n=1, batch=((1, 2), (2, 1)), adj_y=True),
    Product(m=17, k=11, n=19, batch=((2, 1), (1, 3)), adj_y=True),
    Product(m=16, k=3, n=33, batch=((2,), ()), adj_x=True, adj_y=True),
    Product(m=20, is_constant=True, adj_y=True),
]
CASES = [
    *(replace(case, dtype=dtype) for case in SHAPES for dtype in ("int8", "int16")),
    *(Product(zeros=(a, b, -a - 1), dtype="int8") for a in (-128, 127) for b in (-128, 127)),
    *(Product(multiplier=m, dtype="int8") for m in (1.7, 2.0**-20, 1e-12)),
    *(Product(multiplier=m, dtype="int16", k=33) for m in (2.0**-18, 2.0**-15 / 3, 1.7)),
]


@pytest.mark.parametrize(
    ("case", "way"),
    [
        pytest.param(case, way, id=f"{case}-{way}")
        for case in CASES
        for way in ([PLAIN] if case.dtype == "int16" else [PLAIN, SIMT, LANES_16])
    ],
)
def test_batch_matmul(case: Product, way: Way, device: DeviceInfo) -> None:
    assert_exact_way(case.model(), device, way)


@pytest.mark.skipif(RULES.int16_sums_of_int32, reason="this TFLite has no such kernel")
@pytest.mark.parametrize("is_constant", [False, True])
def test_int16_times_int8(is_constant: bool, device: DeviceInfo) -> None:
    case = Product(dtype="int16", right_dtype="int8", is_constant=is_constant, adj_y=True)
    assert_exact_way(case.model(), device)


@pytest.mark.parametrize("way", [SIMT, LANES_4, LANES_8], ids=str)
@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_floats(case: Product, way: Way, device: DeviceInfo) -> None:
    assert_float_ways(case.node(), device, way, case.bounds)


def test_a_matrix_times_itself(device: DeviceInfo) -> None:
    square = t((2, 8, 8), "int8", 0.5, 3)
    node = op("BATCH_MATMUL", [square, square], [t((2, 8, 8), "int8", 20.0)], {}, version=2)
    assert_exact_way(chain_model([node]), device)


@st.composite
def products(draw: st.DrawFn, dtypes: tuple[str, ...]) -> Product:
    dtype = draw(st.sampled_from(dtypes))
    outer = draw(st.lists(st.integers(1, 3), max_size=3))
    batch = [
        tuple(size if draw(st.booleans()) else 1 for size in outer)[
            draw(st.integers(0, len(outer))) :
        ]
        for _ in range(2)
    ]
    # What tflite-runtime mixes up is refused there.
    mixed = RULES.int16_sums_of_int32 and batch[1][-1:] == (1,)
    return Product(
        m=draw(st.integers(1, 9)),
        k=draw(st.integers(1, 40)),
        n=draw(st.integers(1, 40)),
        batch=(batch[0], batch[1]),
        adj_x=draw(st.booleans()) and not mixed,
        adj_y=draw(st.booleans()),
        dtype=dtype,
        is_constant=draw(st.booleans()),
        zeros=(draw(zero_points("int8")), draw(zero_points("int8")), draw(zero_points("int8"))),
        multiplier=draw(multipliers(-20, 3)),
    )


test_drawn = drawn(products(("int8", "int16")), WAYS, assert_seeded_or_refused)


@given(case=products(("float32",)), way=DRAWN_WAYS)
def test_drawn_floats(device: DeviceInfo, case: Product, way: Way) -> None:
    assert_float_or_refused(case.node(), device, way, case.bounds)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [Product(m=size, k=channels, n=channels, dtype="int8").node()]


NODES = {
    "BATCH_MATMUL_float": Product(adj_y=True).node(),
    "BATCH_MATMUL_int16": Product(dtype="int16", right_dtype="int8", adj_y=True).node(),
}
BUILT = [
    Product(m=m, k=k, n=k, dtype=dtype, right_dtype=right, adj_y=adj_y).node()
    for m in (1, 5)
    for k in CHANNELS
    for dtype, right in (("float32", ""), ("int8", ""), ("int16", ""), ("int16", "int8"))
    for adj_y in (False, True)
]
