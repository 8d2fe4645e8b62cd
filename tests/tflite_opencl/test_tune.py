# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl tune`: everything is measured once, and later starts use it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

import pytest

from delegate import DeviceInfo, Model, NoDeviceError
from delegate.guard import cache
from delegate.inspect import write_model
from tests.support.model import chain_model, op, t
from tests.support.nets import conv_pool
from tests.support.small_v2 import small_v2
from tests.support.tiers import slow
from tflite_opencl import tune
from tflite_opencl.command import main
from tflite_opencl.console import start


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return two models that were not measured yet."""
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "120")  # one line for each row
    paths = []
    for name, graph in (("small_v2", small_v2()), ("conv_pool", conv_pool())):
        paths.append(tmp_path / f"{name}.tflite")
        paths[-1].write_bytes(write_model(graph))
    return list(map(str, paths))


@slow
def test_second_call_measures_nothing(
    device: DeviceInfo, models: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["tune", *models, "--device", str(device.index)]
    assert main(command) == 0
    *_, first, second, _, last = capsys.readouterr().out.splitlines()
    assert first.split()[:4] == ["small_v2.tflite", "15", "of", "15"]
    assert "tuned, " in first
    assert second.split()[:4] == ["conv_pool.tflite", "2", "of", "2"]
    assert last == f"device: {device.name}"
    assert main([*command, "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == 1
    assert [each["measured_seconds"] for each in document["models"]] == [0, 0]
    assert [each["tuning_left"] for each in document["models"]] == [0, 0]


@slow
def test_model_on_cpu_is_no_success(
    device: DeviceInfo, models: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    ops = "CONV_2D,AVERAGE_POOL_2D"
    code = main(["tune", models[1], "--device", str(device.index), "--exclude_ops", ops])
    assert code == 1
    assert "nothing to tune: no node runs on OpenCL" in capsys.readouterr().out


def test_missing_device_is_one_line(
    models: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(*_: object, **__: object) -> None:
        raise NoDeviceError("no OpenCL platform was found")

    monkeypatch.setattr(tune, "delegated", none)
    assert main(["tune", models[0]]) == 2
    assert capsys.readouterr().err == "ERROR: no OpenCL platform was found\n"


@slow
def test_ctrl_c_is_silent(
    device: DeviceInfo,
    models: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Runtime:
        def interpreter(self, *_: object) -> None:
            with contextlib.suppress(KeyboardInterrupt):  # as TFLite does in its code
                os.kill(os.getpid(), signal.SIGINT)
            raise RuntimeError("KeyboardInterrupt")

    monkeypatch.setattr(tune, "find_runtime", Runtime)
    command = ["tune", models[1], "--device", str(device.index)]
    assert start.run(lambda: main(command)) == 130
    assert capsys.readouterr() == ("", "")


@slow
def test_batch_is_measured_as_batch(
    device: DeviceInfo,
    models: list[str],
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Choices for one picture do not suffice; after the command nothing is pending."""
    own = models[1], str(device.index)

    def told() -> list[str]:
        caplog.clear()
        with Model(*own, batch=3):  # it measures a little, too
            return [each for each in caplog.messages if "were not measured" in each]

    with Model(*own, tune="full"):
        caplog.clear()
    (line,) = told()
    assert "'tflite-opencl tune MODEL --batch 3' measures them" in line
    command = ["tune", models[1], "--batch", "3", "--device", own[1]]
    assert main([*command, "--json", "-"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["models"]
    assert (result["delegated"], result["nodes"], result["tuning_left"]) == (2, 2, 0)
    assert result["measured_seconds"] > 0
    assert told() == []


def test_batch_of_partly_delegated_model(
    device: DeviceInfo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "left.tflite"
    path.write_bytes(chain_model([op("COS", [t((4,), "float64")], [t((4,), "float64")])]))
    command = ["tune", str(path), "--batch", "2", "--device", str(device.index)]
    assert main(command) == 1
    text = " ".join(capsys.readouterr().out.split())  # rows are wider than the terminal
    assert "nothing to tune: OpenCL does not run the whole model: node 0 (COS): float64" in text
    assert main([*command, "--exclude_ops", "COS"]) == 64
    assert "--batch: OpenCL runs the whole model" in capsys.readouterr().err
