# SPDX-License-Identifier: Apache-2.0
"""RESHAPE: the same bytes under another shape, so no kernel at all."""

from __future__ import annotations

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative, Target, size_bytes
from delegate.ops import _quantize
from delegate.ops._geometry import shape_text
from delegate.ops._registry import lowers


@lowers("RESHAPE")
def lower_reshape(node: Node, target: Target) -> tuple[Alternative, ...]:
    """View the input's values under the output's shape.

    Raises:
        Unsupported: the sizes differ, the new shape is computed, a type without a fixed size.
    """
    (source,), (shape,) = _quantize.inputs_of(node.inputs, 1, 1)
    result = _quantize.output_of(node.outputs)
    if shape is not None and shape.data is None:
        raise Unsupported("the new shape is computed at run time")
    try:
        same = source.dtype == result.dtype and size_bytes(source) == size_bytes(result)
    except TypeError:
        raise Unsupported(f"{source.dtype}: only types of a fixed size") from None
    if not same or np.dtype(source.dtype).hasobject:
        raise Unsupported(
            f"{source.dtype} {shape_text(source)} -> {result.dtype} {shape_text(result)}: "
            "type and size must stay"
        )
    return (Alternative("view", (), view=(source, result)),)
