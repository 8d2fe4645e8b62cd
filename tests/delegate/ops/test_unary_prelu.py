# SPDX-License-Identifier: Apache-2.0
"""PRELU: its launches, what it refuses, and its numbers against TFLite's."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.host.tflite.library import installed_rules
from delegate.inspect import Node
from delegate.target import Rules
from tests.support.activations import floats_of_all_sizes
from tests.support.cases import (
    DTYPES,
    GROUPS,
    LANES_8,
    SIMT,
    Way,
    assert_exact_way,
    changed,
    integers,
    only_launch,
    quantization,
    refusal,
    retyped,
    scales,
    zero_points,
)
from tests.support.factories import drawn, exact, refused
from tests.support.model import chain_model, const, op, t
from tests.support.pairs import every_pair
from tests.support.refusals import sparse, unquantised


@dataclass(frozen=True, slots=True, kw_only=True)
class Prelu:
    """One PRELU by its parameters: of the input, alpha and the output."""

    shape: tuple[int, ...] = (1, 5, 7, 11)
    alpha: tuple[int, ...] = (1, 1, 11)
    dtype: str = "uint8"
    scales: tuple[float, float, float] = (0.1, 0.02, 0.07)
    zeros: tuple[int, int, int] = (121, 3, 128)
    is_constant: bool = True

    def __str__(self) -> str:
        parts = {
            "in" + "x".join(map(str, self.shape)): True,
            "alpha" + "x".join(map(str, self.alpha)): True,
            "scales{:g}_{:g}_{:g}".format(*self.scales): self.scales != (0.1, 0.02, 0.07),
            "zeros{}_{}_{}".format(*self.zeros): self.zeros != (121, 3, 128),
            "computed": not self.is_constant,
            self.dtype: True,
        }
        return "-".join(part for part, is_said in parts.items() if is_said)

    def node(self) -> Node:
        is_float = self.dtype == "float32"
        own = [None if is_float else scale for scale in self.scales]
        zeros = (0, 0, 0) if is_float else self.zeros
        alpha_type = "int8" if self.dtype == "int16" else self.dtype
        alpha = t(self.alpha, alpha_type, own[1], zeros[1])
        if self.is_constant:
            values = (
                np.random.default_rng(0).standard_normal(self.alpha).astype(np.float32)
                if is_float
                else integers(self.alpha, alpha_type)
            )
            alpha = const(values, own[1], zeros[1])
        source = t(self.shape, self.dtype, own[0], zeros[0])
        return op("PRELU", [source, alpha], [t(self.shape, self.dtype, own[2], zeros[2])])

    def model(self) -> bytes:
        return chain_model([self.node()])


@pytest.mark.parametrize(
    ("case", "sizes", "steps"),
    [
        (Prelu(), [1, 1, 35, 11], [0, 0, 0, 1]),
        (Prelu(alpha=(1,)), [1, 1, 1, 385], [0, 0, 0, 0]),
        (Prelu(alpha=(5, 7, 11)), [1, 1, 1, 385], [0, 0, 0, 1]),
        (Prelu(shape=(2, 5, 7, 11), alpha=(5, 1, 11)), [2, 5, 7, 11], [0, 11, 0, 1]),
    ],
    ids=str,
)
def test_launch(case: Prelu, sizes: list[int], steps: list[int]) -> None:
    row, plain = ops.lower(case.node(), LANES_8.target)
    assert [each.name for each in ops.lower(case.node(), SIMT.target)] == ["plain"]
    assert (row.name, only_launch(row).kernel) == ("row", "prelu_row_quant8")
    launch = only_launch(plain)
    assert (launch.file, launch.kernel, launch.tiles) == ("prelu", "prelu_quant8", 1)
    assert [launch.params[f"size_{i}"] for i in range(4)] == sizes
    assert [launch.params[f"step_{i}"] for i in range(4)] == steps


NODE = Prelu().node()
REFUSALS: dict[str, tuple[Node, str]] = {
    "types_differ": (changed(NODE, 1, dtype="int8"), "uint8, alpha int8: uint8 expected"),
    "result_differs": (changed(NODE, -1, dtype="int8"), "uint8 -> int8: must be equal"),
    "alpha_of_16_bits": (retyped(NODE, "int16", (0, 1, -1)), "int16, alpha int16: int8 expected"),
    "int32": (retyped(NODE, "int32", (0, 1, -1)), "int32: only float32, uint8, int8, int16"),
    "shape_changes": (changed(NODE, -1, shape=(385,)), "1x5x7x11 -> 385: the shape must stay"),
    "alpha_is_not_broadcast": (Prelu(alpha=(7,)).node(), "7 cannot be broadcast to 1x5x7x11"),
    "alpha_of_higher_rank": (
        Prelu(alpha=(1, 1, 1, 1, 11)).node(),
        "more dimensions than the result's 4",
    ),
    "empty": (changed(changed(NODE, 0, shape=(0,)), -1, shape=(0,)), "shape 0: it is empty"),
    "without_quantisation": unquantised(NODE, 1),
    "scale_ratio": (
        changed(NODE, -1, quantization=quantization(1e-12)),
        "a scale ratio of 2^37: more than 2^30",
    ),
    "five_that_differ": (
        Prelu(shape=(2, 3, 2, 3, 2), alpha=(2, 1, 2, 1, 2)).node(),
        "5 dimensions that differ: at most 4 are implemented",
    ),
    "sparse": sparse(NODE, 1),
    "one_input": (replace(NODE, inputs=NODE.inputs[:1]), "1 inputs: 2 expected"),
    "no_output": (replace(NODE, outputs=()), "0 outputs: 1 is expected"),
}

test_refusal = refused(REFUSALS)


HAS_INT16 = installed_rules().newer_types
INT16 = Prelu(dtype="int16", zeros=(0, 0, 0))


def test_older_runtime_has_no_int16() -> None:
    older = replace(SIMT.target, rules=Rules(newer_types=False))
    assert refusal(INT16.node(), older) == "int16: PRELU fails in this TFLite"


SHAPES = [
    *((shape, (1, 1, shape[-1])) for shape in [(1, 5, 7, 11), (2, 16, 33, 8), (1, 1, 1, 1)]),
    *(((2, 3, 5, 8), alpha) for alpha in [(1,), (8,), (3, 1, 1), (3, 5, 8), (3, 1, 8)]),
    *(((2, 3, 5, 8), alpha) for alpha in [(2, 1, 5, 1), (2, 3, 5, 8)]),
    *(((n,), (n,)) for n in (63, 64, 65, 4097)),
    ((3, 4097), (4097,)),
]
CASES = [
    *(Prelu(shape=shape, alpha=alpha, dtype="float32") for shape, alpha in SHAPES),
    *(Prelu(shape=shape, alpha=alpha) for shape, alpha in SHAPES),
    Prelu(is_constant=False),
    Prelu(is_constant=False, dtype="float32"),
    *(
        Prelu(dtype="int8", zeros=zeros, scales=scales)
        for zeros in ((0, 0, 0), (-128, 127, -128), (127, -128, 127))
        for scales in ((0.1, 0.02, 0.07), (0.5, 0.5, 0.25), (1.0, 1e-6, 1e-3))
    ),
    *(
        replace(INT16, **fields)
        for fields in (
            {},
            {"alpha": (1,)},
            {"zeros": (0, -7, 0)},
            {"is_constant": False},
            {"shape": (2, 3, 5, 8), "alpha": (3, 1, 8)},
            {"shape": (4097,), "alpha": (4097,), "scales": (0.5, 0.5, 0.25)},
        )
        if HAS_INT16
    ),
]
WAYS = (*GROUPS, replace(LANES_8, name="lanes8-plain", alternative="plain"))

test_prelu = exact(CASES, WAYS)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_every_pair(dtype: str, way: Way, device: DeviceInfo) -> None:
    case = Prelu(shape=(256, 256), alpha=(256, 256), dtype=dtype, is_constant=False)
    zeros = (121, 3, 128) if dtype == "uint8" else (3, -8, 5)
    assert_exact_way(replace(case, zeros=zeros).model(), device, way, inputs=[every_pair(dtype)])


@pytest.mark.skipif(not HAS_INT16, reason="PRELU of int16 fails in this TFLite")
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("scales", [(0.001, 0.01, 0.0007), (0.25, 1.0, 0.25)], ids=str)
def test_every_16_bit_value(
    scales: tuple[float, float, float], way: Way, device: DeviceInfo
) -> None:
    every = np.arange(-(1 << 15), 1 << 15).astype(np.int16)
    alphas = integers((16, 1), "int8").ravel().tolist()[:12]
    alpha = np.array([-128, 127, 0, 1, *alphas], np.int8).reshape(16, 1)
    case = replace(INT16, shape=(16, 65536), alpha=(16, 1), is_constant=False, scales=scales)
    assert_exact_way(case.model(), device, way, inputs=[[np.tile(every, (16, 1)), alpha]])


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_floats_of_all_sizes(way: Way, device: DeviceInfo) -> None:
    values = floats_of_all_sizes()
    values = values[(abs(values) > 1e-30) | (values == 0)]  # a device may take less for zero
    case = Prelu(shape=values.shape, alpha=(1,), dtype="float32")
    assert_exact_way(case.model(), device, way, inputs=[[values]])


@st.composite
def prelus(draw: st.DrawFn) -> Prelu:
    dtype = draw(DTYPES | st.sampled_from(["float32", "int16"] if HAS_INT16 else ["float32"]))
    shape = tuple(draw(st.lists(st.integers(1, 11), min_size=1, max_size=4)))
    kept = [n if draw(st.booleans()) else 1 for n in shape]
    zeros = (
        st.just(0) if dtype == "int16" else zero_points(dtype if dtype != "float32" else "uint8")
    )
    return Prelu(
        shape=shape,
        alpha=tuple(kept[draw(st.integers(0, len(kept) - 1)) :]),
        dtype=dtype,
        scales=(draw(scales()), draw(scales()), draw(scales())),
        zeros=(draw(zeros), draw(zeros), draw(zeros)),
        is_constant=draw(st.booleans()),
    )


test_drawn_prelu = drawn(prelus(), WAYS)

NODES = {"PRELU": NODE}
BUILT = [
    Prelu(shape=(5, 40), alpha=(40,), dtype=dtype, zeros=zeros, is_constant=False).node()
    for dtype, zeros in (("uint8", (0, 0, 0)), ("int8", (0, 0, 0)), ("float32", (0, 0, 0)))
] + [INT16.node()]
