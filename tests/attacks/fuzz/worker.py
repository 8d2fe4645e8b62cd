# SPDX-License-Identifier: Apache-2.0
"""The child that takes changed files: paths on stdin, a line of JSON each on stdout."""

from __future__ import annotations

import json
import resource
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType

from delegate.sandbox.child import stdout_kept_apart
from tests.attacks.fuzz.targets import KINDS
from tests.support.process import ROOT

SECONDS = 10  # for one small file
_MEMORY_BYTES = 1 << 30  # beside what the process has when it begins


def finding(kind: str, path: Path) -> str | None:
    """Return what is wrong with what becomes of a file; None: nothing."""
    signal.signal(signal.SIGALRM, _late)
    signal.alarm(SECONDS)
    try:
        KINDS[kind].verdict(path.read_bytes(), path.with_suffix(".copy"))
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
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + _MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    with stdout_kept_apart() as answer:
        for line in sys.stdin:
            found = finding(kind, Path(line.strip())) if line.strip() else None
            answer.write(json.dumps(found) + "\n")
            answer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
