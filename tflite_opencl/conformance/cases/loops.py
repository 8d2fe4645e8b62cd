# SPDX-License-Identifier: Apache-2.0
"""WHILE and IF: loops with known and unknown trip count, branches likewise."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from delegate.inspect import Calls, Graph, Node, Tensor
from tflite_opencl.conformance.cases._rows import VERSIONS, step
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
    usual,
)

# The iteration and the carried values -> the nodes of a body, and the new carried values.
Body = Callable[[Tensor, Sequence[Tensor]], tuple[Sequence[Node], Sequence[Tensor]]]
_KINDS = ("uint8", "int8", "16x8", "float32", "int32")
_SHAPE = (2, 3, 5)
_NONE = {"fused_activation_function": "NONE"}


def cases() -> Iterator[Case]:
    """Yield the cases of WHILE and IF."""
    for kind, rounds in itertools.product(_KINDS, (0, 1, 3)):
        yield case("while", kind, f"rounds{rounds}", _rounds, dtype_of(kind), rounds)
    for kind in _KINDS:
        dtype = dtype_of(kind)
        yield case("while", kind, "rounds3-between", _rounds, dtype, 3, is_between=True)
        yield case("while", kind, "rounds3-swapped", _rounds, dtype, 3, is_swapped=True)
        yield case("while", kind, "rows", _rows, dtype)
        yield case("while", kind, "in-while", _nested, dtype)
        yield case("while", kind, "count-of-a-shape", _counted, dtype)
        yield case("while", kind, "count-of-an-input", _counted, dtype, is_known=False)
    for form, (steps, depth, width) in itertools.product(
        ("lstm", "gru"), ((1, 3, 4), (5, 8, 8), (20, 16, 24))
    ):
        detail = f"{form}-steps{steps}-depth{depth}-units{width}"
        yield case("while", "float32", detail, recurrent, form, steps, depth, width)
    for kind, taken in itertools.product(_KINDS, ("then", "else", "either")):
        yield case("if", kind, f"{taken}-in{sizes(_SHAPE)}", branches, dtype_of(kind), taken)


def loop(count: Tensor | int, given: Sequence[Tensor], make: Body, start: int = 0) -> Node:
    """Return a WHILE that counts from `start` to `count`, with carried tensors.

    `count`: a constant, or a computed number, which is carried, too.
    """
    carried = [*([count] if isinstance(count, Tensor) else []), *given]
    condition, body = _like([numbers(0), *carried]), _like([numbers(0), *carried])
    is_less = tensor((), "bool")
    last = condition[1] if isinstance(count, Tensor) else numbers(count)
    compared = node("LESS", [condition[0], last], [is_less])
    after = tensor((), "int32")
    nodes, results = make(body[0], body[-len(given) :])
    counted = node("ADD", [body[0], numbers(1)], [after], _NONE)
    outputs = [after, *body[1 : len(body) - len(given)], *results]
    made = node("WHILE", [numbers(start), *carried], _like([numbers(start), *carried]))
    called = graph([compared], condition, [is_less]), graph([*nodes, counted], body, outputs)
    return replace(made, calls=Calls(called))


def _like(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return new tensors of the same types."""
    return [replace(each, data=None, name="", ranges=None) for each in tensors]


def _larger(dtype: str, one: Tensor, other: Tensor) -> Node:
    """Return the maximum of two tensors, which is exact for floats."""
    return step("MAXIMUM", [one, other], _like([one]), {}, VERSIONS.get(dtype, 1))


def _turned(source: Tensor, axis: int = 0) -> Node:
    return step("REVERSE_V2", [source, numbers([axis])], _like([source]))


def _rounds(dtype: str, rounds: int, is_between: bool = False, is_swapped: bool = False) -> Graph:
    """Return a loop that transposes the maximum of two tensors; one is invariant, or they swap."""
    x, y = usual(_SHAPE, dtype), usual(_SHAPE, dtype)
    before = _turned(x, 2)

    def body(_: Tensor, own: Sequence[Tensor]) -> tuple[Sequence[Node], Sequence[Tensor]]:
        larger = _larger(dtype, own[0], own[1])
        turned = _turned(larger.outputs[0])
        results = [turned.outputs[0], own[1]]
        return [larger, turned], results[::-1] if is_swapped else results

    made = loop(rounds, [before.outputs[0] if is_between else x, y], body)
    nodes = [before, made] if is_between else [made]
    outputs = [*made.outputs]
    if is_between:
        nodes.append(_turned(made.outputs[1], 1))
        outputs = [*nodes[-1].outputs]
    return graph(nodes, [x, y], outputs)


def _rows(dtype: str, steps: int = 4) -> Graph:
    """Return a loop that reads and writes one row of a sequence per iteration."""
    rows = usual((steps, 2, 3), dtype)
    like = usual((1, 2, 3), dtype)
    state = replace(like, data=np.zeros((1, 2, 3), dtype))
    made = replace(rows, data=np.zeros(rows.shape, dtype))
    # TFLite cannot update slices of uint8 and int16.
    is_written = dtype in ("int8", "int32", "float32")

    def body(number: Tensor, own: Sequence[Tensor]) -> tuple[Sequence[Node], Sequence[Tensor]]:
        source, before, written = own
        place = tensor((1,), "int32")
        first = node("RESHAPE", [number, numbers([1])], [place])
        picked = step("GATHER", [source, place], [like], {"axis": 0, "batch_dims": 0})
        larger = _larger(dtype, picked.outputs[0], before)
        nodes = [first, picked, larger]
        if is_written:
            starts = tensor((3,), "int32")
            joined = node("PACK", [number, numbers(0), numbers(0)], [starts], {"values_count": 3})
            inputs = [written, larger.outputs[0], starts]
            nodes += [joined, step("DYNAMIC_UPDATE_SLICE", inputs, _like([written]))]
            written = nodes[-1].outputs[0]
        return nodes, [source, larger.outputs[0], written]

    looped = loop(steps, [rows, state, made], body)
    return graph([looped], [rows], looped.outputs[2:] if is_written else looped.outputs[2:3])


def _nested(dtype: str) -> Graph:
    """Return nested loops with a branch whose condition is constant."""
    x, y = usual(_SHAPE, dtype), usual(_SHAPE, dtype)

    def inner(_: Tensor, own: Sequence[Tensor]) -> tuple[Sequence[Node], Sequence[Tensor]]:
        larger, turned = _larger(dtype, *own), _turned(own[0])
        return [larger, turned], [larger.outputs[0], turned.outputs[0]]

    def outer(_: Tensor, own: Sequence[Tensor]) -> tuple[Sequence[Node], Sequence[Tensor]]:
        nested = loop(2, own, inner)
        chosen = choice(constant(np.array(True)), nested.outputs[1:], dtype)
        return [nested, chosen], [chosen.outputs[0], nested.outputs[1]]

    made = loop(3, [x, y], outer, start=1)
    return graph([made], [x, y], made.outputs[1:])


def _counted(dtype: str, is_known: bool = True) -> Graph:
    """Return a loop whose trip count is a dimension of its input, or a separate input."""
    x, y = usual(_SHAPE, dtype), usual(_SHAPE, dtype)
    shape, count = tensor((3,), "int32"), tensor((), "int32", limits=(0, 4))
    slicing = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask"), 0)
    nodes: list[Node] = [_turned(x)]
    if is_known:
        parts = [shape, numbers([1]), numbers([2]), numbers([1])]
        nodes.append(node("SHAPE", [x], [shape], {"out_type": "int32"}))
        nodes.append(node("STRIDED_SLICE", parts, [count], {**slicing, "shrink_axis_mask": 1}))

    def body(_: Tensor, own: Sequence[Tensor]) -> tuple[Sequence[Node], Sequence[Tensor]]:
        larger = _larger(dtype, *own)
        turned = _turned(larger.outputs[0], 1)
        return [larger, turned], [turned.outputs[0], own[1]]

    made = loop(count, [nodes[0].outputs[0], y], body)
    nodes += [made, _turned(made.outputs[2])]
    inputs = [x, y] if is_known else [x, y, count]
    return graph(nodes, inputs, nodes[-1].outputs)


def choice(condition: Tensor, given: Sequence[Tensor], dtype: str) -> Node:
    """Return an IF: the maximum of two tensors, or the second one transposed."""
    then, otherwise = _like(given), _like(given)
    larger, turned = _larger(dtype, *then), _turned(otherwise[1])
    called = (
        graph([larger], then, larger.outputs),
        graph([turned], otherwise, turned.outputs),
    )
    return replace(node("IF", [condition, *given], _like(given[:1])), calls=Calls(called))


def branches(dtype: str, taken: str) -> Graph:
    """Return an IF with a constant condition ("then", "else"), between other nodes."""
    x, y = usual(_SHAPE, dtype), usual(_SHAPE, dtype)
    is_open = taken == "either"
    condition = tensor((), "bool") if is_open else constant(np.array(taken == "then"))
    before = _turned(x)
    chosen = choice(condition, [before.outputs[0], y], dtype)
    after = _turned(chosen.outputs[0], 1)
    inputs = [x, y, condition] if is_open else [x, y]
    return graph([before, chosen, after], inputs, after.outputs)


def recurrent(form: str, steps: int, depth: int, width: int) -> Graph:
    """Return an LSTM or GRU sequence as built by Keras 3 and today's converter."""
    rng = seeded("loops", form, steps, depth, width)
    gates = {"lstm": 4, "gru": 3}[form]

    def weights(size: int) -> Tensor:
        return constant(rng.normal(0, 0.4, (gates * width, size)).astype(np.float32))

    of_input, of_state = weights(depth), weights(width)
    rows = tensor((steps, 1, depth))
    zeros = constant(np.zeros((1, width), np.float32))
    outputs = constant(np.zeros((1, 1, width), np.float32))

    def body(number: Tensor, own: Sequence[Tensor]) -> tuple[Sequence[Node], Sequence[Tensor]]:
        nodes: list[Node] = []

        def add(op: str, *inputs: Tensor, shape: Shape = (1, width)) -> Tensor:
            options: dict[str, Any] = {}
            if op in ("ADD", "SUB", "MUL", "FULLY_CONNECTED"):
                options.update(_NONE)
            elif op == "GATHER":
                options = {"axis": 0, "batch_dims": 0}
            given = [*inputs, None] if op == "FULLY_CONNECTED" else [*inputs]
            nodes.append(node(op, given, [tensor(shape)], options))
            return nodes[-1].outputs[0]

        def parts(source: Tensor) -> Sequence[Tensor]:
            made = [tensor((1, width)) for _ in range(gates)]
            nodes.append(node("SPLIT", [numbers(1), source], made, {"num_splits": gates}))
            return made

        source, _, hidden, *cells = own
        picked = add("GATHER", source, number, shape=(1, depth))
        given = add("FULLY_CONNECTED", picked, of_input, shape=(1, gates * width))
        before = add("FULLY_CONNECTED", hidden, of_state, shape=(1, gates * width))
        if form == "lstm":
            i, f, g, o = parts(add("ADD", given, before, shape=(1, gates * width)))
            kept = add("MUL", add("LOGISTIC", f), cells[0])
            cell = add("ADD", kept, add("MUL", add("LOGISTIC", i), add("TANH", g)))
            result, states = add("MUL", add("LOGISTIC", o), add("TANH", cell)), [cell]
        else:
            (z, r, h), (own_z, own_r, own_h) = parts(given), parts(before)
            update = add("LOGISTIC", add("ADD", z, own_z))
            reset = add("LOGISTIC", add("ADD", r, own_r))
            new = add("TANH", add("ADD", h, add("MUL", reset, own_h)))
            rest = add("SUB", constant(np.float32(1)), update)
            result = add("ADD", add("MUL", update, hidden), add("MUL", rest, new))
            states = []
        last = add("RESHAPE", result, numbers([1, 1, width]), shape=(1, 1, width))
        return nodes, [source, last, result, *states]

    carried = [rows, outputs, zeros, *([zeros] if form == "lstm" else [])]
    looped = loop(steps, carried, body)
    return graph([looped], [rows], looped.outputs[2:])
