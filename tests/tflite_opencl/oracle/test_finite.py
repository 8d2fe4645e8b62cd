# SPDX-License-Identifier: Apache-2.0
"""Outputs with infinities or NaN are named."""

from __future__ import annotations

import numpy as np

from tests.support.model import t
from tflite_opencl.oracle.finite import not_finite

TENSORS = (t((4,), "int32"), t((4,), name="scores"), t((4,), "float16"))


def test_first_non_finite_output_is_named() -> None:
    whole, good = np.arange(4, dtype=np.int32), np.ones(4, np.float32)
    bad = np.array([1, np.nan, -np.inf, 2], np.float32)
    assert not_finite([whole, bad, bad.astype(np.float16)], TENSORS) == (
        "output 1 scores: 2 of 4 values are not finite (NaN or infinite)"
    )
    assert not_finite([whole, good, bad.astype(np.float16)], TENSORS).startswith("output 2: 2 of 4")
    assert not_finite([whole, good, good], TENSORS) == ""
    assert not_finite([], TENSORS) == ""  # after Ctrl-C


def test_complex_numbers() -> None:
    assert "1 of 2" in not_finite([np.array([1, complex(0, np.inf)], np.complex64)], TENSORS[1:])
