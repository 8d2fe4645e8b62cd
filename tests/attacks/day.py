# SPDX-License-Identifier: Apache-2.0
"""A service's day: its driver dies each minute, and its models are loaded again each ten minutes.

    python -m tests.attacks.day              a day in an hour: 1,440 deaths
    python -m tests.attacks.day --hours 3    three hours of it, in seven minutes
    python -m tests.attacks.day --hours 1 --scale 1    an hour at its own pace

The service is the real command in its own process; its clients are those of tests.attacks.clients.
--scale shortens the minute between two deaths, and the minute within which a third one ends the
device's use. Requests, and the start of a process, take their own time. Right clients get right
answers; a death may fail one request. Memory, handles and threads do not grow.
Exit code: 0 if no answer was lost and nothing grew, 1 otherwise.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.attacks.clients import Clients, resources_of, run_for, serving
from tests.support.isolated import children

SCALE = 30.0
_PART_MINUTES = 10  # each begins with a reload, and ends with a look at the service's resources
_MOST_SHOWN = 12  # of these looks
_BAD_PAUSE_S = 2.0  # between two requests of a faulty client
_LOOK_S = 0.02
_SLACK_BYTES, _BYTES_EACH = 4 << 20, 4096  # growth of the second half, in all and for each death
_SLACK_HANDLES, _SLACK_THREADS = 8, 4  # for connections that are being closed, and for pools
# The minute of the command that follows.
_SCALED = """
import sys
from delegate.guard.isolation import worker
worker._ALL_SECONDS /= {scale}
from tflite_opencl.__main__ import main
sys.exit(main())
"""


def day(hours: float, seed: int, device: str, scale: float = SCALE) -> str:
    """Return a summary of some hours, each of which takes 3600 / `scale` seconds.

    Raises: AssertionError: an answer was lost or wrong, or something grew.
    """
    minute, parts = 60 / scale, max(2, round(60 * hours / _PART_MINUTES))
    start = ["-c", _SCALED.format(scale=scale)]
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), device, start) as service:
        clients = Clients(*service.address, may_fail=True)
        pid, deaths, seen = service.process.pid, list[int](), list[tuple[int, int, int]]()

        def die(ends: threading.Event) -> None:
            before = clients.answers["right: 200"]
            while clients.answers["right: 200"] == before and not ends.wait(_LOOK_S):
                pass  # each driver has answered before it dies
            for child in children(pid):
                os.kill(child, signal.SIGKILL)
                deaths.append(child)

        run_for(clients, minute, _BAD_PAUSE_S, seed)  # caches fill once
        for number in range(parts):
            os.kill(pid, signal.SIGHUP)
            with _repeating(die, minute):
                run_for(clients, _PART_MINUTES * minute, _BAD_PAUSE_S, seed + 1 + number)
            seen.append(resources_of(pid))
    out, err = service.out, service.err
    reloads, failed_reloads = err.count("loaded again"), err.count("models stay as they were")
    answers = "; ".join(f"{what} {count}" for what, count in sorted(clients.answers.items()))
    shown = [*seen[:: math.ceil(parts / _MOST_SHOWN)], seen[-1]]
    memory, handles, threads = (
        " ".join(str(each[n] >> shift) for each in shown) for n, shift in enumerate((20, 0, 0))
    )
    text = (
        f"{parts * _PART_MINUTES / 60:.1f} hours, scaled 1:{scale:g}: {answers}\n{out.strip()}\n"
        f"{len(deaths)} deaths of the driver's process; {reloads} reloads, {failed_reloads} "
        f"failed\nMiB {memory}; handles {handles}; threads {threads}"
    )
    assert not clients.lost, f"{len(clients.lost)} are lost, as {clients.lost[0]}\n{text}\n{err}"
    assert clients.answers["right: 500"] <= len(deaths), f"too many failed: {text}\n{err}"
    assert deaths, f"nothing died: {text}\n{err}"
    assert not clients.answers["right: 503"], f"some had to wait: {text}\n{err}"
    assert service.process.returncode == 0, err
    assert "Traceback" not in err, err
    (middle, end), slack = (seen[parts // 2 - 1], seen[-1]), _BYTES_EACH * len(deaths)
    assert end[0] - middle[0] <= _SLACK_BYTES + slack, f"memory grows: {text}"
    assert end[1] - middle[1] <= _SLACK_HANDLES, f"file handles grow: {text}"
    assert end[2] - middle[2] <= _SLACK_THREADS, f"threads grow: {text}"
    return text


@contextmanager
def _repeating(work: Callable[[threading.Event], None], pause: float) -> Iterator[None]:
    """Call a function after each pause in seconds, in a thread; its argument is set at the end."""
    ends = threading.Event()

    def repeat() -> None:
        while not ends.wait(pause):
            work(ends)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the day, print the summary, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.attacks.day",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--hours", type=float, default=24.0, metavar="N")
    parser.add_argument("--scale", type=float, default=SCALE, metavar="N", help="of a minute")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--device", default="pocl", metavar="WORD", help="of its name")
    given = parser.parse_args(arguments)
    try:
        print(day(given.hours, given.seed, given.device, given.scale))
    except AssertionError as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
