# SPDX-License-Identifier: Apache-2.0
"""FULLY_CONNECTED launches with arithmetic that the convolution kernels lack.

These are 8-bit sums times doubles, and products with non-constant weights, which cannot be packed:
the latter use BATCH_MATMUL's kernels with a bias and bounds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from delegate.graph.ir import Tensor
from delegate.launch import Alternative, Constant, Defines, Params
from delegate.ops._checks.matrices import sizes_of
from delegate.ops._convolution.packing import as_stored, int16_pairs
from delegate.ops._convolution.records import DoublesConvolution
from delegate.ops._launches.products import MOST_TERMS, MatrixProduct
from delegate.ops._launches.tiles import by_share, lanes_of, launch_over, one_each
from delegate.ops._launches.types import ELEM
from delegate.ops._launches.wide_sums import WideSums
from delegate.ops._numbers import ceil_div
from delegate.target import Target

_FILE = "fully_connected"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DynamicWeights:
    """A product of rows with non-constant weights, in the arena."""

    source: Tensor
    weights: Tensor  # (units, terms)
    result: Tensor
    rows: int
    bias: NDArray[np.generic]  # (units,), float32 or int32
    bounds: dict[str, int]  # fields: the lowest and highest result

    def of_floats(self, target: Target) -> tuple[Alternative, ...]:
        """Return the alternatives for float32, the fallback last; raises Unsupported."""
        return self._product("float", {}, {}).alternatives(target)

    def of_quant8(
        self,
        zeros: tuple[int, int, int],
        scaling: NDArray[np.int32] | WideSums,
        is_single: bool,
        target: Target,
    ) -> tuple[Alternative, ...]:
        """Return the alternatives for 8 bits, the fallback last.

        `zeros`: zero points of input, weights and output; `scaling`: (2, units), equal for all
        units, or doubles; `is_single`: whether results are rounded once.

        Raises:
            Unsupported: rows with too many terms.
        """
        if isinstance(scaling, WideSums):
            return self._of_doubles(zeros, scaling)
        multiplier, shift = map(int, scaling[:, 0])
        fields: Params = {
            "left_zero": zeros[0],
            "right_zero": zeros[1],
            "output_zero": zeros[2],
            "multiplier": multiplier,
            "shift": shift,
        }
        defines: Defines = {"ELEM": ELEM[self.source.dtype], "SINGLE_ROUNDING": int(is_single)}
        return self._product("quant8", fields, defines).alternatives(target)

    def _product(self, family: str, fields: Params, defines: Defines) -> MatrixProduct:
        units, terms = self.weights.shape
        rows, products = replace(self.source, shape=(self.rows, terms)), (self.rows, units)
        sizes = sizes_of(
            rows, self.weights, replace(self.result, shape=products), False, True, MOST_TERMS
        )
        bias = self.bias
        return MatrixProduct(
            family=family,
            left=self.source,
            right=self.weights,
            result=self.result,
            sizes=sizes,
            fields={**fields, **self.bounds, "bias": Constant(4 * units, lambda: bias)},
            defines={**defines, "HAS_BIAS": 1},
        )

    def _of_doubles(self, zeros: tuple[int, int, int], sums: WideSums) -> tuple[Alternative, ...]:
        units, terms = self.weights.shape
        params: Params = {
            "input": self.source,
            "output": self.result,
            "weights": self.weights,
            "in_c": terms,
            "out_c": units,
            "input_zero": zeros[0],
            "weight_zero": zeros[1],
            "output_zero": zeros[2],
            **self.bounds,
            "channels": sums.rows(),
            "elements": self.rows * units,
        }
        defines: Defines = {
            "ELEM": ELEM[self.source.dtype],
            "WEIGHTS_IN": "arena",
            **sums.defines,
        }
        tiling, kernel = one_each(self.rows * units), f"{_FILE}_quant8"
        return (Alternative("plain", (launch_over(_FILE, kernel, tiling, params, defines),)),)


def of_doubles(conv: DoublesConvolution, target: Target) -> tuple[Alternative, ...]:
    """Return the alternatives for constant weights: vectors of channels if they fit, then plain."""
    names = ("input", "output", "in_c", "out_c", "output_zero", "output_min", "output_max")
    params: Params = {name: value for name, value in conv.params().items() if name in names}
    defines: Defines = {"ELEM": ELEM[conv.source.dtype], **conv.sums.defines}
    by_element: Params = {
        "weights": as_stored(conv.weights),
        "channels": conv.sums.rows(),
        "input_zero": conv.input_zero,
        "weight_zero": conv.weight_zero,
        "elements": conv.elements,
    }
    kernel = f"{_FILE}_quant8"
    plain_defines = defines | {"WEIGHTS_IN": "constants"}
    launch = launch_over(_FILE, kernel, one_each(conv.elements), params | by_element, plain_defines)
    fallback = Alternative("plain", (launch,))
    lanes = lanes_of(conv.out_c, target)
    if not lanes:
        return (fallback,)
    layer, items = conv.layer, conv.batch * ceil_div(conv.out_c, lanes)
    by_vector: Params = {
        "weights": int16_pairs(conv, layer.centred, lanes),
        "channels": Constant(
            20 * conv.out_c, lambda: replace(layer.sums, bias=layer.folded_bias()).rows().pack()
        ),
        "rows": conv.batch,
        "pairs": ceil_div(conv.in_c, 2),
        "items": items,
    }
    tiling, kernel = by_share(items, target), f"{_FILE}_vector_quant8"
    vector = launch_over(_FILE, kernel, tiling, params | by_vector, defines | {"LANES": lanes})
    return Alternative(f"vector {lanes}", (vector,)), fallback
