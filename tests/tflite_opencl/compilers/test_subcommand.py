# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl kernels`: table, other formats and errors."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from delegate import DeviceInfo
from delegate.inspect import KernelBuilder, KernelUse
from tests.support.model import chain_model, op, t
from tests.support.tiers import slow
from tflite_opencl.boards import drivers
from tflite_opencl.command import main
from tflite_opencl.compilers import builds


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reuse the answers of the command's children in earlier tests: each takes a second."""
    monkeypatch.setattr(drivers, "ask_devices", ask_devices)
    monkeypatch.setattr(drivers, "ask_device", ask_device)
    monkeypatch.setattr(builds, "_built", built)


ask_devices, ask_device = cache(drivers.ask_devices), cache(drivers.ask_device)
build, BUILT = builds._built, dict[object, builds.Built]()


def built(info: DeviceInfo, use: KernelUse, text: Path) -> builds.Built:
    key = info, use.file, use.kernel, use.source
    if key not in BUILT:
        BUILT[key] = build(info, use, text)
    return BUILT[key]


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A pooling and a RESHAPE, which launches nothing, and a second pooling like the first."""
    tensors = [t((1, 8, 8, 4), "uint8", 0.5), t((1, 4, 4, 4), "uint8", 0.5)]
    small, flat = t((1, 2, 2, 4), "uint8", 0.5), t((1, 16), "uint8", 0.5)
    window = {"stride_w": 2, "stride_h": 2, "filter_width": 2, "filter_height": 2}
    nodes = [
        op("AVERAGE_POOL_2D", [tensors[0]], [tensors[1]], {"padding": "VALID", **window}),
        op("AVERAGE_POOL_2D", [tensors[1]], [small], {"padding": "VALID", **window}),
        op("RESHAPE", [small], [flat], {"new_shape": [1, 16]}),
    ]
    path = tmp_path / "model.tflite"
    path.write_bytes(chain_model(nodes))
    return str(path)


@slow
def test_row_for_each_kernel(
    model: str, device: DeviceInfo, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kernels", model, "--device", str(device.index), "--csv", "-"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    more = {"pool_2d_vector_quant8", "runtime_fused"}  # by device
    assert {row["kernel"] for row in rows} - more == {"pool_2d_quant8"}
    assert all(row["built"] == "yes" and int(row["group_limit"]) > 0 for row in rows)
    assert {row["device"] for row in rows} == {device.name}
    # Both nodes may run every kernel, including the first alternative.
    of_nodes = [row for row in rows if row["kernel"] != "runtime_fused"]
    assert {row["launches"] for row in of_nodes} == {"2"}
    assert sum(int(row["expected"]) for row in rows) == 2
    assert all(float(row["seconds"]) > 0 for row in rows)


@slow
@pytest.mark.usefixtures("remembered")
def test_specialised_kernels_are_shown_on_request(
    model: str, device: DeviceInfo, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["kernels", model, model, "--device", str(device.index), "--csv", "-"]
    assert main([*command, "--specialised"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    literal = [row for row in rows if row["macros"].endswith(" specialised")]
    assert len(literal) == sum(row["expected"] != "0" for row in rows) > 0
    for row in literal:
        assert row["variant"].endswith(", specialised")
        assert (row["built"], row["launches"], row["expected"]) == ("yes", "4", "0")


@slow
@pytest.mark.usefixtures("remembered")
def test_two_models_are_added(
    model: str, device: DeviceInfo, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["kernels", model, model, "--device", str(device.index)]
    assert main([*command, "--json", "-"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert DeviceInfo(**facts["device"]) == device
    assert facts["self_test"] == "passed"
    of_nodes = [each for each in facts["kernels"] if each["kernel"] != "runtime_fused"]
    assert {each["launches"] for each in of_nodes} == {4}
    assert main(command) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{device.name} ({device.platform}, {device.driver}), proven: ")
    assert "pool_2d_quant8 (plain)" in text
    assert f"{len(facts['kernels'])} kernels, {len(facts['kernels'])} built" in text


@slow
@pytest.mark.usefixtures("remembered")
def test_regressions_are_reported(
    model: str, device: DeviceInfo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["kernels", model, "--device", str(device.index)]
    assert main([*command, "--csv", "-"]) == 0
    path = tmp_path / "old.csv"
    path.write_text(capsys.readouterr().out)
    assert main([*command, "--against", str(path)]) == 0
    assert capsys.readouterr().out == "kernels: 0 better, 0 worse, 0 new, 0 gone\n"
    # The driver's limit is lower now.
    old = re.sub(r",yes,\d+,", ",yes,1000000,", path.read_text())
    path.write_text(old)
    assert main([*command, "--against", str(path)]) == 0
    text = capsys.readouterr().out
    assert "WORSE: " in text
    assert "group_limit 1000000 -> " in text
    assert "total group_limit: " in text


@slow
def test_kernel_that_is_no_longer_built(
    model: str,
    device: DeviceInfo,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["kernels", model, "--device", str(device.index)]
    assert main([*command, "--csv", "-"]) == 0
    path = tmp_path / "old.csv"
    path.write_text(capsys.readouterr().out)
    code = "import os, sys; sys.stderr.write('bad chip\\n'); sys.stderr.flush(); os.abort()"
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {builds.sys.executable} -c "{code}"\n')
    python.chmod(0o755)
    result = drivers.ask_device(device, with_rates=False)
    monkeypatch.setattr(drivers, "ask_devices", lambda: ((device,), None))
    monkeypatch.setattr(drivers, "ask_device", lambda info, with_rates: result)
    monkeypatch.setattr(builds.sys, "executable", str(python))
    assert main([*command, "--against", str(path)]) == 1
    output = capsys.readouterr()
    assert re.search(r"BROKEN: .* pool_2d_quant8 .*: it died with SIGABRT: bad chip", output.out)
    assert output.err == ""
    assert main(command) == 0
    assert "NOT BUILT: it died with SIGABRT: bad chip" in capsys.readouterr().out


@slow
@pytest.mark.usefixtures("remembered")
def test_expected_kernels_only_and_failure_on_spills(
    model: str,
    device: DeviceInfo,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["kernels", model, "--expected", "--device", str(device.index)]
    assert main([*command, "--csv", "-"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert rows
    assert all(int(row["expected"]) > 0 for row in rows)

    def spilling(info: DeviceInfo, use: KernelUse, text: Path) -> builds.Built:
        return replace(built(info, use, text), figures={"spills": 3, "fills": 7})

    monkeypatch.setattr(builds, "_built", spilling)
    assert main(command) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if "BROKEN: " in line]
    assert len(lines) == len(rows)
    assert all(line.endswith(f": 3 spills, 7 fills, for {model}") for line in lines)


@slow
@pytest.mark.usefixtures("remembered")
def test_device_that_fails_self_test(
    model: str,
    device: DeviceInfo,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = replace(drivers.ask_device(device, with_rates=False), failure="it computes nothing")
    monkeypatch.setattr(drivers, "ask_device", lambda info, with_rates: result)
    assert main(["kernels", model, "--device", str(device.index)]) == 0
    text = capsys.readouterr().out
    assert "Its self-test did not pass: it computes nothing\nNothing is proven here." in text
    assert "pool_2d_quant8 (plain)" in text


@slow
@pytest.mark.usefixtures("remembered")
def test_dump_is_complete(
    model: str, device: DeviceInfo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "kernels"
    command = ["kernels", model, "--device", str(device.index), "--dump", str(folder)]
    assert main(command) == 0
    capsys.readouterr()
    readme = (folder / "README.md").read_text()
    files = sorted(folder.glob("*.cl"))
    assert files
    for path in files:
        assert f"| {path.name} | " in readme
        text = path.read_text()
        assert "-cl-std=CL1.2" in text.splitlines()[0]
        assert "#include" not in text
        kernel = path.name.partition("-")[0]
        assert KernelBuilder(device).build(path.stem, kernel, text).group_limit > 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 64, "MODEL"),
        (["none.tflite"], 255, "cannot read none.tflite: No such file or directory"),
        (["bad.tflite"], 255, "bad.tflite: "),
        (["bad.tflite", "--device", "no such"], 2, "no device matches 'no such'; there are "),
        (["bad.tflite", "--against", "none.csv"], 255, "cannot read none.csv: No such file"),
        (["bad.tflite", "--against", "bad.tflite"], 255, "bad.tflite is no table of this command"),
        (["bad.tflite", "--csv", "-", "--json", "-"], 64, "--json and --csv: stdout takes one of"),
    ],
)
def test_errors(
    arguments: list[str],
    code: int,
    words: str,
    device: DeviceInfo,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.tflite").write_text("no model")
    monkeypatch.setattr(drivers, "ask_devices", lambda: ((device,), None))
    assert main(["kernels", *arguments]) == code
    output = capsys.readouterr()
    assert words in output.err
    assert output.out == ""


def test_unwritable_folder(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(drivers, "ask_devices", lambda: pytest.fail("devices are asked"))
    (tmp_path / "file").write_text("")
    assert main(["kernels", model, "--dump", str(tmp_path / "file" / "inside")]) == 255
    assert "file is not a folder" in capsys.readouterr().err
