# SPDX-License-Identifier: Apache-2.0
"""Convolutions with a weight scale for each output channel get one scale (lossy).

    x -CONV_2D, o scales-> y        becomes        x -CONV_2D, one scale-> y

The one scale is the one with the least error of the outputs: weights beyond 127 of it are clamped
where that costs less than coarser steps for all others. An error counts as much as its input can
hold, by the ranges that layers.py proves. So the weights of a dead channel, which is 0 for every
input (a RELU of what is never positive), count nothing and become 0; in MobileNet V2 these are the
greatest weights by far.

Before that, the channels between two such layers are equalised:

    x -A-> t -B-> y: channel c of A's weights and bias * f[c], of B's weights / f[c], f[c] >= 1

That is exact up to rounding where nothing that was stored before is clamped now: a RELU's 0 is 0 at
every scale, and f[c] is only as great as keeps the proven range of t within its type, its scale,
and RELU6's 6. It is kept where the two layers' errors, relative to their outputs, get less.

The equalisation: Nagel et al., Data-Free Quantization Through Weight Equalization and Bias
Correction (ICCV 2019), section 4.1, with proven ranges in the place of RELU6 -> RELU. The bias is
stored in quanta of input scale * new weight scale.

It is for targets with one scale a tensor: Mesa's Teflon drivers refuse per-channel convolutions.
It runs before passes that mix channels (unstride_convolutions): ranges are of channels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import log10

import numpy as np
from numpy.typing import NDArray

from delegate.graph.ir import Graph, Node, Quantization, Tensor
from delegate.passes.convolutions import is_convolution, reason_to_leave, source_and_weights
from delegate.passes.editing import new_tensor, only_reader, readers, rebuilt
from delegate.passes.layers import (
    Layer,
    Range,
    Reals,
    channel_ranges,
    layer_of,
    stored_range,
    sums_of,
    whole_range,
)
from delegate.passes.notes import Notes

_SWEEPS = 3  # over all pairs of layers; more of them change nothing that can be measured
_CLAMPS = np.geomspace(0.3, 1, 13)  # tried: which part of the greatest weight is not clamped
_MOST_FACTOR = 256.0  # of a channel that can hold next to nothing
_LEAST_SCALE = float(np.finfo(np.float32).tiny)
_MOST_BIAS = 2**30  # quanta: sums of 32 bits need room beside it


@dataclass(frozen=True, slots=True, eq=False)
class _Coded:
    """A layer's weights at one scale."""

    scale: float  # an exact float32 value
    codes: NDArray[np.int8]  # as Layer.weights
    loss_db: float | None  # None: nothing is lost; else signal to quantisation noise of the outputs


@dataclass(slots=True, eq=False)
class _Scaled:
    """A layer while the factors of its channels grow."""

    layer: Layer
    power: Reals  # (c,): the mean square of each input channel, spread evenly over its range
    dead: NDArray[np.bool_]  # (o,): outputs that are 0 for every input
    in_factor: Reals  # (c,)
    out_factor: Reals  # (o,)

    @property
    def needed(self) -> NDArray[np.bool_]:
        """Which weights matter: neither their input nor their output is always 0."""
        is_live = self.layer.per_input(self.power) > 0
        return np.asarray(is_live & ~self.dead[:, None, None])

    def weights(self) -> Reals:
        """The weights times the factors; what is not needed is 0."""
        scaled = self.layer.weights * self.out_factor[:, None, None]
        return np.asarray(np.where(self.needed, scaled / self.layer.per_input(self.in_factor), 0.0))

    def bias(self) -> Reals:
        """The bias times the factors; of a dead output it is 0."""
        return np.asarray(np.where(self.dead, 0.0, self.layer.bias * self.out_factor))

    def counts(self) -> Reals:
        """How much the square of an error in a weight counts, in squares of the old outputs."""
        inputs = self.layer.per_input(self.power * self.in_factor**2)
        return np.asarray(np.where(self.needed, inputs / self.out_factor[:, None, None] ** 2, 0.0))

    def signal(self) -> float:
        """The mean square of the outputs without their bias, summed over the channels."""
        squares = self.layer.weights**2 * self.layer.per_input(self.power)
        return float(squares.sum(where=self.needed))

    def expected_error(self) -> float:
        """The mean square of the error where no weight is clamped, as a part of the signal."""
        signal = self.signal()
        step = np.abs(self.weights()).max(initial=0) / 127
        taps = self.layer.weights.shape[1]
        return float(step**2 / 12 * self.counts().sum() * taps / signal) if signal else 0.0


def rewrite(graph: Graph, notes: Notes | None = None, equalise: bool = True) -> Graph:
    """Return the graph with one scale for each convolution's weights; the same one if it has that.

    `equalise`: False shows what it is worth. Notes have each layer's signal to quantisation noise.
    """
    notes = Notes() if notes is None else notes
    layers = _treatable(graph, notes)
    if not layers:
        return graph
    ranges = channel_ranges(graph)
    plain = {node: _coded(_start(node, ranges)) for node in layers}
    scaled = {node: _start(node, ranges) for node in layers}
    if equalise:
        _equalise(graph, scaled, ranges)
    new: dict[Node, Node] = {}
    for node, state in scaled.items():
        coded = _coded(state) if equalise else plain[node]
        new[node] = _with_one_scale(state, coded)
        notes.treated(node, _text(state, coded, plain[node]), coded.loss_db)
    return rebuilt(graph, (new.get(node, node) for node in graph.nodes))


def _treatable(graph: Graph, notes: Notes) -> list[Node]:
    """Return the convolutions with several scales; of others that have them, note why they stay."""
    found = []
    for node in graph.nodes:
        weights = node.inputs[1] if len(node.inputs) > 1 else None
        if weights is None or len(weights.quantization.scale if weights.quantization else ()) < 2:
            continue
        if not is_convolution(node):
            notes.left(node, "only CONV_2D and DEPTHWISE_CONV_2D are treated")
        elif (reason := reason_to_leave(graph, node)) is not None:
            notes.left(node, reason)
        else:
            found.append(node)
    return found


def _start(node: Node, ranges: Mapping[Tensor, Range]) -> _Scaled:
    """Return a layer with all factors 1."""
    layer = layer_of(node)
    low, high = _input_range(node, ranges)
    least, most = ranges[node.outputs[0]]
    return _Scaled(
        layer=layer,
        power=(low**2 + low * high + high**2) / 3,
        dead=(least == 0) & (most == 0),
        in_factor=np.ones(layer.inputs),
        out_factor=np.ones(len(layer.bias)),
    )


def _input_range(node: Node, ranges: Mapping[Tensor, Range]) -> Range:
    source = source_and_weights(node)[0]
    return ranges.get(source) or whole_range(source)


def _equalise(graph: Graph, scaled: Mapping[Node, _Scaled], ranges: Mapping[Tensor, Range]) -> None:
    """Set the factors of the channels between two layers where these lose less for it."""
    read_by = readers(graph)
    pairs = []
    for node, first in scaled.items():
        reader = only_reader(graph, read_by, node.outputs[0])
        if reader in scaled and reader is not None:
            limits = _greatest_factors(first, _input_range(node, ranges))
            pairs.append((first, scaled[reader], limits))
    for first, second, limits in pairs * _SWEEPS:
        old = first.out_factor
        before = first.expected_error() + second.expected_error()
        first.out_factor = second.in_factor = _balanced(first, second, limits)
        if first.expected_error() + second.expected_error() >= before:
            first.out_factor = second.in_factor = old


def _greatest_factors(first: _Scaled, inputs: Range) -> Reals:
    """Return by how much each output channel can grow so that nothing more of it is clamped."""
    low, high = stored_range(first.layer.node)
    least, most = sums_of(first.layer, inputs)
    limits = np.full(len(most), _MOST_FACTOR)
    np.minimum(limits, high / np.maximum(most, high / _MOST_FACTOR), out=limits)
    if low < 0:  # not a RELU, whose 0 is 0 at every scale
        np.minimum(limits, low / np.minimum(least, low / _MOST_FACTOR), out=limits)
    return np.asarray(np.maximum(limits, 1))


def _balanced(first: _Scaled, second: _Scaled, limits: Reals) -> Reals:
    """Return the factors that make a channel's weights as great in both layers, within limits."""
    ours = np.abs(first.weights()).max(axis=(1, 2))
    theirs = np.zeros(second.layer.inputs)
    np.maximum.at(theirs, second.layer.reads, np.abs(second.weights()).max(axis=1))
    both = (ours > 0) & (theirs > 0)
    ratio = (theirs[both] / theirs.max()) / (ours[both] / ours.max())
    factors = np.array(first.out_factor)
    factors[both] = np.clip(factors[both] * np.sqrt(ratio), 1, limits[both])
    return factors


def _coded(state: _Scaled) -> _Coded:
    """Return a layer's weights at the scale with the least error of its outputs."""
    weights, counts = state.weights(), state.counts()
    source = source_and_weights(state.layer.node)[0]
    assert source.quantization is not None
    greatest_bias = np.abs(state.bias()).max(initial=0)
    least_scale = greatest_bias / (source.quantization.scale[0] * _MOST_BIAS)
    best: tuple[float, float] | None = None
    for part in _CLAMPS:
        step = max(np.abs(weights).max() * part / 127, least_scale, _LEAST_SCALE)
        scale = float(np.float32(step))
        error = float((counts * (_codes(weights, scale) * scale - weights) ** 2).sum())
        if best is None or error < best[0]:
            best = error, scale
    assert best is not None
    error, scale = best
    signal = state.signal()
    loss = 10 * log10(signal / error) if error and signal else None
    return _Coded(scale, _codes(weights, scale).astype(np.int8), loss)


def _codes(weights: Reals, scale: float) -> Reals:
    return np.asarray(np.clip(np.rint(weights / scale), -127, 127))


def _with_one_scale(state: _Scaled, coded: _Coded) -> Node:
    """Return the convolution with the coded weights, and its bias in their quanta."""
    node = state.layer.node
    source, weights = source_and_weights(node)
    assert source.quantization is not None
    if node.op == "DEPTHWISE_CONV_2D":
        codes = np.moveaxis(coded.codes, 0, 2).reshape(weights.shape)
    else:
        codes = coded.codes.reshape(weights.shape)
    made = new_tensor(
        f"{weights.name}/one_scale",
        weights.shape,
        weights.dtype,
        Quantization((coded.scale,), (0,)),
        np.ascontiguousarray(codes),
    )
    inputs: list[Tensor | None] = [source, made]
    old = node.inputs[2] if len(node.inputs) == 3 else None
    if old is not None:
        scale = max(float(np.float32(source.quantization.scale[0] * coded.scale)), _LEAST_SCALE)
        quanta = np.rint(state.bias() / scale).astype(old.dtype)
        one = Quantization((scale,), (0,))
        inputs.append(new_tensor(f"{old.name}/one_scale", old.shape, old.dtype, one, quanta))
    return replace(node, inputs=tuple(inputs))


def _text(state: _Scaled, coded: _Coded, plain: _Coded) -> str:
    parts = [f"one scale of {len(state.layer.bias)}"]
    numbers = {
        "outputs that are always 0": int(state.dead.sum()),
        "inputs equalised": int((state.in_factor > 1).sum()),
        "outputs equalised": int((state.out_factor > 1).sum()),
    }
    parts += [f"{number} {what}" for what, number in numbers.items() if number]
    if plain.loss_db is not None and plain.loss_db != coded.loss_db:
        parts.append(f"{plain.loss_db:.1f} dB if not equalised")
    return ", ".join(parts)
