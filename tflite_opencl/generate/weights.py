# SPDX-License-Identifier: Apache-2.0
"""A Llama's weights as constants of .tflite graphs, created once and shared by all of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from delegate.inspect import Tensor
from tflite_opencl.generate.llama import EMBEDDING, HEAD, Floats, Llama
from tflite_opencl.models.build import as_int4, constant, in_blocks

# q4_1: the file's blocks of 32, losslessly, and int8 for other formats. int8: one scale
# per row.
KINDS = ("q4_1", "int8")
_MOST = 127  # of int8: no -128, which a CPU kernel of TFLite multiplies incorrectly


class LlamaWeights:
    """Constants by name; `kind`: format of the matrices, one of KINDS."""

    def __init__(self, llama: Llama, kind: str, told: Callable[[float], None]) -> None:
        """`told`: called with the completed fraction, 0 to 1."""
        self.sizes = llama.sizes
        self.kind = kind
        self._llama = llama
        self._told = told
        self._made: dict[str, Tensor] = {}
        self._count = len(llama.sizes.shapes())

    @property
    def head(self) -> str:
        """The name of the output matrix."""
        return HEAD if self._llama.has_head else EMBEDDING

    def matrix(self, name: str) -> Tensor:
        """Return a matrix; block-quantised ones additionally need the term of `shifts`."""
        return self._once(name, lambda: self._made_as(name))

    def shifts(self, name: str) -> Tensor | None:
        """Return the shift of each block of a matrix, to be added to each of its values."""
        self.matrix(name)
        return self._made.get(_shifts_of(name))

    def row(self, name: str) -> Tensor:
        """Return a float vector as a row."""
        return self._once(name, lambda: constant(self._llama.floats(name)[None], name=name))

    def number(self, name: str, value: ArrayLike) -> Tensor:
        """Return a small named constant; a name stands for a single value."""
        return self._once(name, lambda: constant(value, name=name), is_weight=False)

    def _once(self, name: str, make: Callable[[], Tensor], is_weight: bool = True) -> Tensor:
        if name not in self._made:
            self._made[name] = make()
            if is_weight:
                self._told(min(1.0, len(self._made) / self._count))
        return self._made[name]

    def _made_as(self, name: str) -> Tensor:
        if self.kind == "q4_1" and self._llama.is_q4_1(name):
            blocks = self._llama.blocks(name)
            shifts = _shifts_of(name)
            self._made[shifts] = constant(blocks.shifts, name=shifts)
            return in_blocks(as_int4(constant(blocks.values << 4, name=name)), blocks.scales)
        values, scales = by_rows(self._llama.floats(name))
        return constant(values, scales, name=name)


def _shifts_of(name: str) -> str:
    return f"{name} shifts"


def by_rows(floats: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Quantise a matrix to int8 with one scale per row.

    Shapes: (rows, columns) -> (rows, columns), (rows,)
    """
    scales = np.abs(floats).max(1) / np.float32(_MOST)
    scales = np.where(scales == 0, np.float32(1), scales).astype(np.float32)
    values = np.clip(np.rint(floats / scales[:, None]), -_MOST, _MOST)
    return values.astype(np.int8), scales
