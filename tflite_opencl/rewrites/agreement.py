# SPDX-License-Identifier: Apache-2.0
"""Compares two models' outputs on the same inputs, using TFLite's reference kernels."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Graph, read_model, with_input_shapes
from tflite_opencl.interpreters.interpreter import failures, invoke
from tflite_opencl.interpreters.runtime import Runtime
from tflite_opencl.oracle.judge import JudgeInterpreter, open_judge

Arrays = Sequence[NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Agreement:
    """The comparison of two models on some inputs."""

    inputs: int
    kernels: str  # that ran: "reference kernels", and nodes on other kernels, and why
    equal: int  # inputs with bit-identical outputs
    same_top: int | None  # inputs with the same argmax; None: all outputs have a single element
    greatest: float  # difference: in quanta if quantised, otherwise in the output's own unit
    is_in_quanta: bool
    sqnr_db: float | None  # signal-to-noise ratio over all outputs; None: there is no noise


def agreement(
    before: str,
    after: bytes,
    sets: Iterable[Arrays],
    runtime: Runtime,
    watch: Callable[[], None],
    graph: Graph,
    signature: str | None = None,
) -> Agreement:
    """Run both models on each input set; `watch` is called after each.

    `graph`: the first model's graph to run, with its input shapes. `signature`: of
    both; None: the first.

    Raises: CommandError: TFLite rejects a model. SignatureError.
    """
    shapes = {number: tensor.shape for number, tensor in enumerate(graph.inputs)}
    graphs = [graph, with_input_shapes(read_model(after, signature), shapes)]
    with contextlib.ExitStack() as stack:
        judges = []
        models: tuple[str | bytes, ...] = before, after
        for model, graph in zip(models, graphs, strict=True):
            with failures(before if model is before else "the rewritten model"):
                judges.append(open_judge(runtime, graph, model, threads=None))
            stack.callback(judges[-1].close)
        return _agreement(judges[0], judges[1], sets, watch)


def _agreement(
    old_model: JudgeInterpreter,
    new_model: JudgeInterpreter,
    sets: Iterable[Arrays],
    watch: Callable[[], None],
) -> Agreement:
    outputs = old_model.get_output_details()
    count = equal = same_top = 0
    greatest = signal = noise = 0.0
    for given in sets:
        with failures():
            old, new = (invoke(model, given) for model in (old_model, new_model))
        outputs = old_model.get_output_details()  # a run may change their shapes
        count += 1
        equal += all(a.tobytes() == b.tobytes() for a, b in zip(old, new, strict=True))
        same_top += int(old[0].argmax()) == int(new[0].argmax())
        for detail, a, b in zip(outputs, old, new, strict=True):
            difference = np.abs(a.astype(np.float64) - b.astype(np.float64))
            greatest = max(greatest, float(difference.max(initial=0)))
            zero = detail["quantization"][1]
            signal += float(((a.astype(np.float64) - zero) ** 2).sum())
            noise += float((difference**2).sum())
        watch()
    sqnr_db = None
    if noise:
        sqnr_db = 10 * math.log10(signal / noise) if signal else -math.inf
    return Agreement(
        inputs=count,
        kernels=_named(old_model, new_model),
        equal=equal,
        same_top=same_top if math.prod(outputs[0]["shape"]) > 1 else None,
        greatest=greatest,
        is_in_quanta=all(np.issubdtype(detail["dtype"], np.integer) for detail in outputs),
        sqnr_db=sqnr_db,
    )


def _named(*judges: JudgeInterpreter) -> str:
    """Name the kernels of both models, and the reasons for others than the reference ones."""
    names = " and ".join(dict.fromkeys(judge.kernels.name for judge in judges))
    reasons = "; ".join(dict.fromkeys(filter(None, (judge.reasons for judge in judges))))
    return f"{names} ({reasons})" if reasons else names
