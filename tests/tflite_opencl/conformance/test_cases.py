# SPDX-License-Identifier: Apache-2.0
"""The cases: how many, that TFLite takes each, and that their names stay readable."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from delegate.inspect import write_model
from delegate.ops import ops
from tflite_opencl.common.build import Case
from tflite_opencl.common.oracle import NoOracle, oracle
from tflite_opencl.common.runtime import find_runtime
from tflite_opencl.common.values import input_sets
from tflite_opencl.conformance.cases import all_cases
from tflite_opencl.conformance.selection import sample

CASES = list(all_cases())
LIGHT = [case for case in CASES if not case.is_heavy]
# Of the op's documentation and TFLite's 8-bit specification; chains and behaviour beside them.
OPS = re.findall(
    r"\w+",
    """
ABS ADD ARG_MAX ARG_MIN AVERAGE_POOL_2D BATCH_MATMUL BATCH_TO_SPACE_ND BROADCAST_TO CAST CEIL
CONCATENATION CONV_2D CUMSUM DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE DIV ELU EQUAL EXP
EXPAND_DIMS FLOOR FLOOR_DIV FULLY_CONNECTED GATHER GATHER_ND GELU GREATER GREATER_EQUAL
HARD_SWISH L2_NORMALIZATION L2_POOL_2D LEAKY_RELU LESS LESS_EQUAL LOG LOGICAL_AND LOGICAL_NOT
LOGICAL_OR LOGISTIC LOG_SOFTMAX MAXIMUM MAX_POOL_2D MEAN MINIMUM MIRROR_PAD MUL NEG NOT_EQUAL
ONE_HOT PACK PAD PADV2 POW PRELU QUANTIZE REDUCE_MAX REDUCE_MIN REDUCE_PROD RELU RELU6
RELU_0_TO_1 RELU_N1_TO_1 RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR REVERSE_V2 ROUND RSQRT
SELECT_V2 SLICE SOFTMAX SPACE_TO_BATCH_ND SPACE_TO_DEPTH SPLIT SPLIT_V SQRT SQUARED_DIFFERENCE
SQUEEZE STRIDED_SLICE SUB SUM TANH TILE TRANSPOSE TRANSPOSE_CONV UNPACK SHAPE DENSIFY
""",
)


def test_there_are_enough() -> None:
    assert len(LIGHT) >= 4000
    found = {case.op for case in CASES}
    assert set(OPS) <= found
    assert {"chain", "behaviour"} <= found


def test_every_op_of_ours_is_there() -> None:
    assert set(ops()) - {"channel_shuffle", "conv_2d_add"} <= {case.op for case in CASES}


def test_names_are_family_type_and_detail() -> None:
    pattern = re.compile(r"[a-z0-9_]+/[a-z0-9-]+/[a-z0-9._-]+")
    assert [case.name for case in CASES if not pattern.fullmatch(case.name)] == []
    assert len({case.name for case in CASES}) == len(CASES)
    assert "conv_2d/int8-per-channel/in9x7x17-k3x3-out15-stride2-same" in {c.name for c in CASES}
    assert [case.name for case in CASES if case.name.split("/")[1] != case.kind] == []


def test_teflons_grid_is_whole() -> None:
    convolutions = [case for case in CASES if case.name.startswith("teflon/uint8/conv_2d")]
    # 5 sizes x 3 kernels x 6 x 6 channels x 2 strides x 2 paddings, less 5x5 VALID in 3x3.
    assert len(convolutions) == 5 * 3 * 36 * 4 - 36 * 2


@pytest.mark.parametrize("case", sample(LIGHT, 300, seed=7), ids=lambda case: case.name)
def test_tflite_takes_it(case: Case) -> None:
    graph = case.make()
    runtime = find_runtime()
    try:
        known = oracle(runtime, graph, write_model(graph), input_sets(graph))
    except NoOracle as error:
        if runtime.name == "tflite-runtime":
            pytest.skip(f"this runtime does not: {error}")
        raise
    assert len(known.outputs) == 3
    # A result that is always the same would not show a wrong one; of the smallest multiplier the
    # bias alone is left.
    seldom = ("FILL", "REDUCE_ANY", "REDUCE_ALL", "EQUAL", "NOT_EQUAL")
    is_usual = "zeros" not in case.name and "multiplier9.537e-07" not in case.name
    if is_usual and case.op not in seldom and known.outputs[0][0].size > 16:
        assert len({values.tobytes() for values in known.outputs[0] + known.outputs[2]}) > 1


def test_a_case_is_the_same_each_time() -> None:
    for case in sample(LIGHT, 40, seed=3):
        assert write_model(case.make()) == write_model(case.make())


def test_a_sample_is_fair() -> None:
    chosen = sample(LIGHT, 300, seed=1)
    assert len(set(chosen)) == 300
    counts = Counter(case.op for case in chosen)
    assert set(counts) == {case.op for case in LIGHT}
    assert max(counts.values()) <= 4
    assert sample(LIGHT, 300, seed=1) == chosen
    assert sample(LIGHT, 300, seed=2) != chosen
