# SPDX-License-Identifier: Apache-2.0
"""LSTM and the sequences of them, in one direction and in both: some launches a step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from delegate.errors import Unsupported
from delegate.graph.float_results import Growth, roundings
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Launch
from delegate.ops._launches.tiles import MOST_ROUNDS
from delegate.ops._recurrent.lstm_basic import basic
from delegate.ops._recurrent.lstm_floats import of_floats
from delegate.ops._recurrent.lstm_integers import of_integers
from delegate.ops._recurrent.lstm_launches import Arithmetic, launches
from delegate.ops._recurrent.lstm_products import products_of
from delegate.ops._recurrent.lstm_records import Lstm, decoded
from delegate.ops._recurrent.steps import HybridInput, beside, input_of
from delegate.ops._registry import lowers
from delegate.ops.fully_connected import hybrid_products
from delegate.target import Target

_FLOATS = roundings(Growth.STEADY, 16)


@lowers("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_LSTM", floats=_FLOATS)
def lower_lstm(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Compute an LSTM over all steps of a sequence, or over the one step of an LSTM node.

    Shapes:
        input (rows, steps, depth), steps first if time_major, or (rows, depth) -> output with the
        last size replaced; the state's tensors are (rows, width) and (rows, cells). In both
        directions all but the input stand twice, and the outputs stand side by side if
        merge_outputs.
    Raises:
        Unsupported: other types than int8 with int16 cells, float32, and float32 with int8
            weights, both directions of int8, the basic kernel of uint8, computed weights, an
            auxiliary input that the calling TFLite reads wrongly, shapes that do not fit, long
            sequences.
    Source: tflite/kernels/lstm.cc, unidirectional_sequence_lstm.cc,
    bidirectional_sequence_lstm.cc, lstm_eval.cc
    """
    if node.options.get("kernel_type", "FULL") != "FULL":
        return (Alternative("plain", basic(node, target)),)
    lstms = decoded(node)
    if lstms[0].auxiliary is not None and not target.rules.linked_lstms:
        raise Unsupported("weights of an auxiliary input: this TFLite reads past it")
    every = [_arithmetic(node, lstm, target) for lstm in lstms]
    made: list[Launch] = []
    inputs: dict[Tensor, HybridInput] = {}
    joined = None
    for lstm, own in zip(lstms, every, strict=True):
        if own.family != every[0].family:
            raise Unsupported("weights of two types")
        of_gates = lstm
        if own.family == "hybrid":
            for source in (lstm.source, lstm.auxiliary):
                if source is not None and source not in inputs:
                    inputs[source] = input_of(source, lstm.steps, own.is_asymmetric, target)
                    made += inputs[source].rows.launches
        elif lstm.auxiliary is not None:
            if joined is None:
                joined = beside(lstm.source, lstm.auxiliary, target)
                made += joined[1]
            of_gates = replace(lstm, source=joined[0], depth=joined[0].shape[-1])
        made += launches(of_gates, own, inputs, target)
    return (*_by_products(lstms, every, target), Alternative("plain", tuple(made)))


def _by_products(
    lstms: list[Lstm], every: list[Arithmetic], target: Target
) -> Iterator[Alternative]:
    """Yield the alternatives whose gates are summed by products of matrices."""
    if every[0].family != "hybrid":
        return
    ways = [
        products_of(lstm, own.is_asymmetric, hybrid_products, target)
        for lstm, own in zip(lstms, every, strict=True)
    ]
    for way in zip(*ways, strict=False):
        made = [
            launch
            for lstm, own, products in zip(lstms, every, way, strict=True)
            for launch in launches(lstm, own, {}, target, products)
        ]
        yield Alternative(way[0].name, tuple(made))


def _arithmetic(node: Node, lstm: Lstm, target: Target) -> Arithmetic:
    more = lstm.auxiliary.shape[-1] if lstm.auxiliary else 0
    most = max(4 * (lstm.depth + more + lstm.width), lstm.cells * (8 if lstm.norms else 1))
    if most > MOST_ROUNDS:
        raise Unsupported(f"{most} products a cell: more than {MOST_ROUNDS}")
    kind = lstm.source.dtype, lstm.weights[0].dtype
    if kind == ("int8", "int8") and node.op != "BIDIRECTIONAL_SEQUENCE_LSTM":
        return of_integers(node, lstm, target)
    if kind in (("float32", "float32"), ("float32", "int8")):
        return of_floats(node, lstm, target)
    raise Unsupported(
        f"{kind[0]} with {kind[1]} weights: float32 with float32 or int8, or int8 with int16 cells"
    )
