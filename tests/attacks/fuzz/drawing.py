# SPDX-License-Identifier: Apache-2.0
"""Draws a graph from a number, node by node; nodes read earlier tensors.

Nothing here knows the types of ops: a node that `ops.lower` or TFLite refuses is discarded,
and another one is drawn. The shapes of outputs are those of delegate/graph/shapes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from delegate import Unsupported, ops
from delegate.graph.persistent import with_variables
from delegate.graph.shapes import output_shapes
from delegate.host.tflite.library import installed_rules
from delegate.inspect import BITS, Graph, Node, Tensor, infer, plain_nodes, write_model
from delegate.target import Target
from tflite_opencl.interpreters.interpreter import allocated
from tflite_opencl.interpreters.runtime import find_runtime
from tflite_opencl.models.build import graph, node, tensor
from tflite_opencl.oracle.bounds import is_hybrid, terms_of
from tflite_opencl.oracle.oracle import reference_is_wrong

T = TypeVar("T")
Shape = tuple[int, ...]
Numbers = tuple[float, int] | tuple[()]  # scale and zero point; () for unquantised types
QUANT = ("uint8", "int8", "int16")
_TYPES = ("int8", "uint8") * 6 + ("int16",) * 3 + ("float32",) * 4 + ("int32", "int64", "bool")
_LENGTHS = (1, 1, 1, 2, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30)  # sizes of graphs, in nodes
CHANNELS = (1, 1, 2, 3, 3, 4, 5, 7, 8, 8, 9, 12, 15, 16, 16, 17, 20, 24, 31, 32, 33, 40, 48, 64, 65)
_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 19)
_MOST_ELEMENTS, _MOST_INPUTS = 100_000, 6  # of a tensor; of a graph
# Output scales that TFLite's kernels require: LOGISTIC, TANH, LOG_SOFTMAX, and so on.
_WANTED = {
    "uint8": ((1 / 256, 0), (1 / 128, 128), (16 / 256, 255)),
    "int8": ((1 / 256, -128), (1 / 128, 0), (16 / 256, 127)),
    "int16": ((2.0**-15, 0),),
}
# Discontinuous in floats: an allowed difference may change the result.
_JUMPS = {
    "ARG_MAX", "ARG_MIN", "ATAN2", "CAST", "CEIL", "COS", "EQUAL", "FLOOR", "FLOOR_DIV",
    "FLOOR_MOD", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "NON_MAX_SUPPRESSION_V4",
    "NON_MAX_SUPPRESSION_V5", "NOT_EQUAL", "QUANTIZE", "ROUND", "SIGN", "SIN",
    "REDUCE_WINDOW", "STABLEHLO_REDUCE_WINDOW", "STABLEHLO_SCATTER",
    "TFLite_Detection_PostProcess", "TOPK_V2",
}  # fmt: skip
_VERSIONS = {
    "BROADCAST_TO": 2
}  # TFLite has no older versions of these; it has version 1 of all others
_TARGET = Target(rules=installed_rules())


class Skip(Exception):
    """The drawn node fits nowhere, so another one is drawn."""


class Pen:
    """A graph in construction.

    Attributes:
        random, arrays: random generators; length: target number of nodes;
        dtype: of new inputs; is_hard: scales of all magnitudes; pool: readable tensors;
        is_clamped: inputs of the next nodes are clamped to their requirements.
    """

    def __init__(self, number: int) -> None:
        self.random, self.arrays = random.Random(number), np.random.default_rng(number)
        self.length = self.one_of(_LENGTHS)
        self.dtype = self.one_of(_TYPES)
        self.is_hard = self.may(0.25)
        self.is_clamped = False
        self.nodes: list[Node] = []
        self.pool: list[Tensor] = []
        self._inexact: set[Tensor] = set()

    def one_of(self, values: Sequence[T]) -> T:
        """Return a random one of the values."""
        return self.random.choice(values)

    def may(self, share: float) -> bool:
        """Return True with this probability."""
        return self.random.random() < share

    def shape(self, rank: int | None = None) -> Shape:
        """Return the shape of a new tensor."""
        rank = self.one_of((4,) * 8 + (1, 2, 2, 3, 3, 5)) if rank is None else rank
        if rank == 4:
            sizes = self.one_of(_SIZES), self.one_of(_SIZES)
            return (self.one_of((1,) * 6 + (2, 3)), *sizes, self.one_of(CHANNELS))
        places = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33) if rank > 2 else (*CHANNELS, 128, 257)
        return tuple(self.one_of(places) for _ in range(rank))

    def numbers(self, dtype: str, about: float | None = None) -> Numbers:
        """Return a quantisation with a scale of about this size."""
        if dtype not in QUANT:
            return ()
        limits = np.iinfo(dtype)
        low, high = int(limits.min), int(limits.max)
        middle = about or (0.0005 if dtype == "int16" else 0.05)
        scale = middle * math.exp(self.random.uniform(-1.5, 1.0))
        if self.is_hard and self.may(0.4):
            scale = middle * math.exp(self.random.uniform(-14, 7))
        elif about is None and self.may(0.3):
            scale = self.one_of((1 / 256, 1 / 128, 0.1, 0.25, 0.5)) / (1 + 99 * (dtype == "int16"))
        anywhere = self.random.randint(low, high)
        zero = 0 if dtype == "int16" else self.one_of((low, high, (low + high + 1) // 2, anywhere))
        return scale, zero

    def input(self, shape: Shape, dtype: str, given: Numbers | None = None) -> Tensor:
        """Return a new input of the graph."""
        outputs = {each for node_ in self.nodes for each in node_.outputs}
        if len(set(self.pool) - outputs) >= _MOST_INPUTS:
            raise Skip
        limits = None if dtype not in ("int32", "int64") else (-1000.0, 1000.0)
        self.pool.append(tensor(shape, dtype, *self._checked(shape, dtype, given), limits=limits))
        return self.pool[-1]

    def constant(
        self, shape: Shape, dtype: str, given: Numbers | None = None, data: ArrayLike | None = None
    ) -> Tensor:
        """Return a constant, random unless values are given."""
        numbers_ = self._checked(shape, dtype, given)
        if data is None and dtype == "float32":
            data = self.arrays.normal(0, 1, shape)
        elif data is None and dtype == "bool":
            data = self.arrays.integers(0, 2, shape)
        elif data is None:
            limits = np.iinfo(dtype)
            low, high = (limits.min, limits.max) if limits.bits < 32 else (-1000, 1000)
            data = self.arrays.integers(low, high, shape, endpoint=True)
        return tensor(shape, dtype, *numbers_, data=data)

    def _checked(self, shape: Shape, dtype: str, given: Numbers | None) -> Numbers:
        if math.prod(shape) > _MOST_ELEMENTS or len(shape) > 6:
            raise Skip
        return self.numbers(dtype) if given is None else given

    def source(self, rank: int | None = None, dtype: str | None = None) -> Tensor:
        """Return a non-scalar tensor to read: mostly a recent one, or a new input."""
        results = [
            each
            for each in self.pool
            if each.shape and rank in (None, len(each.shape)) and dtype in (None, each.dtype)
        ]
        if not results or (self.may(0.1) and len(self.pool) < _MOST_INPUTS):
            return self.input(self.shape(rank), dtype or self.dtype)
        return self.one_of(results[-3:] if self.may(0.6) else results)

    def operand(self, shape: Shape, dtype: str, given: Numbers | None = None) -> Tensor:
        """Return a second operand: an existing tensor, a new input, or a constant."""
        results = [
            each
            for each in self.pool
            if (each.shape, each.dtype) == (shape, dtype) and given in (None, numbers_of(each))
        ]
        if results and self.may(0.5):
            return self.one_of(results)
        if self.may(0.5):
            return self.constant(shape, dtype, given)
        return self.input(shape, dtype, given)

    def narrowed(self, shape: Shape) -> Shape:
        """Return the shape, or one that broadcasts to it."""
        if self.may(0.5):
            return shape
        entries = tuple(1 if self.may(0.4) else size for size in shape)
        return entries[self.random.randint(0, len(entries)) :] if self.may(0.3) else entries

    def add(
        self,
        op: str,
        inputs: Sequence[Tensor | None],
        options: dict[str, Any] | None = None,
        dtype: str | None = None,
        about: float | None = None,
        given: Numbers | None = None,
        count: int = 1,
    ) -> list[Tensor]:
        """Add a node; return its outputs.

        `dtype`: of the outputs, by default the first input's; `about`: their scale, if it
        follows from what the op computes; `given`: their quantisation.

        Raises: Skip: the node is refused.
        """
        first = next(each for each in inputs if each is not None)
        dtype = dtype or first.dtype
        version = _VERSIONS.get(op, 1)
        rough = node(op, inputs, [tensor((), dtype) for _ in range(count)], options, version)
        shapes = output_shapes(rough)
        if shapes is None or any(not 0 < math.prod(s) <= _MOST_ELEMENTS for s in shapes):
            raise Skip
        choices = self._results(first, dtype, about) if given is None else [given]
        for each in choices:
            outputs = tuple(tensor(shape, dtype, *each) for shape in shapes)
            result = replace(rough, outputs=outputs)
            if self._is_taken(result):
                self._keep(result)
                return list(outputs)
        raise Skip

    def compute(
        self, op: str, inputs: Sequence[Tensor], shape: Shape, options: dict[str, Any]
    ) -> Tensor:
        """Add a node that computes int32 values from shapes, without a check."""
        result = tensor(shape, "int32")
        self._keep(node(op, inputs, [result], options, _VERSIONS.get(op, 1)))
        self.hide(result)
        return result

    def hide(self, inner: Tensor) -> None:
        """Mostly remove a tensor from the pool, so that passes can fuse its nodes."""
        if self.may(0.8):
            self.pool = [each for each in self.pool if each is not inner]

    def join(self, made: Node) -> None:
        """Add an existing node. Raises: Skip: it is refused."""
        if not self._is_taken(made):
            raise Skip
        self._keep(made)

    def _results(self, first: Tensor, dtype: str, about: float | None) -> list[Numbers]:
        """Return possible quantisations of an output, likely ones first."""
        if dtype not in QUANT:
            return [()]
        if about is not None:
            return [self.numbers(dtype, about)]
        same = [numbers_of(first)] if first.dtype == dtype else []
        own = numbers_of(first)
        rescaled = self.numbers(dtype, own[0] if own and first.dtype == dtype else None)
        drawn: list[Numbers] = [*same, rescaled]
        self.random.shuffle(drawn)
        return [*drawn, *_WANTED[dtype]]

    def _is_taken(self, made: Node) -> bool:
        """Whether both the delegate and TFLite accept a node with comparable results."""
        known = with_variables(graph([made]))
        if made.calls is not None:
            known = infer(known)
        run = [each for each in plain_nodes(known.nodes) if not is_folded(each)]
        try:
            results = [ops.lower(each, _TARGET) for each in run]
        except Unsupported:
            return False
        if any(each[-1].requirements for each in results) and not self.is_clamped:
            return False  # TFLite might fail on what the node reads
        read = [each for each in made.inputs if each is not None]
        is_jumping = any(each.op in _JUMPS or is_hybrid(each) for each in run)
        if is_jumping and any(each in self._inexact for each in read):
            return False
        alone = graph([made])
        kinds = [] if reference_is_wrong(alone) else ["reference"]
        if self.length == 1:  # otherwise other kernels of TFLite would run
            kinds.append("builtin")
        model = write_model(alone)
        return any(_runs(model, kind) for kind in kinds)

    def _keep(self, made: Node) -> None:
        self.nodes.append(made)
        known = set(self.pool)
        self.pool += [
            each
            for each in (*made.inputs, *made.outputs)
            if each is not None and each.data is None and each not in known
            if not each.is_variable  # state may have only one reader
            if each.dtype not in ("complex64", *BITS)  # few ops can read them
        ]
        if terms_of(made) or any(each in self._inexact for each in made.inputs if each is not None):
            floats = ("float32", "complex64")
            self._inexact |= {each for each in made.outputs if each.dtype in floats}

    def graph(self) -> Graph:
        """Return the graph; some inner tensors are outputs, too."""
        read = {each for result in self.nodes for each in result.inputs}
        outputs = [each for result in self.nodes for each in result.outputs]
        ends = [each for each in outputs if each not in read]
        if self.may(0.3):
            more = self.random.sample(outputs, self.random.randint(0, min(len(outputs), 5)))
            ends = list(dict.fromkeys([*ends, *more]))
        if self.may(0.2):
            self.random.shuffle(ends)
        return graph(self.nodes, outputs=ends)


def is_folded(made: Node) -> bool:
    """Whether all outputs of a node are constant."""
    return bool(made.outputs) and all(each.is_folded for each in made.outputs)


def _runs(model: bytes, cpu_kernels: str) -> bool:
    try:
        allocated(find_runtime(), model, cpu_kernels)
    except (RuntimeError, ValueError):
        return False
    return True


def numbers_of(of: Tensor) -> Numbers:
    """Return the one scale and zero point of a tensor."""
    if of.quantization is None:
        return ()
    return of.quantization.scale[0], of.quantization.zero_point[0]


def scale_of(of: Tensor) -> float:
    """Return the scale of a tensor; for floats that of values about 1."""
    return of.quantization.scale[0] if of.quantization else 0.05


def may_be_float16(whole: Graph) -> bool:
    """Whether a graph can use float16, so that each node has an oracle.

    No node is discontinuous, has state, converts to a type without float16, or
    calls a graph, whose tensors are float32.
    """
    floats = {t for t in whole.tensors if t.dtype == "float32"}
    nodes = [each for each in whole.nodes if not floats.isdisjoint((*each.inputs, *each.outputs))]
    return bool(nodes) and not any(
        each.op in _JUMPS | {"CAST", "DEQUANTIZE", "RFFT2D", "EMBEDDING_LOOKUP"}
        or each.is_custom
        or each.calls is not None
        or is_hybrid(each)
        or any(t is not None and (t.is_variable or t.dtype == "complex64") for t in each.inputs)
        for each in nodes
    )


def drawn(number: int, pieces: Sequence[Callable[[Pen], object]]) -> Graph:
    """Return the graph of a number, drawn from these pieces.

    Raises: ValueError: all drawn nodes are refused.
    """
    pen = Pen(number)
    for _ in range(40 * pen.length):
        if len(pen.nodes) >= pen.length:
            break
        nodes, pool = [*pen.nodes], [*pen.pool]
        try:
            pen.one_of(pieces)(pen)
        except Skip:
            pen.nodes, pen.pool = nodes, pool
    if not pen.nodes:
        raise ValueError(f"graph {number} has no node")
    return pen.graph()
