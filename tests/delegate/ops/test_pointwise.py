# SPDX-License-Identifier: Apache-2.0
"""pointwise: what it refuses, and its tables against the nodes that they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from delegate import DeviceInfo, OpenCLDelegate
from delegate.inspect import Node, Tensor, write_model
from delegate.plan.passes import fuse_pointwise
from tests.support.cases import GROUPS, X86, Strategy, changed, forced, refusal, require_isa
from tests.support.compare import assert_same, interpreter, invoke, oracle
from tests.support.factories import refused
from tests.support.fused import fused
from tests.support.model import const, graph_of, op, t

Quantities = tuple[float, int]


class Chain:
    """Draws a chain of nodes on one tensor of all 256 values in each channel."""

    def __init__(self, dtype: str, channels: int = 1, scale: float = 0.05, zero: int = 3) -> None:
        self.nodes: list[Node] = []
        self.dtype, self.channels = dtype, channels
        self.rng = np.random.default_rng(channels)
        self.x = self.last = self.tensor(dtype, scale, zero)

    def tensor(self, dtype: str, scale: float = 1.0, zero: int = 0) -> Tensor:
        shape = (2, 128, self.channels)
        if dtype == "float32":
            return t(shape)
        return t(shape, dtype, scale, zero if dtype == "int8" else zero + 128)

    def constant(self, size: int = 1, scale: float = 0.02) -> Tensor:
        if self.last.dtype == "float32":
            return const(self.rng.normal(1, 0.7, size).astype(np.float32))
        limits = np.iinfo(self.last.dtype)
        values = self.rng.integers(limits.min, limits.max, size, self.last.dtype, endpoint=True)
        return const(values, scale, 3)

    def add(
        self,
        name: str,
        *others: Tensor,
        to: str = "",
        by: Quantities = (0.04, -20),
        is_swapped: bool = False,
        **options: Any,
    ) -> Chain:
        """Add a node of the last result and others; `to`: its type, `by`: its quantisation."""
        result = self.tensor(to or self.last.dtype, *by)
        inputs = [self.last, *others][:: -1 if is_swapped else 1]
        self.nodes.append(op(name, inputs, [result], options))
        self.last = result
        return self

    def fused(self, name: str, *others: Tensor, activation: str = "NONE", **more: Any) -> Chain:
        return self.add(name, *others, fused_activation_function=activation, **more)


def silu(
    dtype: str,
    scale: float = 0.05,
    zero: int = 3,
    result: Quantities = (0.04, -20),
    activation: str = "NONE",
) -> list[Node]:
    """Return a LOGISTIC, and the MUL of it and its input."""
    chain = Chain(dtype, 1, scale, zero)
    chain.add("LOGISTIC", by=(1 / 256, -128))
    return chain.fused("MUL", chain.x, by=result, activation=activation).nodes


def norm(dtype: str, channels: int, activation: str = "RELU") -> list[Node]:
    """Return a MUL and an ADD by a constant for each channel, as of a batch norm."""
    chain = Chain(dtype, channels)
    chain.fused("MUL", chain.constant(channels), by=(0.06, -15))
    return chain.fused("ADD", chain.constant(channels, 0.01), activation=activation).nodes


def hard_swish(dtype: str) -> list[Node]:
    """Return HARD_SWISH as ADD, MUL and MUL."""
    chain = Chain(dtype)
    three, sixth = const(np.array([120], dtype), 1 / 40, 0), const(np.array([100], dtype), 1 / 600)
    chain.fused("ADD", three, by=(6 / 255, -128), activation="RELU6").fused("MUL", chain.x)
    return chain.fused("MUL", sixth, by=(0.03, -100), is_swapped=True).nodes


def requantized(dtype: str) -> list[Node]:
    chain = Chain(dtype).add("RELU6").add("LEAKY_RELU", alpha=0.3, by=(0.02, -70))
    return chain.add("QUANTIZE", to="uint8" if dtype == "int8" else "int8", by=(0.03, 4)).nodes


def below_zero() -> list[Node]:
    chain = Chain("int8").add("ABS", by=(0.05, 3)).add("NEG", by=(0.05, 3))
    return chain.add("ELU", by=(0.01, 100)).add("GELU", approximate=False, by=(0.001, 90)).nodes


def within_one() -> list[Node]:
    chain = Chain("int8").add("RELU_N1_TO_1", by=(0.01, 0)).add("EXP", by=(0.02, -100))
    chain.add("LOG", by=(0.02, 10)).add("RELU_0_TO_1", by=(0.01, -100)).add("TANH", by=(1 / 128, 0))
    return chain.add("HARD_SWISH", by=(0.01, -70)).add("RELU", by=(0.01, -70)).nodes


def pairs(dtype: str) -> list[Node]:
    """Return ops of two operands, some of which read the same tensor twice."""
    chain = Chain(dtype)
    chain.add("MAXIMUM", const(np.array([9], dtype), 0.05, 3), by=(0.05, 3))
    chain.add("MINIMUM", const(np.array([99], dtype), 0.05, 3), by=(0.05, 3))
    chain.fused("ADD", chain.last, by=(0.1, 5)).fused("MUL", chain.last, by=(0.5, -30))
    return chain.fused("SUB", chain.constant(), is_swapped=True, by=(0.4, 9)).nodes


def floats(dtype: str, *ops: tuple[str, dict[str, Any]], channels: int = 1) -> list[Node]:
    """Return nodes of floats between DEQUANTIZE and QUANTIZE; "c": a constant operand."""
    chain = Chain(dtype, channels).add("DEQUANTIZE", to="float32")
    for name, options in ops:
        others = []
        if options.get("c"):
            others = [chain.constant(channels if options["c"] == "channels" else 1)]
        chain.add(name, *others, **{key: each for key, each in options.items() if key != "c"})
    return chain.add("QUANTIZE", to=dtype, by=(0.03, -10)).nodes


def picture() -> list[Node]:
    """Return the nodes that centre and scale the bytes of a picture, and quantise them."""
    chain = Chain("uint8", 3).add("CAST", to="float32")
    means = const(np.float32([123.675, 116.28, 103.53]))
    chain.fused("SUB", means).fused("DIV", const(np.float32([58.395, 57.12, 57.375])))
    return chain.add("QUANTIZE", to="int8", by=(0.0186, -14)).nodes


NONE, RELU6 = ({"fused_activation_function": name} for name in ("NONE", "RELU6"))
CONSTANT = {"c": "one"}
PLAIN = CONSTANT | NONE
OF_FLOATS: dict[str, Sequence[tuple[str, dict[str, Any]]]] = {
    **{
        name.lower(): [(name, {})]
        for name in (
            "ABS", "CEIL", "ELU", "EXP", "FLOOR", "HARD_SWISH", "LOG", "LOGISTIC", "NEG", "RELU",
            "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1", "SIGN", "SQUARE", "TANH",
        )
    },
    "gelu": [("GELU", {"approximate": False})],
    "gelu_tanh": [("GELU", {"approximate": True})],
    "round": [("MUL", PLAIN), ("ROUND", {})],
    "leaky": [("LEAKY_RELU", {"alpha": -0.7})],
    "roots": [("ABS", {}), ("SQRT", {})],
    "inverse_roots": [("SQUARE", {}), ("RSQRT", {})],  # of 0 too
    "wide": [("MUL", PLAIN)] + [("EXP", {})] * 3 + [("NEG", {}), ("LOGISTIC", {})],
    "not_numbers": [("LOG", {}), ("LOG", {}), ("LEAKY_RELU", {"alpha": 3.0})],
    "sums": [("ADD", CONSTANT | RELU6), ("SUB", PLAIN), ("MAXIMUM", CONSTANT)],
    "quotients": [("DIV", PLAIN), ("MINIMUM", CONSTANT), ("SQUARED_DIFFERENCE", CONSTANT)],
}  # fmt: skip
CASES = {
    **{f"silu_{dtype}": silu(dtype) for dtype in ("int8", "uint8")},
    "silu_relu6": silu("int8", activation="RELU6"),
    "silu_coarse": silu("int8", 0.5, -128, (0.7, -128)),
    "silu_fine": silu("int8", 0.2, 0, (1e-4, 0)),
    **{f"norm_{channels}": norm("int8", channels) for channels in (1, 3, 4, 5, 16, 70, 200)},
    "norm_uint8": norm("uint8", 64, "RELU_N1_TO_1"),
    "hard_swish": hard_swish("int8"),
    "hard_swish_uint8": hard_swish("uint8"),
    "requantized": requantized("int8"),
    "requantized_uint8": requantized("uint8"),
    "below_zero": below_zero(),
    "within_one": within_one(),
    "pairs": pairs("int8"),
    "pairs_uint8": pairs("uint8"),
    "one_mul": Chain("int8").fused("MUL", const(np.int8([77]), 0.02, 3)).nodes,
    "difference": Chain("int8").add("SQUARED_DIFFERENCE", const(np.int8([5]), 0.1, 2)).nodes,
    "picture": picture(),
    "float_channels": floats(
        "int8", ("MUL", {"c": "channels"} | NONE), ("ADD", {"c": "channels"} | NONE), channels=17
    ),
    **{f"float_{name}": floats("int8", *ops) for name, ops in OF_FLOATS.items()},
    "float_uint8": floats("uint8", ("TANH", {})),
}
BUILT = [fused(CASES[name], ["fuse_pointwise"]) for name in ("silu_int8", "silu_uint8", "norm_5")]
NODE = BUILT[0]

test_refusal = refused(
    {
        "no_body": (replace(NODE, body=None), "no body: the nodes that it stands for are missing"),
        "a_node": (
            fused(silu("int8", 0.05, 3, (1e-30, 0)), ["fuse_pointwise"]),
            "a scale ratio of 1.95313e+26: more than 2^30",
        ),
        "int16": (changed(NODE, 0, dtype="int16"), "int16: only uint8 and int8"),
        "shape": (changed(NODE, 0, shape=(2, 3)), "2x3 -> 2x128x1: the shape must stay"),
        "scale": (
            fused(
                Chain("int8").add("LOGISTIC", by=(1 / 128, -128)).add("RELU").nodes,
                ["fuse_pointwise"],
            ),
            "output scale 0.0078125, zero point -128: TFLite's is 0.00390625, -128",
        ),
    }
)


def test_a_node_that_may_fail_or_is_unknown_to_the_host() -> None:
    chain = Chain("int8").add("RSQRT", by=(0.01, 0)).add("RELU")
    made = fused(Chain("int8").add("ABS").add("RELU").nodes, ["fuse_pointwise"])
    assert made.body is not None
    body = replace(made.body, nodes=tuple(chain.nodes))
    assert refusal(replace(made, body=body)) == "RSQRT fails at run time on some values"
    chain = Chain("int8").add("DEQUANTIZE", to="float32").add("COS")
    body = replace(made.body, nodes=tuple(chain.nodes))
    assert refusal(replace(made, body=body)) == "unary_float, COSINE: the host does not compute it"


def test_each_op_has_a_case() -> None:
    """Each op of the pass, on 8 bits and in floats."""
    of_bytes, of_floats = (
        {node.op for nodes in CASES.values() for node in nodes if is_float == has_floats(node)}
        for is_float in (False, True)
    )
    pairs, of_one = {*fuse_pointwise._PAIRS}, {*fuse_pointwise._OF_ONE}
    both = {"CAST", "DEQUANTIZE", "QUANTIZE"}
    assert of_bytes == (pairs | of_one) - both | {"QUANTIZE"}
    assert of_floats == pairs | of_one | {*fuse_pointwise._OF_FLOATS}


def has_floats(node: Node) -> bool:
    return "float32" in (node.outputs[0].dtype, *(x.dtype for x in node.inputs if x is not None))


@pytest.mark.parametrize("strategy", [*GROUPS, *X86], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_every_value(name: str, strategy: Strategy, device: DeviceInfo) -> None:
    require_isa(strategy, device)
    nodes = CASES[name]
    model = write_model(graph_of(nodes))
    (source, *_) = fused(nodes, ["fuse_pointwise"]).inputs
    assert source is not None
    column = np.arange(256, dtype=np.uint8).view(source.dtype).reshape(2, 128, 1)
    values = np.broadcast_to(column, source.shape).copy()
    cpu_kernels = oracle(model)  # the reference kernels lack CEIL, ELU and ROUND
    (expected,) = invoke(interpreter(model, cpu_kernels=cpu_kernels), [values])
    assert len(np.unique(expected)) > 1
    with forced(strategy):
        delegate = OpenCLDelegate(
            model, device.index, tune="off", passes=("fuse_pointwise",), profiling=True
        )
        taken = interpreter(model, delegate, cpu_kernels)
        (got,) = invoke(taken, [values])
    assert_same(got, expected, name)
    assert {row.op for row in delegate.profile()} == {"pointwise"}
