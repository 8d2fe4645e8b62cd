# SPDX-License-Identifier: Apache-2.0
"""Converts per-channel weight scales of convolutions to per-tensor scales (lossy).

    x -CONV_2D, o scales-> y        becomes        x -CONV_2D, one scale-> y

The scale has the minimum output error: weights beyond 127 quanta are clamped
if that costs less than coarser steps for all others, and the errors of each output channel sum
to about 0 (one_scale.py), which replaces bias correction. Errors are weighted by the possible
magnitude of their input, by the ranges that layers.py proves. So the weights of a dead channel,
which is 0 for every input (a RELU of values never positive), have no weight and become 0. In
MobileNet V2 these are by far the largest weights.

Before that, the channels between two such layers are equalised:

    x -A-> t -B-> y: channel c of A's weights and bias * f[c], of B's weights / f[c], f[c] >= 1

That is exact up to rounding if nothing is clamped that was not before: a RELU's 0 is 0 at
every scale, and f[c] is limited to keep the proven range of t within its type, its scale,
and RELU6's 6. It is applied if the errors of both layers, relative to their outputs, decrease.

The equalisation: Nagel et al., Data-Free Quantization Through Weight Equalization and Bias
Correction (ICCV 2019), section 4.1, with proven ranges instead of RELU6 -> RELU. The bias is
stored in quanta of input scale * new weight scale.

For targets with per-tensor scales: Mesa's Teflon drivers reject per-channel convolutions.
Must precede passes that mix channels (unstride_convolutions): ranges are per channel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import log10
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.graph.def_use import DefUse
from delegate.inspect import Graph, Node, Quantization, Tensor
from tflite_opencl.rewrites.changes import (
    Change,
    NoMatch,
    Notes,
    changed,
    found_at,
    new_tensor,
    quanta,
)
from tflite_opencl.rewrites.passes.convolutions import Conv2D, convolution_of
from tflite_opencl.rewrites.passes.layers import (
    Layer,
    Range,
    Reals,
    channel_ranges,
    input_range,
    layer_of,
    stored_range,
    sums_of,
)
from tflite_opencl.rewrites.passes.one_scale import MOST_CODE, Coded, coded

_SWEEPS = 3  # over all pairs of layers; more have no measurable effect
_MOST_FACTOR = 256.0  # of a channel with almost no range
_LEAST_SCALE = float(np.finfo(np.float32).tiny)
_MOST_BIAS = 2**30  # quanta: leaves room for 32-bit sums


@dataclass(slots=True, eq=False)
class _Scaled:
    """A layer during equalisation."""

    layer: Layer
    mean: Reals  # (c,): of each input channel, assuming a uniform distribution
    variance: Reals  # (c,): likewise
    dead: NDArray[np.bool_]  # (o,): outputs that are 0 for every input
    in_factor: Reals  # (c,)
    out_factor: Reals  # (o,)

    @property
    def needed(self) -> NDArray[np.bool_]:
        """Which weights matter: neither their input nor their output is always 0."""
        is_live = self.layer.per_input(self.mean**2 + self.variance) > 0
        return np.asarray(is_live & ~self.dead[:, None, None])

    def weights(self) -> Reals:
        """The weights times the factors; irrelevant ones are 0."""
        scaled = self.layer.weights * self.out_factor[:, None, None]
        return np.asarray(np.where(self.needed, scaled / self.layer.per_input(self.in_factor), 0.0))

    def bias(self) -> Reals:
        """The bias times the factors; 0 for dead outputs."""
        return np.asarray(np.where(self.dead, 0.0, self.layer.bias * self.out_factor))

    def _per_error(self, inputs: Reals, power: int) -> Reals:
        """Return the factor of each weight's error: inputs and factors to some power."""
        factors = self.layer.per_input(inputs * self.in_factor**power)
        return np.asarray(
            np.where(self.needed, factors / self.out_factor[:, None, None] ** power, 0.0)
        )

    def counts(self) -> Reals:
        """The weights of squared errors, in squares of the old outputs."""
        return self._per_error(self.mean**2 + self.variance, 2)

    def means(self) -> Reals:
        """The shift of the old outputs per error."""
        return self._per_error(self.mean, 1)

    def loss_db(self, coded: Coded) -> float | None:
        """Return the outputs' signal to quantisation noise ratio; None: no noise, or no signal.

        The signal is the outputs' variance. The noise is the errors' variance and squared bias.
        """
        errors = coded.values - self.weights()
        signal = (self.layer.weights**2 * self.layer.per_input(self.variance)).sum(
            where=self.needed
        )
        noise = (self._per_error(self.variance, 2) * errors**2).sum()
        noise += ((self.means() * errors).sum(axis=(1, 2)) ** 2).sum()
        return 10 * log10(signal / noise) if signal > 0 and noise > 0 else None

    def expected_error(self) -> float:
        """The mean squared error without clamping, relative to the signal.

        The signal is the mean square of the outputs without their bias, summed over the channels.
        """
        squares = self.layer.weights**2 * self.layer.per_input(self.mean**2 + self.variance)
        signal = float(squares.sum(where=self.needed))
        step = np.abs(self.weights()).max(initial=0) / MOST_CODE
        taps = self.layer.weights.shape[1]
        return float(step**2 / 12 * self.counts().sum() * taps / signal) if signal else 0.0


def rewrite(graph: Graph, notes: Notes | None = None, equalise: bool = True) -> Graph:
    """Return the graph with per-tensor weight scales; the same object if it has no others.

    `equalise`: False to measure its benefit. Notes have each layer's signal-to-noise ratio.
    """
    found = dict(found_at(graph.nodes, notes, lambda node: _of_several_scales(graph, node)))
    if not found:
        return graph
    ranges = channel_ranges(graph)
    plain = {node: _start(conv, ranges) for node, conv in found.items()}
    scaled = {node: _start(conv, ranges) for node, conv in found.items()}
    if equalise:
        _equalise(graph, scaled, ranges)

    def change(node: Node) -> Change:
        state = scaled[node]
        alone = _coded(plain[node])
        made = _coded(state) if equalise else alone
        loss, plain_loss = state.loss_db(made), plain[node].loss_db(alone)
        one = _with_one_scale(state, made)
        return Change(_text(state, loss, plain_loss), {node: [one]}, loss_db=loss)

    return changed(graph, notes, change, scaled)


def _of_several_scales(graph: Graph, node: Node) -> Conv2D | None:
    """Return a convolution with several scales, or None; Left: it has to stay."""
    weights = node.inputs[1] if len(node.inputs) > 1 else None
    if weights is None or len(weights.quantization.scale if weights.quantization else ()) < 2:
        return None
    conv = convolution_of(node)
    if conv is None:
        raise NoMatch("only CONV_2D and DEPTHWISE_CONV_2D are treated")
    conv.require_treatable(graph)
    return conv


def _start(conv: Conv2D, ranges: Mapping[Tensor, Range]) -> _Scaled:
    """Return a layer with all factors 1."""
    low, high = input_range(conv, ranges)
    least, most = ranges[conv.result]
    return _Scaled(
        layer=layer_of(conv),
        mean=(low + high) / 2,
        variance=(high - low) ** 2 / 12,
        dead=(least == 0) & (most == 0),
        in_factor=np.ones(conv.in_c),
        out_factor=np.ones(conv.out_c),
    )


def _equalise(graph: Graph, scaled: Mapping[Node, _Scaled], ranges: Mapping[Tensor, Range]) -> None:
    """Set the factors of the channels between two layers if their errors decrease."""
    links = DefUse(graph)
    pairs = []
    for node, first in scaled.items():
        reader = links.sole_consumer(node.outputs[0])
        if reader is not None and reader in scaled:
            limits = _greatest_factors(first, input_range(first.layer.conv, ranges))
            pairs.append((first, scaled[reader], limits))
    for first, second, limits in pairs * _SWEEPS:
        old = first.out_factor
        before = first.expected_error() + second.expected_error()
        first.out_factor = second.in_factor = _balanced(first, second, limits)
        if first.expected_error() + second.expected_error() >= before:
            first.out_factor = second.in_factor = old


def _greatest_factors(first: _Scaled, inputs: Range) -> Reals:
    """Return the maximum factor of each output channel that clamps nothing more."""
    low, high = stored_range(first.layer.conv)
    least, most = sums_of(first.layer, inputs)
    limits = np.full(len(most), _MOST_FACTOR)
    np.minimum(limits, high / np.maximum(most, high / _MOST_FACTOR), out=limits)
    if low < 0:  # not a RELU, whose 0 is 0 at every scale
        np.minimum(limits, low / np.minimum(least, low / _MOST_FACTOR), out=limits)
    return np.asarray(np.maximum(limits, 1))


def _balanced(first: _Scaled, second: _Scaled, limits: Reals) -> Reals:
    """Return factors that equalise a channel's weights in both layers, within limits."""
    ours = np.abs(first.weights()).max(axis=(1, 2))
    theirs = np.zeros(second.layer.conv.in_c)
    np.maximum.at(theirs, second.layer.reads, np.abs(second.weights()).max(axis=1))
    both = (ours > 0) & (theirs > 0)
    ratio = (theirs[both] / theirs.max()) / (ours[both] / ours.max())
    factors = np.array(first.out_factor)
    factors[both] = np.clip(factors[both] * np.sqrt(ratio), 1, limits[both])
    return factors


def _coded(state: _Scaled) -> Coded:
    """Return a layer's weights at the scale with the minimum output error."""
    greatest_bias = float(np.abs(state.bias()).max(initial=0))
    least_scale = greatest_bias / (quanta(state.layer.conv.source)[0] * _MOST_BIAS)
    return coded(state.weights(), state.counts(), state.means(), least_scale)


def _with_one_scale(state: _Scaled, made: Coded) -> Node:
    """Return the convolution with quantised weights, and its bias in their quanta."""
    conv = state.layer.conv
    old, bias = conv.weights, conv.bias
    codes = np.moveaxis(made.codes, 0, 2) if conv.is_depthwise else made.codes
    packed = np.ascontiguousarray(codes.reshape(old.shape).astype(np.int8))
    inputs = [conv.source, _one_scale(old, made.scale, packed)]
    if bias is not None:
        scale = max(float(np.float32(quanta(conv.source)[0] * made.scale)), _LEAST_SCALE)
        inputs.append(_one_scale(bias, scale, np.rint(state.bias() / scale).astype(bias.dtype)))
    return replace(conv.node, inputs=tuple(inputs))


def _one_scale(old: Tensor, scale: float, codes: NDArray[Any]) -> Tensor:
    one = Quantization((scale,), (0,))
    return new_tensor(f"{old.name}/one_scale", old.shape, old.dtype, one, codes)


def _text(state: _Scaled, loss: float | None, plain_loss: float | None) -> str:
    parts = [f"one scale of {len(state.layer.bias)}"]
    numbers = {
        "outputs that are always 0": int(state.dead.sum()),
        "inputs equalised": int((state.in_factor > 1).sum()),
        "outputs equalised": int((state.out_factor > 1).sum()),
    }
    parts += [f"{number} {what}" for what, number in numbers.items() if number]
    if plain_loss is not None and plain_loss != loss:
        parts.append(f"{plain_loss:.1f} dB if not equalised")
    return ", ".join(parts)
