# SPDX-License-Identifier: Apache-2.0
"""3D ops: CONV_3D and CONV_3D_TRANSPOSE, which TFLite supports for floats, and pooling."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from delegate.inspect import (
    AVERAGE_POOL_3D,
    AVG_POOL_3D,
    MAX_POOL_3D,
    Graph,
    Tensor,
    pool_3d_options,
)
from tflite_opencl.conformance.cases._rows import one, shaped
from tflite_opencl.models.build import (
    Case,
    Shape,
    case,
    constant,
    dtype_of,
    graph,
    node,
    numbers,
    seeded,
    sizes,
    tensor,
)

_Three = tuple[int, int, int]
_ONE: _Three = (1, 1, 1)


def cases() -> Iterator[Case]:
    """Yield this family's cases."""
    for op in ("CONV_3D", "CONV_3D_TRANSPOSE"):
        for (size, channels), kernel, stride, padding in itertools.product(
            (((3, 4, 5), (3, 8)), ((2, 3, 9), (8, 5)), ((1, 1, 1), (7, 1))),
            (_ONE, (3, 3, 3), (2, 1, 3)),
            (_ONE, (2, 2, 2)),
            ("SAME", "VALID"),
        ):
            if _fits(op, size, kernel, stride, padding):
                yield _case(op, size, channels, kernel, stride, padding)
        size, channels = (4, 5, 6), (4, 17)
        yield _case(op, size, channels, (3, 2, 2), (1, 2, 3), "VALID", batch=2)
        yield _case(op, size, channels, (2, 2, 2), _ONE, "SAME", dilation=(2, 1, 3))
        for fused in ("RELU", "RELU6", "RELU_N1_TO_1"):
            yield _case(op, size, channels, (2, 2, 2), _ONE, "SAME", fused=fused)
        yield _case(op, size, channels, (2, 2, 2), (2, 2, 2), "SAME", has_bias=False)


def _fits(op: str, size: Shape, kernel: _Three, stride: _Three, padding: str) -> bool:
    """Whether the output is not empty, and TFLite restores the input's size from it."""
    if op == "CONV_3D":
        return padding == "SAME" or all(n >= k for n, k in zip(size, kernel, strict=True))
    return padding == "VALID" or all(k >= s for k, s in zip(kernel, stride, strict=True))


def _case(
    op: str,
    size: _Three,
    channels: tuple[int, int],
    kernel: _Three,
    stride: _Three,
    padding: str,
    dilation: _Three = _ONE,
    batch: int = 1,
    fused: str = "NONE",
    has_bias: bool = True,
) -> Case:
    parts = {
        f"in{sizes((*size, channels[0]))}-k{sizes(kernel)}-out{channels[1]}": True,
        f"batch{batch}": batch > 1,
        f"stride{sizes(stride)}": stride != _ONE,
        f"dilation{sizes(dilation)}": dilation != _ONE,
        padding.lower(): True,
        fused.lower(): fused != "NONE",
        "no_bias": not has_bias,
    }
    detail = "-".join(part for part, is_said in parts.items() if is_said)
    rest = (batch, fused, has_bias)
    sides = (size, channels, kernel, stride, dilation)
    return case(op.lower(), "float32", detail, _graph, op, sides, padding, *rest)


def _graph(
    op: str,
    sides: tuple[_Three, tuple[int, int], _Three, _Three, _Three],
    padding: str,
    batch: int,
    fused: str,
    has_bias: bool,
) -> Graph:
    size, channels, kernel, stride, dilation = sides
    rng = seeded(op, *sides, padding)
    is_forward = op == "CONV_3D"
    of_weights = (*kernel, *(channels if is_forward else channels[::-1]))
    weights = constant(rng.standard_normal(of_weights).astype("float32"))
    source = tensor((batch, *size, channels[0]))
    inputs: list[Tensor | None] = [source, weights]
    if not is_forward:
        axes = zip(size, kernel, stride, dilation, strict=True)
        wide = ((n * s if padding == "SAME" else (n - 1) * s + (k - 1) * d + 1)
                for n, k, s, d in axes)  # fmt: skip
        inputs = [numbers((batch, *wide, channels[1])), weights, source]
    if has_bias:
        inputs.append(constant(rng.standard_normal(channels[1]).astype("float32")))
    options: dict[str, Any] = {"padding": padding, "fused_activation_function": fused}
    for axis, step, spread in zip("dhw", stride, dilation, strict=True):
        options |= {f"stride_{axis}": step, f"dilation_{axis}_factor": spread}
    return one(op, inputs, tensor(()), options)


# Volume, window, strides.
_POOLS: tuple[tuple[Shape, _Three, _Three], ...] = (
    ((1, 4, 6, 8, 3), (2, 2, 2), (2, 2, 2)),
    ((2, 3, 5, 4, 16), (1, 3, 2), (1, 2, 1)),
    ((1, 5, 4, 7, 5), (3, 3, 3), (1, 2, 3)),
    ((1, 2, 1, 3, 33), (2, 1, 3), (3, 1, 1)),
)


def pools() -> Iterator[Case]:
    """Yield the cases of MaxPool3D and AveragePool3D, and one of AvgPool3D."""
    for op, kind, pool, padding in itertools.product(
        (MAX_POOL_3D, AVERAGE_POOL_3D), ("int8", "16x8", "float32"), _POOLS, ("SAME", "VALID")
    ):
        yield _pool_case(op, kind, *pool, padding)
    yield _pool_case(AVG_POOL_3D, "float32", *_POOLS[0], "SAME")


def pool_edges() -> Iterator[Case]:
    """Yield gaps between windows, a window of the whole volume, and vectors with a rest."""
    for op, kind in itertools.product(
        (MAX_POOL_3D, AVERAGE_POOL_3D, AVG_POOL_3D), ("int8", "16x8", "float32")
    ):
        yield _pool_case(op, kind, (2, 5, 4, 7, 19), (3, 3, 3), (1, 2, 3), "SAME")
        yield _pool_case(op, kind, (1, 3, 5, 2, 8), (3, 5, 2), _ONE, "VALID")
        yield _pool_case(op, kind, (1, 7, 7, 9, 1), (1, 2, 1), (3, 4, 2), "VALID")


def _pool_case(
    op: str, kind: str, shape: Shape, window: _Three, strides: _Three, padding: str
) -> Case:
    detail = f"in{sizes(shape)}-window{sizes(window)}-stride{sizes(strides)}-{padding.lower()}"
    given = op, dtype_of(kind), shape, window, strides, padding
    return case(op.lower(), kind, detail, pool_3d, *given, op=op)


def pool_3d(
    op: str, dtype: str, shape: Shape, window: Shape, strides: Shape, padding: str
) -> Graph:
    """Return the model of a pool; `window`, `strides`: along depth, rows and columns."""
    numbers_of = () if dtype == "float32" else (0.05, 0 if dtype == "int16" else -7)
    source, result = (tensor(each, dtype, *numbers_of) for each in (shape, (1,) * 5))
    options = pool_3d_options(padding, strides, window)
    return graph([shaped(node(op, [source], [result], options, is_custom=True))])
