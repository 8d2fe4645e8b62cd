# SPDX-License-Identifier: Apache-2.0
"""The registry, and what holds for every op: a malformed node is refused, never an error."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate import Unsupported, ops
from delegate.graph.float_results import EXACT
from delegate.inspect import Node, Quantization, Tensor
from delegate.launch import Alternative, Constant, is_temporary, size_bytes
from delegate.ops import _registry
from tests.support.cases import PLAIN, STRATEGIES, refusal
from tests.support.model import op, t
from tests.support.nodes import other_nodes, valid_nodes

VALID = valid_nodes("uint8")
NODES = {**VALID, **other_nodes()}
FUSED = {
    "attention",
    "channel_shuffle",
    "conv_2d_add",
    "picture",
    "fully_connected_shifted",
    "layer_norm",
    "logistic_mul",
    "rms_norm",
    "rope",
    "scaled",
    "silu_mul",
    "pointwise",
    "to_floats",
    "to_halves",
}  # no file has them


def test_ops_are_sorted_and_known() -> None:
    assert list(ops.ops()) == sorted({node.op for node in NODES.values()} | FUSED)


def test_unknown_op() -> None:
    assert refusal(op("BUCKETIZE", [t((1,))], [t((1, 1))])) == "op BUCKETIZE is not implemented"


def test_custom_op_of_a_builtin_s_name() -> None:
    node = replace(VALID["ADD"], is_custom=True)
    assert refusal(node) == "custom op ADD is not implemented"


def test_one_function_an_op() -> None:
    with pytest.raises(ValueError, match=r"^ADD is lowered by delegate\.ops\.add already$"):
        _registry.lowers("ADD", floats=EXACT)(_registry.lower)


def test_a_bool_is_0_or_1() -> None:
    sound = t((2,), "bool", data=np.array([0, 1], np.uint8).view(np.bool_))
    node = op("LOGICAL_AND", [sound, t((2,), "bool")], [t((2,), "bool")])
    assert ops.lower(node, PLAIN.target)
    odd = replace(sound, data=np.array([0, 2], np.uint8).view(np.bool_))
    bad = replace(node, inputs=(odd, node.inputs[1]))
    assert refusal(bad) == "a constant of bool has bytes besides 0 and 1"


@pytest.mark.parametrize("name", sorted(NODES))
def test_the_plain_alternative_is_last(name: str) -> None:
    for strategy in STRATEGIES:
        *others, last = ops.lower(NODES[name], strategy.target)
        assert last.name == ("plain" if last.launches else "view")
        assert all(alternative.name != "plain" for alternative in others)


T = TypeVar("T")
TRIES = 300  # malformed nodes for each valid one
DTYPES = (
    ["uint8", "int8"] * 3
    + ["int16", "int32", "int64", "float16", "float32", "bool", "complex64", "string", "int4"]
    + ["bfloat16", "resource", "variant", "type_99"]
)
ODD_SHAPES = [(1, 7, 5, 4), (8, 3, 3, 3), (1, 2**16, 2**16, 4), (2**31 - 1,), (1, 1, 1, 1)]
ODD_FLOATS = [0.5, 1.0, -1.5, 1e-45, 3.4e38, 0.0, -0.0, math.nan, math.inf, -math.inf]
WORDS = ["SAME", "VALID", "NONE", "RELU6", "RELU_N1_TO_1", "TANH", "DEFAULT", ""]
ANY_STRATEGY = [strategy for strategy in STRATEGIES if strategy is not PLAIN]


class Drawer:
    """Draws malformed nodes from a seed. Hypothesis took ten times as long for as many nodes."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.one_of = self._random.choice

    def _is(self) -> bool:
        return self._random.random() < 0.5

    def _many(self, draw: Callable[[], T], most: int) -> list[T]:
        return [draw() for _ in range(self._random.randint(0, most))]

    def _float(self) -> float:
        bits = self._random.getrandbits(32)
        return self.one_of([*ODD_FLOATS, struct.unpack("f", struct.pack("I", bits))[0]])

    def _shape(self) -> tuple[int, ...]:
        small = tuple(self._many(lambda: self._random.randint(0, 7), 5))
        return small if self._is() else self.one_of(ODD_SHAPES)

    def _option(self) -> Any:
        integer = self._random.randint
        return self.one_of(
            [
                lambda: integer(-3, 5),
                lambda: integer(-(2**33), 2**33),
                self._float,
                self._is,
                lambda: None,
                lambda: self.one_of(WORDS),
                lambda: self._random.randbytes(integer(0, 3)),
                lambda: (integer(0, 3),),
                lambda: self._many(lambda: integer(0, 3), 2),
            ]
        )()

    def _quantization(self) -> Quantization | None:
        if self._random.random() < 0.2:
            return None

        def zero_point() -> int:
            wide = self._random.randint(-(2**63), 2**63 - 1)
            return wide if self._is() else self._random.randint(-200, 300)

        count = self.one_of([0, 1, 1, 1, 2, 4, 8])
        scales = tuple(self._float() for _ in range(count))
        zero_points = tuple(self._many(zero_point, 8))
        return Quantization(scales, zero_points, self._random.randint(-5, 5))

    def _constant(self, shape: tuple[int, ...], dtype: str) -> NDArray[Any] | None:
        try:
            kind = np.dtype(dtype)
        except TypeError:
            # Raw bytes, as the reader gives them.
            return np.zeros(self._random.randint(0, 9), np.uint8)
        if math.prod(shape) > 4096 or self._is():
            return None
        values = self.one_of([0, 1, -1, 3, 100, -128, 2**31 - 1, -(2**31)])
        with np.errstate(all="ignore"):
            return np.full(shape, values).astype(kind)

    def _tensor(self, like: Tensor | None = None) -> Tensor:
        """Draw any tensor, or one that differs from `like` in a few fields."""
        base = like or t(self._shape(), self.one_of(DTYPES))
        fields: dict[str, Any] = {}
        kinds = ["shape", "dtype", "quantization", "data", "is_sparse"]
        what = self._random.sample(kinds, self.one_of([1, 1, 2, 3]))
        if "shape" in what:
            fields["shape"] = self._shape()
        if "dtype" in what:
            fields["dtype"] = self.one_of(DTYPES)
        if "quantization" in what:
            fields["quantization"] = self._quantization()
        if {"data", "shape", "dtype"}.intersection(what):
            # A constant's values always fit its shape and type: the reader sees to that.
            shape, dtype = fields.get("shape", base.shape), fields.get("dtype", base.dtype)
            fields["data"] = self._constant(shape, dtype)
        if "is_sparse" in what:
            fields["is_sparse"] = self._is()
        return replace(base, **fields)

    def malformed(self, node: Node) -> Node:
        """Draw a node of an op: made of anything, or a valid one with a few things changed."""
        if self._random.random() < 0.3:
            keys = [key for valid in VALID.values() for key in valid.options]
            inputs = self._many(lambda: self.one_of([None, self._tensor()]), 4)
            outputs = self._many(self._tensor, 2)
            options = {key: self._option() for key in self._many(lambda: self.one_of(keys), 6)}
            return op(node.op, inputs, outputs, options, is_custom=node.is_custom)
        inputs, outputs, options = list(node.inputs), list(node.outputs), dict(node.options)
        places = [(inputs, i) for i in range(len(inputs))] + [(outputs, 0)]
        places += [(options, key) for key in [*options, "new_shape"]]
        for holder, key in self._random.sample(places, self.one_of([1, 1, 2, 3])):
            if holder is options:
                holder[key] = self._option()
            else:
                no_tensor = holder is inputs and self._random.random() < 0.1
                holder[key] = None if no_tensor else self._tensor(holder[key])
        count = self.one_of([1] * 8 + [0, 2])
        return op(node.op, inputs, outputs * count, options, is_custom=node.is_custom)


@pytest.mark.parametrize("name", sorted(NODES))
def test_a_malformed_node_is_refused_or_lowers(name: str) -> None:
    for seed in range(TRIES):
        drawer = Drawer(seed)
        node, strategy = drawer.malformed(NODES[name]), drawer.one_of(ANY_STRATEGY)
        try:
            assert_lowered(node, ops.lower(node, strategy.target))
        except Unsupported:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}, {strategy}: {node}") from error


def assert_lowered(node: Node, alternatives: Sequence[Alternative]) -> None:
    """Assert that each launch has work, numbers of 32 bits and constants of the size it says, and
    writes no other tensors than outputs and temporaries, which are written before they are read.
    """
    assert alternatives
    for each in alternatives:
        written: set[Tensor] = set()
        for launch in each.launches:
            assert all(tensor in written for tensor in launch.reads if is_temporary(tensor))
            written.update(launch.writes)
        assert all(tensor in node.outputs or is_temporary(tensor) for tensor in written)
    for launch in (launch for each in alternatives for launch in each.launches):
        if any(size_bytes(tensor) >= 2**24 for tensor in (*launch.reads, *launch.writes)):
            continue  # the executor refuses what no arena holds, before it reads on
        assert launch.tiles > 0
        for field, value in launch.params.items():
            if isinstance(value, Constant):
                assert value.pack().nbytes == value.size_bytes, field
            elif isinstance(value, int):
                assert -(2**31) <= value < 2**31, field
