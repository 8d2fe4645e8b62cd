# SPDX-License-Identifier: Apache-2.0
"""Builds graphs from a few arguments, and defines the record of a conformance case."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from delegate.inspect import (
    BITS,
    Blocks,
    Graph,
    Node,
    Quantization,
    Tensor,
    packed,
    with_tensors,
)

Shape = tuple[int, ...]
Array = NDArray[Any]

FUSED = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")
# Column of the matrix -> the tensors' type. "16x8": int16 activations, int8 weights. "hybrid":
# float32 activations, quantised to int8 at each run, int8 weights.
DTYPES = {
    "int8-per-channel": "int8", "16x8": "int16",
    "hybrid": "float32", "hybrid-per-channel": "float32",
}  # fmt: skip
# Default scale and zero point of an input and of an output.
USUAL: dict[str, tuple[tuple[float, int], tuple[float, int]]] = {
    "uint8": ((0.1, 131), (0.07, 120)),
    "int8": ((0.1, 3), (0.07, -8)),
    "int16": ((0.001, 0), (0.0007, 0)),
}


@dataclass(frozen=True, slots=True)
class Case:
    """A single check of a delegate."""

    name: str  # family/type/variant: stable, and readable aloud
    op: str  # row of the matrix: a builtin's name, or a family of chains
    kind: str  # column of the matrix: "uint8", "int8-per-channel", "16x8", "float32", ...
    make: Callable[[], Graph]  # builds or reads the model; called only to run the case
    check: str = "values"  # a name of the table in checks/__init__.py
    is_heavy: bool = False  # the reference kernels need seconds
    model: str | None = None  # the model file it is about, if any
    # What it stands for: a report, as owner/repository#number, or a source; and the fault there.
    report: str = ""
    fault: str = ""


def case(
    family: str,
    kind: str,
    detail: str,
    make: Callable[..., Graph],
    *arguments: Any,
    op: str | None = None,
    **keywords: Any,
) -> Case:
    """Return a case whose model is `make(*arguments, **keywords)`."""
    name = f"{family}/{kind}/{detail}"
    return Case(name, op or family.upper(), kind, lambda: make(*arguments, **keywords))


def dtype_of(kind: str) -> str:
    """Return the activations' type of a column of the matrix."""
    return DTYPES.get(kind, kind)


def sizes(shape: Iterable[int]) -> str:
    """Return "7x5x3", and "scalar" for no dimension."""
    return "x".join(map(str, shape)) or "scalar"


def seeded(*parts: object) -> np.random.Generator:
    """Return a generator seeded by these values only."""
    return np.random.default_rng(zlib.crc32(repr(parts).encode()))


def tensor(
    shape: Sequence[int],
    dtype: str = "float32",
    scale: float | Sequence[float] | Array | None = None,
    zero_point: int | Sequence[int] = 0,
    *,
    data: ArrayLike | None = None,
    axis: int = 0,
    name: str = "",
    limits: tuple[float, float] | None = None,
    is_variable: bool = False,
    shape_signature: Sequence[int] = (),
) -> Tensor:
    """Return a tensor; the same object used twice is the same tensor of the model.

    `scale` is rounded to float32; a single zero point applies to all scales. `data`: a constant.
    `limits`: minimum and maximum of an input, if restricted.
    """
    quantization = None
    if scale is not None:
        scales = tuple(float(np.float32(number)) for number in np.atleast_1d(scale))
        zeros = (zero_point,) * len(scales) if isinstance(zero_point, int) else zero_point
        quantization = Quantization(scales, tuple(map(int, zeros)), axis)
    return Tensor(
        index=-1,  # assigned by graph()
        name=name,
        shape=tuple(shape),
        dtype=dtype,
        quantization=quantization,
        data=None if data is None else np.asarray(data, dtype).reshape(tuple(shape)),
        ranges=None if limits is None else (np.array(limits[0]), np.array(limits[1])),
        is_variable=is_variable,
        shape_signature=tuple(shape_signature),
    )


def usual(shape: Sequence[int], dtype: str, is_output: bool = False, **keywords: Any) -> Tensor:
    """Return a tensor with the type's default quantisation, if it has one."""
    numbers = USUAL[dtype][is_output] if dtype in USUAL else (None, 0)
    return tensor(shape, dtype, *numbers, **keywords)


def constant(
    data: ArrayLike,
    scale: float | Sequence[float] | Array | None = None,
    zero_point: int | Sequence[int] = 0,
    *,
    axis: int = 0,
    name: str = "",
) -> Tensor:
    """Return a constant of the array's own shape and type."""
    array = np.asarray(data)
    kind = array.dtype.name
    return tensor(array.shape, kind, scale, zero_point, data=array, axis=axis, name=name)


def stored_as(weights: Tensor, dtype: str) -> Tensor:
    """Return int8 constants as int4 or int2, by their upper bits; or unchanged as int8."""
    if dtype == "int8":
        return weights
    assert weights.data is not None
    upper = weights.data.view(np.int8) >> (8 - BITS[dtype])
    return dataclasses.replace(weights, dtype=dtype, data=packed(upper, dtype))


def as_int4(weights: Tensor) -> Tensor:
    """Return int8 constants as int4, two per byte, by their upper halves."""
    return stored_as(weights, "int4")


def in_blocks(weights: Tensor, scales: ArrayLike) -> Tensor:
    """Return int4 weights with block scales (rows, blocks) instead of their own."""
    halves = np.asarray(scales, np.float16)
    size = weights.shape[-1] // halves.shape[-1]
    return dataclasses.replace(weights, quantization=None, blocks=Blocks(halves, size))


def numbers(values: ArrayLike, dtype: str = "int32") -> Tensor:
    """Return a constant of axes, sizes or indices."""
    return constant(np.asarray(values, dtype))


def integers(rng: np.random.Generator, shape: Sequence[int], dtype: str) -> Array:
    """Return random values over the whole range of a type; int8 without -128, like weights."""
    limits = np.iinfo(dtype)
    least = -127 if dtype == "int8" else limits.min
    return rng.integers(least, limits.max, tuple(shape), endpoint=True).astype(dtype)


def node(
    op: str,
    inputs: Sequence[Tensor | None],
    outputs: Sequence[Tensor],
    options: Mapping[str, Any] | None = None,
    version: int = 1,
    is_custom: bool = False,
    intermediates: Sequence[Tensor | None] = (),
) -> Node:
    """Return one step of a model; options left out get the schema's defaults."""
    own = tuple(inputs), tuple(outputs), dict(options or {})
    return Node(-1, op, version, *own, is_custom, intermediates=tuple(intermediates))


def graph(
    nodes: Sequence[Node],
    inputs: Sequence[Tensor] | None = None,
    outputs: Sequence[Tensor] | None = None,
) -> Graph:
    """Return the graph of these nodes; tensors and nodes are numbered in order of appearance.

    Without `inputs`: the tensors that are neither constant nor variable, and that no node writes.
    Without `outputs`: the tensors that no node reads.
    """
    used = list(
        dict.fromkeys(t for step in nodes for t in (*step.inputs, *step.outputs) if t is not None)
    )
    produced = {t for step in nodes for t in step.outputs}
    consumed = {t for step in nodes for t in step.inputs}
    between = [t for step in nodes for t in step.intermediates if t is not None]
    if inputs is None:
        inputs = [t for t in used if t not in produced and t.data is None and not t.is_variable]
    if outputs is None:
        outputs = [t for t in used if t in produced and t not in consumed]
    numbered = {
        t: dataclasses.replace(t, index=index, name=t.name or f"t{index}")
        for index, t in enumerate(dict.fromkeys([*used, *inputs, *outputs, *between]))
    }
    return Graph(
        tensors=tuple(numbered.values()),
        nodes=tuple(
            dataclasses.replace(
                step,
                index=index,
                inputs=tuple(None if t is None else numbered[t] for t in step.inputs),
                outputs=tuple(numbered[t] for t in step.outputs),
                intermediates=tuple(t and numbered[t] for t in step.intermediates),
            )
            for index, step in enumerate(nodes)
        ),
        inputs=tuple(numbered[t] for t in inputs),
        outputs=tuple(numbered[t] for t in outputs),
        description="made by tflite-delegate-test",
    )


def in_float16(of: Graph) -> Graph:
    """Return the graph with float16 tensors in the place of float32 ones, constants rounded."""

    def narrow(each: Tensor) -> Tensor:
        data = each.data
        if data is not None:
            with np.errstate(over="ignore"):
                data = data.astype(np.float16)
        return dataclasses.replace(each, dtype="float16", data=data)

    return with_tensors(of, {t: narrow(t) for t in of.tensors if t.dtype == "float32"})
