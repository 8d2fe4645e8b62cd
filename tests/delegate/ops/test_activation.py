# SPDX-License-Identifier: Apache-2.0
"""ELU, GELU, HARD_SWISH, LEAKY_RELU, LOGISTIC, RELU and its kin, TANH: one table of each thing.

What they refuse, their launches, every integer, floats of all sizes, and drawn cases.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from tests.support.activations import (
    SHAPES,
    Activation,
    Magnitude,
    activations,
    assert_drawn,
    assert_every_value,
    assert_float_function,
    common_refusals,
    floats_of_all_sizes,
)
from tests.support.cases import (
    GROUPS,
    SEEDS,
    SIMT,
    X86,
    Way,
    assert_exact_way,
    changed,
    forced,
    only_launch,
    quantization,
    retyped,
)
from tests.support.compare import RUNTIME, assert_within
from tests.support.factories import exact, refused
from tests.support.floats import Doubles
from tests.support.refusals import unquantised

RELUS = ("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1")
# The one quantisation of their outputs that TFLite takes, by type.
FIXED: Mapping[str, Mapping[str, tuple[float, int]]] = {
    "LOGISTIC": {"uint8": (1 / 256, 0), "int8": (1 / 256, -128), "int16": (2.0**-15, 0)},
    "TANH": {"uint8": (1 / 128, 128), "int8": (1 / 128, 0), "int16": (2.0**-15, 0)},
}
# The options that they must have, and the version that has them.
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "GELU": {"approximate": False},
    "LEAKY_RELU": {"alpha": 0.2},
}
APPROXIMATE = {"approximate": True}
VERSIONS = {"LEAKY_RELU": 2, "LOGISTIC": 2, "TANH": 2}


def of(name: str, dtype: str = "uint8", **fields: Any) -> Activation:
    """Return an op's case; an output with a fixed quantisation has that one."""
    if dtype in FIXED.get(name, {}):
        scale, zero = FIXED[name][dtype]
        fields["scales"] = (fields.get("scales", (0.1, 0))[0], scale)
        fields["zeros"] = (fields.get("zeros", (3, 0))[0], zero)
    fields = {"options": OPTIONS.get(name, {}), "version": VERSIONS.get(name, 1), **fields}
    return Activation(op=name, dtype=dtype, **fields)


def without(node: Node, scale: float, zero: int = 0) -> Node:
    """Return a node with another quantisation of its output."""
    return changed(node, -1, quantization=quantization(scale, zero))


NODE = {name: of(name).node() for name in (*RELUS, *OPTIONS, *FIXED, "ELU", "HARD_SWISH")}
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
            of(name, "int16", scales=(5.4, 0)).node(),
            "input scale 5.4: TFLite's products exceed int32 from 16/3 on",
        )
        for name in FIXED
    },
    **{f"{n}-scale_ratio": (without(NODE[n], 1e-12), _RATIO) for n in ("RELU", "LEAKY_RELU")},
    **{
        f"{name}-int16": (of(name, "int16").node(), "int16: only float32, uint8, int8")
        for name in ("RELU_0_TO_1", "HARD_SWISH")
    },
    "ELU-uint8": (NODE["ELU"], "uint8: only float32, int8"),
    "ELU-int8_without_quantisation": unquantised(of("ELU", "int8", zeros=(3, -2)).node(), -1),
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
        without(of("LOGISTIC", "int8").node(), 1 / 256),
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
        without(of("TANH", "int8").node(), 1 / 128, 5),
        f"output scale {1 / 128}, zero point 5: TFLite's is {1 / 128}, 0",
    ),
}

test_refusal = refused(REFUSALS)


@pytest.mark.parametrize("name", ["ELU", *OPTIONS, "HARD_SWISH", *FIXED, "RELU"])
def test_floats_are_computed(name: str) -> None:
    (plain,) = ops.lower(of(name, "float32", shape=(4097,)).node(), SIMT.target)
    launch = only_launch(plain)
    assert (launch.file, launch.kernel, launch.tiles) == ("activation", "activation_float", 65)
    assert launch.defines == {f"IS_{name}": 1}


def test_an_approximate_gelu_is_another() -> None:
    (plain,) = ops.lower(of("GELU", "float32", options=APPROXIMATE).node(), SIMT.target)
    assert only_launch(plain).defines == {"IS_GELU_TANH": 1}


@pytest.mark.parametrize("name", FIXED)
def test_int16_is_looked_up(name: str) -> None:
    vector, plain = ops.lower(of(name, "int16").node(), SIMT.target)
    assert (only_launch(vector).kernel, only_launch(plain).kernel) == ("lookup_vector", "lookup")


def test_8_bits_have_vectors() -> None:
    found = ops.lower(NODE["RELU"], SIMT.target)
    assert [each.name for each in found] == ["vector 4", "plain"]


CASES = [
    *(
        of("ELU", "int8", scales=scales, zeros=zeros)
        for scales in ((0.1, 0.07), (0.02, 0.02), (1.0, 0.3), (0.5, 0.01))
        for zeros in ((0, 0), (-128, 127), (127, -128))
    ),
    *(
        of("GELU", dtype, scales=scales, zeros=zeros, options=options)
        for options in (OPTIONS["GELU"], APPROXIMATE)
        for dtype, zeros in (("uint8", (131, 3)), ("int8", (-128, 127)), ("int8", (0, -100)))
        for scales in ((0.1, 0.07), (0.02, 0.02), (1.0, 0.3))
    ),
    *(
        of("GELU", "int16", scales=scales, options=options)
        for options in (OPTIONS["GELU"], APPROXIMATE)
        for scales in ((0.0002, 0.0001), (0.001, 0.001), (0.00005, 0.0003))
    ),
    *(
        of("HARD_SWISH", dtype, scales=scales, zeros=zeros)
        for dtype, zeros in (("uint8", (0, 255)), ("uint8", (131, 3)), ("int8", (-128, 5)))
        for scales in ((0.1, 0.07), (0.02, 0.02), (1, 0.3), (0.004, 1), (0.0001, 7), (30, 1))
    ),
    *(
        of("LEAKY_RELU", dtype, scales=scales, zeros=zeros, options={"alpha": alpha})
        for dtype, zeros in (("uint8", (255, 128)), ("int8", (3, -128)), ("int16", (0, 0)))
        for scales in ((0.1, 0.07), (0.5, 0.5))
        for alpha in (0.2, 0.01, -0.5, -1.7, 3.0)
    ),
    *(
        of(name, dtype, scales=(scale, 0))
        for name in FIXED
        for dtype in ("uint8", "int8")
        for scale in (0.1, 0.03, 1.0, 20.0)
    ),
    *(
        of(name, "int16", scales=(scale, 0))
        for name in FIXED
        for scale in (2.0**-12, 2.0**-11, 2.0**-13, 0.0003, 1e-6, 5.3)
    ),
    *(
        of(name, dtype, scales=scales, zeros=zeros)
        for name in RELUS
        for dtype, zeros in (("uint8", (128, 0)), ("int8", (-128, 5)))
        for scales in ((0.1, 0.07), (0.01, 0.5))
    ),
    *(
        of(name, "int16", scales=scales)
        for name in RELUS[:2]
        for scales in ((0.001, 0.0007), (0.0005, 0.0005))
    ),
]


def is_taken(case: Activation) -> bool:
    """Whether the installed TFLite runs it: tflite-runtime prepares GELU of int16, then fails."""
    return (case.op, case.dtype, RUNTIME.name) != ("GELU", "int16", "tflite-runtime")


test_every_value = exact([case for case in CASES if is_taken(case)], GROUPS, assert_every_value)
# Around the ends of vectors of 32 and of 64 bytes, and of tiles.
test_by_vectors_of_x86 = exact(
    {
        f"{name}-{dtype}-{count}": of(name, dtype, shape=(count,), scales=(0.1, 0))
        for name, dtype, counts in (
            ("LOGISTIC", "int8", (32, 63, 64, 65, 96, 127, 4096, 4097, 9001)),
            ("TANH", "uint8", (33, 64, 200, 12345)),
        )
        for count in counts
    },
    X86,
)


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
ROUNDED_CASES = [
    *(of(name, "float32") for name in ROUNDED),
    of("GELU", "float32", options=APPROXIMATE),
]


@pytest.mark.parametrize("way", GROUPS, ids=str)
@pytest.mark.parametrize("case", ROUNDED_CASES, ids=str)
def test_rounded_floats(case: Activation, way: Way, device: DeviceInfo) -> None:
    values = floats_of_all_sizes()
    magnitude, terms = ROUNDED[case.op]
    if case.op == "HARD_SWISH":
        # Between -3 and -2 the ramp is a difference: its rounding is that of the 3.
        magnitude = lambda v: _hard_swish(v) + np.abs(v) / 2  # noqa: E731
    case = replace(case, shape=values.shape)
    assert_float_function(case, device, way, magnitude, terms, [[values]])


@pytest.mark.parametrize("name", ROUNDED)
def test_a_zero_has_the_reference_s_sign(name: str, device: DeviceInfo) -> None:
    # RSQRT makes infinities of it.
    values = np.array([0.0, -0.0, -4.0 if name == "HARD_SWISH" else 0.0], np.float32)
    case = of(name, "float32", shape=values.shape)
    assert_exact_way(case.model(), device, inputs=[[values]])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ROUNDED)
def test_shapes_of_rounded_floats(name: str, shape: tuple[int, ...], device: DeviceInfo) -> None:
    assert_float_function(of(name, "float32", shape=shape), device, SIMT, *ROUNDED[name])


@pytest.mark.parametrize("way", GROUPS, ids=str)
@pytest.mark.parametrize("name", RELUS)
def test_floats_of_relu(name: str, way: Way, device: DeviceInfo) -> None:
    values = floats_of_all_sizes()
    if name == "RELU6":  # of which tflite-runtime makes 0
        values = values[~np.isnan(values)]
    case = of(name, "float32", shape=values.shape)
    with forced(way):
        assert_within(case.model(), device, lambda given: [np.zeros(1)], inputs=[[values]])


@pytest.mark.parametrize("way", GROUPS, ids=str)
@pytest.mark.parametrize("alpha", [0.2, 0.0, -1.5])
def test_floats_of_leaky_relu(alpha: float, way: Way, device: DeviceInfo) -> None:
    values = floats_of_all_sizes()
    values = values[(abs(values) > 1e-30) | (values == 0)]  # a device may take less for zero
    case = of("LEAKY_RELU", "float32", shape=values.shape, options={"alpha": alpha})
    assert_exact_way(case.model(), device, way, inputs=[[values]])


@pytest.mark.parametrize("way", GROUPS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(shape: tuple[int, ...], way: Way, device: DeviceInfo) -> None:
    assert_exact_way(of("RELU", shape=shape).model(), device, way)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes_of_floats(shape: tuple[int, ...], device: DeviceInfo) -> None:
    assert_exact_way(of("RELU6", "float32", shape=shape).model(), device)


INTEGERS = ["uint8", "int8", "int16"]
DRAWN = {
    "ELU": activations("ELU", ["int8"]),
    "GELU": st.builds(
        lambda case, approximate: replace(case, options={"approximate": approximate}),
        activations("GELU", INTEGERS),
        st.booleans(),
    ),
    "HARD_SWISH": activations("HARD_SWISH", INTEGERS[:2]),
    "LEAKY_RELU": st.builds(
        lambda case, alpha: replace(case, options={"alpha": alpha}, version=2),
        activations("LEAKY_RELU", INTEGERS),
        st.floats(-2, 2, width=32),
    ),
    **{name: activations(name, INTEGERS, FIXED[name]) for name in FIXED},
    "RELU": st.sampled_from(RELUS).flatmap(
        lambda name: activations(name, INTEGERS if name in RELUS[:2] else INTEGERS[:2])
    ),
}


@pytest.mark.parametrize("name", DRAWN)
@given(data=st.data(), way=st.sampled_from(GROUPS), seed=SEEDS)
def test_drawn(device: DeviceInfo, name: str, data: st.DataObject, way: Way, seed: int) -> None:
    case = data.draw(DRAWN[name])
    if not is_taken(case):
        reject()
    assert_drawn(case, device, way, seed)


FLOAT_NODE = {name: of(name, "float32").node() for name in NODE}
NODES = {**NODE, "ELU": FLOAT_NODE["ELU"]}
BUILT = [
    *(
        FLOAT_NODE[name]
        for name in ("GELU", "HARD_SWISH", "LEAKY_RELU", "LOGISTIC", "RELU", "TANH")
    ),
    *(of(name, "int16").node() for name in FIXED),
    of("ELU", "int8", zeros=(3, -2)).node(),
    of("GELU", "float32", options=APPROXIMATE).node(),
]
