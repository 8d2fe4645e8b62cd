# SPDX-License-Identifier: Apache-2.0
"""The label_image command as the tests run it, and the small models they run it on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from delegate.inspect import Node, Tensor
from tests.support.model import chain_model, op, t
from tests.support.without_tflite import WHY_NOT

ROOT = Path(__file__).resolve().parents[2]
XNNPACK_LINE = "INFO: Created TensorFlow Lite XNNPACK delegate for CPU."
# llvmpipe of Mesa 22.3 prints this once a process, for any kernel without a cached binary. It does
# not apply: our kernels' arguments lie at offsets that are the same for all work-items.
MESA_LINE = (
    "MESA: warning: Treating load_kernel_arg in control flow as uniform, results may be incorrect."
)


@dataclass
class Ran:
    """The exit code and the output of a command."""

    code: int
    out: list[str]
    err: list[str]

    @property
    def lines(self) -> list[str]:
        """Lines of stderr without TFLite's, times replaced by T."""
        return [
            re.sub(r"average time: [0-9.e-]+ ms", "average time: T ms", line)
            for line in self.err
            if line != XNNPACK_LINE
        ]

    def beginning(self, *starts: str) -> list[str]:
        """Return the lines of stderr with one of these prefixes."""
        return [line for line in self.lines if line.startswith(starts)]

    @property
    def outputs(self) -> list[str]:
        """The lines about outputs."""
        return self.beginning("INFO: output(")

    @property
    def table(self) -> str:
        """Stderr with single blanks, so that wrapped lines read as one."""
        return " ".join(" ".join(self.lines).split())


Run = Callable[..., Ran]


def outcome(code: int, out: str, err: str) -> Ran:
    """Return the result of a command, without the driver's warning."""
    return Ran(code, out.splitlines(), [line for line in err.splitlines() if line != MESA_LINE])


def run_process(*arguments: str, **environment: str) -> Ran:
    done = subprocess.run(
        [sys.executable, "-m", "label_image", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | environment,
        timeout=300,
        check=False,
    )
    return outcome(done.returncode, done.stdout, done.stderr)


def pooling_nodes(pixels: Tensor) -> list[Node]:
    """Return nodes that average each channel, so that a picture's colour decides the ranking."""
    scale = None if pixels.quantization is None else pixels.quantization.scale[0]
    size = {"stride_w": 4, "stride_h": 4, "filter_width": 4, "filter_height": 4}
    pooled = t((1, 1, 1, 3), pixels.dtype, scale)
    flat = t((1, 3), pixels.dtype, scale)
    return [
        op("AVERAGE_POOL_2D", [pixels], [pooled], {"padding": "VALID", **size}),
        op("RESHAPE", [pooled], [flat], {"new_shape": [1, 3]}),
    ]


def pooling_model(pixels: Tensor) -> bytes:
    """Return the model of `pooling_nodes`."""
    return chain_model(pooling_nodes(pixels))


def pooling_of_two(folder: Path) -> None:
    """Write a model with two input pictures, which it adds before it pools."""
    first, second = t((1, 4, 4, 3), "uint8", 1.0, 0, name="left"), t((1, 4, 4, 3), "uint8", 1.0, 0)
    added = t((1, 4, 4, 3), "uint8", 1.0, 0)
    nodes = [op("ADD", [first, second], [added]), *pooling_nodes(added)]
    (folder / "model.tflite").write_bytes(chain_model(nodes))


def replace_input(tensor: Tensor) -> Callable[[Path], None]:
    """Return a function that writes `pooling_model(tensor)` into a folder."""

    def replace(folder: Path) -> None:
        (folder / "model.tflite").write_bytes(pooling_model(tensor))

    return replace


FILES = ("-m", "model.tflite", "-i", "picture.bmp", "-l", "labels.txt")


def absolute(folder: Path) -> list[str]:
    """Return FILES as absolute paths."""
    return [str(folder / word) if "." in word else word for word in FILES]


ROWS = ["INFO: 0.8: 1 green", "INFO: 0.4: 2 blue", "INFO: 0.2: 0 red"]
CPU_LINES = [
    "INFO: Loaded model model.tflite",
    "INFO: resolved reporter",
    "INFO: invoked",
    "INFO: average time: T ms",
    *ROWS,
]
GPU_LINES = [*CPU_LINES[:2], "INFO: Applied GPU delegate.", *CPU_LINES[2:]]


def interrupt(last_line: str, *arguments: str) -> Ran:
    """Start the command, send SIGINT a second after it prints `last_line`, and wait."""
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    with subprocess.Popen(
        [sys.executable, "-m", "label_image", *arguments, "-c", "100000000"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    ) as child:  # fmt: skip
        assert child.stderr is not None
        lines = []
        for line in child.stderr:
            lines.append(line)
            if line.rstrip() == last_line:
                break
        time.sleep(1.0)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    return outcome(child.returncode, out, "".join(lines) + err)
