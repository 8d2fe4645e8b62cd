# SPDX-License-Identifier: Apache-2.0
"""RNN and its sequences: state persists from one input set of a case to the next."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from delegate.inspect import Graph, Tensor
from tflite_opencl.conformance.cases._recurrent import SIZES, another, matrix, normal, outputs_of
from tflite_opencl.models.build import Case, Shape, case, graph, seeded, tensor
from tflite_opencl.models.build import node as step

_RNNS = ("RNN", "UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_RNN")
_FUNCTIONS = ("NONE", "RELU6", "TANH")


def rnns() -> Iterator[Case]:
    """Yield the cases of RNN and its sequences, unidirectional and bidirectional."""
    for kind, shape, function in itertools.product(("hybrid", "float32"), SIZES, _FUNCTIONS):
        detail = f"rows{shape[0]}-steps{shape[1]}-in{shape[2]}-units{shape[3]}-{function.lower()}"
        for form in ("", "-asymmetric")[: 2 if kind == "hybrid" else 1]:
            for op in _RNNS:
                own = (kind, shape, function, op, form)
                yield case(op.lower(), kind, f"{detail}{form}", rnn, *own)
            own = (kind, shape, function, _RNNS[-1], f"{form}-merged")
            yield case(_RNNS[-1].lower(), kind, f"{detail}{form}-merged", rnn, *own)
            own = (kind, shape, function, _RNNS[-1], f"{form}-auxiliary")
            yield case(_RNNS[-1].lower(), kind, f"{detail}{form}-auxiliary", rnn, *own)
        if kind == "float32":
            # With int8 weights TFLite uses other scales for the auxiliary input.
            own = (kind, shape, function, _RNNS[-1], "-linked")
            yield case(_RNNS[-1].lower(), kind, f"{detail}-linked", rnn, *own)
        if shape[0] > 1:
            # TFLite's bidirectional kernel is wrong if time-major.
            for op in _RNNS[1 : 2 if kind == "hybrid" else 3]:
                own = (kind, shape, function, op, "-time_major")
                yield case(op.lower(), kind, f"{detail}-time_major", rnn, *own)


def rnn(
    kind: str, shape: tuple[int, int, int, int], function: str, op: str, form: str = ""
) -> Graph:
    """Return the graph of one RNN.

    Shapes:
        shape: rows, steps, depth, units
    """
    rows, steps, depth, units = shape
    rng, is_time_major = seeded("rnn", kind, shape, function), "time_major" in form
    whole: Shape = (rows,) if op == "RNN" else (rows, steps)
    if is_time_major:
        whole = steps, rows
    inputs: list[Tensor | None] = [tensor((*whole, depth), limits=(-2.0, 2.0))]
    outputs = []
    is_both = op == "BIDIRECTIONAL_SEQUENCE_RNN"
    for at in range(2 if is_both else 1):
        count = units + at
        weights = [matrix(rng, kind, (count, terms), 0.4) for terms in (depth, count)]
        state = tensor((rows, count), name=f"state {at}", is_variable=True)
        bias = normal(rng, (count,))
        if function == "RELU6" and bias.data is not None:
            bias = replace(bias, data=np.abs(bias.data))  # otherwise a unit may only output zeros
        inputs += [*weights, bias, state]
        outputs.append(tensor((*whole, count)))
    options: dict[str, object] = {"fused_activation_function": function}
    options["asymmetric_quantize_inputs"] = "asymmetric" in form
    if op != "RNN":
        options["time_major"] = is_time_major
    if is_both:
        source, *_ = inputs
        assert source is not None
        beside = another(source, form)
        links: list[Tensor | None] = [None, None]
        if beside is not None and "linked" in form:
            links = [matrix(rng, kind, (each, beside.shape[-1])) for each in (units, units + 1)]
        inputs += [beside, *links]
        options["merge_outputs"] = "merged" in form
    version = 3 if "asymmetric" in form else 2 if kind == "hybrid" else 1
    made = outputs_of(outputs, "merged" in form)
    return graph([step(op, inputs, made, options, version)])
