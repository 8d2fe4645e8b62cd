# SPDX-License-Identifier: Apache-2.0
"""`label_image --video` beside the same loop in OpenCV and TFLite: frames a second, and their cost.

Each contender is a process of its own that reads the same file of 1280x720 and classifies every
frame. What both count begins when the model is open.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Skipped, imported
from benchmarks.processes import output
from tflite_opencl.timing.timing import turns

WIDTH, HEIGHT, RATE = 1280, 720, 30
ROUNDS = 3  # in which the contenders take turns: their medians count
Figures = tuple[
    float, float, float, float
]  # frames/s, busy cores, and the milliseconds p50 and p99


def video(models: Sequence[Path], frames: int, threads: int) -> str:
    """Return a table in Markdown, of each model and contender.

    Raises: Skipped: PyAV is missing, or a contender fails.
    """
    lines = [
        "| model | loop | frames/s | busy cores | CPU ms a frame | latency p50, p99 ms |",
        "|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        source = Path(folder) / "source.mp4"
        write(source, frames)
        for model in models:
            commands = {"label_image --video": ours(model, source, threads)}
            missing = ""
            try:
                imported("cv2", "opencv-python-headless")
                commands["OpenCV, TFLite's XNNPACK"] = peer(model, source, threads)
            except Skipped as reason:
                missing = f"| {model.stem} | OpenCV: {reason} | | | | |"
            told(commands["label_image --video"])  # kernels are built and chosen
            results: dict[str, list[Figures]] = {name: [] for name in commands}
            for _, (name, command) in turns([*commands.items()], ROUNDS):
                results[name].append(figures(told(command)))
            for name, each in results.items():
                rate, cores, p50, p99 = np.median(each, axis=0)
                cost_ms = 1e3 * cores / rate
                lines.append(
                    f"| {model.stem} | {name} | {rate:.1f} | {cores:.2f} | {cost_ms:.1f} "
                    f"| {p50:.1f}, {p99:.1f} |"
                )
            lines += [missing] if missing else []
    return "\n".join(lines)


def write(path: Path, frames: int) -> None:
    """Write a video of a scene that moves, with some noise, as a camera's has."""
    av = imported("av", "tflite-opencl[video]")
    random = np.random.default_rng(1)
    wide = random.integers(0, 256, (HEIGHT // 16, WIDTH // 8, 3), np.uint8)
    scene = wide.repeat(16, 0).repeat(16, 1)
    noise = random.integers(0, 16, (HEIGHT, WIDTH, 3), np.uint8)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=RATE)
        stream.height, stream.width, stream.pix_fmt = HEIGHT, WIDTH, "yuv420p"
        stream.bit_rate = 8_000_000
        for number in range(frames):
            left = 4 * number % WIDTH
            image = scene[:, left : left + WIDTH] // 2 + np.roll(noise, 7 * number, (0, 1))
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())


def ours(model: Path, source: Path, threads: int) -> list[str]:
    """Return the command of label_image, which writes JSON."""
    return [
        *("-m", "label_image", "--use_gpu", "-m", str(model), "--video", str(source), "--quiet"),
        *("--every_frame", "1", "--compare", "0", "-t", str(threads), "--json", "-"),
    ]


def peer(model: Path, source: Path, threads: int) -> list[str]:
    """Return the command of the loop in OpenCV."""
    return ["-m", "benchmarks.video_peer", str(model), str(source), str(threads)]


def told(command: Sequence[str]) -> Mapping[str, Any]:
    """Return what a process writes as JSON. Raises: Skipped: it fails."""
    try:
        result: Mapping[str, Any] = json.loads(output(command, {}))
    except RuntimeError as error:
        raise Skipped(str(error)) from error
    return result


def figures(document: Mapping[str, Any]) -> Figures:
    """Return the figures of what label_image, or the peer in the same words, has written."""
    of = document["video"]
    latency = of["latency_ms"]
    cores = sum(of["cpu_load"].values())
    return document["pictures_per_second"], cores, latency["median"], latency["p99"]
