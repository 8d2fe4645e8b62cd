# SPDX-License-Identifier: Apache-2.0
"""Class Model: batches without TFLite, whose outputs equal those of TFLite's reference kernels."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate import DeviceError, DeviceInfo, Model, ModelError, NoDeviceError, Unsupported
from delegate.host.tflite import library
from delegate.inspect import Graph, read_model, write_model
from delegate.run.executor import Executor
from tests.support.compare import RUNTIME, Arrays, assert_same, interpreter, invoke
from tests.support.model import chain_model, const, graph_of, op, t
from tests.support.nets import POOL, conv_pool, image, net
from tests.support.process import run_python
from tests.support.shared import model_path, picture_path, picture_paths
from tests.support.subgraphs import write_subgraphs
from tests.support.tiers import slow
from tests.support.without_tflite import needs_tflite
from tflite_opencl.models.build import as_int4, graph, node, tensor
from tflite_opencl.pictures.image import load_picture, to_input

# Two inputs and two outputs, one of them read again inside.
TWO_INPUTS = graph_of(
    [
        op("ADD", [(first := image()), (second := image())], [(total := image())]),
        op("AVERAGE_POOL_2D", [total], [(pooled := image())], POOL),
    ],
    [first, second],
    [pooled, total],
)


def without_batch() -> Graph:
    """Return a graph whose first dimension is not a batch, and whose output has one less."""
    source, result = image(2, 3, 3), t((18,), "uint8", 0.5, 128)
    total = image(2, 3, 3)
    return graph_of(
        [
            op("ADD", [source, const(np.full((2, 3, 3), 131, np.uint8), 0.5, 128)], [total]),
            op("RESHAPE", [total], [result], {"new_shape": [18]}),
        ]
    )


NETS = {
    "conv-pool": conv_pool(),
    "open-batch": conv_pool(has_open_batch=True),
    "diamond": net([("AVERAGE_POOL_2D", [0], 1), ("ADD", [0, 1], 2), ("ADD", [1, 2], 3)], [2]),
    "two-inputs": TWO_INPUTS,
    "without-batch": without_batch(),
}


def pictures(graph: Graph, count: int, seed: int = 0) -> list[Arrays]:
    """Return for each picture an array for each input of the graph."""
    rng = np.random.default_rng(seed)
    return [
        [rng.integers(0, 256, tensor.shape).astype(tensor.dtype) for tensor in graph.inputs]
        for _ in range(count)
    ]


def stacked(arrays: Sequence[Arrays]) -> Arrays:
    """Return batches of arrays: a first dimension of 1, or a new one, is the batch."""
    return [
        np.concatenate(each) if each[0].shape[:1] == (1,) else np.stack(each)
        for each in zip(*arrays, strict=True)
    ]


def references(model: bytes | str, given: Sequence[Arrays]) -> Arrays:
    """Return the reference kernels' outputs, picture by picture."""
    reference = interpreter(model)
    return stacked([invoke(reference, arrays) for arrays in given])


def assert_equal(got: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]], what: str) -> None:
    for number, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
        assert_same(ours, theirs, f"{what}, output {number}")


@contextmanager
def opened(graph: Graph | bytes, device: DeviceInfo, batch: int = 1) -> Iterator[Model]:
    model = graph if isinstance(graph, bytes) else write_model(graph)
    with Model(model, device.index, batch, tune="off") as opened_model:
        assert opened_model.device == device
        yield opened_model


# Outputs


@pytest.mark.parametrize("batch", [1, 2, 3, 5])
@pytest.mark.parametrize("name", NETS)
def test_batch_equals_reference_results_of_pictures(
    device: DeviceInfo, name: str, batch: int
) -> None:
    graph = NETS[name]
    model = write_model(graph)
    with opened(model, device, batch) as ours:
        for seed in range(2):
            given = pictures(graph, batch, seed)
            got = ours.run(stacked(given))
            assert_equal(got, references(model, given), f"seed {seed}")
            assert [output.shape for output in got] == [d.shape for d in ours.output_details]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_partial_batch_is_exact(device: DeviceInfo, count: int) -> None:
    graph = NETS["two-inputs"]
    model = write_model(graph)
    with opened(model, device, 5) as ours:
        ours.run(stacked(pictures(graph, 5, seed=7)))
        given = pictures(graph, count)
        expected = references(model, given)
        assert_equal(ours.run(stacked(given)), expected, "run")
        assert_equal(ours.run_async(stacked(given)).result(), expected, "run_async")


@pytest.mark.parametrize("batch", [1, 3])
def test_asynchronous_results_in_any_order(device: DeviceInfo, batch: int) -> None:
    graph = conv_pool()
    model = write_model(graph)
    with opened(model, device, batch) as ours:
        given = [pictures(graph, batch, seed) for seed in range(7)]
        pending = [ours.run_async(stacked(each)) for each in given]
        for number in (6, 0, 3, 1, 2, 5, 4, 0):
            expected = references(model, given[number])
            assert_equal(pending[number].result(), expected, f"batch {number}")
        assert_equal(ours.run(stacked(given[2])), references(model, given[2]), "run")


def test_input_array_can_be_reused_after_run_async(device: DeviceInfo) -> None:
    graph = conv_pool()
    with opened(graph, device, 2) as ours:
        (array,) = stacked(pictures(graph, 2))
        expected = ours.run(array.copy())
        pending = ours.run_async(array)
        array[:] = 0
        assert_equal(pending.result(), expected, "run_async")


def test_empty_inputs_have_room_for_a_batch(device: DeviceInfo) -> None:
    graph = conv_pool()
    with opened(graph, device, 3) as ours:
        buffers = [ours.empty_input() for _ in range(2)]
        pending = []
        for number, buffer in enumerate(buffers):
            assert isinstance(buffer, np.ndarray)
            assert (buffer.shape, buffer.dtype) == ((3, 7, 6, 2), np.uint8)
            buffer[:] = stacked(pictures(graph, 3, number))[0]
            pending.append(ours.run_async(buffer))
        for number, run in enumerate(pending):
            expected = ours.run(stacked(pictures(graph, 3, number)))
            assert_equal(run.result(), expected, f"buffer {number}")
        (half,) = stacked(pictures(graph, 2, 9))
        buffers[0][:2] = half
        assert_equal(ours.run(buffers[0][:2]), ours.run(half), "a part of a buffer")
    assert buffers[1].any()  # the memory outlives the model


def test_empty_inputs_of_several_inputs(device: DeviceInfo) -> None:
    with opened(TWO_INPUTS, device, 2) as ours:
        arrays = ours.empty_input()
        assert [array.shape for array in arrays] == [(2, 3, 3, 2)] * 2
        for array, values in zip(arrays, stacked(pictures(TWO_INPUTS, 2)), strict=True):
            array[:] = values
        expected = ours.run(stacked(pictures(TWO_INPUTS, 2)))
        assert_equal(ours.run_async(list(arrays)).result(), expected, "run_async")


def test_non_contiguous_arrays_are_accepted(device: DeviceInfo) -> None:
    graph = conv_pool()
    with opened(graph, device, 2) as ours:
        (array,) = stacked(pictures(graph, 2))
        scattered = np.repeat(array, 2, axis=0)[::2]
        assert not scattered.flags.c_contiguous
        assert_equal(ours.run(scattered), ours.run(array), "scattered")
        assert_equal(ours.run([array]), ours.run(array), "a list of one")


def test_outputs_belong_to_caller(device: DeviceInfo) -> None:
    graph = conv_pool()
    with opened(graph, device) as ours:
        first = ours.run(pictures(graph, 1)[0])
        entries = [output.copy() for output in first]
        ours.run(pictures(graph, 1, seed=1)[0])
        assert_equal(first, entries, "the first run")


def test_models_on_several_threads_and_devices(device: DeviceInfo) -> None:
    graph = conv_pool()
    model = write_model(graph)
    given = pictures(graph, 2)
    expected = references(model, given)
    wrong: list[BaseException] = []

    def use(ours: Model, asynchronously: bool) -> None:
        try:
            for _ in range(20):
                pending = ours.run_async(stacked(given)) if asynchronously else None
                got = pending.result() if pending else ours.run(stacked(given))
                assert_equal(got, expected, "in a thread")
        except BaseException as error:
            wrong.append(error)

    with (
        opened(model, device, 2) as one,
        opened(model, device, 2) as other,
        Model(model, None, 2, tune="off") as first_device,
    ):
        threads = [
            threading.Thread(target=use, args=(ours, asynchronously))
            for ours in (one, one, other, first_device)
            for asynchronously in (False, True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


# Attributes


def test_details_have_tflites_keys(device: DeviceInfo) -> None:
    graph = conv_pool()
    interp = interpreter(write_model(graph))
    with opened(graph, device, 4) as ours:
        for details, theirs in (
            *zip(ours.input_details, interp.get_input_details(), strict=True),
            *zip(ours.output_details, interp.get_output_details(), strict=True),
        ):
            assert details.name == theirs["name"]
            assert details.index == theirs["index"]
            assert details.shape == (4, *theirs["shape"][1:])
            assert details.dtype == theirs["dtype"]
            assert details.quantization == theirs["quantization"]
            assert (details.scale, details.zero_point) == details.quantization


def test_details_of_unquantised_tensor(device: DeviceInfo) -> None:
    source, result = t((1, 4), "uint8"), t((4,), "uint8")
    node = op("RESHAPE", [source], [result], {"new_shape": [4]})
    with opened(chain_model([node]), device, 2) as ours:
        assert ours.input_details[0].quantization == (0.0, 0)
        assert ours.output_details[0].shape == (2, 4)


def test_model_from_path(device: DeviceInfo, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(write_model(conv_pool()))
    with Model(path, device.index, tune="off") as ours:
        assert ours.batch == 1
        assert ours.run(pictures(conv_pool(), 1)[0])[0].shape == (1, 7, 6, 5)


# Errors


def custom_ops() -> bytes:
    source, middle, result = image(), image(), image()
    custom = op("fake-op", [source], [middle], is_custom=True)
    return chain_model([custom, op("fake-op", [middle], [result], is_custom=True)])


def bfloat16_input() -> bytes:
    source = image()
    return chain_model([op("RELU", [source], [image()])], [source, t((4,), "bfloat16")])


def int4_output() -> bytes:
    table = as_int4(const(np.zeros((3, 8), np.int8), 0.5))
    rows = replace(table, shape=(1, 8), data=None)
    node = op("GATHER", [table, const(np.array([2], np.int32))], [rows])
    return chain_model([node], outputs=[rows])


def no_nodes() -> bytes:
    both = image()
    return chain_model([], [both], [both])


def dynamic_shape() -> bytes:
    source, sizes = t((1, 4), "uint8", 0.5), t((1,), "int32")
    result = t((4,), "uint8", 0.5)
    return chain_model([op("RESHAPE", [source, sizes], [result], {"new_shape": [4]})])


def uncomputed_output() -> bytes:
    graph = conv_pool()
    return write_model(replace(graph, outputs=(*graph.outputs, graph.inputs[0])))


def control_flow() -> bytes:
    condition, source, result = t((1,), "bool"), image(), image()
    options = {"then_subgraph_index": 1, "else_subgraph_index": 1}
    main = graph_of([op("IF", [condition, source], [result], options)])
    return write_subgraphs(main, conv_pool())


# Unsupported model -> the beginning of its error.
UNSUPPORTED: list[tuple[Callable[[], bytes], str]] = [
    (
        custom_ops,
        "node 0 (fake-op): custom op fake-op is not implemented (2 of 2 nodes are not supported)",
    ),
    (bfloat16_input, "input 2 (t2) is of type bfloat16"),
    (int4_output, "output 2 (t2) is of type int4"),
    (no_nodes, "tensor 0 (t0) is an output, and no node computes it"),
    (dynamic_shape, "node 0 (RESHAPE): "),
    (uncomputed_output, "tensor 0 (t0) is an output, and no node computes it"),
    (
        lambda: write_model(replace(TWO_INPUTS, inputs=TWO_INPUTS.inputs[:1])),
        "tensor 1 (t1) is read, and neither computed nor an input",
    ),
    (control_flow, "node 0 (IF): "),
]


@pytest.mark.parametrize(("build", "reason"), UNSUPPORTED)
def test_unsupported_model_is_refused(
    device: DeviceInfo, build: Callable[[], bytes], reason: str
) -> None:
    with pytest.raises(Unsupported) as caught:
        Model(build(), device.index)
    assert str(caught.value).startswith(reason)


@pytest.mark.parametrize("batch", [0, -1])
def test_a_batch_of_no_picture_is_refused(batch: int) -> None:
    with pytest.raises(ValueError, match=f"a batch of {batch}: at least one picture"):
        Model(b"is not read", batch=batch)


@pytest.mark.parametrize("batch", [1.5, "2", None])
def test_a_batch_that_is_no_integer_is_refused(batch: Any) -> None:
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        Model(b"is not read", batch=batch)


WRONG = {
    "dtype": (np.zeros((2, 7, 6, 2), np.int8), "is int8 of shape (2, 7, 6, 2)"),
    "too-many": (np.zeros((4, 7, 6, 2), np.uint8), "is uint8 of shape (4, 7, 6, 2)"),
    "none": (np.zeros((0, 7, 6, 2), np.uint8), "is uint8 of shape (0, 7, 6, 2)"),
    "no-batch": (np.zeros((7, 6, 2), np.uint8), "is uint8 of shape (7, 6, 2)"),
    "sizes": (np.zeros((2, 6, 7, 2), np.uint8), "is uint8 of shape (2, 6, 7, 2)"),
    "scalar": (np.zeros((), np.uint8), "is uint8 of shape ()"),
    "no-array": ("picture.bmp", "is a str"),
}


@pytest.mark.parametrize(("given", "what"), WRONG.values(), ids=WRONG)
def test_wrong_array_is_refused(device: DeviceInfo, given: Any, what: str) -> None:
    with opened(conv_pool(), device, 3) as ours:
        expected = f"input 0 (t0) {what}, not uint8 of shape (1..3, 7, 6, 2)"
        for run in (ours.run, ours.run_async):
            with pytest.raises(ValueError, match="input 0") as caught:
                run(given)
            assert str(caught.value) == expected


def test_wrong_number_of_arrays_is_refused(device: DeviceInfo) -> None:
    with opened(TWO_INPUTS, device, 3) as ours:
        two, three = (np.zeros((n, 3, 3, 2), np.uint8) for n in (2, 3))
        with pytest.raises(ValueError, match=r"1 arrays are given, and the model has 2 inputs"):
            ours.run(two)
        with pytest.raises(ValueError, match=r"the inputs are of \(2, 3\) pictures"):
            ours.run([two, three])


def test_errors_distinguish_files_and_devices(tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        Model(b"no model")
    with pytest.raises(FileNotFoundError):
        Model(tmp_path / "none.tflite")
    with pytest.raises(NoDeviceError):
        Model(write_model(conv_pool()), "no such device")


def test_closed_model_is_an_error_and_results_stay(device: DeviceInfo) -> None:
    graph = conv_pool()
    model = write_model(graph)
    given = pictures(graph, 1)
    with opened(model, device) as ours:
        pending = [ours.run_async(given[0]) for _ in range(3)]
    ours.close()
    for run in pending:
        assert_equal(run.result(), references(model, given), "after close")
    for use in (ours.run, ours.run_async):
        with pytest.raises(DeviceError, match="the model was closed"):
            use(given[0])
    with pytest.raises(DeviceError, match="the model was closed"):
        ours.empty_input()


def test_failed_run_does_not_affect_others(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = conv_pool()
    with opened(graph, device) as ours:
        (array,) = pictures(graph, 1)[0]
        expected = ours.run(array)
        honest = Executor.submit

        def fails(self: Executor, *arrays: Any) -> None:
            honest(self, *arrays)
            honest_wait = self.copy_strategy.wait

            def wait() -> None:
                honest_wait()
                patch.undo()
                raise DeviceError("running: CL_OUT_OF_RESOURCES")

            patch.setattr(self.copy_strategy, "wait", wait)

        with monkeypatch.context() as patch:
            patch.setattr(Executor, "submit", fails)
            lost = ours.run_async(array)
            for _ in range(2):
                with pytest.raises(DeviceError, match="CL_OUT_OF_RESOURCES"):
                    lost.result()
        entries = [ours.run_async(array) for _ in range(3)]
        for run in entries:
            assert_equal(run.result(), expected, "afterwards")


# Arithmetic rules


@needs_tflite
def test_rules_of_imported_runtime() -> None:
    result = library.installed_rules()
    assert (result.runtime, result.version) == (RUNTIME.name, RUNTIME.version)


def test_rules_follow_installed_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"tflite-runtime": "2.14.0"}

    def version(name: str) -> str:
        try:
            return installed[name]
        except KeyError:
            raise metadata.PackageNotFoundError(name) from None

    monkeypatch.setattr(metadata, "version", version)
    for name in ("ai_edge_litert", "tflite_runtime"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    def found() -> tuple[str, str, bool]:
        rules = library.installed_rules()
        return rules.runtime, rules.version, rules.fully_connected_double_rounding

    assert found() == ("tflite-runtime", "2.14.0", True)
    installed["ai-edge-litert"] = "2.3.0"
    assert found() == ("ai-edge-litert", "2.3.0", False)
    monkeypatch.setitem(sys.modules, "tflite_runtime", object())
    assert found() == ("tflite-runtime", "2.14.0", True)
    monkeypatch.delitem(sys.modules, "tflite_runtime")
    installed.clear()
    assert found() == ("ai-edge-litert", "", False)


# Memory and real models

MEMORY = """
import sys
import numpy as np
from delegate import Model

def resident_kib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))

with open(sys.argv[1], "rb") as file:
    model = Model(file.read(), int(sys.argv[2]), batch=3, tune="off")
array = np.zeros((3, 7, 6, 2), np.uint8)
for run in range(600):
    if run == 300:
        before = resident_kib()
    model.run(array)
    pending = model.run_async(array)
    model.empty_input()
    pending.result()
print(resident_kib() - before)
assert "ai_edge_litert" not in sys.modules and "tflite_runtime" not in sys.modules
"""


@slow
def test_memory_is_constant_and_tflite_not_imported(device: DeviceInfo, tmp_path: Path) -> None:
    (tmp_path / "model.tflite").write_bytes(write_model(conv_pool()))
    grown_kib = int(run_python(MEMORY, tmp_path / "model.tflite", device.index).split()[-1])
    assert grown_kib < 1024


@slow
@pytest.mark.model
@pytest.mark.parametrize(
    "name", ["mobilenet_v1_1.0_224_quant", "mobilenet_v2_1.0_224_quant", "vww_96_int8"]
)
def test_real_model_is_exact_in_batches(device: DeviceInfo, name: str) -> None:
    path = model_path(name)
    (tensor,) = read_model(path).inputs
    given = [
        [to_input(load_picture(picture), tensor.shape, tensor.dtype)]
        for picture in [picture_path("grace_hopper_517x606.bmp"), *picture_paths(3)]
    ]
    expected = references(path, given)
    with Model(path, device.index, batch=3, tune="off") as ours:
        whole = ours.run_async(stacked(given[:3]))
        part = ours.run_async(stacked(given[3:]))
        assert_equal(part.result(), [each[3:] for each in expected], "the last picture")
        assert_equal(whole.result(), [each[:3] for each in expected], "three pictures")
    assert len({output.tobytes() for output in expected[0]}) == len(given)


def test_model_without_inputs(device: DeviceInfo) -> None:
    rows, fill = tensor((2,), "int32", data=np.array([3, 5], np.int32)), np.array(7, np.int32)
    result = tensor((3, 5), "int32")
    model = write_model(
        graph([node("FILL", [rows, tensor((), "int32", data=fill)], [result])], [], [result])
    )
    with Model(model, device.index, in_child_first=False) as opened_model:
        (outcome,) = opened_model.run([])
    assert outcome.shape == (1, 3, 5)
    assert (outcome == 7).all()
