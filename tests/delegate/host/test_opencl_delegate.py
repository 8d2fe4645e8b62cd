# SPDX-License-Identifier: Apache-2.0
"""The delegate in an interpreter: which nodes it claims, whatever else is in the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate import DeviceInfo, ModelError, OpenCLDelegate
from delegate.inspect import read_model, write_model
from tests.support.compare import RUNTIME, inputs_for, interpreter, invoke, refusals
from tests.support.model import chain_model, const, graph_of, op, t
from tests.support.nets import (
    CHAIN,
    LEFT,
    POOL,
    TAKEN,
    assert_equal_outputs,
    assert_runs_exactly,
    delegate_for,
    image,
)
from tests.support.shared import model_path
from tests.support.tiers import slow

# Claims


def test_attributes_after_claim(device: DeviceInfo) -> None:
    model = write_model(CHAIN)
    delegate = delegate_for(model, device)
    assert (delegate.verdicts, delegate.partitions, delegate.failure) == ([], [], None)
    ours = interpreter(model, delegate)
    assert delegate.verdicts == [
        (0, "AVERAGE_POOL_2D", None),
        (1, "MAX_POOL_2D", "excluded by exclude_ops"),
        (2, "ADD", None),
    ]
    assert delegate.partitions == [[0], [2]]
    assert delegate.device_name == device.name
    assert delegate.device == device
    assert delegate.failure is None
    inputs = inputs_for(CHAIN)[0]
    assert_equal_outputs(invoke(ours, inputs), invoke(interpreter(model), inputs))


def test_default_device_is_first_working_one(device: DeviceInfo) -> None:
    chosen = OpenCLDelegate(write_model(CHAIN)).device
    assert chosen.index <= device.index


def test_exclude_ops_refuses_a_string(device: DeviceInfo) -> None:
    with pytest.raises(TypeError, match=r"exclude_ops is a list of op names: \['ADD'\]"):
        OpenCLDelegate(write_model(CHAIN), device.index, exclude_ops="ADD")


def test_damaged_or_missing_model_is_refused(device: DeviceInfo) -> None:
    with pytest.raises(ModelError):
        OpenCLDelegate(write_model(CHAIN)[:100], device.index)
    with pytest.raises(FileNotFoundError):
        OpenCLDelegate("no/such/model.tflite", device.index)


def test_model_without_claimed_nodes_runs_on_cpu(device: DeviceInfo) -> None:
    model = write_model(CHAIN)
    delegate = delegate_for(model, device, exclude_ops=[*LEFT, *TAKEN])
    assert_runs_exactly(model, CHAIN, delegate)
    assert delegate.partitions == []
    assert set(refusals(delegate).values()) == {"excluded by exclude_ops"}


# Other nodes of the model


def small_pool(source: Any) -> Any:
    """Return a pooling that the device runs, and its output."""
    result = image(*source.shape)
    return op("AVERAGE_POOL_2D", [source], [result], POOL), result


def sizes(*values: Any) -> NDArray[np.int32]:
    return np.array(values, np.int32)


def int8(*shape: int) -> Any:
    return t(shape, "int8", 0.5, 3)


def picture_of(shape: Sequence[int], dtype: str = "int8") -> NDArray[Any]:
    return np.random.default_rng(2).integers(0, 100, shape).astype(dtype)


def pair(last: Any, *nodes: Any) -> list[Any]:
    result = int8(*last.shape)
    return [*nodes, op("AVERAGE_POOL_2D", [last], [result], POOL)]


def dynamic_case(name: str) -> tuple[list[Any], list[NDArray[Any]]]:
    """Return nodes in which an op makes a dynamic tensor that a pooling reads, and its inputs."""
    x, y, whole = int8(1, 4, 4, 2), int8(1, 4, 4, 2), sizes(1, 4, 4, 2)
    computed = t((4,), "int32")
    if name == "RESHAPE":
        return pair(y, op(name, [x, computed], [y])), [picture_of(x.shape), whole]
    if name == "TILE":
        return pair(y, op(name, [x, computed], [y])), [picture_of(x.shape), sizes(1, 1, 1, 1)]
    if name == "TRANSPOSE":
        return pair(y, op(name, [x, computed], [y])), [picture_of(x.shape), sizes(0, 2, 1, 3)]
    if name == "SLICE":
        begin = t((4,), "int32")
        node = op(name, [x, begin, computed], [y])
        return pair(y, node), [picture_of(x.shape), sizes(0, 0, 0, 0), whole]
    if name == "PAD":
        padded, pairs = int8(1, 6, 6, 2), t((4, 2), "int32")
        return (
            pair(padded, op(name, [x, pairs], [padded])),
            [picture_of(x.shape), sizes([0, 0], [1, 1], [2, 0], [0, 0])],
        )
    if name == "EXPAND_DIMS":
        flat, axis = int8(4, 4, 2), t((), "int32")
        return pair(y, op(name, [flat, axis], [y])), [picture_of(flat.shape), sizes(0).reshape(())]
    if name == "FILL":
        value = int8()
        return pair(y, op(name, [computed, value], [y])), [whole, picture_of(())]
    if name == "BATCH_TO_SPACE_ND":
        crops, four = t((2, 2), "int32"), int8(4, 2, 2, 2)
        node = op(name, [four, const(sizes(2, 2)), crops], [y])
        return pair(y, node), [picture_of(four.shape), sizes([0, 0], [0, 0])]
    assert name == "SPLIT"
    axis, tall, other = t((), "int32"), int8(1, 8, 4, 2), int8(1, 4, 4, 2)
    node = op(name, [axis, tall], [y, other], {"num_splits": 2})
    return pair(y, node), [sizes(1).reshape(()), picture_of(tall.shape)]


@pytest.mark.parametrize(
    "name",
    [
        "RESHAPE",
        "TILE",
        "TRANSPOSE",
        "SLICE",
        "PAD",
        "EXPAND_DIMS",
        "FILL",
        "BATCH_TO_SPACE_ND",
        "SPLIT",
    ],
)
def test_nodes_that_touch_dynamic_tensors_stay_on_the_cpu(device: DeviceInfo, name: str) -> None:
    nodes, inputs = dynamic_case(name)
    # A separate node with static shapes is claimed.
    source = int8(1, 4, 4, 2)
    graph = graph_of([*nodes, op("AVERAGE_POOL_2D", [source], [int8(1, 4, 4, 2)], POOL)])
    model = write_model(graph)
    delegate = delegate_for(model, device, exclude_ops=["TILE", "TRANSPOSE", "PAD", "FILL"])
    ours, reference = interpreter(model, delegate), interpreter(model)
    assert refusals(delegate)[1] == "a tensor's shape is known only at run time"
    assert delegate.partitions == [[2]]
    given = [*inputs, picture_of(source.shape)]
    for _ in range(2):
        assert_equal_outputs(invoke(ours, given), invoke(reference, given))


@slow
@pytest.mark.model
@pytest.mark.parametrize("excluded", [[], ["RESHAPE"]], ids=["folded", "dynamic"])
def test_real_model_that_computes_a_shape_is_exact(device: DeviceInfo, excluded: list[str]) -> None:
    path = model_path("mbnet128_0.25_q")
    graph = read_model(path)
    delegate = OpenCLDelegate(path, device.index, exclude_ops=excluded, tune="off")
    ours, reference = interpreter(path, delegate), interpreter(path)
    inputs = inputs_for(graph)[0]
    assert_equal_outputs(invoke(ours, inputs), invoke(reference, inputs))
    # Without the RESHAPE, later shapes are known only at run time.
    assert sorted(refusals(delegate)) == ([36, 37] if excluded else [])
    for batch in (3, 1):
        several = [np.repeat(inputs[0], batch, axis=0)]
        for interp in (ours, reference):
            interp.resize_tensor_input(interp.get_input_details()[0]["index"], several[0].shape)
            interp.allocate_tensors()
        assert_equal_outputs(invoke(ours, several), invoke(reference, several), f"batch {batch}")
        assert sorted(refusals(delegate)) == ([36, 37] if excluded else [])


def test_string_tensors_stay_on_cpu(device: DeviceInfo) -> None:
    left, right, same = t((2,), "string"), t((2,), "string"), t((2,), "bool")
    pool, _ = small_pool(image())
    model = chain_model([op("EQUAL", [left, right], [same]), pool])
    delegate = delegate_for(model, device)
    picture = picture_of((1, 3, 3, 2), "uint8")
    given = [np.array([b"a", b"bc"]), np.array([b"a", b"bd"]), picture]
    got = invoke(interpreter(model, delegate), given)
    expected = invoke(interpreter(model), given)
    assert got[0].tolist() == expected[0].tolist() == [True, False]
    assert_equal_outputs(got[1:], expected[1:])
    assert delegate.partitions == [[1]]


def test_unresolved_custom_op_has_tflites_error(device: DeviceInfo) -> None:
    pool, result = small_pool(image())
    model = chain_model([pool, op("my op", [result], [image()], is_custom=True)])
    delegate = delegate_for(model, device)
    with pytest.raises(RuntimeError, match="unresolved custom op: my op"):
        interpreter(model, delegate)
    assert refusals(delegate) == {1: "custom op my op is not implemented"}
    assert delegate.failure is None


@pytest.mark.parametrize(
    ("first", "second", "taken"),
    [
        (["ADD", *LEFT], ["MUL"], [[[0]], [[1, 2]]]),
        ([*LEFT], ["MUL"], [[[0], [2]], [[1]]]),
        ([], [], [[[0, 1, 2]], []]),
    ],
    ids=["second-takes-the-rest", "second-between", "nothing-left"],
)
def test_second_delegate_takes_remaining_nodes(
    device: DeviceInfo, first: list[str], second: list[str], taken: list[list[list[int]]]
) -> None:
    model = write_model(CHAIN)
    delegates = [delegate_for(model, device, exclude) for exclude in (first, second)]
    ours = RUNTIME.interpreter(model, None, "reference", delegates)
    ours.allocate_tensors()
    assert [[sorted(group) for group in d.partitions] for d in delegates] == taken
    for index in (n for group in taken[0] for n in group):
        assert refusals(delegates[1])[index] == "another delegate took it"
    inputs = inputs_for(CHAIN)[0]
    assert_equal_outputs(invoke(ours, inputs), invoke(interpreter(model), inputs))
