# SPDX-License-Identifier: Apache-2.0
"""Compares paths on the same prompt, each in its own process, alternately; and the table."""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from delegate import Options
from delegate.guard.children.child import Child, ChildDied, command_of
from tflite_opencl.console import interrupts
from tflite_opencl.console.errors import CommandError
from tflite_opencl.console.tables import NONE
from tflite_opencl.generate.measured import Measured
from tflite_opencl.timing.timing import turns

_MOST_S = 60  # of a path's turn: slower paths get only one
_SETTLE_S = 0.1  # before a turn: threads of the previous one may still be spinning
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class PathCommand:
    """A path: the command of its child, and the child's first request."""

    command: Sequence[str]
    words: Mapping[str, Any]


def own_path(model: str, threads: int, options: Options | None) -> PathCommand:
    """Return a path of a .tflite file; without options TFLite's own, with XNNPACK."""
    words = {"path": model, "threads": threads, "opencl": options and asdict(options)}
    return PathCommand(command_of("tflite_opencl.generate.path_child"), words)


def compared(
    paths: Mapping[str, PathCommand],
    request: Mapping[str, Any],
    tell: Callable[[str], None],
    failed: Callable[[str, CommandError], None],
    rounds: int = 3,
) -> dict[str, Measured]:
    """Return the results of the paths that run, by name.

    `request`: of a turn. `tell`: called with progress messages; `failed`: called with the reason
    if a path has no result; it may raise.
    """
    found: dict[str, list[Measured]] = {}
    with contextlib.ExitStack() as stack:
        children = {}
        for name, path in paths.items():
            tell(f"{name} opens")
            # Ctrl-C must not reach the child.
            child = stack.enter_context(Child(path.command, check=interrupts.check))
            with _step(name, failed):
                _asked(name, child, path.words)
                children[name], found[name] = child, []
        for number, name in turns([*children], rounds):
            if name not in found or any(map(_is_slow, found[name])):
                continue
            tell(f"round {number + 1} of {rounds}: {name}")
            time.sleep(_SETTLE_S)
            before = found.pop(name)
            with _step(name, failed):
                found[name] = [*before, Measured(**_asked(name, children[name], request))]
    return {name: _merged(found[name]) for name in paths if name in found}


@contextlib.contextmanager
def _step(name: str, failed: Callable[[str, CommandError], None]) -> Iterator[None]:
    try:
        yield
    except CommandError as error:
        failed(name, error)


def _asked(name: str, child: Child, request: Mapping[str, Any]) -> dict[str, Any]:
    try:
        answer = child.ask(math.inf, **request)
    except ChildDied as died:
        raise CommandError(f"the process of {name} {died.exit}") from None
    if "failed" in answer:
        raise CommandError(answer["failed"], answer["code"])
    return answer


def _is_slow(turn: Measured) -> bool:
    return turn.first_token_s + turn.decode_s > _MOST_S


def _merged(turns: Sequence[Measured]) -> Measured:
    """Return the medians; the first token is that of the first turn."""
    first, later = turns[0], turns[1:]

    def median(of: Callable[[Measured], float | None], among: Sequence[Measured]) -> float | None:
        known = [value for each in among if (value := of(each)) is not None]
        return statistics.median(known) if known else None

    return replace(
        first,
        prefill_s=median(lambda each: each.first_token_s, later),
        decode_s=median(lambda each: each.decode_s, turns) or 0.0,
        decode_rates={
            place: statistics.median(each.decode_rates[place] for each in turns)
            for place in first.decode_rates
        },
        cpu_load=median(lambda each: each.cpu_load, turns),
        gpu_load=median(lambda each: each.gpu_load, turns),
        peak_bytes=turns[-1].peak_bytes,
    )


def rows_of(found: Sequence[Measured]) -> list[tuple[str, list[str]]]:
    """Return the measurements, one cell per path; the last row counts equal tokens."""

    def row(
        name: str, digits: int, of: Callable[[Measured], float | None]
    ) -> tuple[str, list[str]]:
        return name, [NONE if (x := of(each)) is None else f"{x:.{digits}f}" for each in found]

    return [
        ("nodes on the device", [each.nodes or NONE for each in found]),
        row("load, s", 2, lambda each: each.load_s),
        row("first token, s", 3, lambda each: each.first_token_s),
        row("prefill, tokens/s", 0, lambda each: each.prefill_rate),
        row("decode, tokens/s", 1, lambda each: each.decode_rate),
        *(
            (
                f"decode at place {place}, tokens/s",
                [f"{each.decode_rates[place]:.1f}" for each in found],
            )
            for place in found[0].decode_rates
        ),
        row("CPU load, cores", 2, lambda each: each.cpu_load),
        row("GPU load, engines", 2, lambda each: each.gpu_load),
        row("peak memory, MiB", 0, lambda each: each.peak_bytes and each.peak_bytes / _MIB),
        ("tokens alike", [_alike(found[-1].tokens, each.tokens) for each in found]),
    ]


def _alike(one: Sequence[int], other: Sequence[int]) -> str:
    """Return the number of tokens before the first difference."""
    pairs = enumerate(zip(one, other, strict=False))
    same = next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
    return f"{same} of {len(other)}"
