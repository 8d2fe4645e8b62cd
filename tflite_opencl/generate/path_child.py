# SPDX-License-Identifier: Apache-2.0
"""`python -m tflite_opencl.generate.path_child`: one path of a comparison in a process of its own.

The first request opens the path, and the reply confirms it. Each further one,
{"prompt": tokens, ...}, is a turn, and the reply is its Measured. A reply may be
{"failed": why, "code": the command's exit code} instead, and is then the last.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

from delegate import DelegateError, Options
from delegate.guard.children.channel import serving
from tflite_opencl.console.errors import OneLineError, code_of, one_line
from tflite_opencl.generate.generator import Generator
from tflite_opencl.generate.measured import turn


def main(opened: Callable[..., Generator]) -> int:
    """Serve requests until end of file; `opened`: called with the first one's values."""
    with serving() as parent:
        requests = parent.messages()
        try:
            with opened(**next(requests)) as generator:
                parent.send(opened=True)
                for request in requests:
                    parent.send(**dataclasses.asdict(turn(generator, **request)))
        except (OneLineError, DelegateError) as error:
            parent.send(failed=one_line(error), code=code_of(error))
    return 0


def _opened(opencl: dict[str, Any] | None, **words: Any) -> Generator:
    """Open a file on the device, or on TFLite's kernels if `opencl` is None."""
    if opencl is None:
        return Generator(cpu_kernels="auto", **words)
    return Generator(options=Options(**opencl), **words)


if __name__ == "__main__":
    sys.exit(main(_opened))
