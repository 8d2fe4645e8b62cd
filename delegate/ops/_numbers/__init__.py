# SPDX-License-Identifier: Apache-2.0
"""Numbers only: numpy in, numpy out. No tensor, no launch."""

from __future__ import annotations

import numpy as np


def bits(value: float) -> int:
    """Return the bits of a float32, as an int32: so kernels take floats."""
    return int(np.float32(value).view(np.int32))


def ceil_div(dividend: int, divisor: int) -> int:
    """Return dividend / divisor, rounded up; the divisor may be negative."""
    return -(-dividend // divisor)
