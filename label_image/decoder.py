# SPDX-License-Identifier: Apache-2.0
"""The child process that decodes and resizes pictures; decoders.py starts one per core.

It reads the format of the tensors, then the path of each picture, and replies with the tensor's
bytes. Messages use `Channel`'s format, but `delegate` is not imported: that would take longer
than decoding many pictures.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from logging.handlers import BufferingHandler
from typing import IO

from tflite_opencl.pictures.decode import PictureError
from tflite_opencl.pictures.image import load_picture, to_input
from tflite_opencl.pictures.layout import takes_alpha

# Decoding uses the time that the model's own threads leave idle.
_NICE = 10
_MOST_WARNINGS = 1000  # of one picture


@dataclass(frozen=True, slots=True)
class Format:
    """The tensor that every picture is converted to."""

    shape: Sequence[int]  # (1, h, w, c)
    dtype: str
    mean: Sequence[float] = (127.5,)  # for float32 and int16: one value, or one per channel
    std: Sequence[float] = (127.5,)
    scale: float = 0.0  # the tensor's own, for int16
    zero_point: int = 0


def main() -> int:
    """Decode the pictures named on stdin until end of file."""
    os.nice(_NICE)
    warnings = BufferingHandler(_MOST_WARNINGS)
    logging.getLogger("tflite_opencl").addHandler(warnings)
    logging.getLogger("tflite_opencl").propagate = False
    # When the reader is gone, there is nobody to report errors to.
    with contextlib.suppress(BrokenPipeError), os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # libraries' output goes to stderr
        format = Format(**json.loads(sys.stdin.buffer.readline()))
        for line in sys.stdin.buffer:
            _answer(json.loads(line)["path"], format, warnings, answers)
    return 0


def _answer(path: str, format: Format, warnings: BufferingHandler, answers: IO[bytes]) -> None:
    warnings.flush()
    begin_s = time.perf_counter()
    error, content, size = "", b"", (1, 1)
    try:
        picture = load_picture(path, has_alpha=takes_alpha(format.shape))
        size = picture.shape[:2]
        content = to_input(picture, **asdict(format)).tobytes()
    except FileNotFoundError:
        error = f"input file {path} not found"
    except PictureError as refusal:
        error = str(refusal)
    except Exception as unexpected:
        error = f"cannot read picture {path}: {type(unexpected).__name__}: {unexpected}"
    answer = {
        "seconds": time.perf_counter() - begin_s,
        "error": error,
        "warnings": [record.getMessage() for record in warnings.buffer],
        "size": size,
        "bytes": len(content),
    }
    answers.write(json.dumps(answer).encode() + b"\n")
    answers.write(content)
    answers.flush()


if __name__ == "__main__":
    sys.exit(main())
