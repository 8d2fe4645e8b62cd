# SPDX-License-Identifier: Apache-2.0
"""Two models on the same inputs, by TFLite's reference kernels: how much their outputs agree."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflite_opencl.common.interpreter import allocated, failures, invoke
from tflite_opencl.common.runtime import Runtime

Arrays = Sequence[NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Agreement:
    """What two models answered on some inputs."""

    inputs: int
    kernels: str  # whose: "reference kernels", or TFLite's own where those lack the model
    equal: int  # inputs with the same bits in every output
    same_top: int | None  # inputs with the same greatest element; None: the outputs have only one
    greatest: float  # difference: in quanta of quantised outputs, else in the output's own unit
    is_in_quanta: bool
    sqnr_db: float | None  # signal to noise of all outputs; None: there is no noise


def agreement(
    before: str,
    after: bytes,
    sets: Iterable[Arrays],
    runtime: Runtime,
    watch: Callable[[], None],
) -> Agreement:
    """Run both models on each input set; `watch` is called after each.

    Raises:
        CommandError: TFLite refuses a model.
    """
    kernels = "reference" if _runs(before, runtime) else "builtin"
    models = [_allocated(each, runtime, kernels) for each in (before, after)]
    count = equal = same_top = 0
    greatest = signal = noise = 0.0
    for given in sets:
        old, new = (_outputs(model, given) for model in models)
        count += 1
        equal += all(a.tobytes() == b.tobytes() for a, b in zip(old, new, strict=True))
        same_top += int(old[0].argmax()) == int(new[0].argmax())
        details = models[0].get_output_details()
        for detail, a, b in zip(details, old, new, strict=True):
            difference = np.abs(a.astype(np.float64) - b.astype(np.float64))
            greatest = max(greatest, float(difference.max(initial=0)))
            zero = detail["quantization"][1]
            signal += float(((a.astype(np.float64) - zero) ** 2).sum())
            noise += float((difference**2).sum())
        watch()
    first = models[0].get_output_details()
    return Agreement(
        inputs=count,
        kernels=runtime.kernels(kernels),
        equal=equal,
        same_top=same_top if math.prod(first[0]["shape"]) > 1 else None,
        greatest=greatest,
        is_in_quanta=all(np.issubdtype(detail["dtype"], np.integer) for detail in first),
        sqnr_db=_decibels(signal, noise),
    )


def _runs(model: str, runtime: Runtime) -> bool:
    try:
        allocated(runtime, model, "reference", threads=None)
    except (RuntimeError, ValueError):
        return False
    return True


def _allocated(model: str | bytes, runtime: Runtime, kernels: str) -> Any:
    with failures("the rewritten model" if isinstance(model, bytes) else model):
        return allocated(runtime, model, kernels, threads=None)


def _outputs(model: Any, given: Arrays) -> Arrays:
    with failures():
        return invoke(model, given)


def _decibels(signal: float, noise: float) -> float | None:
    """Return signal to noise in dB; of no signal at all, -inf."""
    if noise == 0:
        return None
    return 10 * math.log10(signal / noise) if signal else -math.inf
