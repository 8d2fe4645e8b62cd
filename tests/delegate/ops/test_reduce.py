# SPDX-License-Identifier: Apache-2.0
"""SUM and the REDUCE ops: what they launch and refuse, and their numbers against TFLite's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from delegate.target import Rules
from tests.support.cases import (
    DRAWN_WAYS,
    LANES_8,
    LANES_16,
    PLAIN,
    SEEDS,
    SIMT,
    Way,
    assert_exact_way,
    changed,
    only_launch,
    quantization,
    refusal,
    retyped,
)
from tests.support.compare import RUNTIME
from tests.support.factories import refused
from tests.support.reductions import (
    SHAPES,
    Reducing,
    assert_reduces,
    assert_reduces_or_refused,
    reductions,
)
from tests.support.refusals import unquantised

NUMBERS = ("uint8", "int8", "int16", "int32", "float32")
TYPES = {
    "SUM": NUMBERS,
    "REDUCE_MAX": NUMBERS,
    "REDUCE_MIN": NUMBERS,
    "REDUCE_PROD": ("int32", "float32"),
    "REDUCE_ANY": ("bool",),
    "REDUCE_ALL": ("bool",),
}


def _is_case(op: str, dtype: str) -> bool:
    """Tell if the runtime's arithmetic lowers: the older one's int16 sums do not."""
    return (op, dtype) != ("SUM", "int16") or RUNTIME.name != "tflite-runtime"


KINDS = [(op, dtype) for op, dtypes in TYPES.items() for dtype in dtypes if _is_case(op, dtype)]


@pytest.mark.parametrize(
    ("op", "dtype", "fold", "start"),
    [
        ("SUM", "float32", "SUM", 0),
        ("REDUCE_PROD", "float32", "PROD", 0x3F800000),
        ("REDUCE_PROD", "int32", "PROD", 1),
        ("REDUCE_MAX", "int8", "MAX", -128),
        ("REDUCE_MIN", "uint8", "MIN", 255),
        ("REDUCE_MAX", "int32", "MAX", -(2**31)),
        ("REDUCE_MIN", "float32", "MIN", 0x7F7FFFFF),
        ("REDUCE_ANY", "bool", "MAX", 0),
        ("REDUCE_ALL", "bool", "MIN", 1),
    ],
)
def test_launch(op: str, dtype: str, fold: str, start: int) -> None:
    node = Reducing(op=op, dtype=dtype, shape=(2, 3, 5, 8), axes=(0, -2)).node()
    vector, plain = (only_launch(found) for found in ops.lower(node, LANES_8.target))
    assert (vector.kernel, plain.kernel) == ("reduce_vector", "reduce")
    assert vector.defines == plain.defines | {"LANES": 8}
    assert (plain.defines["FOLD"], plain.defines["FINISH"]) == (fold, 0)
    assert plain.params["start"] == start
    assert [plain.params[f"kept_{i}"] for i in range(3)] == [1, 3, 8]
    assert [plain.params[f"reduced_step_{i}"] for i in range(3)] == [0, 120, 8]


def test_a_row_of_too_many_rounds_for_one_item_is_a_tile_of_its_own() -> None:
    node = Reducing(op="SUM", shape=(64, 200000), axes=(1,)).node()
    row, plain = (only_launch(found) for found in ops.lower(node, LANES_8.target))
    assert (row.params["tile_items"], plain.params["tile_items"]) == (2, 2)


NODE = Reducing(op="REDUCE_MAX").node()
SUM = Reducing(op="SUM").node()
OLD = replace(SIMT.target, rules=Rules(saturating_sums=False))
REFUSALS: dict[str, tuple[Node, str]] = {
    "scales": (
        changed(NODE, -1, quantization=quantization(0.5, 3)),
        "the scale or zero point changes: TFLite does not rescale here",
    ),
    "float64": (
        retyped(NODE, "float64"),
        "float64: only float32, int32, int64, uint8, int8, int16 are implemented",
    ),
    "string": (retyped(NODE, "string"), "string: only types of a fixed size"),
    "product_of_bytes": (
        Reducing(op="REDUCE_PROD").node(),
        "int8: only float32, int32, int64 are implemented",
    ),
    "any_of_numbers": (
        Reducing(op="REDUCE_ANY", dtype="int32").node(),
        "int32: only bool are implemented",
    ),
    "without_quantisation": unquantised(SUM, 0),
    "scale_ratio": (
        changed(SUM, -1, quantization=quantization(1e-30)),
        "35 elements at a scale ratio of 1e+29: too large",
    ),
    "computed_axes": (changed(SUM, 1, data=None), "axes are not constant"),
}

test_refusal = refused(REFUSALS)


def test_older_sums_of_int16_are_refused() -> None:
    reason = refusal(Reducing(op="SUM", dtype="int16").node(), OLD)
    assert reason == "int16: tflite-runtime's sums do not saturate"


@pytest.mark.parametrize("way", [PLAIN, SIMT, LANES_8, LANES_16], ids=str)
@pytest.mark.parametrize(("op", "dtype"), KINDS)
def test_any_axes(op: str, dtype: str, way: Way, device: DeviceInfo) -> None:
    # One kernel folds by every op: all shapes are SUM's, and each other op and type has a third.
    position = KINDS.index((op, dtype)) % 3
    for number, (shape, axes) in enumerate(SHAPES):
        if op != "SUM" and number % 3 != position:
            continue
        case = Reducing(op=op, shape=shape, axes=axes, keeps_dims=number % 2 == 1, dtype=dtype)
        assert_reduces(case, device, way)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16"])
@pytest.mark.parametrize("scales", [(0.1, 0.1), (0.5, 20.0), (1.0, 0.125), (1e-12, 1.0)], ids=str)
def test_rescaled_sums(scales: tuple[float, float], dtype: str, device: DeviceInfo) -> None:
    for shape, axes in (((3, 5, 17), (1,)), ((3, 5, 17), (2,))):
        zeros = {"uint8": (255, 0), "int8": (-128, 127)}.get(dtype)
        case = Reducing(op="SUM", shape=shape, axes=axes, scales=scales, zeros=zeros, dtype=dtype)
        if _is_case("SUM", dtype):
            for way in (PLAIN, LANES_8):
                assert_reduces(case, device, way)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16"])
def test_sums_round_as_the_type_does(dtype: str, device: DeviceInfo) -> None:
    # In fixed point or as floats: 265 of 2048 results of uint8 differ.
    case = Reducing(op="SUM", shape=(32, 7, 7, 32), axes=(1, 2), scales=(0.05, 0.37), dtype=dtype)
    if _is_case("SUM", dtype):
        for way in (PLAIN, SIMT, LANES_8):
            assert_reduces(case, device, way)
        assert_reduces(replace(case, shape=(99, 49), axes=(1,)), device, LANES_8)


@pytest.mark.parametrize("op", ["REDUCE_MAX", "REDUCE_MIN"])
def test_nan_and_infinity(op: str, device: DeviceInfo) -> None:
    # A NaN is neither; infinity is beyond what TFLite begins with.
    values = np.random.default_rng(3).standard_normal((8, 21)).astype(np.float32)
    values[1, 3], values[2, :], values[:, 5] = np.nan, np.nan, np.nan
    values[3], values[4] = np.inf, -np.inf
    for way in (PLAIN, LANES_8):
        for axis in (0, 1):
            case = Reducing(op=op, shape=(8, 21), axes=(axis,), dtype="float32")
            assert_exact_way(case.model(), device, way, inputs=[[values]])


@pytest.mark.parametrize("op", ["REDUCE_MAX", "REDUCE_MIN"])
@pytest.mark.parametrize("axes", [(0, 1), (1,)], ids=["whole", "one axis"])
def test_the_first_of_a_whole_tensor_stays_if_it_is_nan(
    op: str, axes: tuple[int, ...], device: DeviceInfo
) -> None:
    sets = [np.random.default_rng(3).standard_normal((1, 99)).astype(np.float32) for _ in range(4)]
    sets[0][0, 0], sets[1][0, 3] = np.nan, np.nan
    sets[2][:], sets[3][:] = -np.inf, np.inf
    case = Reducing(op=op, shape=(1, 99), axes=axes, dtype="float32")
    for way in (PLAIN, LANES_8):
        assert_exact_way(case.model(), device, way, inputs=[[each] for each in sets])


@pytest.mark.parametrize("op", TYPES)
def test_drawn(device: DeviceInfo, op: str) -> None:
    dtypes = tuple(dtype for name, dtype in KINDS if name == op)

    @given(case=reductions((op,), dtypes), way=DRAWN_WAYS, seed=SEEDS)
    def drawn(case: Reducing, way: Way, seed: int) -> None:
        assert_reduces_or_refused(case, device, way, seed)

    drawn()


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    types = {"REDUCE_PROD": "float32", "REDUCE_ANY": "bool", "REDUCE_ALL": "bool"}
    shape = (1, size, size, channels)
    return [Reducing(op=op, shape=shape, dtype=types.get(op, dtype)).node() for op in TYPES]


BUILT = [
    Reducing(op="REDUCE_MAX", shape=(2, 18), axes=(0, 1), dtype="float32").node(),
    *(
        Reducing(op=op, shape=(2, 18, 17), axes=(axis,), dtype=dtype).node()
        for axis in (1, 2)
        for op, dtype in (
            *(("SUM", dtype) for dtype in NUMBERS),
            *(
                (op, dtype)
                for op in ("REDUCE_MAX", "REDUCE_PROD")
                for dtype in ("int32", "float32")
            ),
            ("REDUCE_MAX", "uint8"),
            ("REDUCE_MIN", "float32"),
        )
    ),
]
