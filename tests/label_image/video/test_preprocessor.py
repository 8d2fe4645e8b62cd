# SPDX-License-Identifier: Apache-2.0
"""Frames that OpenCL prepares: the same results, by the faster way, and what fails meanwhile."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate import DeviceError, DeviceInfo, Options
from label_image.decoder import Format
from label_image.video import preprocessor
from label_image.video.preprocessor import Preprocessor
from tests.attacks.faults import CHILDREN, NO_COMPILER, Fault, build_library
from tests.support.command import ROOT, Run
from tests.support.tiers import slow
from tests.support.videos import frames, write_video
from tflite_opencl.pictures.image import to_input

FLOATS = Format((1, 5, 6, 3), "float32", (123.7, 116.8, 103.9), (58.4,))
STORED = Format((1, 5, 6, 3), "int8", (123.7,), (58.4,), 0.0187, -14)
GIVEN_UP = "WARN: frames are prepared by the CPU: "


def prefer(monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    """Make one of both ways the faster one."""
    times = [1.0, 2.0] if by == "opencl" else [2.0, 1.0]
    monkeypatch.setattr(preprocessor, "_measured", lambda *_: times)


def options(device: DeviceInfo) -> Options:
    return Options(device.index, tune="off")


def as_the_cpu(made: Preprocessor, format: Format, pixels: NDArray[np.uint8]) -> bool:
    wanted = to_input(pixels, **asdict(format))
    return made.tensor_of(pixels).tobytes() == wanted.tobytes()


def film_words(device: DeviceInfo) -> list[str]:
    words = ["-m", "model.tflite", "-l", "labels.txt", "--use_gpu", "--every_frame", "1"]
    words += ["--device", str(device.index), "--tune", "off", "--compare", "0"]
    return [*words, "--video", "video.mkv", "--json", "all.json"]


class Film:
    """A video of 7 frames that label_image classifies."""

    def __init__(self, device: DeviceInfo, files: Path, run: Run) -> None:
        self._files, self._run = files, run
        write_video(files / "video.mkv", frames(7))
        self._words = film_words(device)

    def results(self, *words: str) -> tuple[list[str], Any, dict[str, Any], Any]:
        """Return the rows, the frames' results, what JSON says of the video, and the run."""
        ran = self._run(*self._words, *words)
        assert ran.code == 0, ran.err
        whole = json.loads((self._files / "all.json").read_text())
        assert whole["video"]["decoded"] == whole["classified"] == 7
        return ran.out, [each["results"] for each in whole["pictures"]], whole["video"], ran


@pytest.fixture
def film(device: DeviceInfo, files: Path, run: Run) -> Film:
    return Film(device, files, run)


@slow
def test_both_ways_give_the_same_rows_and_results(
    film: Film, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    for by in ("cpu", "opencl"):
        prefer(monkeypatch, by)
        rows, results, video, ran = film.results()
        (told,) = video["preparing"]
        assert (told["size"], told["by"]) == ("16x12", by)
        where = "on OpenCL: 1.00 ms, by the CPU 2.00 ms"
        where = where if by == "opencl" else "by the CPU: 1.00 ms, on OpenCL 2.00 ms"
        assert ran.beginning("INFO: frames") == [f"INFO: frames of 16x12 are prepared {where}"]
        assert f"preparing 16x12 {where}" in ran.table
        seen.append((rows, results))
    assert seen[0] == seen[1]
    assert seen[0][0][0].startswith("video.mkv#1 0.000 s\t")


@slow
def test_a_device_that_prepares_wrongly_is_not_used(
    film: Film, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = film.results()[:2]
    right = preprocessor._run

    def wrong(*words: Any) -> NDArray[Any]:
        made = right(*words)
        made.reshape(-1)[-1] ^= 1
        return made

    monkeypatch.setattr(preprocessor, "_run", wrong)
    *got, video, ran = film.results()
    assert tuple(got) == expected
    (line,) = ran.beginning("WARN")
    assert line.startswith(GIVEN_UP)
    assert line.endswith("prepares a frame otherwise than the CPU")
    assert video["preparing"] == []
    assert video["preparing_failure"] in line


@slow
def test_a_device_that_fails_half_way_costs_no_frame(
    film: Film, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, "opencl")
    expected = film.results()[:2]
    right, calls = preprocessor._run, []

    def fails_later(*words: Any) -> NDArray[Any]:
        calls.append(words)
        if len(calls) == 4:
            raise DeviceError("running: CL_OUT_OF_RESOURCES")
        return right(*words)

    monkeypatch.setattr(preprocessor, "_run", fails_later)
    *got, video, ran = film.results()
    assert tuple(got) == expected
    assert len(calls) == 4
    assert ran.beginning("WARN") == [f"{GIVEN_UP}running: CL_OUT_OF_RESOURCES"]
    assert [each["by"] for each in video["preparing"]] == ["cpu"]
    assert video["preparing_failure"] == "running: CL_OUT_OF_RESOURCES"


@slow
def test_a_device_that_cannot_be_opened_for_frames(
    film: Film, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = film.results()[:2]

    def refuses(*_: Any, **__: Any) -> None:
        raise DeviceError("a child process died")

    monkeypatch.setattr(preprocessor, "Model", refuses)
    *got, _, ran = film.results()
    assert tuple(got) == expected
    assert ran.beginning("WARN") == [f"{GIVEN_UP}a child process died"]


@pytest.mark.parametrize("format", [FLOATS, STORED], ids=["floats", "stored"])
def test_the_faster_way_is_chosen(format: Format, device: DeviceInfo) -> None:
    with Preprocessor(format, options(device)) as made:
        assert as_the_cpu(made, format, frames(1)[0])
        (times,) = made.times
        assert times.by == ("opencl" if times.opencl_ms < times.cpu_ms else "cpu")
        assert min(times.opencl_ms, times.cpu_ms) > 0


def test_each_size_is_chosen_anew_up_to_some(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, "opencl")
    with Preprocessor(FLOATS, options(device)) as made:
        for side in (9, 8, 7, 9, 8, 6, 5, 4, 9):
            for pixels in frames(2, (side, 11)):
                assert as_the_cpu(made, FLOATS, pixels)
        assert [each.size for each in made.times] == ["11x9", "11x8", "11x7", "11x6"]


@pytest.mark.parametrize(
    ("format", "why"),
    [
        (Format((1, 5, 6, 1), "uint8"), "1x5x6x1: one picture, NHWC, of 3 channels"),
        (Format((1, 3, 5, 6), "uint8"), "1x3x5x6: one picture, NHWC, of 3 channels"),
        (Format((1, 5, 6, 3), "float32", (1e9,)), "mean, std and scale: from 2^-20 to 2^20"),
    ],
    ids=("gray", "planar", "far"),
)
def test_what_no_kernel_makes_is_the_cpus(
    format: Format, why: str, device: DeviceInfo, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.INFO, "label_image"),
        Preprocessor(format, options(device)) as made,
    ):
        for pixels in frames(3):
            wanted = to_input(
                pixels, format.shape, format.dtype, format.mean, format.std, format.scale
            )
            assert made.tensor_of(pixels).tobytes() == wanted.tobytes()
        assert made.times == []
    (line,) = caplog.messages
    assert line.startswith("frames are prepared by the CPU: node 0 (picture): ")
    assert why in line


def test_of_several_devices_none_prepares() -> None:
    with Preprocessor(FLOATS, Options("all")) as made:
        assert as_the_cpu(made, FLOATS, frames(1)[0])
        assert made.times == []


@slow
def test_a_kernel_that_ends_children_costs_no_frame(device: DeviceInfo, files: Path) -> None:
    library = build_library(files)
    if library is None:
        pytest.skip(NO_COMPILER)
    write_video(files / "video.mkv", frames(7))
    fault = Fault("clCreateKernel", 1, "abort", lasts=True, place=CHILDREN, kernel="picture")
    done = subprocess.run(
        [sys.executable, "-m", "label_image", *film_words(device)], cwd=files, check=True,
        env=os.environ | fault.environment | {
            "PYTHONPATH": str(ROOT), "LD_PRELOAD": str(library), "TFLITE_OPENCL_CACHE": "cache",
        }, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert len(done.stdout.splitlines()) == 7
    told = [line for line in done.stderr.splitlines() if "SIGABRT" in line]
    assert [line.split(": ")[0] for line in told] == ["WARN", "WARN", "INFO"]
    assert told[-1].startswith("INFO: frames are prepared by the CPU: node 0 (picture): child ")
