# SPDX-License-Identifier: Apache-2.0
"""State of a Model, compared with reference kernels to which the test passes the state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from delegate import DelegateError, DeviceError, DeviceInfo, Model, Unsupported
from delegate.graph.persistent import persistent_tensors, with_carry
from delegate.inspect import Graph, Node, read_model, write_model
from tests.support.compare import Arrays, interpreter, invoke
from tests.support.model import const, graph_of, op, t
from tests.support.nets import POOL, SHAPE, assert_equal_outputs
from tests.support.opencl import opencl_error
from tests.support.variables import counter_model


def running_sum() -> Graph:
    """Return x, sum -> the pooled new sum, the new sum."""
    x, old, new, pooled = (t(SHAPE, "uint8", 0.5, 128, name=n) for n in ("x", "old", "new", "y"))
    nodes = [op("ADD", [x, old], [new]), op("AVERAGE_POOL_2D", [new], [pooled], POOL)]
    return graph_of(nodes, [x, old], [pooled, new])


def crossed() -> Graph:
    """Return x, a, b -> a + x, a view of b, the pooled b: a and b are swapped in each run."""
    x, a, b, s, v, y = (t((1, 4, 4, 2), "float32", name=name) for name in "xabsvy")
    nodes = [
        op("ADD", [x, a], [s]),
        op("RESHAPE", [b, const(np.array([1, 4, 4, 2], np.int32))], [v]),
        op("AVERAGE_POOL_2D", [b], [y], POOL),
    ]
    return graph_of(nodes, [x, a, b], [y, s, v])


def cache(*more: Node) -> Graph:
    """Return row, at, cache -> the cache with the row at this place, its sums; `more`: nodes."""
    flat = t((3,), "int32", name="flat")
    shaped = op("RESHAPE", [AT, const(np.array([3], np.int32))], [flat])
    made = op("DYNAMIC_UPDATE_SLICE", [CACHE, ROW, flat], [NEW])
    axis = const(np.array([1], np.int32))
    sums = op("SUM", [NEW, axis], [t((1, 4), "int32", name="sums")])
    ends = [node.outputs[0] for node in more]
    return graph_of([shaped, made, sums, *more], [ROW, AT, CACHE], [sums.outputs[0], *ends, NEW])


CACHE, NEW = (t((1, 6, 4), "int32", name=name) for name in ("cache", "new"))
ROW, AT = t((1, 1, 4), "int32", name="row"), t((1, 3), "int32", name="at")
# The old value is read after the update.
CHANGE = op("SUB", [NEW, CACHE], [t((1, 6, 4), "int32", name="change")])
# The old value is an output, too.
BEFORE = op(
    "RESHAPE", [CACHE, const(np.array([1, 24], np.int32))], [t((1, 24), "int32", name="before")]
)


CARRIES: Mapping[str, tuple[Graph, Mapping[Any, Any]]] = {
    "sum": (running_sum(), {"new": "old"}),
    "crossed": (crossed(), {"s": "b", "v": "a"}),
    "in place": (cache(), {"new": "cache"}),
    "copied": (cache(CHANGE), {"new": "cache"}),
    "another": (cache(CHANGE), {"change": "cache"}),
    "seen": (cache(BEFORE), {"new": "cache"}),
}


def fed_by_hand(graph: Graph, carry: Mapping[Any, Any], given: list[Arrays]) -> list[Arrays]:
    """Return the reference kernels' outputs, run by run, for the inputs that are not state."""
    reference = interpreter(write_model(graph))
    names = [tensor.name for tensor in graph.inputs]
    held = {
        name: np.zeros(tensor.shape, tensor.dtype)
        for name, tensor in zip(names, graph.inputs, strict=True)
        if name in carry.values()
    }
    results = []
    for arrays in given:
        own = iter(arrays)
        outputs = invoke(reference, [held[n] if n in held else next(own) for n in names])
        by_name = {tensor.name: each for tensor, each in zip(graph.outputs, outputs, strict=True)}
        held = {carry[name]: each for name, each in by_name.items() if name in carry}
        results.append([each for name, each in by_name.items() if name not in carry])
    return results


def drawn(graph: Graph, carry: Mapping[Any, Any], runs: int, seed: int = 0) -> list[Arrays]:
    rng = np.random.default_rng(seed)
    free = [tensor for tensor in graph.inputs if tensor.name not in carry.values()]
    return [
        [rng.integers(0, 7, tensor.shape).astype(tensor.dtype) for tensor in free]
        for _ in range(runs)
    ]


def opened(name: str, device: DeviceInfo, batch: int = 1, tune: str = "off") -> Model:
    graph, carry = CARRIES[name]
    return Model(write_model(graph), device.index, batch, carry=carry, tune=tune)


@pytest.mark.parametrize("tune", ["off", "quick"])
@pytest.mark.parametrize("name", CARRIES)
def test_output_is_carried_to_next_run(device: DeviceInfo, name: str, tune: str) -> None:
    given = drawn(*CARRIES[name], 5)
    expected = fed_by_hand(*CARRIES[name], given)
    with opened(name, device, tune=tune) as model:
        assert all(not values.any() for values in model.state().values())
        for arrays, wanted in zip(given, expected, strict=True):
            assert_equal_outputs(model.run(arrays), wanted)
        model.reset()
        pending = [model.run_async(arrays) for arrays in given]
        for run, wanted in zip(pending, expected, strict=True):
            assert_equal_outputs(run.result(), wanted)


def test_pictures_of_a_batch_have_separate_state(device: DeviceInfo) -> None:
    graph, carry = CARRIES["sum"]
    streams = [drawn(graph, carry, 4, seed) for seed in range(3)]
    expected = [fed_by_hand(graph, carry, given) for given in streams]
    with opened("sum", device, 3) as model:
        for number in range(4):
            (got,) = model.run([np.concatenate([given[number][0] for given in streams])])
            wanted = np.concatenate([each[number][0] for each in expected])
            assert_equal_outputs([got], [wanted])
        with pytest.raises(ValueError, match="2 of 3: what is kept needs whole batches"):
            model.run([np.zeros((2, *model.input_details[0].shape[1:]), np.uint8)])


def test_state_can_be_read_and_restored(device: DeviceInfo) -> None:
    given = drawn(*CARRIES["sum"], 4)
    with opened("sum", device) as model:
        model.run(given[0])
        saved = model.state()
        later = [model.run(arrays) for arrays in given[1:]]
        model.set_state(saved)
        for arrays, wanted in zip(given[1:], later, strict=True):
            assert_equal_outputs(model.run(arrays), wanted)
        assert model.state()["old"].shape == (1, *model.input_details[0].shape)
        with pytest.raises(ValueError, match="no state is named 'new'; there is: 'old'"):
            model.set_state({"new": saved["old"]})
        with pytest.raises(ValueError, match=r"float32 of shape .* is given"):
            model.set_state({"old": saved["old"].astype(np.float32)})
    with pytest.raises(DeviceError, match="closed"):
        model.state()


def test_inputs_with_one_name_are_identified_by_index() -> None:
    x, y = t((3,), "float32", name="x"), t((3,), "float32", name="x")
    r, s = t((3,), "float32", name="r"), t((3,), "float32", name="s")
    graph = graph_of([op("NEG", [x], [r]), op("ABS", [y], [s])], [x, y], [r, s])
    known = read_model(write_model(graph))
    new_graph = with_carry(known, {"r": known.inputs[0].index, "s": known.inputs[1].index})
    assert [each.state_name for each in persistent_tensors(new_graph)] == ["0", "2"]


@pytest.mark.parametrize("is_async", [False, True])
def test_failed_run_loses_state_until_reset(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    given = drawn(*CARRIES["sum"], 2)
    expected = fed_by_hand(*CARRIES["sum"], given)
    with opened("sum", device) as model:
        run = (lambda arrays: model.run_async(arrays).result()) if is_async else model.run
        run(given[1])
        saved = model.state()
        with monkeypatch.context() as patched:

            def fail(*_: object) -> None:
                raise opencl_error(
                    cl.Error, "clEnqueueNDRangeKernel", cl.status_code.OUT_OF_RESOURCES
                )

            patched.setattr(cl, "enqueue_nd_range_kernel", fail)
            with pytest.raises(DeviceError, match="CL_OUT_OF_RESOURCES"):
                run(given[0])
        for ask in (lambda: run(given[0]), model.state):
            with pytest.raises(DeviceError, match=r"the state is lost, as a run failed .*: reset"):
                ask()
        model.reset()
        for arrays, wanted in zip(given, expected, strict=True):
            assert_equal_outputs(run(arrays), wanted)
        model.set_state(saved)
        assert np.array_equal(model.state()["old"], saved["old"])


def test_initial_value_of_quantised_state(device: DeviceInfo) -> None:
    x, old, new = (t((1, 3), "int8", 0.5, -7, name=name) for name in ("x", "old", "new"))
    graph = graph_of([op("ADD", [x, old], [new])], [x, old], [new])
    with Model(write_model(graph), device.index, carry={"new": "old"}, tune="off") as model:
        assert model.output_details == ()
        assert model.state()["old"].tolist() == [[[-7, -7, -7]]]
        assert model.run(np.array([[-7, 3, 127]], np.int8)) == []
        assert model.state()["old"].tolist() == [[[-7, 3, 127]]]


@pytest.mark.parametrize(
    ("carry", "why"),
    [
        ({"none": "old"}, "no output 'none'"),
        ({"new": "new"}, "no input 'new'"),
        ({"new": "old", "y": "old"}, r"carry has tensor \d \(old\) twice"),
        ({2: 0, 3: 0}, r"carry has tensor 0 \(x\) twice"),
    ],
)
def test_unknown_carry_is_refused(device: DeviceInfo, carry: Mapping[Any, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Model(running_sum(), device.index, carry=carry)


def test_carry_of_different_tensors_is_refused(device: DeviceInfo) -> None:
    x, y = t((2,), "int8", 0.5, 1, name="x"), t((2,), "int8", 0.25, 1, name="y")
    z = t((2,), "int8", 0.5, 1, name="z")
    graph = graph_of([op("QUANTIZE", [x], [y]), op("QUANTIZE", [y], [z])], [x], [x, y, z])
    for carry, why in ({"y": "x"}, "with scale"), ({"x": "x"}, "no node computes"):
        with pytest.raises(ValueError, match=why):
            Model(graph, device.index, carry=carry)
    with pytest.raises(ValueError, match="is on one device"):
        Model(graph, "all", carry={"z": "x"})


def test_resource_variable_persists(device: DeviceInfo) -> None:
    reference = interpreter(counter_model())
    given = [np.full((1, 4), number, np.float32) for number in (1, 2, 3)]
    with Model(counter_model(), device.index, tune="off") as model:
        for x in given:
            assert_equal_outputs(model.run(x), invoke(reference, [x]))
        assert model.state()["sum"].tolist() == [[[16, 16, 16, 16]]]
        model.reset()
        assert model.run(given[0])[0].tolist() == [[11, 11, 11, 11]]
    graph = read_model(counter_model())
    with pytest.raises(Unsupported, match=r"node 0 \(CALL_ONCE\)"):
        Model(graph, device.index, tune="off")


def test_model_without_state_says_so(device: DeviceInfo) -> None:
    with Model(running_sum(), device.index, tune="off") as model:
        for ask in (model.state, model.reset, lambda: model.set_state({})):
            with pytest.raises(DelegateError, match="no persistent tensors"):
                ask()
