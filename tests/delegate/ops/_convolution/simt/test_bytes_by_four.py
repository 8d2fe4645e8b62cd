# SPDX-License-Identifier: Apache-2.0
"""What kernels in words share: how far floats reach, and the constants that scale results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from delegate.ops._checks.windows import Window
from delegate.ops._convolution.packing import alike_rows
from delegate.ops._convolution.records import Quant8Convolution
from delegate.ops._convolution.simt.bytes_by_four import exact_terms, may_use_floats, word_defines
from delegate.ops._numbers import fixed_point
from delegate.target import Target
from tests.support.model import t

AREA = Window(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0)
MULTIPLIER = 1518500250


def _convolution(weights: list[list[int]], zero: int, dtype: str = "uint8") -> Quant8Convolution:
    values = np.array(weights, dtype)[:, None]
    out_c, _, in_c = values.shape
    return Quant8Convolution(
        source=t((1, 1, 1, in_c), dtype, 0.5, 3),
        weights=values,
        input_zero=3,
        weight_zero=zero,
        output_zero=3,
        bias=np.zeros(out_c, np.int64),
        scaling=np.full((2, out_c), [[MULTIPLIER], [-7]], np.int32),
        clamp=(0, 255),
        result=t((1, 1, 1, out_c), dtype, 0.5, 3),
        batch=1,
        area=AREA,
    )


@pytest.mark.parametrize(
    ("weights", "zero", "dtype", "terms"),
    [
        ([[1] * 1000, [2] * 1000], 0, "uint8", 1000),
        # 255 * 65793 is 2^24 - 1: the first sum that may reach it
        ([[255] * 258], 0, "uint8", 258),
        ([[255] * 259], 0, "uint8", 258),
        ([[0] * 259], 255, "uint8", 258),
        ([[0] * 65793 + [1] * 65793], 0, "uint8", 2 * 65793),
        ([[0] * 65793 + [1] * 65794], 0, "uint8", 65793),
        ([[-128] * 1024], 0, "int8", 1023),
        ([[-128] * 1023, [0] * 1023], 0, "int8", 1023),
        ([[0] * 5000], 0, "int8", 5000),
    ],
    ids=[str(i) for i in range(9)],
)
def test_products_a_float_may_add_up(
    weights: list[list[int]], zero: int, dtype: str, terms: int
) -> None:
    conv = _convolution(weights, zero, dtype)
    assert exact_terms(conv) == terms
    farthest = int(np.abs(conv.centred()).max()) * (255 if dtype == "uint8" else 128)
    if terms < conv.weights[0].size:
        assert farthest * terms < 1 << 24 <= farthest * (terms + 1)


def test_a_depthwise_window_is_short() -> None:
    conv = Quant8Convolution(
        source=t((1, 1, 1, 2), "uint8", 0.5, 3),
        weights=np.full((2, 300, 1), 255, np.uint8),
        groups=2,
        input_zero=3,
        weight_zero=0,
        output_zero=3,
        bias=np.zeros(2, np.int64),
        scaling=np.zeros((2, 2), np.int32),
        clamp=(0, 255),
        result=t((1, 1, 1, 2), "uint8", 0.5, 3),
        batch=1,
        area=AREA,
    )
    assert exact_terms(conv) == 258
    assert exact_terms(replace(conv, weights=conv.weights[:, :258])) == 258


def test_words_lie_as_the_weights_rows_do() -> None:
    # FULLY_CONNECTED may take rows of 6 from a tensor whose last dimension is 4.
    conv = replace(_convolution([[1] * 6] * 8, 0), source=t((3, 4), "uint8", 0.5, 3))
    defines = word_defines(conv)
    assert (defines["IS_PACKED"], defines["IS_PACKED_OUT"]) == (0, 1)


def test_floats_need_a_proof_and_no_cpu() -> None:
    target = Target(device_type="gpu", isa=frozenset({"nearest"}))
    assert may_use_floats(target)
    assert not may_use_floats(replace(target, isa=frozenset()))
    assert not may_use_floats(replace(target, device_type="cpu"))


def test_rows_of_one_form() -> None:
    conv = _convolution([[1, 2], [3, 4]], 0)
    bias = np.array([5, -6])
    integers = alike_rows(conv, lambda: bias, uses_floats=False, block=2).pack()
    assert integers.tolist() == [[[5, -6], [MULTIPLIER] * 2, [-7] * 2]]
    (floats,) = alike_rows(conv, lambda: bias, uses_floats=True, block=2).pack()
    assert floats[0].tolist() == [5, -6]
    assert (floats[2] > 30).all()
    factor, offset = floats[1:].view(np.float32)
    sums = np.arange(-40_000, 40_000)
    scaled = np.rint(
        sums.astype(np.float32) * factor[0] + np.copysign(offset[0], sums).astype(np.float32)
    )
    expected = [fixed_point.multiply_by_quantized_multiplier(int(x), MULTIPLIER, -7) for x in sums]
    low, high = -3, 252
    assert np.array_equal(np.clip(scaled, low, high), np.clip(expected, low, high))


def test_the_last_block_of_rows_ends_with_the_last_channel() -> None:
    conv = _convolution([[1], [2], [3]], 0)
    rows = alike_rows(conv, lambda: np.array([5, 6, 7]), uses_floats=False, block=2)
    packed = rows.pack()
    assert packed[:, 0].tolist() == [[5, 6], [6, 7]]
    assert rows.size_bytes == packed.nbytes


def test_one_channel_without_a_proof_keeps_all_from_floats() -> None:
    conv = _convolution([[1, 2], [3, 4]], 0)
    scaling = conv.scaling.copy()
    scaling[1, 1] = 3  # to the left: no such form is looked for
    moved = replace(conv, scaling=scaling)
    kept = alike_rows(moved, lambda: conv.bias, uses_floats=True, block=2)
    assert kept.pack()[0, 1:].tolist() == scaling.tolist()
