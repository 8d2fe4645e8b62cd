# SPDX-License-Identifier: Apache-2.0
"""The process that runs a model by an older checkout, whose folder is in PYTHONPATH.

It uses what every checkout has: OpenCLDelegate with a model, a device and `tune`. The first line
that it reads names the model and how it is run; each further line asks for so many runs, and gets
their milliseconds.
"""

from __future__ import annotations

import importlib
import itertools
import json
import sys
import time
from typing import Any

import numpy as np

from delegate import OpenCLDelegate


def main() -> None:
    """Answer until there are no more lines."""
    model, inputs, module, device, tune, threads = json.loads(sys.stdin.readline())
    ours = OpenCLDelegate(model, device, tune=tune)
    interpreter: Any = importlib.import_module(module).Interpreter
    interp = interpreter(model, experimental_delegates=[ours], num_threads=threads)
    interp.allocate_tensors()
    for details, values in zip(interp.get_input_details(), np.load(inputs).values(), strict=True):
        interp.set_tensor(details["index"], values)
    interp.invoke()
    runs_ms: list[float] = []
    while True:
        sys.stdout.write(f"{runs_ms}\n")
        sys.stdout.flush()
        if not (line := sys.stdin.readline()):
            return
        marks = [time.perf_counter()]
        for _ in range(int(line)):
            interp.invoke()
            marks.append(time.perf_counter())
        runs_ms = [(b - a) * 1e3 for a, b in itertools.pairwise(marks)]


if __name__ == "__main__":
    main()
