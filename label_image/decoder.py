# SPDX-License-Identifier: Apache-2.0
"""The child process that decodes and resizes pictures; decoders.py starts one a core.

It gets the format of the tensors, then the path of each picture, and answers with the tensor's
bytes. The messages are those of a `Channel`, but nothing of `delegate` is imported: that would take
longer than many pictures.
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
from typing import IO

from tflite_opencl.common.pictures.image import load_picture, to_input
from tflite_opencl.common.pictures.picture_file import PictureError

# Decoding fills the time that the model's own threads leave.
_NICE = 10


@dataclass(frozen=True, slots=True)
class Format:
    """The tensor every picture becomes."""

    shape: Sequence[int]  # (1, h, w, c)
    dtype: str
    mean: Sequence[float] = (127.5,)  # for float32 and int16: one, or one a channel
    std: Sequence[float] = (127.5,)
    scale: float = 0.0  # the tensor's own, for int16
    zero_point: int = 0


def main() -> int:
    """Decode the pictures named on stdin until it ends."""
    # Whatever a library prints goes to stderr.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    os.nice(_NICE)
    format = Format(**json.loads(sys.stdin.buffer.readline()))
    warnings = _Collector()
    logging.getLogger("tflite_opencl").addHandler(warnings)
    logging.getLogger("tflite_opencl").propagate = False
    with contextlib.suppress(BrokenPipeError):  # nobody wants to know any more
        for line in sys.stdin.buffer:
            _answer(json.loads(line)["path"], format, warnings.texts, answers)
    with contextlib.suppress(BrokenPipeError):
        answers.close()
    return 0


def _answer(path: str, format: Format, warnings: list[str], answers: IO[bytes]) -> None:
    warnings.clear()
    begin_s = time.perf_counter()
    error, content, size = "", b"", (1, 1)
    try:
        picture = load_picture(path)
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
        "warnings": warnings,
        "size": size,
        "bytes": len(content),
    }
    answers.write(json.dumps(answer).encode() + b"\n")
    answers.write(content)
    answers.flush()


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


if __name__ == "__main__":
    sys.exit(main())
