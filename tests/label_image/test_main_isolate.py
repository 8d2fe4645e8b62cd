# SPDX-License-Identifier: Apache-2.0
"""--isolate: children that die under one picture, many, a folder that is watched, and a video."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delegate import DeviceInfo
from label_image import flags
from label_image.path import OpenPath
from tests.attacks.faults import NO_COMPILER, Fault, build_library
from tests.support.command import FILES, GPU_LINES, ROOT, Run
from tests.support.isolated import children
from tests.support.tiers import slow
from tests.support.videos import frames, write_video
from tflite_opencl.console.errors import UsageError

MODEL = ("-m", "model.tflite", "-l", "labels.txt", "-r", "1", "--use_gpu", "--tune", "off")
ROWS = [f"pictures/{name}/{name}.png\t0.8: {n} {name}" for n, name in ((2, "blue"), (1, "green"))]
ROWS.append("pictures/red/red.png\t0.8: 0 red")
AGAIN = "WARN: the run is repeated: the process that executes the plan "
OVER = "the process that executes the plan ended 3 times within 60 s"


@pytest.mark.parametrize(
    ("words", "is_isolated", "seconds"),
    [
        ((), False, 0),
        (("--isolate",), True, 0),
        (("--device_timeout", "5"), True, 5),
        (("--video", "v"), True, 60),
        (("--watch", "w"), True, 60),
        (("--watch", "w", "--device_timeout", "0"), True, 0),
        (("--video", "v", "--isolate=false"), False, 0),
    ],
)
def test_what_is_isolated(words: tuple[str, ...], is_isolated: bool, seconds: float) -> None:
    settings = flags.parse([*MODEL, *words])
    assert (settings.isolates, settings.run_timeout) == (is_isolated, seconds)
    assert settings.warnings == ()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--isolate=false", "--device_timeout", "3"), "not with --isolate=false"),
        (("--plan", "m.plan", "--batch", "2"), "one picture at a time: not with --batch"),
        (("--isolate", "--profiling", "1"), "--profiling is of runs in this process"),
        (("--device_timeout", "3", "--trace", "t.json"), "--trace is of runs in this process"),
    ],
)
def test_what_cannot_be(words: tuple[str, ...], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        flags.parse([*MODEL, *words])


Kill = Callable[..., None]


@pytest.fixture
def kill(monkeypatch: pytest.MonkeyPatch) -> Kill:
    """Return what kills all children before each OpenCL run of these numbers, from 0."""

    def kill(*numbers: int) -> None:
        run, count = OpenPath.run, itertools.count()

        def killing(path: OpenPath, pixels: Any) -> Any:
            if path.facts.delegation is not None and next(count) in numbers:
                while not (alive := children()):  # the next one is being started
                    time.sleep(0.01)
                for child in alive:
                    os.kill(child, signal.SIGKILL)
            return run(path, pixels)

        monkeypatch.setattr(OpenPath, "run", killing)

    return kill


@slow
@pytest.mark.parametrize("batch", [[], ["--batch", "1"]], ids=["tflite", "model"])
def test_a_death_costs_nothing_but_a_run(
    pictures: Path, run: Run, device: DeviceInfo, kill: Kill, batch: list[str]
) -> None:
    kill(0)
    words = ("--device", str(device.index), "--isolate", *batch)
    ran = run(*MODEL, *words, "-i", "pictures", "--json", "out.json")
    assert (ran.code, ran.out) == (0, ROWS)
    (warning,) = ran.beginning("WARN")
    assert warning.startswith(f"{AGAIN}died with SIGKILL")
    document = json.loads((pictures / "out.json").read_text())
    assert document["classified"] == 3
    assert document["max_difference_quanta_reference"] == 0


@slow
@pytest.mark.parametrize("batch", [[], ["--batch", "1"]], ids=["tflite", "model"])
@pytest.mark.parametrize(("deaths", "why"), [((0, 1), "died with SIGKILL"), ((0, 2, 4), OVER)])
def test_deaths_that_leave_the_rest_to_the_cpu(
    pictures: Path,
    run: Run,
    device: DeviceInfo,
    kill: Kill,
    batch: list[str],
    deaths: tuple[int, ...],
    why: str,
) -> None:
    """Twice with one picture, or with each of three: what TFLite runs does not pass for OpenCL."""
    kill(*deaths)
    words = ("--device", str(device.index), "--isolate", "--compare=false", *batch)
    ran = run(*MODEL, *words, "-i", "pictures")
    assert (ran.code, ran.out) == (2, ROWS)
    (error,) = ran.beginning("ERROR")
    assert why in error
    assert "WARN: the CPU runs the model instead" in ran.lines


def test_one_picture(files: Path, run: Run, device: DeviceInfo) -> None:
    words = ("--use_gpu", "--device", str(device.index), "--tune", "off", "--json", "out.json")
    ran = run(*FILES, *words, "--isolate")
    assert (ran.code, ran.out) == (0, ["INFO: GPU delegate created."])
    assert ran.lines[: len(GPU_LINES)] == GPU_LINES
    assert "equal to TFLite's reference kernels: 0 quanta" in ran.table
    assert json.loads((files / "out.json").read_text())["gpu"]["cpu_load"] > 0
    assert not children()


@slow
@pytest.mark.parametrize("kind", ["thread", "hang"])
def test_a_driver_that_fails_under_a_video(
    files: Path, device: DeviceInfo, kind: str, tmp_path: Path
) -> None:
    """Each child fails after 500 launches; all frames have their labels all the same."""
    library = build_library(tmp_path)
    if library is None:
        pytest.skip(NO_COMPILER)
    count = 700
    write_video(files / "video.mkv", frames(count))
    fault = Fault("clEnqueueNDRangeKernel", 500, kind, lasts=True, place="")
    words = ["--device", str(device.index), "--device_timeout", "3", "--compare=false"]
    done = subprocess.run(
        [sys.executable, "-m", "label_image", *MODEL, *words, "--video", "video.mkv",
         "--json_lines", "lines.json"],
        capture_output=True, cwd=files, timeout=300, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT), "LD_PRELOAD": str(library)} | fault.environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    got = [json.loads(line) for line in (files / "lines.json").read_text().splitlines()]
    assert [each["frame"] for each in got] == [*range(1, count + 1)]
    colours = ["red", "green", "blue"] * count
    assert [each["results"][0]["label"] for each in got] == colours[:count]
    how = "died with SIGABRT" if kind == "thread" else "gave no answer within 3 s"
    warnings = [line for line in done.stderr.splitlines() if line.startswith("WARN")]
    assert f"{AGAIN}{how}" in "\n".join(warnings)
    assert not any("the CPU runs the model" in line for line in warnings)


@slow
def test_a_folder_that_is_watched(pictures: Path, device: DeviceInfo) -> None:
    words = [*MODEL, "--device", str(device.index), "--watch", "pictures"]
    with subprocess.Popen(
        [sys.executable, "-m", "label_image", *words], cwd=pictures, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert [process.stdout.readline().rstrip() for _ in range(3)] == ROWS
        for child in children(process.pid):
            os.kill(child, signal.SIGKILL)
        shutil.copy(pictures / "picture.bmp", pictures / "pictures" / "new.bmp")
        assert process.stdout.readline() == "pictures/new.bmp\t0.8: 1 green\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130
        assert f"{AGAIN}died with SIGKILL" in err
