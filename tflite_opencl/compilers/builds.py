# SPDX-License-Identifier: Apache-2.0
"""Build kernels for a device, each in a child process: a compiler that dies costs one kernel.

`python -m tflite_opencl.compilers.builds` is that child: it answers in JSON, and the driver
writes what it tells of a kernel to stderr.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from delegate import DelegateError, DeviceError, DeviceInfo, list_devices
from delegate.inspect import KernelBuild, KernelBuilder
from delegate.sandbox.child import answer, ask
from tflite_opencl.common import bars
from tflite_opencl.compilers.kernel_uses import KernelUse
from tflite_opencl.compilers.statistics import NONE, Statistics, statistics_of

TIMEOUT_SECONDS = 300  # large kernels on a slow board
# What makes drivers tell what they made of a kernel, and build it though they keep it.
_TELLING = {
    "IR3_SHADER_DEBUG": "cs",
    "BIFROST_MESA_DEBUG": "shaderdb,shaders",
    "V3D_DEBUG": "shaderdb,qpu",
    "CUDA_CACHE_DISABLE": "1",
    "POCL_KERNEL_CACHE": "0",
}


@dataclass(frozen=True, slots=True)
class Built:
    """What came of building one kernel."""

    build: KernelBuild | None  # None: it was not built
    failure: str | None  # why not: the log's first line, or how the compiler ended
    options: tuple[str, ...]  # of the build; none where the compiler ended before it told them
    statistics: Statistics  # what the driver told


def build_all(info: DeviceInfo, uses: Sequence[KernelUse]) -> list[Built]:
    """Build each of these for a device, in their order."""
    with (
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool,
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
    # Mesa keeps its OpenCL library beside the kernels, and takes 1 s to make it. No kernel is there
    # yet, and none comes twice.
    unset["MESA_SHADER_CACHE_DIR"] = str(text.parent)
    question = (str(info.index), info.identity, use.file, use.kernel, str(text))
    child = ask("tflite_opencl.compilers.builds", *question, seconds=TIMEOUT_SECONDS, **unset)
    told = [json.loads(text) for text in child.texts]
    said = f"{child.stdout}\n{child.stderr}"  # panfrost prints its assembly to stdout
    options = tuple(told[0]) if told else ()
    if len(told) < 2:
        # The compiler may have told of the kernel before the driver failed at what came next.
        return Built(None, child.end(TIMEOUT_SECONDS), options, statistics_of(said))
    if "failure" in told[1]:
        return Built(None, _first_line(told[1]["failure"]), options, NONE)
    build = KernelBuild(**told[1])
    return Built(build, None, options, statistics_of(f"{said}\n{build.log}"))


def _first_line(log: str) -> str:
    """Return the line of a log that names its first error, or else its first one."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["the driver says nothing"])[0]


def main() -> int:
    """Build what the arguments name: answer with the options, then with what came of it."""
    index, identity, file, kernel, path = sys.argv[1:]
    try:
        info = next((each for each in list_devices() if each.index == int(index)), None)
        if info is None or info.identity != identity:
            raise DeviceError(f"device {index} is another one now")
        builder = KernelBuilder(info)
        answer(json.dumps(builder.options(file)))
        source = Path(path).read_text(encoding="utf-8")
        found = asdict(builder.build(file, kernel, source))
    except DelegateError as error:
        found = {"failure": str(error)}
    answer(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
