# SPDX-License-Identifier: Apache-2.0
"""The conformance cases: their number and names, and that TFLite runs each."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from delegate.inspect import write_model
from delegate.ops import ops
from tflite_opencl.conformance.cases import all_cases
from tflite_opencl.conformance.selection import sample
from tflite_opencl.interpreters.runtime import find_runtime
from tflite_opencl.models.build import Case
from tflite_opencl.oracle.node_kernels import NoOracle
from tflite_opencl.oracle.oracle import oracle
from tflite_opencl.oracle.values import input_sets

CASES = list(all_cases())
LIGHT = [case for case in CASES if not case.is_heavy]


def test_number_of_cases() -> None:
    assert len(LIGHT) >= 4000
    # Ops of files, and results that follow from shapes and constants.
    wanted = {name for name in ops() if not name.islower()} | {"SHAPE", "DENSIFY"}
    assert wanted | {"chain", "behaviour"} <= {case.op for case in CASES}


def test_names_have_family_type_and_detail() -> None:
    pattern = re.compile(r"[a-z0-9_]+/[a-z0-9-]+/[a-z0-9._-]+")
    assert [case.name for case in CASES if not pattern.fullmatch(case.name)] == []
    assert len({case.name for case in CASES}) == len(CASES)
    assert "conv_2d/int8-per-channel/in9x7x17-k3x3-out15-stride2-same" in {c.name for c in CASES}
    assert [case.name for case in CASES if case.name.split("/")[1] != case.kind] == []


def test_teflon_grid_is_complete() -> None:
    convolutions = [case for case in CASES if case.name.startswith("teflon/uint8/conv_2d")]
    # 5 sizes x 3 kernels x 6 x 6 channels x 2 strides x 2 paddings, less 5x5 VALID in 3x3.
    assert len(convolutions) == 5 * 3 * 36 * 4 - 36 * 2


@pytest.mark.parametrize("case", sample(LIGHT, 300, seed=7), ids=lambda case: case.name)
def test_tflite_runs_case(case: Case) -> None:
    graph = case.make()
    runtime = find_runtime()
    try:
        known = oracle(runtime, graph, write_model(graph), input_sets(graph))
    except NoOracle as error:
        if runtime.name == "tflite-runtime":
            pytest.skip(f"this runtime does not: {error}")
        raise
    assert len(known.outputs) == 3
    # A constant result would hide faults; with the smallest multiplier only the
    # bias remains.
    seldom = ("FILL", "REDUCE_ANY", "REDUCE_ALL", "EQUAL", "NOT_EQUAL")
    odd = ("zeros", "multiplier9.537e-07", "in2x132-at1-", "in2x130-at1-")  # one of two rows
    is_usual = not any(each in case.name for each in odd)
    if is_usual and case.op not in seldom and known.outputs[0][0].size > 16:
        assert len({values.tobytes() for values in known.outputs[0] + known.outputs[2]}) > 1


def test_cases_are_deterministic() -> None:
    for case in sample(LIGHT, 40, seed=3):
        assert write_model(case.make()) == write_model(case.make())


def test_sample_covers_families() -> None:
    chosen = sample(LIGHT, 300, seed=1)
    assert len(set(chosen)) == 300
    counts = Counter(case.op for case in chosen)
    assert set(counts) == {case.op for case in LIGHT}
    assert max(counts.values()) <= 4
    assert sample(LIGHT, 300, seed=1) == chosen
    assert sample(LIGHT, 300, seed=2) != chosen
