# SPDX-License-Identifier: Apache-2.0
"""Stateful ops: variable tensors persist from one input set of a case to the next."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from delegate.inspect import Graph, Tensor
from tflite_opencl.conformance.cases._recurrent import (
    SIZES,
    another,
    matrix,
    narrow,
    normal,
    outputs_of,
)
from tflite_opencl.models.build import (
    Case,
    Shape,
    case,
    constant,
    graph,
    integers,
    seeded,
    sizes,
    tensor,
)
from tflite_opencl.models.build import node as step

# Rows, depth, units, rank, memory.
_SVDFS = ((1, 7, 5, 1, 3), (1, 4, 32, 2, 37), (3, 33, 17, 4, 10), (2, 1, 1, 1, 1), (1, 64, 9, 3, 2))
_FORMS = ("plain", "cifg", "peephole", "projection", "cifg-peephole-projection")
_NORMALISED = ("norm", "cifg-norm-projection", "norm-peephole")
_KINDS = ("int8", "hybrid", "float32")
_POWER = -11  # of two: the scale of an integer LSTM's cell state


def svdfs() -> Iterator[Case]:
    """Yield the cases of SVDF."""
    for kind, shape in itertools.product(("int8", "hybrid", "float32"), _SVDFS):
        rows, depth, units, rank, memory = shape
        detail = f"in{rows}x{depth}-units{units}-rank{rank}-memory{memory}"
        for has_bias in (True, False):
            own = detail if has_bias else f"{detail}-no_bias"
            yield case("svdf", kind, own, svdf, kind, shape, has_bias)
        if kind == "hybrid":
            yield case("svdf", kind, f"{detail}-asymmetric", svdf, kind, shape, True, True)


def svdf(
    kind: str,
    shape: tuple[int, int, int, int, int],
    has_bias: bool = True,
    is_asymmetric: bool = False,
) -> Graph:
    """Return the graph of one SVDF.

    Shapes:
        shape: rows, depth, units, rank, memory
    """
    rows, depth, units, rank, memory = shape
    rng, filters = seeded("svdf", kind, shape), units * rank
    remembered = (rows, memory * filters)
    if kind == "int8":
        source, result = tensor((rows, depth), "int8", 0.03, -3), (0.05, -7)
        features = constant(integers(rng, (filters, depth), "int8"), 0.01)
        times = constant(integers(rng, (filters, memory), "int16") >> 3, 1e-4)
        bias = constant(integers(rng, (units,), "int16").astype(np.int32), 1e-6)
        state = tensor(remembered, "int16", 0.004, name="state", is_variable=True)
        output = tensor((rows, units), "int8", *result)
    else:
        source, output = tensor((rows, depth)), tensor((rows, units))
        if kind == "hybrid":
            features = constant(integers(rng, (filters, depth), "int8"), 0.01)
            times = constant(integers(rng, (filters, memory), "int8"), 0.02)
        else:
            features, times = (normal(rng, (filters, count)) for count in (depth, memory))
        bias = normal(rng, (units,))
        state = tensor(remembered, name="state", is_variable=True)
    # TFLite's integer kernel requires RELU, but does not apply it.
    options = {
        "rank": rank,
        "fused_activation_function": "RELU" if kind == "int8" or rank > 2 else "NONE",
        "asymmetric_quantize_inputs": is_asymmetric,
    }
    version = {"int8": 3, "hybrid": 4 if is_asymmetric else 2}.get(kind, 1)
    inputs = [source, features, times, bias if has_bias else None, state]
    return graph([step("SVDF", inputs, [output], options, version)])


def lstms() -> Iterator[Case]:
    """Yield the cases of UNIDIRECTIONAL_SEQUENCE_LSTM and LSTM."""
    for kind, shape, form in itertools.product(_KINDS, SIZES, (*_FORMS, *_NORMALISED)):
        detail = f"rows{shape[0]}-steps{shape[1]}-in{shape[2]}-cells{shape[3]}-{form}"
        whole = "unidirectional_sequence_lstm"
        yield case(whole, kind, detail, lstm, kind, shape, form)
        if kind == "hybrid":
            yield case(whole, kind, f"{detail}-asymmetric", lstm, kind, shape, f"{form}-asymmetric")
        if shape[0] > 1:
            yield case(whole, kind, f"{detail}-time_major", lstm, kind, shape, form, True)
        if shape[1] == 1 or form == "plain":
            rows, _, depth, cells = shape
            detail = f"in{sizes((rows, depth))}-cells{cells}-{form}"
            yield case("lstm", kind, detail, lstm, kind, shape, form, op="LSTM")


def lstm(
    kind: str,
    shape: tuple[int, int, int, int],
    form: str,
    is_time_major: bool = False,
    op: str = "UNIDIRECTIONAL_SEQUENCE_LSTM",
) -> Graph:
    """Return the graph of one LSTM.

    Shapes:
        shape: rows, steps, depth, cells
    """
    rows, steps, depth, cells = shape
    rng, is_whole = seeded("lstm", kind, shape, form), kind == "int8"
    first = 1 if "cifg" in form else 0  # without an input gate
    is_peephole, is_projected = "peephole" in form, "projection" in form
    width = cells // 2 + 1 if is_projected and not is_peephole else cells
    whole: Shape = (rows,) if op == "LSTM" else (rows, steps)
    if is_time_major and op != "LSTM":
        whole = steps, rows

    def vector(count: int, is_bias: bool = True) -> Tensor:
        if not is_whole:
            return normal(rng, (count,))
        values = integers(rng, (count,), "int16") >> 2
        return constant(values.astype("int32" if is_bias else "int16"), 3e-5)

    own: tuple[float, int] | tuple[()] = (0.007, 5) if is_whole else ()
    dtype = "int8" if is_whole else "float32"
    # Larger floats only saturate gates, and widen the error bounds.
    limits = None if is_whole else (-2.0, 2.0)
    source = tensor((*whole, depth), dtype, *((0.03, -4) if is_whole else ()), limits=limits)
    hidden = tensor((rows, width), dtype, *own, name="hidden", is_variable=True)
    scale = (2.0**_POWER,) if is_whole else ()
    wide = "int16" if is_whole else dtype
    cell = tensor((rows, cells), wide, *scale, name="cell", is_variable=True)
    inputs: list[Tensor | None] = [source]
    for terms in (depth, width):
        inputs += [None] * first + [matrix(rng, kind, (cells, terms)) for _ in range(first, 4)]
    is_hybrid = kind == "hybrid"
    peepholes = [narrow(rng, (cells,), 0.008) if is_hybrid else vector(cells, False) for _ in "ifo"]
    inputs += [None if not is_peephole or each < first else peepholes[each] for each in range(3)]
    inputs += [None] * first + [vector(cells) for _ in range(first, 4)]
    projection = [matrix(rng, kind, (width, cells)), vector(width)]
    inputs += [*(projection if is_projected else [None, None]), hidden, cell]
    norms = [each >= first if "norm" in form else False for each in range(4)]
    inputs += [vector(cells, False) if each else None for each in norms]
    between = [tensor((0,), "int16", 0.001) for _ in range(4)] if is_whole else []
    between += [tensor((0,), "int8", 0.008, 11)] if is_whole else []
    options = {
        "fused_activation_function": "TANH",
        "cell_clip": 0.7 if rows > 1 else 0.0,
        # With a range of -0.5 to 0.5 and a zero point, the limits are midway between int8 values.
        "proj_clip": 0.5 if rows > 1 and "asymmetric" not in form else 0.0,
        "asymmetric_quantize_inputs": "asymmetric" in form,
        **({"kernel_type": "FULL"} if op == "LSTM" else {"time_major": is_time_major}),
    }
    output = tensor((*whole, width), dtype, *own)
    version = {"int8": 2, "hybrid": 3}.get(kind, 1)
    return graph([step(op, inputs, [output], options, version, intermediates=between)])


def both_lstms() -> Iterator[Case]:
    """Yield the cases of BIDIRECTIONAL_SEQUENCE_LSTM."""
    for kind, shape, form in itertools.product(("hybrid", "float32"), SIZES, _FORMS):
        detail = f"rows{shape[0]}-steps{shape[1]}-in{shape[2]}-cells{shape[3]}-{form}"
        op = "bidirectional_sequence_lstm"
        yield case(op, kind, detail, both_lstm, kind, shape, form)
        # TFLite's kernel merges the outputs of several rows incorrectly unless time-major.
        if shape[0] == 1:
            yield case(op, kind, f"{detail}-merged", both_lstm, kind, shape, form, True)
        else:
            yield case(op, kind, f"{detail}-time_major", both_lstm, kind, shape, form, True, True)
        for own in (f"{form}-auxiliary", f"{form}-linked"):
            yield case(op, kind, f"{detail}{own[len(form) :]}", both_lstm, kind, shape, own)
        if kind == "hybrid" and form in ("plain", "projection"):
            own = f"{form}-asymmetric"
            yield case(op, kind, f"{detail}-asymmetric", both_lstm, kind, shape, own)


def both_lstm(
    kind: str,
    shape: tuple[int, int, int, int],
    form: str,
    is_merged: bool = False,
    is_time_major: bool = False,
) -> Graph:
    """Return the graph of a bidirectional LSTM, with the same number of cells in each direction."""
    one, other = (
        lstm(kind, shape, f"{form}{name}", is_time_major).nodes[0] for name in ("", "-backward")
    )
    states = [*one.inputs[18:20], *other.inputs[18:20]]
    rng, (source, *_) = seeded("auxiliary", kind, shape, form), one.inputs
    assert source is not None
    beside = another(source, form)
    links: list[Tensor | None] = [None] * 8
    if beside is not None and "linked" in form:
        size = shape[3], beside.shape[-1]
        links = [matrix(rng, kind, size) if one.inputs[1 + at % 4] else None for at in range(8)]
    inputs = [*one.inputs[:18], *other.inputs[1:18], *_named(states), beside, *links]
    options = {**one.options, "merge_outputs": is_merged}
    outputs = outputs_of([*one.outputs, *other.outputs], is_merged)
    version = 3 if "asymmetric" in form else 1
    return graph([step("BIDIRECTIONAL_SEQUENCE_LSTM", inputs, outputs, options, version)])


def _named(states: list[Tensor | None]) -> list[Tensor]:
    """Return states with distinct names."""
    return [replace(each, name=f"state {at}") for at, each in enumerate(states) if each]


def basic_lstms() -> Iterator[Case]:
    """Yield the cases of LSTM's basic kernel."""
    for rows, _, depth, cells in SIZES:
        detail = f"in{sizes((rows, depth))}-cells{cells}-basic"
        yield case("lstm", "float32", detail, basic_lstm, (rows, depth, cells))


def basic_lstm(shape: tuple[int, int, int]) -> Graph:
    """Return the graph of one LSTM with five inputs.

    Shapes:
        shape: rows, depth, cells
    """
    rows, depth, cells = shape
    rng = seeded("basic lstm", shape)
    hidden, cell = (
        tensor((rows, cells), name=name, is_variable=True) for name in ("hidden", "cell")
    )
    weights = matrix(rng, "float32", (4 * cells, depth + cells))
    source = tensor((rows, depth), limits=(-2.0, 2.0))
    outputs = [tensor((rows, width)) for width in (cells, cells, depth + cells, 4 * cells)]
    options = {"fused_activation_function": "TANH", "kernel_type": "BASIC"}
    inputs = [source, hidden, weights, normal(rng, (4 * cells,)), cell]
    return graph([step("LSTM", inputs, outputs, options, 2)])
