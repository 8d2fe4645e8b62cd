# SPDX-License-Identifier: Apache-2.0
"""Models with several graphs: signatures, and bodies of WHILE and IF."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate import DeviceInfo, Model, OpenCLDelegate, SignatureError
from delegate.format.reader import _read_subgraph
from delegate.format.table import File
from delegate.inspect import Graph, Tensor, read_model, read_signatures
from tests.support.compare import interpreter, invoke
from tests.support.model import const, graph_of, op, t
from tests.support.nets import LEFT, POOL, assert_equal_outputs, delegate_for, image
from tests.support.schedules import constant_bytes
from tests.support.subgraphs import two_signatures, write_subgraphs
from tests.support.tiers import slow

CALLS = {"cond_subgraph_index": 1, "body_subgraph_index": 2}


def sizes(*values: Any) -> NDArray[np.int32]:
    return np.array(values, np.int32)


def pictures(count: int, shape: Sequence[int] = (1, 3, 3, 2)) -> list[NDArray[np.uint8]]:
    return [*np.random.default_rng(2).integers(0, 256, (count, *shape)).astype(np.uint8)]


def pool(source: Tensor, result: Tensor, width: int) -> Any:
    return op("AVERAGE_POOL_2D", [source], [result], POOL | {"filter_width": width})


def below(limit: int, carried: Tensor) -> Graph:
    """Return the condition of a loop over a counter and a picture."""
    number, is_less = t((1,), "int32"), t((1,), "bool")
    node = op("LESS", [number, const(sizes(limit))], [is_less])
    return graph_of([node], [number, carried], [is_less])


def body(first: Tensor, last: Tensor, *nodes: Any) -> Graph:
    """Return the body of a loop, which increments the counter."""
    number, after = t((1,), "int32"), t((1,), "int32")
    count = op("ADD", [number, const(sizes(1))], [after])
    return graph_of([*nodes, count], [number, first], [after, last])


def loop() -> bytes:
    """Return a model whose WHILE has two of the main subgraph's tensors, and in its body its node,
    but of another window."""
    x, pooled, looped, result = image(), image(), image(), image()
    start, count = t((1,), "int32"), t((1,), "int32")
    main = graph_of(
        [
            pool(x, pooled, 2),
            op("WHILE", [start, pooled], [count, looped], CALLS),
            pool(pooled, result, 2),
        ],
        [x, start],
        [looped, result],
    )
    first, last = image(), image()
    return write_subgraphs(main, below(3, image()), body(first, last, pool(first, last, 3)))


def choice(shape: Sequence[int] = (1, 3, 3, 2)) -> bytes:
    """Return a model of an IF whose branches pool with different windows."""
    is_then, x, chosen, result = t((), "bool"), image(*shape), image(*shape), image(*shape)
    calls = {"then_subgraph_index": 1, "else_subgraph_index": 2}
    main = graph_of(
        [op("IF", [is_then, x], [chosen], calls), pool(chosen, result, 2)], [is_then, x], [result]
    )
    ways = []
    for width in (2, 3):
        first, last = image(*shape), image(*shape)
        ways.append(graph_of([pool(first, last, width)], [first], [last]))
    return write_subgraphs(main, *ways)


def claimed_nodes(delegate: Any) -> dict[int, list[int]]:
    """Return the claimed nodes of each subgraph with verdicts."""
    return {
        number: [each.node for each in verdicts if each.is_taken]
        for number, verdicts in delegate.subgraph_verdicts.items()
    }


@slow
def test_loop_graphs_have_verdicts_for_every_interpreter(device: DeviceInfo) -> None:
    model = loop()
    delegate = delegate_for(model, device)
    alive = []  # so that no address of a context is reused
    for _ in range(2):
        delegate.partitions = []
        alive.append(interpreter(model, delegate))
        assert delegate.partitions == [[0, 2]]
        assert claimed_nodes(delegate) == {0: [0, 2], 1: [0], 2: [0, 1]}
        for picture in pictures(3):
            for start in (0, 2, 5):
                given = [picture, sizes(start)]
                assert_equal_outputs(invoke(alive[-1], given), invoke(interpreter(model), given))


@slow
def test_small_conditions_and_bodies_stay_on_cpu(device: DeviceInfo) -> None:
    delegate = delegate_for(loop(), device, min_nodes_per_partition=0)
    interpreter(loop(), delegate)
    assert claimed_nodes(delegate) == {0: [], 1: [], 2: []}
    why = "a partition of 2 that costs a CPU less than its copies"
    assert {each.reason for each in delegate.subgraph_verdicts[2]} == {why}


@slow
def test_input_of_loop_can_be_resized(device: DeviceInfo) -> None:
    model = loop()
    delegate = delegate_for(model, device)
    ours, reference = interpreter(model, delegate), interpreter(model)
    for height in (5, 3, 4):
        (picture,) = pictures(1, (1, height, 3, 2))
        for interp in (ours, reference):
            interp.resize_tensor_input(interp.get_input_details()[0]["index"], picture.shape)
            interp.allocate_tensors()
        given = [picture, sizes(0)]
        assert_equal_outputs(invoke(ours, given), invoke(reference, given), f"height {height}")


def test_both_branches_have_verdicts(device: DeviceInfo) -> None:
    model = choice()
    delegate = delegate_for(model, device)
    ours, reference = interpreter(model, delegate), interpreter(model)
    assert claimed_nodes(delegate) == {0: [1], 1: [0], 2: [0]}
    for picture in pictures(2):
        for is_then in (True, False, True):
            given = [np.array(is_then), picture]
            assert_equal_outputs(invoke(ours, given), invoke(reference, given))


def test_body_with_growing_tensor_stays_on_cpu(device: DeviceInfo) -> None:
    start, x = t((1,), "int32"), image(1, 1, 3, 2)
    count, looped = t((1,), "int32"), image(1, 1, 3, 2)
    main = graph_of([op("WHILE", [start, x], [count, looped], CALLS)], [start, x], [looped])
    first, last = image(1, 1, 3, 2), image(1, 2, 3, 2)
    grown = op("CONCATENATION", [first, first], [last], {"axis": 1})
    model = write_subgraphs(main, below(3, image(1, 1, 3, 2)), body(first, last, grown))
    delegate = delegate_for(model, device, [*LEFT, "LESS"])
    ours, reference = interpreter(model, delegate), interpreter(model)
    assert claimed_nodes(delegate) == {0: [], 1: []}
    given = [sizes(0), *pictures(1, (1, 1, 3, 2))]
    got = invoke(ours, given)
    assert got[0].shape == (1, 8, 3, 2)
    assert_equal_outputs(got, invoke(reference, given))


@slow
def test_two_signatures_share_constants(device: DeviceInfo) -> None:
    weights = const(np.arange(64 * 64).astype(np.uint8).reshape(64, 64), 0.01, 7)

    def rows(count: int) -> Graph:
        x, result = t((count, 64), "uint8", 0.1, 3), t((count, 64), "uint8", 0.9, 5)
        return graph_of([op("FULLY_CONNECTED", [x, weights], [result])])

    alone = write_subgraphs(rows(4), signatures=[0])
    # Another number of rows may have another kernel with other packed weights.
    model = write_subgraphs(rows(4), rows(4), signatures=[0, 1])
    single, delegate = delegate_for(alone, device), delegate_for(model, device)
    plain, ours = interpreter(alone, single), interpreter(model, delegate)
    reference = interpreter(model)
    assert claimed_nodes(delegate) == {0: [0], 1: [0]}
    assert constant_bytes(delegate._engine) == constant_bytes(single._engine) > 0
    for number, count in enumerate((4, 4)):
        x = np.random.default_rng(count).integers(0, 256, (count, 64)).astype(np.uint8)
        got, expected = (
            runner.get_signature_runner(f"graph {number}")(x0=x)["y0"]
            for runner in (ours, reference)
        )
        assert_equal_outputs([got], [expected])
    del plain


@slow
def test_interpreters_of_a_delegate_can_alternate(device: DeviceInfo) -> None:
    """Each graph is found in its interpreter's memory, whichever was claimed last."""
    delegate = OpenCLDelegate(None, device.index, min_nodes_per_partition=1)
    models = loop(), choice()
    interp = [(interpreter(model, delegate), interpreter(model)) for model in models]
    for height in (5, 4):
        (picture,) = pictures(1, (1, height, 3, 2))
        for pair, given in zip(
            interp, ([picture, sizes(0)], [np.array(True), picture]), strict=True
        ):
            for each in pair:
                at = next(d["index"] for d in each.get_input_details() if len(d["shape"]) == 4)
                each.resize_tensor_input(at, picture.shape)
                each.allocate_tensors()
            assert_equal_outputs(invoke(pair[0], given), invoke(pair[1], given))


@slow
@pytest.mark.parametrize("is_given", [False, True])
def test_each_graph_is_read_once(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, is_given: bool
) -> None:
    read: list[int] = []

    def counted(file: File, number: int, head: Any) -> Graph:
        read.append(number)
        return _read_subgraph(file, number, head)

    monkeypatch.setattr("delegate.format.reader._read_subgraph", counted)
    model = two_signatures()
    given = read_signatures(model)[0] if is_given else None
    delegate = OpenCLDelegate(given, device.index)
    interp = interpreter(model, delegate)
    assert claimed_nodes(delegate) == {0: [0], 1: [0, 1]}
    assert read == [0, 1]
    del interp


def test_attributes_describe_the_given_graph(device: DeviceInfo) -> None:
    model = two_signatures()
    delegate = delegate_for(read_model(model, "graph 1"), device)
    interp = interpreter(model, delegate)
    assert [each.op for each in delegate.verdicts] == ["CONV_2D", "AVERAGE_POOL_2D"]
    assert delegate.partitions == [[0, 1]]
    assert claimed_nodes(delegate) == {0: [0], 1: [0, 1]}
    del interp


def test_signature_runners_share_constants(device: DeviceInfo) -> None:
    model = two_signatures()
    delegate = delegate_for(model, device)
    interp = interpreter(model, delegate)
    assert claimed_nodes(delegate) == {0: [0], 1: [0, 1]}
    both = constant_bytes(delegate._engine)
    (first, second), sizes_of_each = (pictures(1, (1, n, n, 3))[0] for n in (6, 4)), []
    for number, picture in enumerate((first, second)):
        runner = interp.get_signature_runner(f"graph {number}")
        plain = interpreter(model).get_signature_runner(f"graph {number}")
        assert_equal_outputs(runner(x0=picture)["y0"], plain(x0=picture)["y0"])
        with Model(model, device.index, signature=f"graph {number}", tune="off") as alone:
            sizes_of_each.append(constant_bytes(alone._on._engine))
            assert_equal_outputs(alone.run(picture)[0], plain(x0=picture)["y0"])
    # They differ only by the tables of their kernels, if any.
    assert both == max(sizes_of_each) < sum(sizes_of_each)


def test_model_has_signatures_of_file(device: DeviceInfo) -> None:
    words = "there is no signature 'decode'; the model has 'graph 0', 'graph 1'"
    with pytest.raises(SignatureError, match=words):
        Model(two_signatures(), device.index, signature="decode")
    with pytest.raises(SignatureError, match="there is no signature 'decode'; the model has none"):
        Model(choice(), device.index, signature="decode")
    with pytest.raises(TypeError, match="a Graph is of one signature"):
        Model(read_model(two_signatures()), device.index, signature="graph 1")
