# SPDX-License-Identifier: Apache-2.0
"""Integer arithmetic that sizes of launches are made with."""

from __future__ import annotations


def ceil_div(dividend: int, divisor: int) -> int:
    """Return dividend / divisor, rounded up; the divisor may be negative."""
    return -(-dividend // divisor)
