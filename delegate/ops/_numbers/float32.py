# SPDX-License-Identifier: Apache-2.0
"""Floats of 32 bits as kernels take them: by their bits."""

from __future__ import annotations

import numpy as np


def bits(value: float) -> int:
    """Return the bits of a float32, as an int32."""
    return int(np.float32(value).view(np.int32))
