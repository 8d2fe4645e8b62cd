# SPDX-License-Identifier: Apache-2.0
"""LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM and BIDIRECTIONAL_SEQUENCE_LSTM: a few launches per step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from delegate.errors import Unsupported
from delegate.graph.float_results import Growth, roundings
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Launch
from delegate.ops._convolution.variants import hybrid_products
from delegate.ops._launches.tiles import MOST_ROUNDS
from delegate.ops._recurrent.lstm_basic import basic
from delegate.ops._recurrent.lstm_floats import float_arithmetic
from delegate.ops._recurrent.lstm_integers import integer_arithmetic
from delegate.ops._recurrent.lstm_launches import Arithmetic, launches
from delegate.ops._recurrent.lstm_products import products_of
from delegate.ops._recurrent.lstm_records import Lstm, parse_lstm
from delegate.ops._recurrent.steps import HybridInput, concatenated, input_of
from delegate.ops._registry import lowers
from delegate.target import Target

_FLOATS = roundings(Growth.STEADY, 16)


@lowers("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_LSTM", floats=_FLOATS)
def lower_lstm(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Compute an LSTM over all steps of a sequence, or the single step of an LSTM node.

    Shapes:
        input (rows, steps, depth), steps first if time_major, or (rows, depth) -> output with the
        last size replaced; the states are (rows, width) and (rows, cells). A bidirectional node has
        everything but the input twice, and concatenates its outputs if merge_outputs.
    Raises:
        Unsupported: types other than int8 with int16 cells, float32, and float32 with int8 weights;
            bidirectional int8, the basic kernel in uint8, non-constant weights, an auxiliary input
            that the calling TFLite reads wrongly, mismatched shapes, long sequences.
    Source: tflite/kernels/lstm.cc, unidirectional_sequence_lstm.cc,
    bidirectional_sequence_lstm.cc, lstm_eval.cc
    """
    if node.options.get("kernel_type", "FULL") != "FULL":
        return (Alternative("plain", basic(node, target)),)
    lstms = parse_lstm(node)
    if lstms[0].auxiliary is not None and not target.rules.linked_lstms:
        raise Unsupported("weights of an auxiliary input: this TFLite reads past it")
    kinds = [_arithmetic(node, lstm, target) for lstm in lstms]
    steps: list[Launch] = []
    inputs: dict[Tensor, HybridInput] = {}
    pair = None
    for lstm, kind in zip(lstms, kinds, strict=True):
        if kind.family != kinds[0].family:
            raise Unsupported("weights of two types")
        gate_lstm = lstm
        if kind.family == "hybrid":
            for source in (lstm.source, lstm.auxiliary):
                if source is not None and source not in inputs:
                    inputs[source] = input_of(source, lstm.steps, kind.is_asymmetric, target)
                    steps += inputs[source].rows.launches
        elif lstm.auxiliary is not None:
            if pair is None:
                pair = concatenated(lstm.source, lstm.auxiliary, target)
                steps += pair[1]
            gate_lstm = replace(lstm, source=pair[0], depth=pair[0].shape[-1])
        steps += launches(gate_lstm, kind, inputs, target)
    return (*_matrix_products(lstms, kinds, target), Alternative("plain", tuple(steps)))


def _matrix_products(
    lstms: list[Lstm], kinds: list[Arithmetic], target: Target
) -> Iterator[Alternative]:
    """Yield the alternatives that compute the gates' sums as matrix products."""
    if kinds[0].family != "hybrid":
        return
    product_lists = [
        products_of(lstm, kind.is_asymmetric, hybrid_products, target)
        for lstm, kind in zip(lstms, kinds, strict=True)
    ]
    for choice in zip(*product_lists, strict=False):
        steps = [
            launch
            for lstm, kind, products in zip(lstms, kinds, choice, strict=True)
            for launch in launches(lstm, kind, {}, target, products)
        ]
        yield Alternative(choice[0].name, tuple(steps))


def _arithmetic(node: Node, lstm: Lstm, target: Target) -> Arithmetic:
    extra = lstm.auxiliary.shape[-1] if lstm.auxiliary else 0
    most = max(4 * (lstm.depth + extra + lstm.width), lstm.cells * (8 if lstm.norms else 1))
    if most > MOST_ROUNDS:
        raise Unsupported(f"{most} products a cell: more than {MOST_ROUNDS}")
    kind = lstm.source.dtype, lstm.weights[0].dtype
    if kind == ("int8", "int8") and node.op != "BIDIRECTIONAL_SEQUENCE_LSTM":
        return integer_arithmetic(node, lstm, target)
    if kind in (("float32", "float32"), ("float32", "int8")):
        return float_arithmetic(node, lstm, target)
    raise Unsupported(
        f"{kind[0]} with {kind[1]} weights: float32 with float32 or int8, or int8 with int16 cells"
    )
