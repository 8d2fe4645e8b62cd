# SPDX-License-Identifier: Apache-2.0
"""The child that reads mutated files: a path in each request, a fault in the answer."""

from __future__ import annotations

import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from delegate.guard.children import environment
from delegate.guard.children.channel import serve
from tests.attacks.fuzz.targets import KINDS
from tests.support.process import ROOT

SECONDS = 10  # for one small file


def finding(kind: str, path: Path) -> str | None:
    """Return the fault of a file; None if there is none."""
    signal.signal(signal.SIGALRM, _late)
    signal.alarm(SECONDS)
    begun, most = time.process_time(), KINDS[kind].cpu_seconds
    try:
        KINDS[kind].verdict(path.read_bytes(), path.with_suffix(".copy"))
        if (took := time.process_time() - begun) > most:
            return f"it takes more than {most} seconds: {took:.1f}"
    except Exception as error:
        signal.alarm(0)
        files = [(Path(f.filename), f.lineno) for f in traceback.extract_tb(error.__traceback__)]
        inside = [(f.relative_to(ROOT), line) for f, line in files if f.is_relative_to(ROOT)]
        place = [f"{f}:{line}" for f, line in inside if f.parts[0] not in ("tests", ".venv")]
        return f"{type(error).__name__} in {place[-1] if place else 'a test'}: {error}"
    finally:
        signal.alarm(0)
    return None


def _late(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"it takes more than {SECONDS} seconds")


def main() -> int:
    """Answer until stdin ends."""
    kind = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:  # imports do not count for a file
        KINDS[kind].verdict(next(iter(KINDS[kind].seeds().values())), Path(folder, "file"))
    limit = environment.resource_usage().address_bytes + KINDS[kind].memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    def answers(path: str | None) -> Iterator[str | None]:
        yield finding(kind, Path(path)) if path else None

    return serve(answers)


if __name__ == "__main__":
    sys.exit(main())
