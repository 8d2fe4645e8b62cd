# SPDX-License-Identifier: Apache-2.0
"""A network in floats on ncnn: on the CPU, and through Vulkan, whose bits are others.

PyPI's pnnx, ncnn's own converter, makes its files from ONNX. Its package asks for PyTorch, which
the program in it does not need: pip install --no-deps pnnx.
"""

from __future__ import annotations

import importlib.util
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Skipped, imported

NAME, ON_VULKAN = "ncnn in floats", "ncnn in floats, Vulkan"


def ncnn(
    onnx: bytes, picture: NDArray[np.float32], threads: int, is_vulkan: bool
) -> Callable[[], NDArray[np.float32]]:
    """Return a run of an ONNX model of floats.

    Shapes: picture (1, c, h, w) -> (classes,)
    Raises: Skipped: ncnn or its converter is not there, or there is no Vulkan device.
    """
    module = imported("ncnn")
    if is_vulkan and not module.get_gpu_count():
        raise Skipped("there is no Vulkan device")
    result = module.Net()
    result.opt.num_threads, result.opt.use_vulkan_compute = threads, is_vulkan
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "network.onnx")
        path.write_bytes(onnx)
        shape = ",".join(map(str, picture.shape))
        command = [str(_converter()), str(path), f"inputshape=[{shape}]", "fp16=0"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        files = Path(folder, "network.ncnn.param"), Path(folder, "network.ncnn.bin")
        if done.returncode or any(not each.is_file() for each in files):
            raise Skipped(f"pnnx does not convert the network: exit code {done.returncode}")
        result.load_param(str(files[0]))
        result.load_model(str(files[1]))
    planes: Any = module.Mat(np.ascontiguousarray(picture[0]))

    def run() -> NDArray[np.float32]:
        with result.create_extractor() as step:
            step.input("in0", planes)
            _, scores = step.extract("out0")
            return np.array(scores)

    return run


def _converter() -> Path:
    # Not imported: it would import PyTorch.
    package = importlib.util.find_spec("pnnx")
    path = Path(package.origin).with_name("pnnx") if package and package.origin else Path()
    if not path.is_file():
        raise Skipped("pnnx is not installed (pip install --no-deps pnnx)")
    return path
