# SPDX-License-Identifier: Apache-2.0
"""A node's inputs, outputs, constants and options, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor


def require_constant(tensor: Tensor, what: str) -> NDArray[np.generic]:
    """Return a constant's values.

    Raises:
        Unsupported: the tensor is computed.
    """
    if tensor.data is None:
        raise Unsupported(f"{what} are not constant")
    return tensor.data


def inputs_of(
    inputs: Sequence[Tensor | None], required: int, optional: int = 0
) -> tuple[list[Tensor], list[Tensor | None]]:
    """Return the required inputs, then the optional ones, None where one is left out.

    Raises:
        Unsupported: a required one is missing, there are too many, or one is sparse.
    """
    present = [tensor for tensor in inputs[:required] if tensor is not None]
    rest = list(inputs[required:])
    if len(present) < required or len(rest) > optional:
        most = f" to {required + optional}" if optional else ""
        raise Unsupported(f"{len(inputs)} inputs: {required}{most} expected")
    for position, tensor in enumerate(inputs):
        if tensor is not None and tensor.is_sparse:
            raise Unsupported(f"input {position} is sparse: only dense tensors are implemented")
    return present, rest + [None] * (optional - len(rest))


def output_of(outputs: Sequence[Tensor]) -> Tensor:
    """Return the one output.

    Raises:
        Unsupported: none is there, or several.
    """
    if len(outputs) != 1:
        raise Unsupported(f"{len(outputs)} outputs: 1 is expected")
    return outputs[0]


def integer(options: Mapping[str, Any], name: str, absent: int) -> int:
    """Return an option, or `absent` where the node has none of that name.

    Raises:
        Unsupported: it is no number of 32 bits.
    """
    value = options.get(name, absent)
    if not isinstance(value, int) or not -(2**31) <= value < 2**31:
        raise Unsupported(f"{name} is {value!r}: an int32 is needed")
    return value
