# SPDX-License-Identifier: Apache-2.0
"""CAST between uint8, int8, int16, int32, int64, float32 and bool: by table from 8 and 16 bits."""

from __future__ import annotations

import warnings

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative, Constant, Defines, Params
from delegate.ops._checks.node import elements_of, require_same_shape, tensors_of
from delegate.ops._launches.copy import view
from delegate.ops._launches.lookup import lookup
from delegate.ops._launches.tiles import over_elements
from delegate.ops._launches.types import moved_type
from delegate.ops._numbers import bits
from delegate.ops._registry import lowers
from delegate.target import Rules, Target

_TYPES = ("uint8", "int8", "int16", "int32", "int64", "float32", "bool")
_KIND = {"float32": "IS_FLOAT", "int64": "IS_LONG", "bool": "IS_BOOL"}


@lowers("CAST")
def lower_cast(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Convert each value to the output's type, as C's static_cast does.

    Floats that the output cannot hold become its nearest value, and NaN its greatest, in
    ai-edge-litert; tflite-runtime leaves them to C, so to the processor.

    Raises:
        Unsupported: other types.
    Source: tflite/kernels/cast.cc
    """
    source, result = tensors_of(node, 1)
    for tensor in (source, result):
        if tensor.dtype not in _TYPES:
            raise Unsupported(f"{tensor.dtype}: only {', '.join(_TYPES)}")
    elements = require_same_shape(source, result)
    elements_of(result)
    if source.dtype == result.dtype:
        return view(source, result)
    if np.dtype(source.dtype).itemsize < 4:
        return lookup(source, result, lambda values: values.astype(result.dtype), target)
    params: Params = {"input": source, "output": result}
    if source.dtype == "float32" and result.dtype != "bool":
        params |= _float_params(result.dtype, target.rules)
    defines: Defines = {"SOURCE": moved_type(source), "RESULT": moved_type(result)}
    for tensor, side in ((source, "SOURCE"), (result, "RESULT")):
        for dtype, name in _KIND.items():
            defines[f"{side}_{name}"] = int(tensor.dtype == dtype)
    launch = over_elements("cast", "cast", elements, target, params, defines)
    return (Alternative("plain", (launch,)),)


def _float_params(dtype: str, rules: Rules) -> Params:
    """Return between which floats the digits decide, and the answers beyond them and of NaN.

    Units:
        answers: two words of an int64, the low one first
    """
    limits = np.iinfo(dtype)
    if rules.saturating_cast:
        # The answer is truncated: the least value is that of floats down to one below it.
        above = float(limits.max) + 1 if limits.max < 2**24 else 2.0 ** (limits.bits - 1)
        below = float(limits.min) - 1 if limits.max < 2**24 else -(2.0 ** (limits.bits - 1))
        answers = [int(limits.min), int(limits.max), int(limits.max)]
    else:
        wide = 64 if dtype == "int64" else 32
        above, below = 2.0 ** (wide - 1), -(2.0 ** (wide - 1))
        with warnings.catch_warnings(), np.errstate(invalid="ignore"):
            floats = np.array([-1e30, 1e30, np.nan], np.float32)
            answers = floats.astype(f"int{wide}").tolist()
    return {
        "above": bits(above),
        "below": bits(below),
        "answers": Constant(24, lambda: np.array(answers, np.int64).view(np.int32)),
    }
