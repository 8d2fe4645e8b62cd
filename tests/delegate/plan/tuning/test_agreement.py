# SPDX-License-Identifier: Apache-2.0
"""Comparison of alternatives: random inputs, outputs, and which one is right."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from delegate import DeviceInfo, Options, ops
from delegate.engine import Engine
from delegate.errors import Unsupported
from delegate.graph.infer import infer
from delegate.graph.partition import partition_of
from delegate.graph.persistent import with_variables
from delegate.host.tflite.library import installed_rules
from delegate.host.tflite.reference import reference_outputs
from delegate.inspect import Node
from delegate.launch import Alternative, Constant, Launch
from delegate.plan.tuning.agreement import _random, are_same, right_of
from delegate.target import Rules, Target
from tests.attacks.planted import plant
from tests.support.delay import delays, variable
from tests.support.model import const, graph_of, op, t
from tests.support.schedules import planner_of
from tests.support.tiers import slow
from tflite_opencl.conformance.cases import all_cases
from tflite_opencl.conformance.cases._convolution import ConvCase
from tflite_opencl.models.build import as_int4, in_blocks


def nobody(*_: object) -> None:
    """Judge no node."""


KINDS = ("int16", "16x8", "int32", "int64", "bool")
# Their result is nearly constant for many values; REDUCE_MAX and SUM cover their kernels.
DULL = ("REDUCE_PROD", "REDUCE_ANY", "REDUCE_ALL")


def each_variant(target: Target) -> Iterator[tuple[str, Node, Alternative, Alternative]]:
    """Yield nodes of wide integers, each with a special alternative and the fallback kernel."""
    seen = set()
    for case in all_cases():
        if case.kind not in KINDS or case.is_heavy or case.op in DULL:
            continue
        graph = infer(case.make())
        if len(graph.nodes) > 1:
            continue
        try:
            *variants, plain = ops.lower(graph.nodes[0], target)
        except Unsupported:
            continue
        for each in variants:
            key = case.op, case.kind, *(launch.kernel for launch in each.launches)
            if key not in seen:
                seen.add(key)
                yield case.name, graph.nodes[0], each, plain


def faults(launch: Launch) -> Iterator[tuple[str, Launch]]:
    """Yield a launch with a wrong weight, a wrong stride, or a wrong multiplier."""
    for name, value in launch.params.items():
        wrong: int | Constant
        if isinstance(value, Constant) and name in ("weights", "channels"):
            wrong = Constant(value.size_bytes, lambda value=value: _flipped(value))  # type: ignore[misc]
        elif isinstance(value, int) and value > 1 and "multiplier" in name:
            wrong = value // 2
        elif isinstance(value, int) and value > 1 and ("stride" in name or "step" in name):
            wrong = 0
        else:
            continue
        yield name, replace(launch, params={**launch.params, name: wrong})


def _flipped(constant: Constant) -> np.ndarray:  # type: ignore[type-arg]
    content = np.ascontiguousarray(constant.pack()).reshape(-1).view(np.uint8).copy()
    content[len(content) // 2] ^= 1
    return content


@pytest.mark.device
@pytest.mark.slow
def test_faults_in_integer_alternatives_are_detected(device: DeviceInfo) -> None:
    engine = Engine(Options(device.index, tune="off"))
    right, missed, noticed = planner_of(engine)._bench.are_correct, [], 0
    for name, node, variant, plain in each_variant(engine.target(installed_rules())):
        assert right(node, [variant, plain], nobody) == [True, True], name
        launch, *others = variant.launches
        for what, wrong in faults(launch):
            planted = replace(variant, launches=(wrong, *others))
            if right(node, [planted, plain], nobody) == [True, True]:
                missed.append((name, launch.kernel, what))
            noticed += 1
    assert missed == []
    assert noticed >= 20  # fewer on devices without vectors
    engine.close()


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "bool", "float16"])
def test_random_values_cover_type(dtype: str) -> None:
    values = _random(t((4000,), dtype), 1, (0, 0)).astype(np.float64)
    most = 1 if dtype == "bool" else 2 if dtype == "float16" else np.iinfo(dtype).max
    assert values.max() > most / 2
    assert (values.min() == 0) if dtype == "bool" else (values.min() < -most / 2)
    assert len({*values}) > (1 if dtype == "bool" else 200)
    assert values.shape == (4000,)


def test_random_indices_are_valid() -> None:
    low, high = np.array([0, 5]), np.array([3, 5])
    values = _random(replace(t((2,), "int32"), ranges=(low, high)), 50, (0, 0)).reshape(50, 2)
    assert {*values[:, 0]} == {0, 1, 2, 3}
    assert {*values[:, 1]} == {5}


def test_inputs_of_one_shape_differ() -> None:
    one, other = (_random(t((64,), "int8"), 1, (0, place)) for place in (0, 1))
    assert (one != other).any()


def floats(*values: float) -> list[np.ndarray]:  # type: ignore[type-arg]
    return [np.array(values, np.float32)]


INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (floats(1, -NAN, INF), floats(1, NAN, INF), True),
        (floats(1, NAN), floats(1 + 2**-23, NAN), False),
        (floats(0), floats(-0.0), False),
        (floats(NAN, 1), floats(1, NAN), False),
        ([np.array([1j, 2], np.complex64)], [np.array([1j, 2], np.complex64)], True),
        ([np.array([1j, 2], np.complex64)], [np.array([1j + 1e-30, 2], np.complex64)], False),
        ([np.array([1, 2], np.float16)], [np.array([1, 2.002], np.float16)], False),
    ],
)
def test_exact_comparison_allows_no_differing_bit(ours: list, theirs: list, expected: bool) -> None:  # type: ignore[type-arg]
    assert are_same(ours, theirs, is_exact=True) is expected


def test_exact_comparison_beside_a_reference_of_other_bits() -> None:
    one, close, far = floats(1), floats(1 + 2**-23), floats(2)
    beside = floats(1 - 2**-23)
    assert right_of([one, close, one], lambda: one, is_exact=True) == [True, False, True]
    assert right_of([one, one, close], lambda: beside, is_exact=True) == [True, True, False]
    assert right_of([far, far, far, one], lambda: beside, is_exact=True) == [False] * 3 + [True]
    assert right_of([far, one], lambda: floats(9), is_exact=True) == [False, False]
    assert right_of([one, close], lambda: one) == [True, True]


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (floats(1, NAN, -INF), floats(1.00001, NAN, -INF), True),
        (floats(1, NAN), floats(1.1, NAN), False),
        (floats(1, INF), floats(1.1, INF), False),
        (floats(1, INF), floats(1, -INF), False),
        (floats(1, INF), floats(1, 3e38), False),
        (floats(NAN), floats(0), False),
        (floats(NAN, INF), floats(NAN, INF), True),
        ([np.array([1, 2], np.int16)], [np.array([1, 3], np.int16)], False),
    ],
)
def test_comparison_of_non_finite_values(ours: list, theirs: list, expected: bool) -> None:  # type: ignore[type-arg]
    assert are_same(ours, theirs) is expected


def outputs(*values: int) -> list[list[np.ndarray]]:  # type: ignore[type-arg]
    return [[np.array([value])] for value in values]


def test_majority_decides_and_of_two_the_last() -> None:
    assert right_of(outputs(1, 1, 2), nobody) == [True, True, False]
    assert right_of(outputs(2, 1, 1), nobody) == [False, True, True]
    assert right_of(outputs(1, 2), nobody) == [False, True]
    assert right_of(outputs(1, 2), lambda: outputs(1)[0]) == [True, False]
    assert right_of(outputs(1, 1, 2), lambda: outputs(2)[0]) == [False, False, True]
    assert right_of(outputs(1, 2), lambda: outputs(3)[0]) == [False, False]


def test_judge_is_called_only_on_disagreement() -> None:
    def never() -> None:
        raise AssertionError

    assert right_of(outputs(1, 1), never) == [True, True]
    assert right_of(outputs(1), never) == [True]


def test_reference_kernels_judge_a_node() -> None:
    (node,) = ConvCase(size=(7, 5, 3)).graph("uint8").nodes
    zeros = np.zeros((1, 7, 5, 3), "uint8")
    result = reference_outputs(installed_rules(), node, [zeros])
    assert result is not None
    assert [values.size for values in result] == [np.prod(node.outputs[0].shape)]
    assert reference_outputs(replace(installed_rules(), version="0"), node, [zeros]) is None
    assert reference_outputs(installed_rules(), replace(node, op="of_a_pass"), [zeros]) is None


def test_builtin_kernel_judges_if_reference_is_wrong() -> None:
    x = np.zeros((1, 32), np.float32)
    x[0, :2] = 127, -128
    weights = in_blocks(as_int4(const(np.full((4, 32), 16, np.int8))), np.full((4, 1), 2))
    node = op("FULLY_CONNECTED", [t((1, 32)), weights, None], [t((1, 4))], {}, 12)
    result = reference_outputs(installed_rules(), node, [x])
    assert result is None or result[0].tolist() == [-2] * 4


def test_builtin_kernel_judges_if_reference_is_missing() -> None:
    values = np.arange(-3, 3, dtype=np.int8).reshape(2, 3)
    x, y = t((2, 3), "int8", 0.5, 1), t((4, 3), "int8", 0.5, 1)
    tile = op("TILE", [x, const(np.int32([2, 1]))], [y], version=3)
    result = reference_outputs(installed_rules(), tile, [values])
    assert result is None or result[0].tolist() == [*np.tile(values, (2, 1)).flat]
    assert result is not None or installed_rules().runtime != "ai-edge-litert"


def test_reference_kernels_judge_variables() -> None:
    (node,) = with_variables(delays([variable()])).nodes
    now, state = np.full((1, 4), 5, np.float32), np.arange(8, dtype=np.float32)
    result = reference_outputs(installed_rules(), node, [now, state.reshape(1, 8)])
    assert result is not None
    assert [values.tolist() for values in result] == [[1, 3, 5, 7], [1, 5, 3, 5, 5, 5, 7, 5]]


@slow
@pytest.mark.device
@pytest.mark.usefixtures("one_context")
def test_wrong_fallback_kernel_is_rejected(
    device: DeviceInfo,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    no_choices: None,
) -> None:
    graph = ConvCase(op="DEPTHWISE_CONV_2D", size=(9, 9, 16), out_c=16).graph("uint8")
    plant("depthwise_conv_2d_quant8", 2, monkeypatch)
    engine = Engine(Options(device.index, tune="full", own_context=True))
    target = engine.target(installed_rules())
    names = [each.name for each in ops.lower(graph.nodes[0], target)]
    assert len(names) > 1
    with caplog.at_level(logging.WARNING, "delegate"):
        executor = engine.executor(partition_of(graph, [0]), target)
    assert [m for m in caplog.messages if "wrongly" in m] == [
        "node 0 (DEPTHWISE_CONV_2D): 'plain' computes wrongly on this device and is not used"
    ]
    (step,) = executor.plan.steps
    assert step.alternative in names[:-1]
    executor.close()
    engine.close()


@slow
@pytest.mark.device
@pytest.mark.usefixtures("one_context")
@pytest.mark.parametrize("precision", ["fp32", "ieee"])
def test_ieee_rejects_a_kernel_for_one_bit_of_a_float(
    device: DeviceInfo,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    no_choices: None,
    precision: str,
) -> None:
    graph = ConvCase(op="DEPTHWISE_CONV_2D", size=(9, 9, 16), out_c=16).graph("float32")
    plant("depthwise_conv_2d_float", 2, monkeypatch)
    options = Options(device.index, tune="full", own_context=True, precision=precision)
    engine = Engine(options)
    with caplog.at_level(logging.WARNING, "delegate"):
        engine.executor(partition_of(graph, [0]), engine.target(installed_rules())).close()
    wrong = "node 0 (DEPTHWISE_CONV_2D): 'plain' computes wrongly on this device and is not used"
    assert [line for line in caplog.messages if "wrongly" in line] == (
        [wrong] if precision == "ieee" else []
    )
    engine.close()


@pytest.mark.device
@pytest.mark.usefixtures("one_context")
def test_non_finite_logarithms_do_not_reject_dispatch_modes(
    device: DeviceInfo, caplog: pytest.LogCaptureFixture, no_choices: None
) -> None:
    values, logarithms, roots = (t((1, 5, 5, 8)) for _ in range(3))
    nodes = [op("LOG", [values], [logarithms]), op("SQRT", [logarithms], [roots])]
    graph = graph_of(nodes, [values], [roots])
    engine = Engine(Options(device.index, tune="full"))
    with caplog.at_level(logging.WARNING, "delegate"):
        engine.executor(partition_of(graph, range(2)), engine.target(Rules())).close()
    # rusticl 25.0 copies wrong bytes by "direct", which is a warning the first time.
    assert [line for line in caplog.messages if "copies wrong bytes" not in line] == []
    engine.close()


@pytest.mark.device
@pytest.mark.usefixtures("one_context")
def test_temporary_tensor_is_no_output(device: DeviceInfo) -> None:
    engine = Engine(Options(device.index, tune="off"))
    read, between, result = (t((64,), "int8", 0.5) for _ in range(3))
    target = engine.target(Rules())
    node = op("ADD", [read, read], [result])
    *_, plain = ops.lower(node, target)
    *_, other = ops.lower(op("ADD", [read, read], [between]), target)
    both = replace(plain, launches=(*other.launches, *plain.launches))
    assert planner_of(engine)._bench.are_correct(node, [both, plain], nobody) == [True, True]
    engine.close()
