# SPDX-License-Identifier: Apache-2.0
"""Opens and invokes so often that leaks of memory, file handles or threads show.

    python -m tests.attacks.soak     10,000 invokes, 1,000 openings, 100,000 frames, 10,000 tokens
    python -m tests.attacks.soak --share 0.1    a tenth of them
    python -m tests.attacks.soak --part frames --device 0 --share 10    a million frames of a video

Each part runs in its own process, which measures itself after half of the rounds and at the end.
All outputs are compared with TFLite's. Exit code: 0 if nothing grew, 1 otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from delegate import DeviceInfo, Model, OpenCLDelegate, list_devices
from delegate.format.reader import read_model
from delegate.inspect import write_model
from label_image import command
from label_image.video import preprocessor
from tests.attacks.resources import soak
from tests.support.command import pooling_model
from tests.support.compare import inputs_for, interpreter, invoke
from tests.support.model import chain_model, op, t
from tests.support.process import ROOT
from tests.support.variables import SHAPE as KEPT
from tests.support.variables import counter_model
from tflite_opencl.conformance.cases.chains import chain_graph
from tflite_opencl.generate import Generator
from tflite_opencl.generate.maker import model_of_gguf

INVOKES, OPENINGS, THREADS, TOKENS = 10_000, 1_000, 4, 10_000
FRAMES, SIDE = 100_000, 32  # of a video; height and width of a frame
COLOURS = ((204, 102, 51), (51, 204, 102), (51, 102, 204))  # of consecutive frames
_OF_EACH = 100  # frames of a colour in a round
MODEL = write_model(chain_graph("conv_relu_pool", "int8", (1, 9, 8, 3)))
INPUTS = inputs_for(read_model(MODEL))[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts on the devices, print a line for each; return the exit code."""
    given = _parser().parse_args(arguments)
    if given.part:
        (device,) = [info for info in list_devices() if info.index == int(given.device[0])]
        PARTS[given.part](device, given.share)
        return 0
    code = 0
    for word in given.device:
        for info in [info for info in list_devices() if info.matches(word)][:1]:
            for part in PARTS:
                command = [sys.executable, "-m", "tests.attacks.soak", "--part", part]
                command += ["--device", str(info.index), "--share", str(given.share)]
                print(f"{word}, {part}: ", end="", flush=True)
                code = max(code, abs(subprocess.run(command, cwd=ROOT, check=False).returncode))
    return code


def invokes(device: DeviceInfo, share: float) -> None:
    """Invoke one interpreter."""
    interp, expected = _opened(device), _expected()
    soak(int(INVOKES * share), lambda: _compare(invoke(interp, INPUTS), expected))


def openings(device: DeviceInfo, share: float) -> None:
    """Open an interpreter with a delegate, invoke it once and close both."""
    expected = _expected()

    def once() -> None:
        delegate = OpenCLDelegate(MODEL, device.index, tune="off", min_nodes_per_partition=1)
        _compare(invoke(interpreter(MODEL, delegate), INPUTS), expected)
        delegate.close()

    soak(int(OPENINGS * share), once)


def models(device: DeviceInfo, share: float) -> None:
    """Open a Model, run it in several threads at once and close it."""
    expected = _expected()

    def once() -> None:
        with Model(MODEL, device=device.index, tune="off") as model:
            _in_threads(lambda: _compare(_outputs(model.run(INPUTS)), expected))

    soak(int(OPENINGS * share), once)


def threads(device: DeviceInfo, share: float) -> None:
    """Invoke several interpreters, each in a new thread for each round."""
    interp, expected = [_opened(device) for _ in range(THREADS)], _expected()

    def once() -> None:
        free = list(interp)
        _in_threads(lambda: _compare(invoke(free.pop(), INPUTS), expected))

    soak(int(INVOKES * share) // THREADS, once)


def stateful(device: DeviceInfo, share: float) -> None:
    """Create two stateful interpreters on one delegate, run each twice, and drop them."""
    delegate = OpenCLDelegate(device=device.index, tune="off", min_nodes_per_partition=1)
    given = [np.full(KEPT, number, np.float32) for number in (1, 2)]
    x, y = t(KEPT, "float32", name="x"), t(KEPT, "float32", name="y")
    held = t(KEPT, "float32", name="held", is_variable=True)
    contents = [counter_model(), chain_model([op("ADD", [x, held], [y])], [x], [y])]
    references = [interpreter(content) for content in contents]
    expected = [[invoke(reference, [x]) for x in given] for reference in references]

    def once() -> None:
        for content, outputs in zip(contents, expected, strict=True):
            interp = interpreter(content, delegate)
            for x, wanted in zip(given, outputs, strict=True):
                _compare(invoke(interp, [x]), wanted)

    once()
    assert all(verdict.is_taken for verdict in delegate.verdicts)
    soak(int(OPENINGS * share), once)


def tokens(device: DeviceInfo, share: float) -> None:
    """Alternate between two generators, a token each; reset one after its answer."""
    # Imported here, because only this part needs the extra [generate].
    from tests.support.llama import write_gguf

    given = list(range(20, 90))
    with tempfile.TemporaryDirectory() as folder:
        model = model_of_gguf(str(write_gguf(Path(folder, "drawn.gguf"))), "int8", 136)

    def answers(prompt: Sequence[int]) -> Iterator[None]:
        with Generator(model, cpu_kernels="reference") as reference:
            expected = list(reference.generate(prompt))
        with Generator(model, device.index, tune="off", min_nodes_per_partition=1) as generator:
            while True:
                for got, wanted in zip(generator.generate(prompt), expected, strict=True):
                    assert got == wanted
                    yield
                generator.reset()

    each = [answers(given[:9]), answers(given)]
    soak(int(TOKENS * share) // len(each), lambda: [*map(next, each)].clear())


def frames(device: DeviceInfo, share: float) -> None:
    """Let label_image classify raw frames from a pipe, preprocessed by OpenCL; check its rows."""
    preprocessor._measured = lambda *_: [0.0, 1.0]  # so that OpenCL preprocesses
    rounds, rows, errors_out = (
        int(FRAMES * share) // (len(COLOURS) * _OF_EACH),
        _Rows(),
        io.StringIO(),
    )
    each = [np.full((SIDE, SIDE, 3), colour, np.uint8).tobytes() for colour in COLOURS]
    reader, writer = os.pipe()
    os.dup2(reader, sys.stdin.fileno())
    os.close(reader)
    errors: list[BaseException] = []

    def feed() -> None:
        try:
            with open(writer, "wb") as pipe:
                soak(rounds, lambda: pipe.write(b"".join(each) * _OF_EACH))
        except BaseException as error:
            errors.append(error)

    feeding = threading.Thread(target=feed, daemon=True)
    with tempfile.TemporaryDirectory() as folder:
        model, labels = Path(folder) / "model.tflite", Path(folder) / "labels.txt"
        model.write_bytes(pooling_model(t((1, 4, 4, 3), "uint8", 0.5, 0)))
        labels.write_text("red\ngreen\nblue\n")
        words = ["--use_gpu", "--device", str(device.index), "--tune", "off", "-m", str(model)]
        words += ["-l", str(labels), "--every_frame", "1", "--video", "-", "--video_options"]
        words += [f"format:rawvideo;video_size:{SIDE}x{SIDE};pixel_format:rgb24"]
        feeding.start()
        with contextlib.redirect_stdout(rows), contextlib.redirect_stderr(errors_out):
            code = command.main(words)
    assert code == 0, errors_out.getvalue()
    feeding.join()
    if errors:
        raise errors[0]
    assert rows.count == rounds * len(COLOURS) * _OF_EACH
    assert "are prepared on OpenCL" in errors_out.getvalue()


class _Rows(io.TextIOBase):
    """Checks label_image's rows, one for each colour; passes all else on to stdout."""

    def __init__(self) -> None:
        self.count = 0
        self._first: list[str] = []  # of each colour
        self._out = sys.stdout

    def write(self, text: str) -> int:
        if not text.startswith("-#"):
            return self._out.write(text)
        result = text.partition("\t")[2]
        if self.count < len(COLOURS):
            assert result not in self._first
            self._first.append(result)
        assert result == self._first[self.count % len(COLOURS)], text
        self.count += 1
        return len(text)

    def flush(self) -> None:
        self._out.flush()


PARTS: dict[str, Callable[[DeviceInfo, float], None]] = {
    part.__name__: part for part in (invokes, openings, models, threads, stateful, tokens, frames)
}


def _opened(device: DeviceInfo) -> Any:
    delegate = OpenCLDelegate(MODEL, device.index, tune="off", min_nodes_per_partition=1)
    interp = interpreter(MODEL, delegate)
    assert all(verdict.is_taken for verdict in delegate.verdicts)
    return interp


def _expected() -> list[np.ndarray[Any, Any]]:
    return invoke(interpreter(MODEL), INPUTS)


def _outputs(given: Any) -> list[Any]:
    return list(given) if isinstance(given, (list, tuple)) else [given]


def _compare(got: Sequence[Any], expected: Sequence[Any]) -> None:
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def _in_threads(run: Callable[[], None]) -> None:
    """Run a function in THREADS threads. Raises: an exception of one of them."""
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            run()
        except BaseException as error:
            errors.append(error)

    started = [threading.Thread(target=guarded) for _ in range(THREADS)]
    for each in started:
        each.start()
    for each in started:
        each.join()
    if errors:
        raise errors[0]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.attacks.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--share", type=float, default=1.0, metavar="X", help="of the counts")
    add("--device", nargs="+", default=["pocl", "rusticl"], metavar="WORD", help="of their names")
    add("--part", choices=["", *PARTS], default="", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
