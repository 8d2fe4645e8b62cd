# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl compare`: every path in its own process, each named correctly."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from delegate import DeviceInfo
from delegate.inspect import write_model
from tests.support.model import chain_model, const, op, t
from tests.support.nets import POOL, conv_pool
from tests.support.small_v2 import small_v2
from tests.support.tiers import slow
from tflite_opencl.cli.messages import stamped
from tflite_opencl.command import main
from tflite_opencl.conformance.cases._convolution import fully_connected

RUNS = ("--tune", "off", "--count", "2", "--warmup_runs", "1", "--threads", "1")
CPU_NODES = "LOCAL_RESPONSE_NORMALIZATION"  # an unsupported op


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("compare") / "small.tflite"
    path.write_bytes(write_model(conv_pool()))
    return str(path)


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model of which the delegate claims no node."""
    path = tmp_path_factory.mktemp("compare") / "idle.tflite"
    path.write_bytes(chain_model([op(CPU_NODES, [t((1, 1, 1, 4))], [t((1, 1, 1, 4))])]))
    return str(path)


class Compare:
    """The command, with few runs."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, model: str, *arguments: str) -> tuple[int, str, str]:
        code = main(["compare", "--tflite_model", model, *RUNS, *arguments])
        output = self._capsys.readouterr()
        return code, output.out, output.err

    def paths(self, model: str, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
        code, out, _ = self(model, "--json", "-", *arguments)
        (result,) = json.loads(out)["models"]
        return code, result["paths"]


@pytest.fixture
def compare(capsys: pytest.CaptureFixture[str]) -> Compare:
    return Compare(capsys)


@slow
def test_paths_are_timed_and_compared(
    compare: Compare, small: str, device: DeviceInfo, tmp_path: Path
) -> None:
    file = tmp_path / "kept.json"
    chosen = f"builtin,reference,opencl:{device.index}"
    code, out, _ = compare(small, "--paths", chosen, "--json", str(file))
    assert (code, "builtin" in out) == (0, True)
    (result,) = json.loads(file.read_text())["models"]
    paths = result["paths"]
    assert [path["path"] for path in paths] == chosen.split(",")
    for path in paths:
        assert path["failure"] == ""
        assert path["load_ms"] > 0
        assert path["first_ms"] > 0
        timing = path["timing"]
        assert timing["runs"] == 2
        assert 0 < timing["min_ms"] <= timing["median_ms"] <= timing["p90_ms"]
        assert timing["cpu_load"] > 0
        assert 10e6 < path["peak_bytes"] < 100e9
    builtin, reference, opencl = paths
    assert {path["top"] for path in paths} == {""}  # pixels are no scores
    assert reference["quanta"] == 0
    assert opencl["quanta"] == 0
    assert (builtin["taken"], reference["taken"]) == (None, None)
    assert (opencl["taken"], opencl["nodes"], opencl["partitions"]) == (2, 2, 1)
    assert opencl["device"] == device.name
    document = json.loads(file.read_text())
    assert document.items() >= stamped({}).items()
    assert document["models"][0]["paths"] == paths


@slow
def test_partly_delegated_model_names_cpu_nodes(
    compare: Compare, tmp_path: Path, device: DeviceInfo
) -> None:
    rng = np.random.default_rng(1)
    weights = const(rng.standard_normal((32, 3, 3, 16)).astype(np.float32))
    middle = t((1, 64, 64, 32))
    conv = {"padding": "SAME", "stride_w": 1, "stride_h": 1}
    nodes = [
        op(
            "CONV_2D",
            [t((1, 64, 64, 16)), weights, const(np.zeros(32, np.float32))],
            [middle],
            conv,
        ),
        op(CPU_NODES, [middle], [t((1, 64, 64, 32))]),
    ]
    path = tmp_path / "part.tflite"
    path.write_bytes(chain_model(nodes))
    code, out, _ = compare(str(path), "--paths", f"opencl:{device.index}")
    assert code == 0
    assert "1 of 2" in out
    assert f"opencl:{device.index}: 1 x {CPU_NODES}: op {CPU_NODES} is not implemented" in out
    assert "(float)" in out


@slow
def test_delegate_without_claims_is_named_and_no_success(
    compare: Compare, idle: str, device: DeviceInfo
) -> None:
    code, out, err = compare(idle, "--paths", f"cpu,opencl:{device.index}")
    assert code == 1
    assert "0 of 1" in out
    assert "the delegate takes no node: these are times of the CPU's kernels" in out
    assert err == ""


def test_non_finite_results_are_failures(compare: Compare, tmp_path: Path) -> None:
    model = tmp_path / "log.tflite"
    # LOG(0 - x * x) has no positive argument, whatever the input.
    x, square, minus, y = (t((1, 4), name=name) for name in ("x", "square", "minus", "y"))
    nodes = [op("SQUARE", [x], [square]), op("NEG", [square], [minus]), op("LOG", [minus], [y])]
    model.write_bytes(chain_model(nodes))
    code, (path,) = compare.paths(str(model), "--paths", "builtin")
    assert code == 1
    assert path["failure"] == "output 0 y: 4 of 4 values are not finite (NaN or infinite)"


@slow
def test_other_paths_are_timed_without_opencl_device(
    compare: Compare, small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCL_ICD_VENDORS", "/nowhere")
    code, paths = compare.paths(small)
    assert code == 1
    cpu, reference, opencl = paths
    assert cpu["timing"]["runs"] == reference["timing"]["runs"] == 2
    assert cpu["quanta"] is not None
    assert opencl["timing"] is None
    assert opencl["failure"].startswith("no OpenCL")


@slow
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("__builtin_trap();", "its process died with SIG"),
        ("return 0;", "cannot load the delegate"),
        (None, "cannot load the delegate"),
    ],
    ids=["dies", "gives none", "not there"],
)
def test_failing_library_does_not_affect_other_paths(
    compare: Compare, small: str, tmp_path: Path, body: str | None, reason: str
) -> None:
    library = tmp_path / "libother.so"
    if body is not None:
        source = tmp_path / "other.c"
        source.write_text(
            f"void* tflite_plugin_create_delegate(void) {{ {body} }}\n"
            "void tflite_plugin_destroy_delegate(void* delegate) {}\n"
        )
        subprocess.run(["cc", "-w", "-shared", "-fPIC", "-o", library, source], check=True)
    code, (other, cpu) = compare.paths(small, "--paths", f"external:{library},cpu")
    assert code == 1
    assert other["timing"] is None
    assert reason in other["failure"]
    assert cpu["timing"]["runs"] == 2


@slow
def test_delegate_library_is_a_path(compare: Compare, small: str, built: Path) -> None:
    wanted = f"external:{built}:tune:off;min_nodes_per_partition:1"
    code, (path,) = compare.paths(small, "--paths", wanted)
    assert code == 0
    assert (path["device"], path["taken"], path["nodes"]) == (built.name, 2, 2)
    assert path["quanta"] == 0


@slow
def test_chain_shows_nodes_of_each_delegate(compare: Compare, tmp_path: Path, built: Path) -> None:
    wide = [t((1, 64, 64, 16), "uint8", 0.5, 128) for _ in range(3)]
    weights = const(np.full((16, 3, 3, 16), 120, np.uint8), 0.02, 119)
    bias = const(np.zeros(16, np.int32), 0.01)
    step = {"padding": "SAME", "stride_w": 1, "stride_h": 1}
    conv = op(
        "CONV_2D", [wide[0], weights, bias], [wide[1]], step
    )  # enough work for OpenCL to claim
    model = tmp_path / "wide.tflite"
    model.write_bytes(chain_model([conv, op("AVERAGE_POOL_2D", [wide[1]], [wide[2]], POOL)]))
    wanted = f"chain:{built}:tune:off;min_nodes_per_partition:1;exclude_ops:CONV_2D"
    code, (path,) = compare.paths(str(model), "--paths", wanted)
    assert code == 0
    assert path["device"].startswith(f"{built.name} + ")
    assert (path["taken"], path["shares"]) == (2, {built.name: 1, "OpenCL": 1})
    assert (path["quanta"], path["refusals"]) == (0, {})
    assert path["share_quanta"] == {built.name: 0, "OpenCL": 0}
    shown = compare(str(model), "--paths", wanted)[1]
    assert "OpenCL's nodes, on what reached them: 0 quanta off the reference" in shown
    assert f"2 of 2: 1 by {built.name}, 1 by OpenCL" in " ".join(shown.split())


@slow
def test_missing_answer_is_a_failure(compare: Compare, small: str, tmp_path: Path) -> None:
    source, library = tmp_path / "slow.c", tmp_path / "libslow.so"
    source.write_text(
        "int sleep(int);\nvoid* tflite_plugin_create_delegate(void) { sleep(600); }\n"
        "void tflite_plugin_destroy_delegate(void* delegate) {}\n"
    )
    subprocess.run(["cc", "-w", "-shared", "-fPIC", "-o", library, source], check=True)
    code, (path,) = compare.paths(small, "--paths", f"external:{library}", "--timeout", "8")
    assert code == 1
    assert path["failure"] == "it gave no answer within 8 s (--timeout)"


@slow
def test_several_models_are_a_matrix(compare: Compare, small: str, idle: str) -> None:
    code, out, _ = compare(small, "--tflite_model", idle, "--paths", "builtin,reference")
    assert code == 0
    matrix = out[out.index("median of a run, ms") :]
    assert [line.split()[0] for line in matrix.splitlines()[3:5]] == ["small.tflite", "idle.tflite"]


@slow
def test_as_csv_and_as_markdown(compare: Compare, small: str) -> None:
    _, out, _ = compare(small, "--paths", "builtin,reference", "--csv", "-")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["path"] for row in rows] == ["builtin", "reference"]
    assert all(float(row["median_ms"]) > 0 and row["failure"] == "" for row in rows)
    _, out, _ = compare(small, "--paths", "builtin,reference", "--markdown", "-")
    table = [line for line in out.splitlines() if line.startswith("|")]
    assert len(table) == 4
    assert len({line.count("|") for line in table}) == 1


@slow
def test_float16_is_judged_in_float32_with_note(
    compare: Compare, tmp_path: Path, device: DeviceInfo
) -> None:
    rng = np.random.default_rng(3)
    weights = const(rng.normal(size=(5, 8)).astype(np.float16))
    x, y, z = t((1, 8), "float16"), t((1, 5), "float16"), t((1, 5), "float16")
    nodes = [op("FULLY_CONNECTED", [x, weights], [y]), op("SOFTMAX", [y], [z], {"beta": 1.0})]
    path = tmp_path / "halves.tflite"
    path.write_bytes(chain_model(nodes))
    words = "the reference: FULLY_CONNECTED, SOFTMAX in float32, rounded to the nearest half"
    for chosen in (f"reference,opencl:{device.index}", f"opencl:{device.index}"):
        code, out, err = compare(str(path), "--paths", chosen)
        assert code == 0, (out, err)
        assert words in out
        _, paths = compare.paths(str(path), "--paths", chosen)
        assert paths[-1]["taken"] == 2
        assert paths[-1]["difference"] <= 2**-11  # the spacing of fp16 below 1
    code, reference = compare.paths(str(path), "--paths", "reference")
    assert (code, reference[0]["difference"]) == (0, 0)


@slow
def test_builtin_kernels_judge_if_reference_is_wrong(compare: Compare, tmp_path: Path) -> None:
    path = tmp_path / "blocks.tflite"
    path.write_bytes(write_model(fully_connected("hybrid-per-channel", (1,), 64, 8, block=32)))
    _, (builtin, reference) = compare.paths(str(path), "--paths", "builtin,reference")
    assert builtin["difference"] == 0
    assert reference["difference"] > 1


@slow
def test_picture_and_labels(compare: Compare, tmp_path: Path) -> None:
    model, picture, labels = (tmp_path / name for name in ("v2.tflite", "p.png", "labels.txt"))
    model.write_bytes(write_model(small_v2()))
    Image.new("RGB", (30, 20), (51, 204, 102)).save(picture)
    labels.write_text("".join(f"name {number}\n" for number in range(2000)))
    code, out, _ = compare(
        str(model), "--paths", "reference", "--image", str(picture), "--labels", str(labels)
    )
    assert code == 0
    assert "v2.tflite, p.png" in out
    assert "name " in out
    code, _, err = compare(str(model), "--image", str(tmp_path / "missing.png"))
    assert code == 255
    assert "missing.png not found" in err


@slow
def test_against_stored_result(compare: Compare, small: str, tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    compare(small, "--paths", "builtin", "--json", str(path))
    code, out, _ = compare(small, "--paths", "builtin", "--against", str(path))
    assert code == 0
    assert f"since {path}:" in out
    assert "before, ms" in out


def test_output_path_is_checked_before_timing(
    compare: Compare, small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "tflite_opencl.compare.report.compared", lambda *_: pytest.fail("it is timed")
    )
    code, _, err = compare(small, "--json", "/nowhere/a.json")
    assert (code, err) == (
        255,
        "ERROR: cannot write /nowhere/a.json: there is no folder /nowhere\n",
    )


@pytest.mark.parametrize(
    ("content", "line"),
    [("{}", "is not what compare --json writes"), ('{"schema": 99}', "has schema 99; this is 1")],
    ids=["foreign", "newer"],
)
def test_foreign_file_is_refused(
    compare: Compare, small: str, tmp_path: Path, content: str, line: str
) -> None:
    path = tmp_path / "kept.json"
    path.write_text(content)
    code, _, err = compare(small, "--against", str(path))
    assert code == 255
    assert line in err


def test_file_that_is_no_model(compare: Compare, tmp_path: Path) -> None:
    path = tmp_path / "text.tflite"
    path.write_text("no model at all")
    code, _, err = compare(str(path))
    assert code == 255
    assert "not a .tflite model" in err
