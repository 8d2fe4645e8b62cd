# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl serve`: arguments, a service with a real model, pictures, signals."""

from __future__ import annotations

import contextlib
import io
import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as triton
from PIL import Image

from delegate import DeviceInfo, Options
from tests.support.isolated import children
from tests.support.model import chain_model, op, t
from tests.support.open_sizes import open_classifier
from tests.support.subgraphs import two_signatures
from tests.support.tiers import slow
from tflite_opencl.command import main, parser
from tflite_opencl.interpreters.interpreter import allocated
from tflite_opencl.interpreters.runtime import find_runtime
from tflite_opencl.serve import models, runners
from tflite_opencl.serve.metrics import Metrics
from tflite_opencl.serve.runners import cheapest
from tflite_opencl.serve.worker import BatchingOptions

LABELS = "red\ngreen\nblue\n"


def classifier() -> bytes:
    """Return a model that ranks a picture's colours."""
    picture = t((1, 8, 8, 3), "uint8", 0.5)
    pooled, flat = t((1, 1, 1, 3), "uint8", 0.5), t((1, 3), "uint8", 0.5)
    window = {"stride_w": 8, "stride_h": 8, "filter_width": 8, "filter_height": 8}
    nodes = [
        op("AVERAGE_POOL_2D", [picture], [pooled], {"padding": "VALID", **window}),
        op("RESHAPE", [pooled], [flat], {"new_shape": [1, 3]}),
        op("SOFTMAX", [flat], [t((1, 3), "uint8", 1 / 256)], {"beta": 0.1}),
    ]
    return chain_model(nodes)


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "colours.tflite").write_bytes(classifier())
    (tmp_path / "labels.txt").write_text(LABELS)
    return str(tmp_path / "colours.tflite")


def picture() -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (40, 30), (51, 204, 102)).save(content, "PNG")
    return content.getvalue()


def started(arguments: Sequence[str]) -> tuple[subprocess.Popen[str], str]:
    """Return the process of the command once it is ready, and its address."""
    command = [sys.executable, "-m", "tflite_opencl", "serve", *arguments]
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", "--tune", "off"], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    address = ""
    for line in process.stderr:
        if line.startswith("INFO: listening: "):
            address = line.split("//")[1].strip()
        if line.startswith("INFO: ready: "):
            return process, address
    raise AssertionError(process.communicate())


def classified(address: str, content: bytes) -> tuple[int, dict[str, object]]:
    request = urllib.request.Request(f"http://{address}/classify", content)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


@slow
@pytest.mark.parametrize("isolate", ["true", "false"])
def test_serves_until_sigterm(device: DeviceInfo, model: str, isolate: str) -> None:
    labels = str(Path(model).parent / "labels.txt")
    where = "--device", str(device.index), "--isolate", isolate
    process, address = started([model, "--labels", labels, *where])
    with process:
        assert len(children(process.pid)) == (isolate == "true")
        with triton.InferenceServerClient(address) as client:
            (given,) = client.get_model_metadata("colours")["inputs"]
            pixels = np.zeros((3, 8, 8, 3), np.uint8)
            for number in range(3):
                pixels[number, ..., number] = 200
            tensor = triton.InferInput(given["name"], pixels.shape, "UINT8")
            tensor.set_data_from_numpy(pixels)
            result = client.infer("colours", [tensor])
            (output,) = client.get_model_metadata("colours")["outputs"]
            assert result.as_numpy(output["name"]).argmax(1).tolist() == [0, 1, 2]
        status, shown = classified(address, picture())
        assert status == 200
        assert shown["results"][0]["label"] == "green"
        assert shown["model"] == "colours"
        status, shown = classified(address, picture()[:50])
        assert status == 400
        assert "/proc/" not in str(shown)
        assert classified(address, picture())[0] == 200
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out.startswith("ended: 5 requests answered, 1 refused as wrong, 0 could not be served")


@pytest.mark.parametrize(("size", "sides"), [((5, 6), [5, 6]), (None, [224, 224])])
def test_dynamic_model_has_requested_size(
    device: DeviceInfo, tmp_path: Path, size: tuple[int, int] | None, sides: list[int]
) -> None:
    path = tmp_path / "open.tflite"
    path.write_bytes(open_classifier())
    wanted = models.Wanted(
        [models.Entry("open", str(path))], Options(device.index, tune="off"),
        BatchingOptions(8, 2, 0.0), falls_back=False, size=size,
    )  # fmt: skip
    (served,) = models.load(wanted, find_runtime(), Metrics())
    with contextlib.closing(served):
        assert served.metadata["inputs"][0]["shape"] == [-1, *sides, 3]
        assert served.pictures is not None
        (pixels,), result = served.pictures.inputs(picture())
        assert (pixels.shape, result) == ((1, *sides, 3), (30, 40))
        (scores,) = served.worker.runner.run([pixels], 1) if served.worker.runner else [None]
        assert served.pictures.entry([scores], result, 1)["results"][0]["index"] == 1


@slow
def test_batches_of_a_model_share_a_child(
    device: DeviceInfo, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Use each batch size, whatever its time.
    monkeypatch.setattr(runners, "_seconds", lambda batch, signature, size: 1.0)
    before = children()
    wanted = models.Wanted(
        [models.Entry("m", model)], Options(device.index, tune="off", isolate=True),
        BatchingOptions(8, 4, 0.0), falls_back=False,
    )  # fmt: skip
    (served,) = models.load(wanted, find_runtime(), Metrics())
    with contextlib.closing(served):
        runner = served.worker.runner
        assert runner is not None
        assert runner.sizes == (1, 2, 4)
        (child,) = children() - before
        pixels = np.random.default_rng(1).integers(0, 255, (4, 8, 8, 3)).astype(np.uint8)
        (whole,) = runner.run([pixels], 4)
        each = [runner.run([pixels[n : n + 1]], 1)[0] for n in range(4)]
        np.testing.assert_array_equal(whole, np.concatenate(each))
        assert children() - before == {child}
    assert children() == before


@slow
@pytest.mark.parametrize("falls_back", [False, True])
def test_signatures_are_separate_models(
    device: DeviceInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, falls_back: bool
) -> None:
    (tmp_path / "two.tflite").write_bytes(two_signatures())
    arguments = [str(tmp_path / "two.tflite"), "--signature", "graph 0", "--signature", "graph 1"]
    if falls_back:
        monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path / "none"))
        arguments += ["--fallback", "cpu"]
    else:
        arguments += ["--device", str(device.index)]
    reference = allocated(find_runtime(), two_signatures(), "reference")
    process, address = started(arguments)
    with process, contextlib.ExitStack() as stack:
        stack.callback(process.send_signal, signal.SIGTERM)
        client = stack.enter_context(triton.InferenceServerClient(address))
        for number, side in ((0, 6), (1, 4)):
            pixels = np.arange(side * side * 3, dtype=np.uint8).reshape(1, side, side, 3)
            tensor = triton.InferInput("x0", pixels.shape, "UINT8")
            tensor.set_data_from_numpy(pixels)
            result = client.infer(f"two.graph {number}", [tensor]).as_numpy("y0")
            wanted = reference.get_signature_runner(f"graph {number}")(x0=pixels)["y0"]
            np.testing.assert_array_equal(result, wanted)
    assert process.returncode == 0


@slow
def test_cpu_serves_without_device(
    model: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path / "none"))
    process, address = started([model, "--fallback", "cpu"])
    with process:
        with urllib.request.urlopen(f"http://{address}/v2/health/ready") as answer:
            (models,) = json.load(answer)["models"]
        assert (models["ready"], models["device"], models["nodes_on_opencl"]) == (True, "CPU", 0)
        assert classified(address, picture())[0] == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


def test_errors_are_one_line(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "damaged.tflite").write_bytes(b"TFL3" * 20)
    for arguments, code, message in (
        (["none.tflite"], 255, "cannot read none.tflite: No such file"),
        ([str(tmp_path / "damaged.tflite")], 255, "damaged.tflite"),
        ([model, model], 64, "are both colours"),
        ([f"a/b={model}"], 64, "NAME=FILE with another name"),
        ([model, "--signature", "decode"], 64, "there is no signature 'decode'"),
        ([model, "--signature", "a/b"], 64, "--signature a/b: no part of an address"),
        ([model, *["--signature", "a"] * 2], 64, "--signature a is given twice"),
        ([model, "--listen", "8500"], 64, "'8500' is not HOST:PORT"),
        ([model, "--listen", "::1:8500"], 64, "is not HOST:PORT"),
        ([model, "--listen", "127.0.0.1:99999"], 64, "is not HOST:PORT"),
        ([model, "--listen", "256.0.0.1:0"], 255, "cannot listen to 256.0.0.1:0"),
        ([model, "--labels", "none.txt"], 255, "none.txt"),
        ([], 64, "no model is named"),
    ):
        listen = [] if "--listen" in arguments else ["--listen", "127.0.0.1:0"]
        assert main(["serve", *arguments, *listen]) == code, arguments
        (line,) = [each for each in capsys.readouterr().err.splitlines() if "INFO" not in each]
        assert line.startswith("ERROR: ")
        assert message in line


def test_commands_of_document_are_valid() -> None:
    page = (Path(__file__).parents[3] / "docs/serve.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith("tflite-opencl serve ")]
    assert len(lines) == 4
    for line in lines:
        assert parser().parse(line.split()[1:]).subcommand == "serve"


def test_missing_packages_are_one_line(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    assert main(["serve", model]) == 255
    assert "pip install 'tflite-opencl[serve]'" in capsys.readouterr().err


def test_name_precedes_file(tmp_path: Path) -> None:
    odd = tmp_path / "a=b.tflite"
    odd.write_bytes(b"")
    assert models.named(["cats=x.tflite", "d/dogs.tflite", str(odd)]) == [
        ("cats", "x.tflite", None), ("dogs", "d/dogs.tflite", None), ("a=b", str(odd), None),
    ]  # fmt: skip
    assert models.named(["llm.tflite"], ["prefill", "decode"]) == [
        ("llm.prefill", "llm.tflite", "prefill"), ("llm.decode", "llm.tflite", "decode"),
    ]  # fmt: skip


def test_batch_sizes_minimise_time() -> None:
    assert cheapest({1: 1.0}, 3) == [(), (1,), (1, 1), (1, 1, 1)]
    assert cheapest({1: 1.0, 4: 2.5}, 5) == [(), (1,), (1, 1), (4,), (4,), (1, 4)]
    begun = time.perf_counter()
    assert len(cheapest({1: 1.0, 2: 1.5, 1024: 400.0}, 1024)[1024]) == 1
    assert time.perf_counter() - begun < 5
