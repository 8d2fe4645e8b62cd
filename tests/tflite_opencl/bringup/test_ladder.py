# SPDX-License-Identifier: Apache-2.0
"""The ladder's right results, which do not depend on a device."""

from __future__ import annotations

import numpy as np

from tflite_opencl.bringup.ladder import FLOATS, INTS, ITEMS, ladder


def test_every_step_has_a_name_and_a_result_of_its_own() -> None:
    steps = ladder()
    assert len({step.name for step in steps}) == len(steps) >= 40
    for step in steps:
        assert step.expected.size in (ITEMS, ITEMS // 4 * 4), step.name
        assert all(values.size == ITEMS for values in step.inputs), step.name
        assert step.expected.dtype.kind in "iu" or np.isfinite(step.expected).all(), step.name


def test_results_that_python_computes_too() -> None:
    expected = {step.name: step.expected.tolist() for step in ladder()}
    ints = [int(value) for value in INTS]

    def wrapped(value: int) -> int:
        return (value + 2**31) % 2**32 - 2**31

    assert expected["stores of bytes, side by side"] == [value % 256 for value in ints]
    assert expected["abs, clz"] == [
        wrapped(abs(value) + 32 - (value % 2**32).bit_length()) for value in ints
    ]
    assert expected["round: halves away from zero"][:5] == [1.0, 2.0, 3.0, -1.0, -2.0]
    assert expected["a loop"] == [wrapped(sum(value ^ k for k in range(10))) for value in ints]
    assert FLOATS[:3].tolist() == [0.5, 1.5, 2.5]
