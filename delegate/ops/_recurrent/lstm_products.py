# SPDX-License-Identifier: Apache-2.0
"""Gate sums of hybrid LSTMs as matrix products.

The inputs' part is one product for all steps, so efficient kernels do most of the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from delegate.graph.ir import Tensor
from delegate.launch import Alternative, Launch, Params, temporary
from delegate.ops._checks.activations import applied
from delegate.ops._checks.windows import ONE_TAP
from delegate.ops._convolution.hybrid import Product
from delegate.ops._recurrent.lstm_records import Lstm, stacked
from delegate.ops._recurrent.steps import only_scale, rounding
from delegate.target import Target

# Product -> alternatives, the fallback last.
Multiply = Callable[[Product, Target], tuple[Alternative, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Products:
    """One alternative to compute the gate sums of all steps, in two parts."""

    name: str
    input_launches: tuple[Launch, ...]
    input_sums: Tensor  # (rows of all steps, gates * cells), including biases
    hidden_launches: tuple[Launch, ...]  # for the first step; other steps replace the input
    sums: Tensor  # (rows, gates * cells)

    def of_step(self, lstm: Lstm, hidden: Tensor) -> Iterator[Launch]:
        """Yield the launches that multiply the previous step's output."""
        for launch in self.hidden_launches:
            yield launch.reading({lstm.hidden: hidden})

    def fields(self, lstm: Lstm, at: int) -> Params:
        """Return the fields of a step's sums."""
        step_stride, row = lstm.steps.stride(self.sums.shape[-1])
        sum_fields: Params = {"sums": self.sums, "input_sums": self.input_sums}
        return {**sum_fields, "input_sums_at": at * step_stride, "input_sums_row": row}


def products_of(
    lstm: Lstm, is_asymmetric: bool, multiply: Multiply, target: Target
) -> Iterator[Products]:
    """Yield alternatives for the gate sums of a hybrid LSTM, the fastest expected first.

    None if the sums have more parts or are normalised.
    """
    if lstm.norms or lstm.auxiliary is not None or any(lstm.peepholes):
        return
    steps = lstm.rows * lstm.steps.count
    bias = stacked(lstm.biases, "biases").reshape(-1).astype(np.float32)
    no_bias = np.zeros_like(bias)
    parts = []
    for source, rows, weights, biases in (
        (lstm.source, steps, lstm.weights, bias),
        (lstm.hidden, lstm.rows, lstm.recurrent, no_bias),
    ):
        values = stacked(weights, "weights").reshape(bias.size, 1, -1)
        scales = [np.float32(only_scale(each)) for each in weights]
        clamp, defines = applied("NONE")
        product = Product(
            source=source,
            result=temporary("sums of gates", (rows, bias.size), "float32"),
            area=ONE_TAP,
            batch=rows,
            weights=values,
            is_asymmetric=is_asymmetric,
            rounds_once=bool(rounding(target)),
            scales=np.repeat(np.array(scales, np.float32), lstm.cells),
            bias=biases,
            clamp=clamp,
            clamp_defines=defines,
        )
        parts.append((product.result, multiply(product, target)[:-1]))
    (input_sums, input_launches), (sums, hidden_launches) = parts
    for each in hidden_launches:
        other = _matching(each, input_launches)
        if other is not None:
            yield Products(each.name, other.launches, input_sums, each.launches, sums)


def _matching(alternative: Alternative, candidates: Sequence[Alternative]) -> Alternative | None:
    """Return the alternative with the same instructions, else the first."""
    instructions = alternative.name.split()[0]
    matches = (each for each in candidates if each.name.split()[0] == instructions)
    return next(matches, next(iter(candidates), None))
