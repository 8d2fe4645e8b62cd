# SPDX-License-Identifier: Apache-2.0
"""Builds kernels for a device, each in a child process: a compiler crash loses one kernel.

`python -m tflite_opencl.compilers.builds` is the child; the driver prints kernel statistics
to stderr, or to stdout, which is redirected there.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from delegate import DelegateError, DeviceError, DeviceInfo, list_devices
from delegate.guard.children.channel import serve
from delegate.guard.children.child import ask_once
from delegate.inspect import KernelBuild, KernelBuilder, KernelUse, usable_processors
from tflite_opencl.compilers.statistics import Listing, statistics_of
from tflite_opencl.console import bars

TIMEOUT_SECONDS = 300  # large kernels on a slow board
# Makes drivers print kernel statistics, and rebuild kernels in their cache.
_TELLING = {
    "IR3_SHADER_DEBUG": "cs",
    "BIFROST_MESA_DEBUG": "shaderdb,shaders",
    "V3D_DEBUG": "shaderdb,qpu",
    "CUDA_CACHE_DISABLE": "1",
    "POCL_KERNEL_CACHE": "0",
}


@dataclass(frozen=True, slots=True)
class Built:
    """The result of building one kernel."""

    build: KernelBuild | None  # None: the build failed
    failure: str | None  # why: the log's first line, or how the compiler ended
    options: tuple[str, ...]  # of the build; () if the compiler died before reporting them
    figures: dict[str, float]  # reported by the driver, by the names of rows.py's columns
    listing: Listing | None  # instructions of one work-item


def build_all(info: DeviceInfo, uses: Sequence[KernelUse]) -> list[Built]:
    """Build each of these for a device, in order."""
    with (
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(usable_processors()) as pool,
    ):
        texts = [Path(folder) / f"{number}.cl" for number in range(len(uses))]
        for text, use in zip(texts, uses, strict=True):
            text.write_text(use.source, encoding="utf-8")
        built = []
        with bars.steps("building kernels", lambda: len(uses)) as step:
            for each in pool.map(lambda use, text: _built(info, use, text), uses, texts):
                built.append(each)
                step()
        return built


def _built(info: DeviceInfo, use: KernelUse, text: Path) -> Built:
    unset = {name: value for name, value in _TELLING.items() if name not in os.environ}
    # Mesa caches its OpenCL library along with the kernels, which takes 1 s. The new cache has no
    # kernels, and no kernel is built twice.
    unset["MESA_SHADER_CACHE_DIR"] = str(text.parent)
    wanted = (info.index, info.identity, use.file, use.kernel, str(text))
    child, seconds = "tflite_opencl.compilers.builds", TIMEOUT_SECONDS
    told, ended = ask_once(child, seconds, unset, wanted=wanted)
    options = tuple(told[0]) if told else ()
    if len(told) < 2:
        # The compiler may have printed statistics before the driver failed later on.
        return Built(None, ended.sentence, options, *statistics_of(ended.stderr))
    if "failure" in told[1]:
        return Built(None, _first_line(told[1]["failure"]), options, {}, None)
    build = KernelBuild(**told[1])
    return Built(build, None, options, *statistics_of(f"{ended.stderr}\n{build.log}"))


def _first_line(log: str) -> str:
    """Return the line of a log with its first error, or else its first line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["the driver says nothing"])[0]


def _answers(wanted: tuple[int, str, str, str, str]) -> Iterator[Any]:
    """Yield the options of a build, then its result."""
    index, identity, file, kernel, path = wanted
    try:
        info = next((each for each in list_devices() if each.index == index), None)
        if info is None or info.identity != identity:
            raise DeviceError(f"device {index} is another one now")
        builder = KernelBuilder(info)
        yield builder.options(file)
        yield asdict(builder.build(file, kernel, Path(path).read_text(encoding="utf-8")))
    except DelegateError as error:
        yield {"failure": str(error)}


if __name__ == "__main__":
    sys.exit(serve(_answers))
