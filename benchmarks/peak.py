# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.peak WHAT MODEL THREADS [DEVICE]`: run a model, write the peak memory.

A process of its own, which loads nothing that its path would not: "cpu" is TFLite alone, "opencl"
the delegate on a device, "modules" TFLite alone with the delegate's modules loaded.
"""

from __future__ import annotations

import importlib
import sys

import numpy as np

from tflite_opencl.interpreters.runtime import find_runtime
from tflite_opencl.timing.machine import peak_bytes

_RUNS = 10


def _main(what: str, model: str, threads: str, device: str = "") -> int:
    delegates = []
    if what != "cpu":
        delegate = importlib.import_module("delegate")
        if what == "opencl":
            delegates.append(delegate.OpenCLDelegate(model, int(device)))
    interpreter = find_runtime().interpreter(model, int(threads), "auto", delegates)
    interpreter.allocate_tensors()
    (details,) = interpreter.get_input_details()
    interpreter.set_tensor(details["index"], np.zeros(details["shape"], details["dtype"]))
    for _ in range(_RUNS):
        interpreter.invoke()
    sys.stdout.write(f"{peak_bytes()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
