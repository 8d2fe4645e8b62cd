# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl verify`: it names exactly the wrong node, if any."""

from __future__ import annotations

import ast
import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from delegate import DeviceInfo
from delegate.inspect import Tensor, read_model, write_model
from delegate.launch import Schedule
from delegate.plan import layout
from delegate.plan.dispatch import calls
from delegate.plan.layout import MemoryLayout, layout_of
from delegate.run import executor
from tests.attacks import planted
from tests.support.model import chain_model, op, t
from tests.support.nets import LEFT, net
from tests.support.open_sizes import open_classifier
from tests.support.small_v2 import small_v2
from tests.support.tiers import slow
from tests.support.variables import counter_model
from tflite_opencl.command import main
from tflite_opencl.oracle.judge_process import JudgeProcess
from tflite_opencl.verify import errors as verify_errors
from tflite_opencl.verify import runs

GRAPH = small_v2()
CLASSES = "SOFTMAX"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small MobileNet V2."""
    path = tmp_path_factory.mktemp("verify") / "v2.tflite"
    path.write_bytes(write_model(GRAPH))
    return str(path)


class Verify:
    """The command on one device, untuned; records the parameter offset of each launch."""

    def __init__(
        self, device: DeviceInfo, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch
    ) -> None:
        self._device, self._capsys = device, capsys
        self.firsts: dict[int, list[tuple[str, int]]] = {}  # node -> its kernels, with offsets

        def noted(schedule: Schedule, *more: Any) -> MemoryLayout:
            result = layout.layout_of(schedule, *more)
            steps = [(s, launch) for s in schedule.steps for launch in s.alternative.launches]
            if len(schedule.steps) > 5:  # not the verification of single alternatives
                self.firsts = {}
                for (step, launch), first in zip(steps, result.firsts, strict=True):
                    self.firsts.setdefault(step.node_index, []).append((launch.kernel, first))
            return result

        patch.setattr(calls, "layout_of", noted)

    def __call__(self, model: str, *arguments: str) -> tuple[int, str, str]:
        device = ("--device", str(self._device.index), "--tune", "off")
        code = main(["verify", "--tflite_model", model, *device, *arguments])
        output = self._capsys.readouterr()
        return code, output.out, output.err

    def facts(self, model: str, *arguments: str) -> tuple[int, dict[str, Any]]:
        code, out, _ = self(model, "--json", "-", *arguments)
        return code, json.loads(out)


@pytest.fixture
def verify(
    device: DeviceInfo, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Verify:
    return Verify(device, capsys, monkeypatch)


@slow
@pytest.mark.parametrize(
    "more",
    [
        pytest.param((), id="first"),
        pytest.param(("--alternative", "plain"), id="plain", marks=slow),
    ],
)
def test_fault_is_found_in_its_node(
    verify: Verify, model: str, more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, sound = verify.facts(model, *more)
    assert (code, sound["wrong"], sound["first_wrong"]) == (0, False, None)
    assert {row["node"] for row in sound["nodes"]} | {8} == {n.index for n in GRAPH.nodes}
    last_use = {kernel: (n, at) for n, uses in verify.firsts.items() for kernel, at in uses}
    launched = {launch["kernel"] for row in sound["nodes"] for launch in row["launches"]}
    assert set(last_use) == launched
    assert len(launched) >= 4  # convolutions, depthwise ones, pooling and SOFTMAX
    for kernel, (node, first) in last_use.items():
        with monkeypatch.context() as patch:
            planted.plant(kernel, first, patch)
            code, result = verify.facts(model, *more)
        assert code == 1
        assert result["first_wrong"]["node"] == node, kernel
        assert result["first_wrong"]["kernels"] == [kernel]
        assert result["first_wrong"]["wrong_alone"] is True
        wrong = [row["node"] for row in result["nodes"] if row["alone"]]
        assert wrong == [node]  # no other node by itself
        later = {row["node"] for row in result["nodes"] if row["after_others"]}
        assert min(later) == node


@slow
def test_description_of_fault(
    verify: Verify, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify(model)
    kernel, first = verify.firsts[4][0]
    planted.plant(kernel, first, monkeypatch)
    picture = tmp_path / "map.png"
    code, out, err = verify(model, "--heatmap", str(picture))
    assert (code, err) == (1, "")
    assert "the first wrong node: 4 DEPTHWISE_CONV_2D: wrong on the reference's inputs" in out
    (place,) = [node.outputs[0] for node in GRAPH.nodes if node.index == 4]
    assert f"output: tensor {place.index}" in out
    assert f"kernel: {kernel} in " in out
    assert "first elements: " in out
    assert "first that differ:\n  [0, 0, 0, 0]: " in out
    assert "axis 1: 1 of 8, at 0; axis 2: 1 of 8, at 0; axis 3: 1 of 48, at 0" in out
    assert "map of channel 0, '.' is equal:\n@.......\n........\n" in out
    with Image.open(picture) as drawn:
        assert drawn.getpixel((0, 0)) in ((255, 0, 0), (0, 0, 255))
        assert drawn.getpixel((drawn.width - 1, drawn.height - 1)) == (255, 255, 255)


@slow
def test_wrong_node_is_written_as_model(
    verify: Verify,
    model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "fault"
    assert f"{folder} is not written: no node is wrong" in verify(model, "--cut", str(folder))[1]
    kernel, first = verify.firsts[4][0]
    with monkeypatch.context() as patch:
        planted.plant(kernel, first, patch)
        code, out, _ = verify(model, "--cut", str(folder))
    names = ["004.tflite", "004_input_0.npy", "004_output_0.npy", "004.py"]
    assert code == 1
    assert out.rstrip().endswith(f"{folder}: {', '.join(names)}")
    assert sorted(names) == sorted(path.name for path in folder.iterdir())
    (node,) = read_model(folder / "004.tflite").nodes
    assert node.op == "DEPTHWISE_CONV_2D"
    monkeypatch.chdir(tmp_path)  # the script changes to its folder
    created: list[MemoryLayout] = []
    monkeypatch.setattr(calls, "layout_of", lambda *a: created.append(layout_of(*a)) or created[-1])
    for is_planted in (False, True):
        with monkeypatch.context() as patch:
            if is_planted:
                planted.plant(kernel, created[-1].firsts[0], patch)
            runpy.run_path(str(folder / "004.py"))
        right, ours = map(ast.literal_eval, capsys.readouterr().out.splitlines())
        assert right == [np.load(folder / "004_output_0.npy").tolist()]
        assert (right != ours) == is_planted


@slow
def test_tolerance_in_quanta(verify: Verify, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    verify(model)
    ((kernel, first),) = verify.firsts[14]
    planted.plant(kernel, first, monkeypatch)
    assert verify(model, "--tolerance", "1")[0] == 1
    code, result = verify.facts(model, "--tolerance", "2")
    assert (code, result["first_wrong"]) == (0, None)
    assert result["nodes"][-1]["alone"]["most"] == 2


def test_wrong_layout_is_found_only_with_other_nodes(
    verify: Verify, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensor 1 is overwritten while its later operand is computed."""
    pool = "AVERAGE_POOL_2D"
    chain = net(
        [(pool, [0], 1), (pool, [1], 2), (pool, [2], 3), (pool, [3], 4), ("ADD", [4, 1], 5)]
    )
    path = tmp_path / "model.tflite"
    path.write_bytes(write_model(chain))
    first, later = (chain.nodes[index].outputs[0].index for index in (0, 2))

    honest = layout.plan_arena

    def plan(schedule: Schedule, *more: Any) -> tuple[int, dict[Tensor, int]]:
        tensors = [*honest(schedule, *more)[1]]
        places = {t: 0 if t.index in (first, later) else n for n, t in enumerate(tensors, 1)}
        offsets = {t: 1024 * place for t, place in places.items()}
        return 1024 * (len(tensors) + 1), offsets

    monkeypatch.setattr(layout, "plan_arena", plan)
    code, result = verify.facts(str(path))
    assert code == 1
    assert result["first_wrong"]["wrong_alone"] is False
    assert result["first_wrong"]["node"] == 4
    assert not any(row["alone"] for row in result["nodes"])


def test_wrong_dispatch_mode_with_right_nodes(
    verify: Verify, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = executor.Executor.run

    def wrong(self: executor.Executor, inputs: Any, outputs: Any) -> None:
        run(self, inputs, outputs)
        outputs[-1][0] ^= 1

    monkeypatch.setattr(executor.Executor, "run", wrong)
    code, out, _ = verify(model)
    assert code == 1
    assert "15 of 15 equal" not in out
    assert "output 0: 1 of 21 elements differ, by up to 1 quanta; first at [0, 0]: " in out
    assert "each node is right: what is wrong is the form" in out


def test_model_on_cpu_is_not_verified(verify: Verify, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(write_model(net([("AVERAGE_POOL_2D", [0], 1), (LEFT[0], [1], 2)])))
    # The pooling alone is cheaper than the detour to the device.
    code, out, err = verify(str(path), "--exclude_ops", LEFT[0])
    assert (code, out) == (255, "")
    assert err.startswith("ERROR: no node runs on OpenCL (AVERAGE_POOL_2D: a partition of 1 that ")


def test_partly_delegated(verify: Verify, model: str) -> None:
    code, result = verify.facts(model, "--exclude_ops", "average_pool_2d", "--random", "2")
    assert (code, result["inputs"]) == (0, 2)
    assert {"node": 11, "op": "AVERAGE_POOL_2D", "reason": "excluded by exclude_ops"} in result[
        "left_to_cpu"
    ]
    left = {row["node"] for row in result["left_to_cpu"]}
    assert not left & {row["node"] for row in result["nodes"]}
    _, out, _ = verify(model, "--exclude_ops", "AVERAGE_POOL_2D")
    assert "not compared, because the CPU runs them: " in out
    assert "1 x AVERAGE_POOL_2D: excluded by exclude_ops" in out


@slow
def test_float_sums_in_other_order(verify: Verify, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    source, middle, result = t((1, 9, 9, 8)), t((1, 9, 9, 16)), t((1, 9, 9, 16))
    weights = t((16, 3, 3, 8), data=rng.standard_normal((16, 3, 3, 8)))
    bias = t((16,), data=rng.standard_normal(16))
    sizes = {"padding": "SAME", "stride_w": 1, "stride_h": 1}
    nodes = [
        op("CONV_2D", [source, weights, bias], [middle], sizes),
        op("LOGISTIC", [middle], [result]),
    ]
    path = tmp_path / "model.tflite"
    path.write_bytes(chain_model(nodes))
    code, outcome = verify.facts(str(path), "--random", "2")
    assert (code, len(outcome["nodes"])) == (0, 2)
    assert not any(row["alone"] for row in outcome["nodes"])


@slow
def test_variables_are_reset_before_comparison(verify: Verify, tmp_path: Path) -> None:
    path = tmp_path / "counter.tflite"
    path.write_bytes(counter_model())
    code, out, _ = verify(str(path), "--random", "2")
    assert code == 0
    assert "2 of 2 equal" in out
    assert "elements differ" not in out, out


@slow
def test_variable_handles_are_not_read(
    verify: Verify, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For some of them TFLite reads unmapped memory and crashes."""
    content = counter_model()
    handles = {each.index for each in read_model(content).tensors if each.dtype == "resource"}
    path, requests = tmp_path / "counter.tflite", set()
    path.write_bytes(content)
    answer = JudgeProcess.asked

    def told(self: JudgeProcess, word: str, *request: Any) -> Any:
        requests.update(request[0] if word == "tensors" else ())
        return answer(self, word, *request)

    monkeypatch.setattr(JudgeProcess, "asked", told)
    assert verify(str(path))[0] == 0
    assert handles
    assert requests
    assert handles.isdisjoint(requests)


def test_picture(verify: Verify, model: str, tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    Image.new("RGB", (40, 30), (51, 204, 102)).save(picture)
    assert verify(model, "--image", str(picture))[0] == 0


def test_errors_of_tensor() -> None:
    expected = np.zeros((1, 4, 6, 2), np.uint8)
    got = expected.copy()
    got[0, 1, 2, 1] = 9
    got[0, 3, 2, 1] = 9
    got[0, 0, 0, 0] = 1
    result = verify_errors.errors(got, expected)
    assert result.histogram == [("0", 45), ("+1", 1), ("+9", 2)]
    assert result.extent == [(0, 0, 1), (0, 3, 3), (0, 2, 2), (0, 1, 2)]
    plane, name = result.plane
    assert (name, verify_errors.map_text(plane)) == ("channel 1", "......\n..@...\n......\n..@...")
    small = verify_errors.map_text(plane, columns=3, rows=2)
    assert small == ".@.\n.@."


def test_errors_of_floats_and_nan() -> None:
    expected = np.linspace(0, 1, 100, dtype=np.float32)
    got = expected.copy()
    got[:30] += np.linspace(0.1, 0.2, 30, dtype=np.float32)
    got[50], expected[60], got[60] = np.nan, np.nan, np.nan
    result = verify_errors.errors(got, expected)
    assert result.histogram[0] == ("0", 69)
    assert result.histogram[-1] == ("infinite", 1)
    assert sum(count for _, count in result.histogram) == 100
    assert result.plane[0].shape == (4, 32)
    assert verify_errors.map_image(result.plane[0]).size == (256, 32)


def test_nodes_get_old_variable_tensors(verify: Verify, tmp_path: Path) -> None:
    x, y = t((1, 4), "int32", name="x"), t((1, 4), "int32", name="y")
    held = t((1, 4), "int32", name="held", is_variable=True)
    path = tmp_path / "held.tflite"
    path.write_bytes(chain_model([op("ADD", [x, held], [y])], [x], [y]))
    code, facts = verify.facts(str(path), "--random", "2")
    assert (code, [check["op"] for check in facts["nodes"]]) == (0, ["ADD"])


@slow
@pytest.mark.parametrize(
    ("more", "shape"),
    [
        (["--input_size", "7x6"], (1, 7, 6, 3)),
        (["-i", "picture.png"], (1, 8, 9, 3)),
        ([], (1, 224, 224, 3)),
    ],
)
def test_dynamic_sizes_are_those_of_flag_picture_or_224(
    verify: Verify,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    more: list[str],
    shape: tuple[int, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("open.tflite").write_bytes(open_classifier(least=5))
    Image.new("RGB", (9, 8)).save("picture.png")
    given: list[tuple[int, ...]] = []
    whole = runs.run_once

    def run_once(made: Any, inputs: Any) -> None:
        given.append(inputs[0].shape)
        whole(made, inputs)

    monkeypatch.setattr(runs, "run_once", run_once)
    code, out, err = verify("open.tflite", *more)
    assert code == 0, err
    assert {*given} == {shape}
    assert "4 of 4 equal" in out  # with the file's placeholder 1 nothing runs on the device


def test_size_of_static_model_is_refused(verify: Verify, model: str) -> None:
    code, _, err = verify(model, "--input_size", "32x32")
    assert code == 64
    assert "--input_size: no input of the model is a picture whose height and width" in err
