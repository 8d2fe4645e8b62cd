# SPDX-License-Identifier: Apache-2.0
"""The cases of misread options and reported faults find these faults, and nothing else."""

from __future__ import annotations

import pytest

from tests.support.suite import run_cases
from tests.support.tiers import slow

RELU6 = "frontend/int8/mul-relu6"
MASK = "frontend/uint8/strided_slice-begin_mask"
PAD = "reported/float32/pad-in6x5x4-by2_0_0_3_0_0"
SUM = "reported/float32/sum-above_65504"
READ = "reported/float32/add-output_and_read"
POOLED = "reported/int8/max_pool_2d-of_an_output"
DIMS = "frontend/int8/fully_connected-keep_dims"
RESIZE = "frontend/int8/resize_nearest_neighbor-half_pixel_centers"
ALL = (RELU6, MASK, PAD, SUM, READ, POOLED, DIMS, RESIZE)


@slow
@pytest.mark.parametrize(
    ("fault", "wrong"),
    [
        ("masks", [MASK]),
        ("activations", [RELU6]),
        ("resize_options", [RESIZE]),
        ("keep_num_dims", [DIMS]),
        ("pad_rank_3", [PAD]),
        ("half_sums", [SUM, READ]),  # the sums of READ lose digits
        ("output_and_read", [READ, POOLED]),
        ("", []),
    ],
)
def test_misread_is_found(fault: str, wrong: list[str]) -> None:
    spec = "python:tests.attacks.misreads:misreads"
    results = run_cases(spec, ALL, {"fault": fault})
    assert [name for name in ALL if results[name].result == "Fail"] == wrong
    assert {name for name in ALL if results[name].result == "Pass"} == {*ALL} - {*wrong}
