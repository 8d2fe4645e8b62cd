# SPDX-License-Identifier: Apache-2.0
"""Sums of an LSTM's gates as products of matrices, of rows that become int8, and int8 weights.

What inputs add is one product for all steps. So the kernels of such products do most of the work.
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

# A product -> the ways to multiply, the plain one last.
Multiply = Callable[[Product, Target], tuple[Alternative, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Products:
    """One way to sum the gates of all steps, in two parts."""

    name: str
    of_inputs: tuple[Launch, ...]
    input_sums: Tensor  # (rows of all steps, gates * cells), with the biases
    of_hidden: tuple[Launch, ...]  # of the step before the first; they serve the other steps, too
    sums: Tensor  # (rows, gates * cells)

    def of_step(self, lstm: Lstm, hidden: Tensor) -> Iterator[Launch]:
        """Yield the launches that multiply the output of the step before."""
        for launch in self.of_hidden:
            yield launch.reading({lstm.hidden: hidden})

    def fields(self, lstm: Lstm, at: int) -> Params:
        """Return the fields of a step's sums."""
        ahead, row = lstm.steps.stride(self.sums.shape[-1])
        own: Params = {"sums": self.sums, "input_sums": self.input_sums}
        return {**own, "input_sums_at": at * ahead, "input_sums_row": row}


def products_of(
    lstm: Lstm, is_asymmetric: bool, multiply: Multiply, target: Target
) -> Iterator[Products]:
    """Yield ways to sum the gates of a hybrid LSTM, the fastest expected first.

    None where sums have more parts, or are normalised.
    """
    if lstm.norms or lstm.auxiliary is not None or any(lstm.peepholes):
        return
    steps = lstm.rows * lstm.steps.count
    bias = stacked(lstm.biases, "biases").reshape(-1).astype(np.float32)
    none = np.zeros_like(bias)
    ways = []
    for source, rows, weights, biases in (
        (lstm.source, steps, lstm.weights, bias),
        (lstm.hidden, lstm.rows, lstm.recurrent, none),
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
        ways.append((product.result, multiply(product, target)[:-1]))
    (input_sums, of_inputs), (sums, of_hidden) = ways
    for way in of_hidden:
        other = _alike(way, of_inputs)
        if other is not None:
            yield Products(way.name, other.launches, input_sums, way.launches, sums)


def _alike(way: Alternative, among: Sequence[Alternative]) -> Alternative | None:
    """Return the way that multiplies by the same instructions, else the first."""
    kind = way.name.split()[0]
    same = (each for each in among if each.name.split()[0] == kind)
    return next(same, next(iter(among), None))
