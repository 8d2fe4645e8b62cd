# SPDX-License-Identifier: Apache-2.0
"""What a Model says of its inputs and outputs, and whether arrays fit them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.graph.ir import Tensor

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class TensorDetails:
    """An input or output of a Model, under the names of TFLite's interpreter."""

    name: str
    index: int  # of the tensor in the file
    shape: tuple[int, ...]  # of a whole batch
    dtype: np.dtype[Any]
    scale: float  # real = scale * (value - zero_point); 0.0: not quantised, or by channel
    zero_point: int

    @property
    def quantization(self) -> tuple[float, int]:
        """The scale and the zero point."""
        return self.scale, self.zero_point


def details_of(tensor: Tensor, batch: int) -> TensorDetails:
    """Return what is said of a tensor for a batch of so many pictures."""
    quantization = tensor.quantization
    scale, zero_point = 0.0, 0
    if quantization is not None and len(quantization.scale) == 1:
        scale, zero_point = quantization.scale[0], quantization.zero_point[0]
    return TensorDetails(
        name=tensor.name,
        index=tensor.index,
        shape=batch_shape(tensor, batch),
        dtype=np.dtype(tensor.dtype),
        scale=scale,
        zero_point=zero_point,
    )


def batch_shape(tensor: Tensor, batch: int) -> tuple[int, ...]:
    """Return the shape of a batch of pictures' values of a tensor."""
    own = tensor.shape[1:] if tensor.shape[:1] == (1,) else tensor.shape
    return (batch, *own)


def checked_arrays(
    inputs: Array | Sequence[Array], wanted: Sequence[TensorDetails], most: int | None
) -> tuple[list[Array], int]:
    """Return the arrays in one block each, and how many pictures they are.

    A model without inputs is run for one. `most`: pictures that a call may give; None: any number.
    Raises: ValueError: a wrong number of arrays, dtype or shape.
    """
    given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    if len(given) != len(wanted):
        raise ValueError(f"{len(given)} arrays are given, and the model has {len(wanted)} inputs")
    for number, (array, details) in enumerate(zip(given, wanted, strict=True)):
        if not isinstance(array, np.ndarray):
            found = f"a {type(array).__name__}"
        elif (
            array.dtype == details.dtype
            and array.ndim == len(details.shape)
            and array.shape[1:] == details.shape[1:]
            and 0 < len(array) <= (most or len(array))
        ):
            continue
        else:
            found = f"{array.dtype} of shape {_shown(array.shape)}"
        counts = "1" if most == 1 else f"1..{most or ''}"
        raise ValueError(
            f"input {number} ({details.name}) is {found}, not {details.dtype} of shape "
            f"{_shown((counts, *details.shape[1:]))}"
        )
    counts_given = [len(array) for array in given] or [1]
    if len(set(counts_given)) > 1:
        raise ValueError(f"the inputs are of {_shown(counts_given)} pictures: one number each")
    return [np.ascontiguousarray(array) for array in given], counts_given[0]


def _shown(sizes: Sequence[object]) -> str:
    return f"({', '.join(map(str, sizes))})"
