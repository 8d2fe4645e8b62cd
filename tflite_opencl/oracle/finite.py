# SPDX-License-Identifier: Apache-2.0
"""Detects NaN and infinity in results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Tensor


def not_finite(outputs: Sequence[NDArray[Any]], tensors: Sequence[Tensor]) -> str:
    """Return which output has non-finite values, and how many; "" if none has.

    `tensors`: the model's outputs, in the same order.
    """
    for number, (output, tensor) in enumerate(zip(outputs, tensors, strict=False)):
        if output.dtype.kind not in "fc":
            continue
        if count := output.size - int(np.count_nonzero(np.isfinite(output))):
            name = f"output {number} {tensor.name}".rstrip()
            return f"{name}: {count} of {output.size} values are not finite (NaN or infinite)"
    return ""
