# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on numbers and NumPy arrays, without tensors and launches."""

from __future__ import annotations

import numpy as np


def bits(value: float) -> int:
    """Return the bits of a float32 as an int32, the form in which kernels take float fields."""
    return int(np.float32(value).view(np.int32))


def ceil_div(dividend: int, divisor: int) -> int:
    """Return dividend / divisor, rounded up; the divisor may be negative."""
    return -(-dividend // divisor)
