# SPDX-License-Identifier: Apache-2.0
"""The shapes of all tensors against TFLite's own, of models that have recorded none of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegate import DeviceInfo, OpenCLDelegate
from delegate.graph.edit import with_tensors
from delegate.graph.infer import infer
from delegate.graph.shapes import CUSTOM_RULES, RULES, output_shapes
from delegate.host.tflite.library import installed_rules
from delegate.inspect import Graph, Node, read_model, write_model
from delegate.ops._registry import ops
from tests.support.compare import RUNTIME, inputs_for, interpreter, invoke, refusals
from tests.support.model import const, graph_of, op, t
from tests.support.nets import assert_equal_outputs, conv_pool
from tests.support.shared import SHARED
from tests.support.tiers import slow
from tflite_opencl.conformance.cases import all_cases
from tflite_opencl.models.build import Case

Shapes = dict[int, tuple[int, ...]]
# Ops of passes, which no file has.
FUSED = {name for name in ops() if name.islower()}


def without_shapes(graph: Graph) -> Graph:
    """Return the graph as older converters write it: what nodes compute has no shape."""
    computed = {tensor for node in graph.nodes for tensor in node.outputs}
    return with_tensors(graph, {tensor: replace(tensor, shape=()) for tensor in computed})


def run_and_ask(model: bytes, resized: Mapping[int, Sequence[int]] | None = None) -> Shapes:
    """Return TFLite's shapes after a run: then it knows those that are computed, too.

    Raises:
        RuntimeError, ValueError: TFLite refuses the model.
    """
    try:
        return _run_and_ask(model, resized or {}, "reference")
    except (RuntimeError, ValueError):
        return _run_and_ask(model, resized or {}, "builtin")  # they have more ops


def _run_and_ask(model: bytes, resized: Mapping[int, Sequence[int]], cpu_kernels: str) -> Shapes:
    made = RUNTIME.interpreter(model, None, cpu_kernels, [])
    for index, sizes in resized.items():
        made.resize_tensor_input(index, list(sizes))
    made.allocate_tensors()
    for each in made.get_input_details():
        if each["dtype"] != np.bytes_:  # a loop may count up to what memory happens to hold
            made.set_tensor(each["index"], np.zeros(each["shape"], each["dtype"]))
    made.invoke()
    # Not of all tensors: tflite-runtime crashes where it is asked of a sparse constant.
    computed = [tensor.index for node in read_model(model).nodes for tensor in node.outputs]
    details = (made._get_tensor_details(index, 0) for index in computed)
    return {each["index"]: tuple(map(int, each["shape"])) for each in details}


def assert_shapes(graph: Graph, expected: Shapes, shapes: Shapes | None = None) -> None:
    """Assert that all shapes that nodes compute are TFLite's."""
    found = infer(without_shapes(graph), shapes)
    read = {*found.outputs, *(tensor for node in found.nodes for tensor in node.inputs)}
    # TFLite sizes nothing that a loop hands through in vain.
    computed = [x for node in found.nodes for x in node.outputs if x in read or node.calls is None]
    assert {x.index: x.shape for x in computed} == {x.index: expected[x.index] for x in computed}


def test_every_op_that_runs_on_the_device_has_a_rule() -> None:
    assert set(ops()) - FUSED <= RULES.keys() | CUSTOM_RULES.keys()


@cache
def _cases() -> dict[str, list[Case]]:
    """Return the suite's cases by family; of the family of large ones a part."""
    found: dict[str, list[Case]] = {}
    for case in all_cases():
        if case.check == "values" and not case.is_heavy:
            found.setdefault(case.name.split("/")[0], []).append(case)
    return {name: cases[:: 25 if name == "teflon" else 1] for name, cases in found.items()}


# Their shapes are compared with the results that are right, in the tests of these ops.
NOT_ASKED = {
    "stablehlo_gather": "TFLite's process ends where the file has no number of dimensions",
    "max_pooling": "TFLite lacks the ops",
    "transpose_conv_bias": "TFLite lacks the op",
    **dict.fromkeys(("averagepool3d", "avgpool3d", "maxpool3d"), "TFLite lacks the op"),
} | dict.fromkeys(
    ("assign_variable", "call_once", "read_variable", "var_handle"),
    "the shape is that of the variable, which only `with_resources` knows",
)
IS_OLDER = installed_rules().runtime == "tflite-runtime"
if IS_OLDER:
    NOT_ASKED["div"] = "the process ends in a division by the zeros that all inputs hold here"
NEWER_OPS = {"reduce_window", *(each for each in _cases() if each.startswith("stablehlo_"))}


@pytest.mark.parametrize("family", sorted(_cases()))
def test_the_suite_s_shapes_are_tflite_s(family: str) -> None:
    asked = 0
    if family in NOT_ASKED:
        pytest.skip(NOT_ASKED[family])
    for case in _cases()[family]:
        graph = case.make()
        if IS_OLDER and any(len(tensor.shape) > 5 for tensor in graph.tensors):
            continue  # it may end the process
        try:
            expected = run_and_ask(write_model(without_shapes(graph)))
        except (RuntimeError, ValueError):
            continue  # TFLite itself refuses it: a kernel of it wants to know the shape before
        asked += 1
        assert_shapes(read_model(write_model(graph)), expected)
    if not asked and family in NEWER_OPS and IS_OLDER:
        pytest.skip("tflite-runtime has no such op")
    assert asked > 0


MODELS = sorted(path.stem for path in (SHARED / "models").glob("*.tflite"))


@pytest.mark.model
@pytest.mark.parametrize("name", MODELS)
def test_real_models_shapes_are_tflite_s(name: str) -> None:
    graph = read_model(SHARED / "models" / f"{name}.tflite")
    if any(node.is_custom for node in graph.nodes):
        pytest.skip("it has an op that TFLite does not know")
    assert_shapes(graph, run_and_ask(write_model(without_shapes(graph))))


@pytest.mark.model
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(
    ("name", "size"), [("mobilenet_v1_0.25_128_quant", 97), ("mobilenet_v1_0.25_128", 128)]
)
def test_shapes_follow_a_resized_input(name: str, size: int, batch: int) -> None:
    path = SHARED / "models" / f"{name}.tflite"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    graph = read_model(path)
    # The pool of the last picture is as large as the picture, and what follows is a RESHAPE.
    graph = replace(graph, nodes=graph.nodes[:-4], outputs=graph.nodes[-5].outputs)
    shape = (batch, size, size, 3)
    expected = run_and_ask(write_model(graph), {graph.inputs[0].index: shape})
    assert_shapes(graph, expected, {graph.inputs[0].index: shape})


sizes = st.integers(1, 9)


@given(st.tuples(sizes, sizes, sizes))
def test_shapes_follow_any_input(shape: tuple[int, int, int]) -> None:
    graph = conv_pool(has_open_batch=True)
    resized = {graph.inputs[0].index: (*shape, 2)}
    assert_shapes(graph, run_and_ask(write_model(graph), resized), resized)


@pytest.mark.parametrize("recorded", [(0, 1, 1, 2), (7,), (5, 9, 9, 9)])
def test_wrong_recorded_shapes_do_not_matter(recorded: tuple[int, ...]) -> None:
    graph = sized_by_its_batch()
    right = [tensor.shape for tensor in infer(graph).tensors]
    computed = {tensor for node in graph.nodes for tensor in node.outputs}
    wrong = with_tensors(graph, {x: replace(x, shape=recorded) for x in computed})
    assert [tensor.shape for tensor in infer(wrong).tensors] == right


OPTION_NAMES = (
    "axis", "batch_dims", "squeeze_dims", "new_shape", "block_size", "num_splits", "padding",
    "stride_h", "stride_w", "filter_height", "filter_width", "begin_mask", "end_mask",
    "ellipsis_mask", "new_axis_mask", "shrink_axis_mask", "offset", "keep_dims", "keep_num_dims",
    "adj_x", "adj_y", "dilation_h_factor",
)  # fmt: skip
OPTIONS = st.dictionaries(
    st.sampled_from(OPTION_NAMES),
    st.one_of(
        st.integers(-3, 9),
        st.booleans(),
        st.sampled_from(["SAME", "VALID"]),
        st.lists(st.integers(-3, 5), max_size=3),
    ),
)
INPUTS = st.one_of(
    st.none(),
    st.builds(lambda shape: t(shape), st.lists(st.integers(0, 7), max_size=5)),
    st.builds(
        lambda values: const(np.array(values, np.int32)),
        st.one_of(st.integers(-9, 9), st.lists(st.integers(-9, 2**31 - 1), max_size=5)),
    ),
)


@slow
@settings(max_examples=400)
@given(st.sampled_from(sorted(RULES)), st.lists(INPUTS, max_size=4), OPTIONS, st.integers(0, 3))
def test_a_malformed_node_has_no_shapes(
    name: str, inputs: list[Any], options: dict[str, Any], outputs: int
) -> None:
    node = Node(0, name, 1, tuple(inputs), tuple(t(()) for _ in range(outputs)), options)
    found = output_shapes(node)
    if found is not None:
        assert len(found) == outputs
        assert all(type(size) is int and 0 <= size < 2**31 for shape in found for size in shape)


# The delegate


def assert_whole(graph: Graph, device: DeviceInfo, batches: Sequence[int] = (1,)) -> None:
    """Assert that all nodes are taken as one partition, and that outputs are TFLite's."""
    model = write_model(graph)
    delegate = OpenCLDelegate(None, device.index, tune="off")
    ours, reference = interpreter(model, delegate), interpreter(model)
    for batch in batches:
        given_inputs = []
        for tensor, values in zip(graph.inputs, inputs_for(graph)[0], strict=True):
            shape = (batch, *tensor.shape[1:])
            given_inputs.append(np.resize(values, shape))
            if batches != (1,):
                for made in (ours, reference):
                    made.resize_tensor_input(tensor.index, shape)
                    made.allocate_tensors()
        assert_equal_outputs(invoke(ours, given_inputs), invoke(reference, given_inputs))
        assert refusals(delegate) == {}
        assert len(delegate.partitions) == 1


@slow
@pytest.mark.model
@pytest.mark.parametrize("name", ["mobilenet_v1_0.25_128_quant", "ad01_int8", "split_concat"])
def test_a_model_without_recorded_shapes_is_delegated_whole(device: DeviceInfo, name: str) -> None:
    if name not in MODELS:
        pytest.skip(f"{name} is not there")
    assert_whole(without_shapes(read_model(SHARED / "models" / f"{name}.tflite")), device)


def first_of(source: Any) -> tuple[list[Node], Any]:
    """Return the nodes that ask a tensor for its batch, and what they compute."""
    shape, first = t((4,), "int32"), t((), "int32")
    places = [const(np.array([value], np.int32)) for value in (0, 1, 1)]
    options = {
        **dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask"), 0),
        "shrink_axis_mask": 1,
    }
    return [
        op("SHAPE", [source], [shape], {"out_type": "int32"}),
        op("STRIDED_SLICE", [shape, *places], [first], options),
    ], first


def sized_by_its_batch() -> Graph:
    """Two TRANSPOSE_CONVs to computed sizes and a RESHAPE, of an input with an open batch.

    As in a generator that Keras wrote: each size is asked of the tensor before.
    """
    rng = np.random.default_rng(3)

    def weights(*shape: int) -> Any:
        return const(rng.integers(-9, 9, shape).astype(np.int8), [0.02] * shape[0], 0, axis=0)

    def packed(first: Any, *rest: int) -> tuple[Node, Any]:
        result = t((1 + len(rest),), "int32")
        parts = [first, *(const(np.int32(size)) for size in rest)]
        return op("PACK", parts, [result], {"axis": 0, "values_count": len(parts)}), result

    def picture(*shape: int) -> Any:
        return t((1, *shape), "int8", 0.1, 3, shape_signature=(-1, *shape))

    x, middle, large, row = picture(3, 4, 2), picture(6, 8, 3), picture(12, 16, 2), picture(384)
    conv = {"padding": "SAME", "stride_w": 2, "stride_h": 2}
    nodes = []
    for source, result, channels in ((x, middle, (3, 2)), (middle, large, (2, 3))):
        asking, first = first_of(source)
        pack, shape = packed(first, *result.shape[1:])
        kernel = weights(channels[0], 3, 3, channels[1])
        spread = op("TRANSPOSE_CONV", [shape, kernel, source], [result], conv, version=3)
        nodes += [*asking, pack, spread]
    asking, first = first_of(large)
    pack, shape = packed(first, 384)
    nodes += [*asking, pack, op("RESHAPE", [large, shape], [row])]
    return graph_of(nodes, [x])


@pytest.mark.parametrize("is_recorded", [True, False], ids=["recorded", "not-recorded"])
def test_sizes_computed_of_an_open_batch_are_delegated_whole(
    device: DeviceInfo, is_recorded: bool
) -> None:
    graph = sized_by_its_batch()
    assert_whole(graph if is_recorded else without_shapes(graph), device, (1, 3, 2))


def test_a_size_that_is_a_factor_elsewhere_follows_a_resized_input(device: DeviceInfo) -> None:
    x, numbers, less, result = (
        t((1, 2, 2, 1), "int8", 0.1, 3, shape_signature=(-1, 2, 2, 1)),
        *(t((3,), "int32") for _ in range(3)),
    )
    asking, first = first_of(x)
    left = op("SUB", [numbers, const(np.array([1, 2, 3], np.int32))], [less])
    model = write_model(graph_of([*asking, left, op("MUL", [less, first], [result])]))
    delegate = OpenCLDelegate(
        None, device.index, exclude_ops=["SUB"], min_nodes_per_partition=1, tune="off"
    )
    ours, reference = interpreter(model, delegate), interpreter(model)
    assert refusals(delegate) == {2: "excluded by exclude_ops"}
    given = [np.array([5, -7, 9], np.int32)]
    for batch in (1, 4, 2):
        got = []
        for made in (ours, reference):
            made.resize_tensor_input(0, (batch, 2, 2, 1))
            made.allocate_tensors()
            asked = {each["shape"].size: each["index"] for each in made.get_input_details()}
            made.set_tensor(asked[1], given[0])
            made.set_tensor(asked[4], np.zeros((batch, 2, 2, 1), np.int8))
            made.invoke()
            got.append([made.get_tensor(each["index"]) for each in made.get_output_details()])
        assert_equal_outputs(*got)


@pytest.mark.skipif(IS_OLDER, reason="tflite-runtime has no such op")
@pytest.mark.parametrize("rows", [3, 1, 0])
def test_nothing_lies_between_the_elements_of_an_empty_dimension(rows: int) -> None:
    options = {
        "edge_padding_low": [-2],
        "edge_padding_high": [3],
        "interior_padding": [1],
    }
    source, value = t((rows,), "int8", 0.5, 0), const(np.ones((), np.int8), 0.5, 0)
    made = t((rows + 1,), "int8", 0.5, 0)
    graph = graph_of([op("STABLEHLO_PAD", [source, value], [made], options)])
    ours = output_shapes(graph.nodes[0])
    theirs = interpreter(write_model(graph)).get_output_details()[0]["shape"]
    assert ours == (tuple(theirs),)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [((0, 16, 9), [0, 4, -1]), ((0, 6), [-1, 3]), ((2, 0, 5), [0, -1]), ((4, 6), [-1, 8])],
)
def test_a_size_is_inferred_of_what_is_not_empty(given: tuple[int, ...], wanted: list[int]) -> None:
    if RUNTIME.name == "tflite-runtime":
        pytest.skip("TFLite divides by 0")
    sizes = const(np.array(wanted, np.int32))
    graph = graph_of([op("RESHAPE", [t(given, "int8", 0.5, 0), sizes], [t((1,), "int8", 0.5, 0)])])
    theirs = interpreter(write_model(graph)).get_output_details()[0]["shape"]
    assert output_shapes(graph.nodes[0]) == (tuple(theirs),)
