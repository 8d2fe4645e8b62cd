# SPDX-License-Identifier: Apache-2.0
"""FULLY_CONNECTED: what it lowers to, what it refuses, and its numbers against TFLite's."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, Node, Tensor, ops
from delegate.launch import Rules, Target
from tests.support.cases import (
    DRAWN_WAYS,
    DTYPES,
    FUSED,
    LANES_8,
    PLAIN,
    SEEDS,
    SIMT,
    WAYS,
    Way,
    assert_exact_or_refused,
    assert_exact_way,
    changed,
    integers,
    multipliers,
    only_launch,
    quantization,
    refusal,
    zero_points,
)
from tests.support.model import chain_model, const, op, t


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One FULLY_CONNECTED by its parameters."""

    shape: tuple[int, ...] = (3, 11)
    out_c: int = 8
    in_c: int = 0  # 0: the last size of the shape
    fused: str = "NONE"
    dtype: str = "uint8"
    has_bias: bool = True
    keeps_dims: bool = False
    zeros: tuple[int, int, int] | None = None  # of input, weights, output
    multiplier: float = 2.0**-9  # real: input scale * weight scale / output scale

    def __str__(self) -> str:
        parts = {
            "in" + "x".join(map(str, self.shape)): True,
            f"rows_of_{self.in_c}": self.in_c > 0,
            f"out{self.out_c}": True,
            self.fused.lower(): self.fused != "NONE",
            "no_bias": not self.has_bias,
            "keep_num_dims": self.keeps_dims,
            "zeros{}_{}_{}".format(*self.zeros or "---"): self.zeros is not None,
            f"multiplier{self.multiplier:g}": self.multiplier != 2.0**-9,
            self.dtype: True,
        }
        return "-".join(part for part, is_said in parts.items() if is_said)

    def node(self, seed: int = 0) -> Node:
        in_c = self.in_c or self.shape[-1]
        rows = int(np.prod(self.shape)) // in_c
        out_shape = (*self.shape[:-1], self.out_c) if self.keeps_dims else (rows, self.out_c)
        in_zero, weight_zero, out_zero = self.zeros or (
            (131, 135, 123) if self.dtype == "uint8" else (3, 0, -5)
        )
        in_scale, weight_scale = 0.0625, 0.03125  # so that simple multipliers give ties
        bias = np.random.default_rng(seed).integers(-(2**12), 2**12, self.out_c).astype(np.int32)
        bias_scale = float(np.float32(in_scale) * np.float32(weight_scale))
        return op(
            "FULLY_CONNECTED",
            [
                t(self.shape, self.dtype, in_scale, in_zero),
                const(integers((self.out_c, in_c), self.dtype, seed), weight_scale, weight_zero),
                const(bias, bias_scale) if self.has_bias else None,
            ],
            [t(out_shape, self.dtype, in_scale * weight_scale / self.multiplier, out_zero)],
            {"fused_activation_function": self.fused, "keep_num_dims": self.keeps_dims},
            version=4,
        )

    def model(self, seed: int = 0) -> bytes:
        return chain_model([self.node(seed)])


# What lower() returns.


@pytest.mark.parametrize(
    ("way", "out_c", "names"),
    [
        (SIMT, 3, ["plain"]),
        (SIMT, 11, ["float4 1x8", "plain"]),
        (LANES_8, 8, ["tiled 8x1", "plain"]),
        (LANES_8, 16, ["tiled 8x2", "plain"]),
    ],
    ids=str,
)
def test_alternatives_of_the_convolution(way: Way, out_c: int, names: list[str]) -> None:
    found = ops.lower(Product(out_c=out_c).node(), way.target)
    assert [alternative.name for alternative in found] == names
    assert all(only_launch(alternative).file.startswith("conv_2d") for alternative in found)


@pytest.mark.parametrize("twice", [False, True], ids=["ai-edge-litert", "tflite-runtime"])
def test_rounding_of_the_runtime(twice: bool) -> None:
    target = Target(rules=Rules(fully_connected_double_rounding=twice))
    for alternative in ops.lower(Product().node(), target):
        assert only_launch(alternative).defines["SINGLE_ROUNDING"] == int(not twice)


def test_plain_launch() -> None:
    node = Product(shape=(5, 2, 11), out_c=17).node()
    launch = only_launch(ops.lower(node, SIMT.target)[-1])
    assert (launch.tiles, launch.group_items) == (3, 64)  # 10 rows of 17
    assert launch.params["elements"] == 170
    assert (launch.params["in_c"], launch.params["out_c"]) == (11, 17)
    assert (launch.reads, launch.writes) == (node.inputs[:1], node.outputs)


# What it refuses.

NODE = Product().node()
INT8 = Product(dtype="int8").node()
REFUSALS: dict[str, tuple[Node, str]] = {
    "rank_4_weights": (
        changed(NODE, 1, shape=(8, 1, 1, 11)),
        "weights 8x1x1x11: rank 2 (OI) is needed",
    ),
    "empty_weights": (changed(NODE, 1, shape=(8, 0)), "weights 8x0: rank 2 (OI) is needed"),
    "input_no_rows": (changed(NODE, 0, shape=(3, 10)), "input 3x10: no rows of 11"),
    "scalar_input": (changed(NODE, 0, shape=()), "input scalar: no rows of 11"),
    "empty_input": (changed(NODE, 0, shape=(0, 11)), "input 0x11: no rows of 11"),
    "output_size": (changed(NODE, -1, shape=(3, 9)), "output 3x9: 3 rows of 8 are computed"),
    "shuffled_weights": (
        changed(NODE, options={"weights_format": "SHUFFLED4x16INT8"}),
        "weights format SHUFFLED4x16INT8: only DEFAULT",
    ),
    "computed_weights": (changed(NODE, 1, data=None), "weights are not constant"),
    "sparse_weights": (
        changed(NODE, 1, data=None, is_sparse=True),
        "input 1 is sparse: only dense tensors are implemented",
    ),
    "per_channel": (
        changed(INT8, 1, quantization=quantization([0.5] * 8)),
        "per-channel weights: only one scale a tensor is implemented here",
    ),
    "int16": (
        changed(changed(NODE, 0, dtype="int16"), -1, dtype="int16"),
        "int16 in, int16 out: only uint8 or int8 in both are implemented",
    ),
    "float32_output": (
        changed(NODE, -1, dtype="float32"),
        "uint8 in, float32 out: only uint8 or int8 in both are implemented",
    ),
    "hybrid": (changed(NODE, 1, dtype="int8"), "int8 weights with uint8 activations"),
    "without_quantisation": (
        changed(NODE, 0, quantization=None),
        "uint8 without quantisation: scale and zero point are missing",
    ),
    "weight_zero_point_outside": (
        changed(INT8, 1, quantization=quantization(0.5, 255)),
        "zero point 255: outside int8",
    ),
    "bias_int64": (
        changed(NODE, 2, dtype="int64"),
        "bias int64 of (8,): int32 of (8,) is needed",
    ),
    "computed_bias": (changed(NODE, 2, data=None), "the bias is not a constant"),
    "fused_tanh": (
        changed(NODE, options={"fused_activation_function": "TANH"}),
        "fused activation TANH: only NONE, RELU, RELU6, RELU_N1_TO_1",
    ),
    # With weights of another format TFLite has a second output for scratch.
    "two_outputs": (replace(NODE, outputs=NODE.outputs * 2), "2 outputs: 1 is expected"),
}


@pytest.mark.parametrize(("node", "reason"), REFUSALS.values(), ids=REFUSALS)
def test_refusal(node: Node, reason: str) -> None:
    assert refusal(node) == reason


@pytest.mark.parametrize("inputs", [(), (0,), (None, 1), (0, 1, 2, 2)], ids=str)
def test_wrong_inputs(inputs: tuple[int | None, ...]) -> None:
    tensors: tuple[Tensor | None, ...] = tuple(
        None if i is None else NODE.inputs[i] for i in inputs
    )
    assert refusal(replace(NODE, inputs=tensors)) == f"{len(inputs)} inputs: 2 to 3 expected"


# Its numbers.

SHAPES = [
    Product(shape=shape, out_c=out_c)
    for shape, out_c in [
        ((1, 1), 1),
        ((1, 2), 3),
        ((1, 61), 16),
        ((3, 11), 4),
        ((4, 11), 5),
        ((5, 7), 8),
        ((8, 16), 15),
        ((2, 64), 17),
        ((1, 33), 31),
        ((1, 5), 32),
        ((1, 7), 33),
        ((2, 3, 5, 7), 9),
        ((7,), 9),
    ]
] + [
    Product(shape=(2, 3, 7), out_c=9, keeps_dims=True),
    Product(shape=(2, 3, 4), in_c=12, out_c=5),
    Product(shape=(2, 3, 4), in_c=6, out_c=9),
]
CASES = [
    *SHAPES,
    *(replace(case, dtype="int8") for case in SHAPES),
    *(Product(fused=fused, dtype=dtype) for fused in FUSED[1:] for dtype in ("uint8", "int8")),
    *(Product(has_bias=False, dtype=dtype) for dtype in ("uint8", "int8")),
    *(Product(zeros=(i, w, o)) for i in (0, 255) for w in (0, 255) for o in (0, 255)),
    *(Product(zeros=(i, 0, o), dtype="int8") for i in (-128, 127) for o in (-128, 127)),
    *(
        Product(multiplier=multiplier, dtype=dtype)
        for multiplier in (1 / 6, 0.1, 1 / 14, 0.99, 1.0, 1.7, 300.0, 2.0**-20, 1e-9, 1e-12)
        for dtype in ("uint8", "int8")
    ),
]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_fully_connected(case: Product, way: Way, device: DeviceInfo) -> None:
    taken = assert_exact_way(case.model(), device, way)
    blocked = "float4" if way is SIMT else "tiled"
    assert {name.split()[0] for name in taken} == {
        blocked if way is not PLAIN and case.out_c >= 4 else "plain"
    }


@pytest.mark.parametrize("way", [PLAIN, SIMT, LANES_8], ids=str)
def test_more_terms_than_a_driver_counts(way: Way, device: DeviceInfo) -> None:
    # llvmpipe leaves a loop after 65535 rounds; 2048 channels of 7 x 7 pixels are more terms.
    case = Product(shape=(1, 7 * 7 * 2048), out_c=8, multiplier=2.0**-14)
    assert assert_exact_way(case.model(), device, way)


@st.composite
def products(draw: st.DrawFn) -> Product:
    dtype = draw(DTYPES)
    shape = draw(st.lists(st.integers(1, 7), min_size=1, max_size=3))
    return Product(
        shape=(*shape[:-1], draw(st.integers(1, 70))),
        out_c=draw(st.integers(1, 40)),
        fused=draw(st.sampled_from(FUSED)),
        dtype=dtype,
        has_bias=draw(st.booleans()),
        keeps_dims=draw(st.booleans()),
        zeros=(draw(zero_points(dtype)), draw(zero_points(dtype)), draw(zero_points(dtype))),
        multiplier=draw(multipliers(-14, 3)),
    )


@given(case=products(), way=DRAWN_WAYS, seed=SEEDS)
def test_drawn_fully_connected(device: DeviceInfo, case: Product, way: Way, seed: int) -> None:
    assert_exact_or_refused(case.model(seed), device, way, seed)
