# SPDX-License-Identifier: Apache-2.0
"""The order of cases for a run of limited time: those that tell most come first.

These are the cases that failed before; those that stand for reported faults; and those of
telling.txt, each of which has the most kernels that no case above it has. All others follow as
in a sample, a fair share of each op.

python -m tflite_opencl.conformance.telling writes telling.txt anew.
"""

from __future__ import annotations

import heapq
import itertools
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from delegate import DelegateError
from delegate.inspect import kernel_uses, write_model
from tflite_opencl.boards import drivers
from tflite_opencl.conformance.cases import all_cases
from tflite_opencl.conformance.results import CRASH, FAIL, FLAKE, TIMEOUT
from tflite_opencl.conformance.selection import sample
from tflite_opencl.console.errors import OneLineError
from tflite_opencl.models.build import Case

LIST = Path(__file__).with_name("telling.txt")
_HEAD = "# python -m tflite_opencl.conformance.telling writes this list.\n"
_FAULTS = (FAIL, CRASH, TIMEOUT, FLAKE)


def ordered(cases: Sequence[Case], before: Collection[str], seed: int = 0) -> list[Case]:
    """Return the cases in the order of this module; `before`: names of those that failed."""
    at = {name: place for place, name in enumerate(listed())}
    failed, reported, covering, others = [], [], [], []
    for case in cases:
        if case.name in before:
            failed.append(case)
        elif case.report:
            reported.append(case)
        elif case.name in at:
            covering.append(case)
        else:
            others.append(case)
    covering.sort(key=lambda case: at[case.name])
    return [*failed, *reported, *covering, *sample(others, len(others), seed)]


def failed_before(paths: Iterable[str]) -> set[str]:
    """Return the names of cases that failed in earlier runs.

    Raises: OneLineError: a file is not what --json writes.
    """
    runs = itertools.chain.from_iterable(map(read_runs, paths))
    return {row["name"] for run in runs for row in run["cases"] if row["result"] in _FAULTS}


def read_runs(path: str) -> list[dict[str, Any]]:
    """Return the run in a file of --json, or those of a fleet's boards.

    Raises: OneLineError: it cannot be read, or is something else.
    """
    try:
        content = json.loads(Path(path).read_text("utf-8"))
        runs = [*content["boards"].values()] if "boards" in content else [content]
        for row in (row for run in runs for row in run["cases"]):
            _ = row["name"], row["result"]
    except OSError as error:
        raise OneLineError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        text = f"{path} is no result of tflite-delegate-test --json"
        raise OneLineError(text) from None
    return runs


def listed() -> list[str]:
    """Return the names in telling.txt."""
    return [line for line in LIST.read_text("utf-8").splitlines() if not line.startswith("#")]


def kernels_of(cases: Iterable[Case], device: str) -> dict[str, frozenset[Any]]:
    """Return the kernels that each case may launch, with their macros; builds nothing.

    The device gives the limits; its special instructions do not count.
    """
    found, _ = drivers.ask_devices()
    one = drivers.ask_device(drivers.meant(device, found)[0], with_rates=False)
    assert one.limits is not None
    kernels = {}
    for case in cases:
        try:
            uses = kernel_uses([write_model(case.make())], one.info, one.limits, None)
        except DelegateError:
            continue  # the case is not delegated
        own = ((use.file, use.kernel, use.macros) for use in uses if not use.is_specialised)
        kernels[case.name] = frozenset(own)
    return kernels


def covering(kernels: Mapping[str, frozenset[Any]]) -> Iterator[str]:
    """Yield cases until all kernels are covered, each with the most that are new."""
    left = {kernel for own in kernels.values() for kernel in own}
    # A gain only decreases, so the first one that is still up to date is the greatest.
    gains = [(-len(own), name) for name, own in kernels.items()]
    heapq.heapify(gains)
    while left:
        _, name = heapq.heappop(gains)
        new = kernels[name] & left
        if gains and -len(new) > gains[0][0]:
            heapq.heappush(gains, (-len(new), name))
            continue
        yield name
        left -= new


def _main() -> None:
    cases = [case for case in all_cases() if not (case.is_heavy or case.report)]
    names = covering(kernels_of(cases, "llvmpipe"))
    LIST.write_text(_HEAD + "".join(f"{name}\n" for name in names), "utf-8")


if __name__ == "__main__":
    _main()
