# SPDX-License-Identifier: Apache-2.0
"""ELU, GELU, HARD_SWISH, LEAKY_RELU, LOGISTIC, RELU and its kin, TANH: one table of each thing.

What they refuse, their launches, floats of all sizes, and drawn models.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Node, write_model
from tests.support.activations import (
    Magnitude,
    assert_drawn,
    assert_float_function,
    common_refusals,
    every_value,
    floats_of_all_sizes,
    functions,
)
from tests.support.cases import (
    GROUPS,
    LANES_8,
    SEEDS,
    SIMT,
    X86,
    Strategy,
    assert_exact_strategy,
    changed,
    forced,
    only_launch,
    quantization,
    retyped,
)
from tests.support.compare import RUNTIME, assert_within
from tests.support.factories import refused
from tests.support.floats import Doubles
from tests.support.refusals import unquantised
from tests.support.suite_cases import assert_graph, from_suite
from tflite_opencl.conformance.cases.elementwise import function

RELUS = ("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1")
FIXED = ("LOGISTIC", "TANH")  # only one quantisation of their outputs is taken
OTHERS = ("ELU", "GELU", "HARD_SWISH", "LEAKY_RELU")
APPROXIMATE = {"approximate": True}

test_relus = from_suite(*RELUS)
test_activations = from_suite(*OTHERS)
test_sigmoids = from_suite(*FIXED)
test_vectors_of_x86 = from_suite(*FIXED, strategies=X86, first="in4097")


def node(
    name: str,
    dtype: str = "uint8",
    scales: tuple[float, float] = (0.1, 0.07),
    zeros: tuple[int, int] = (0, 0),
    shape: tuple[int, ...] = (256,),
    **options: Any,
) -> Node:
    return function(name, dtype, shape, scales, zeros, **options).nodes[0]


def without(node: Node, scale: float, zero: int = 0) -> Node:
    """Return a node with another quantisation of its output."""
    return changed(node, -1, quantization=quantization(scale, zero))


NODE = {name: node(name) for name in (*RELUS, *FIXED, *OTHERS)}
_OF_ELU = ("types_differ", "sparse", "no_input", "no_output")
_INT32 = "int32: only float32, uint8, int8, int16"
_RATIO = "a scale ratio of 2^37: more than 2^30"
_ALPHA = "a finite number is needed"
REFUSALS: dict[str, tuple[Node, str]] = {
    **{
        f"{name}-{why}": case
        for name in ("RELU", "GELU", "HARD_SWISH", "LEAKY_RELU", "LOGISTIC", "TANH", "ELU")
        for why, case in common_refusals(NODE[name]).items()
        if name != "ELU" or why in _OF_ELU
    },
    **{
        f"{name}-int32": (retyped(NODE[name], "int32"), _INT32)
        for name in ("RELU", "GELU", "LEAKY_RELU", "LOGISTIC", "TANH")
    },
    **{
        f"{name}-wide": (
            node(name, "int16", (5.4, 0.0)),
            "input scale 5.4: TFLite's products exceed int32 from 16/3 on",
        )
        for name in FIXED
    },
    **{f"{n}-scale_ratio": (without(NODE[n], 1e-12), _RATIO) for n in ("RELU", "LEAKY_RELU")},
    **{
        f"{name}-int16": (node(name, "int16"), "int16: only float32, uint8, int8")
        for name in ("RELU_0_TO_1", "HARD_SWISH")
    },
    "ELU-uint8": (NODE["ELU"], "uint8: only float32, int8"),
    "ELU-int8_without_quantisation": unquantised(node("ELU", "int8", zeros=(3, -2)), -1),
    "HARD_SWISH-output_scale": (
        without(NODE["HARD_SWISH"], 2.0**-13),
        f"output scale {2.0**-13}: below 1/128 of the input's, {float(np.float32(0.1))}",
    ),
    "HARD_SWISH-input_scale": (
        without(changed(NODE["HARD_SWISH"], 0, quantization=quantization(1e10)), 1e9),
        "input scale 10000000000.0: too large",
    ),
    "LEAKY_RELU-alpha_nan": (
        changed(NODE["LEAKY_RELU"], options={"alpha": math.nan}),
        f"alpha is nan: {_ALPHA}",
    ),
    "LEAKY_RELU-text_as_alpha": (
        changed(NODE["LEAKY_RELU"], options={"alpha": "1"}),
        f"alpha is '1': {_ALPHA}",
    ),
    "LEAKY_RELU-alpha_ratio": (
        changed(NODE["LEAKY_RELU"], options={"alpha": 1e12}),
        "a scale ratio of 2^41: more than 2^30",
    ),
    "LOGISTIC-output_scale": (
        without(NODE["LOGISTIC"], 0.5),
        f"output scale 0.5, zero point 0: TFLite's is {1 / 256}, 0",
    ),
    "LOGISTIC-output_zero": (
        without(node("LOGISTIC", "int8"), 1 / 256),
        f"output scale {1 / 256}, zero point 0: TFLite's is {1 / 256}, -128",
    ),
    "RELU6-bound": (
        without(changed(NODE["RELU6"], 0, quantization=quantization(1e-9)), 1e-10),
        "bound 6.0 at scale 1.000000013351432e-10: beyond 32 bits",
    ),
    "TANH-output_scale": (
        without(NODE["TANH"], 0.5),
        f"output scale 0.5, zero point 0: TFLite's is {1 / 128}, 128",
    ),
    "TANH-output_zero": (
        without(node("TANH", "int8"), 1 / 128, 5),
        f"output scale {1 / 128}, zero point 5: TFLite's is {1 / 128}, 0",
    ),
}

test_refusal = refused(REFUSALS)


@pytest.mark.parametrize("name", [*OTHERS, *FIXED, "RELU"])
def test_floats_are_computed(name: str) -> None:
    (plain,) = ops.lower(node(name, "float32", shape=(4097,)), SIMT.target)
    launch = only_launch(plain)
    assert (launch.file, launch.kernel, launch.tiles) == ("activation", "activation_float", 65)
    assert launch.defines == {f"IS_{name}": 1}


@pytest.mark.parametrize(("name", "tiles"), [("TANH", 8), ("GELU", 8), ("RELU", 2)])
def test_long_functions_have_small_tiles(name: str, tiles: int) -> None:
    (plain,) = ops.lower(node(name, "float32", shape=(4097,)), LANES_8.target)
    assert only_launch(plain).tiles == tiles


def test_an_approximate_gelu_is_another() -> None:
    (plain,) = ops.lower(node("GELU", "float32", **APPROXIMATE), SIMT.target)
    assert only_launch(plain).defines == {"IS_GELU_TANH": 1}


@pytest.mark.parametrize("name", FIXED)
def test_int16_is_looked_up(name: str) -> None:
    vector, plain = ops.lower(node(name, "int16"), SIMT.target)
    assert (only_launch(vector).kernel, only_launch(plain).kernel) == ("lookup_vector", "lookup")


def test_8_bits_have_vectors() -> None:
    found = ops.lower(NODE["RELU"], SIMT.target)
    assert [each.name for each in found] == ["vector 4", "plain"]


def _gelu(values: Doubles) -> Doubles:
    # Of two terms: half of the value, and that times erf or tanh.
    erf = np.array([math.erf(value / math.sqrt(2)) for value in values.flat])
    return np.abs(values) / 2 * (1 + np.abs(erf.reshape(values.shape)))


def _hard_swish(values: Doubles) -> Doubles:
    return np.abs(values * np.clip(values + 3, 0, 6) / 6)


# What is rounded, by the sum of its terms' absolute values and their number.
ROUNDED: Mapping[str, tuple[Magnitude, int]] = {
    "ELU": (lambda v: np.where(v < 0, -np.expm1(np.minimum(v, 0)), v), 1),
    "GELU": (_gelu, 2),
    "HARD_SWISH": (_hard_swish, 1),
    "LOGISTIC": (lambda v: 1 / (1 + np.exp(-v)), 1),
    "TANH": (np.tanh, 1),
}


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize(("name", "options"), [*((n, {}) for n in ROUNDED), ("GELU", APPROXIMATE)])
def test_rounded_floats(
    name: str, options: dict[str, bool], strategy: Strategy, device: DeviceInfo
) -> None:
    values = floats_of_all_sizes()
    magnitude, terms = ROUNDED[name]
    if name == "HARD_SWISH":
        # Between -3 and -2 the ramp is a difference: its rounding is that of the 3.
        magnitude = lambda v: _hard_swish(v) + np.abs(v) / 2  # noqa: E731
    graph = function(name, "float32", values.shape, **options)
    assert_float_function(graph, device, strategy, magnitude, terms, [[values]])


@pytest.mark.parametrize("name", ROUNDED)
def test_a_zero_has_the_reference_s_sign(name: str, device: DeviceInfo) -> None:
    # RSQRT makes infinities of it.
    values = np.array([0.0, -0.0, -4.0 if name == "HARD_SWISH" else 0.0], np.float32)
    model = write_model(function(name, "float32", values.shape))
    assert_exact_strategy(model, device, inputs=[[values]])


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize("name", RELUS)
def test_floats_of_relu(name: str, strategy: Strategy, device: DeviceInfo) -> None:
    values = floats_of_all_sizes()
    if name == "RELU6":  # of which tflite-runtime makes 0
        values = values[~np.isnan(values)]
    model = write_model(function(name, "float32", values.shape))
    with forced(strategy):
        assert_within(model, device, lambda given: [np.zeros(1)], inputs=[[values]])


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize("alpha", [0.2, 0.0, -1.5])
def test_floats_of_leaky_relu(alpha: float, strategy: Strategy, device: DeviceInfo) -> None:
    values = floats_of_all_sizes()
    values = values[(abs(values) > 1e-30) | (values == 0)]  # a device may take less for zero
    graph = function("LEAKY_RELU", "float32", values.shape, alpha=alpha)
    assert_graph(graph, device, strategy, [[values]])


INTEGERS = ("uint8", "int8", "int16")
EVERY_INT16 = {
    **{f"gelu{scale:g}": ("GELU", (scale, 0.0003), {}) for scale in (5e-5, 0.001)},
    "gelu_tanh": ("GELU", (0.0002, 0.0001), APPROXIMATE),
    **{f"leaky_relu{a:g}": ("LEAKY_RELU", (0.1, 0.07), {"alpha": a}) for a in (0.2, -1.7, 3.0)},
    **{f"{name}{s:g}": (name, (s, 0.0), {}) for name in FIXED for s in (2.0**-12, 0.0003, 5.3)},
    **{f"{name}{s:g}": (name, (s, 0.0), {}) for name in FIXED for s in (2.0**-11, 2.0**-13, 1e-6)},
    **{name: (name, (0.001, 0.0007), {}) for name in RELUS[:2]},
}


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize("case", EVERY_INT16)
def test_every_int16(case: str, strategy: Strategy, device: DeviceInfo) -> None:
    name, scales, options = EVERY_INT16[case]
    if (name, RUNTIME.name) == ("GELU", "tflite-runtime"):
        pytest.skip("tflite-runtime prepares GELU of int16, then fails")
    values = every_value("int16")
    graph = function(name, "int16", values.shape, scales, (0, 0), **options)
    assert_graph(graph, device, strategy, [[values]])


DRAWN = {
    "ELU": functions("ELU", ["int8"]),
    "GELU": functions("GELU", INTEGERS, approximate=st.booleans()),
    "HARD_SWISH": functions("HARD_SWISH", INTEGERS[:2]),
    "LEAKY_RELU": functions("LEAKY_RELU", INTEGERS, alpha=st.floats(-2, 2, width=32)),
    **{name: functions(name, INTEGERS) for name in FIXED},
    "RELU": st.sampled_from(RELUS).flatmap(
        lambda name: functions(name, INTEGERS if name in RELUS[:2] else INTEGERS[:2])
    ),
}


@pytest.mark.parametrize("name", DRAWN)
@given(data=st.data(), strategy=st.sampled_from(GROUPS), seed=SEEDS)
def test_drawn(
    device: DeviceInfo, name: str, data: st.DataObject, strategy: Strategy, seed: int
) -> None:
    graph = data.draw(DRAWN[name])
    if (name, graph.inputs[0].dtype, RUNTIME.name) == ("GELU", "int16", "tflite-runtime"):
        reject()  # which prepares it, then fails
    assert_drawn(graph, device, strategy, seed)


FLOAT_NODE = {name: node(name, "float32") for name in NODE}
NODES = {**NODE, "ELU": FLOAT_NODE["ELU"]}
BUILT = [
    *(
        FLOAT_NODE[name]
        for name in ("GELU", "HARD_SWISH", "LEAKY_RELU", "LOGISTIC", "RELU", "TANH")
    ),
    *(node(name, "int16") for name in FIXED),
    node("ELU", "int8", zeros=(3, -2)),
    node("GELU", "float32", **APPROXIMATE),
]
