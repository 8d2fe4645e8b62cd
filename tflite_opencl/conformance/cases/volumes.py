# SPDX-License-Identifier: Apache-2.0
"""Convolutions of volumes: CONV_3D and CONV_3D_TRANSPOSE, which TFLite has of floats."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from delegate.inspect import Graph, Tensor
from tflite_opencl.common.build import Case, Shape, case, constant, numbers, seeded, sizes, tensor
from tflite_opencl.conformance.cases._rows import one

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
    """Whether there is an output, and TFLite takes it back to the input's size."""
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
