# SPDX-License-Identifier: Apache-2.0
"""The attack with random graphs: each equals the reference kernels, in every way to run it."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from delegate.guard.children.child import command_of
from tests.attacks.fuzz import stateful
from tests.attacks.fuzz.attacks import Attack
from tests.attacks.fuzz.ways import START
from tflite_opencl.conformance.reduce import reduce
from tflite_opencl.conformance.results import CRASH, FAIL, FLAKE, PASS, TIMEOUT, CaseResult
from tflite_opencl.conformance.runner import Item, Workers
from tflite_opencl.console.errors import OneLineError

_WRONG = (FAIL, CRASH, TIMEOUT, FLAKE)
_SECONDS = 120.0  # limit of a way: a driver may compile thirty kernels


class OfGraphs(Attack):
    """Graphs of 1 to 30 nodes, drawn from numbers.

    Attributes:
        nodes: total number of nodes; ways: number of runs of each kind of way.
        survived: graphs that crashed a process without a child, but were right in a normal start:
            a fault of the driver, and no finding.
    """

    name = "graphs"
    batch = 25
    kinds: Sequence[str] = ()  # of ways to run a graph; (): any

    def __init__(self, device: str, numbers: Sequence[int] = ()) -> None:
        """`numbers`: of the first graphs; later ones are random."""
        super().__init__()
        self._scratch = tempfile.TemporaryDirectory(prefix="fuzz-")
        self._numbers = list(numbers)
        self._workers = Workers(
            "opencl",
            {"kinds": " ".join(self.kinds)} if self.kinds else {},
            device,
            None,
            0,
            _SECONDS,
            command=command_of("tests.attacks.fuzz.graph_worker"),
        )
        self.nodes = self.survived = 0
        self.ways: Counter[str] = Counter()

    def draw(self, rng: random.Random) -> tuple[int, list[Any]]:
        """Return a graph's number; a child draws the graph, because TFLite may crash."""
        return (self._numbers.pop(0) if self._numbers else rng.getrandbits(40)), []

    def content(self, sound: int, edits: Sequence[Any]) -> bytes:
        return str(sound).encode()

    def verdicts(self, contents: Sequence[bytes]) -> list[str | None]:
        """Return the faults of the graphs of these numbers, or of these models."""
        names = [
            each.decode() if each.isdigit() else f"given {place}"
            for place, each in enumerate(contents)
        ]
        for name, content in zip(names, contents, strict=True):
            if not content.isdigit():
                self._path(name).write_bytes(content)
        texts: dict[str, str | None] = dict.fromkeys(names)
        died: list[Item] = []

        def tell(result: CaseResult) -> None:
            if result.result in _WRONG:
                words = result.stderr.splitlines()[-1:]
                how = f"graph {result.name}, {result.alternative.replace(':', '')}"
                texts[result.name] = " ".join([f"{how}: {result.result} {result.detail}", *words])
                if result.result == CRASH:
                    died.append(Item(result.name, str(self._path(result.name))))
            elif result.result == PASS:
                self.nodes += result.nodes
                for ran in filter(None, result.detail.split("; ")):
                    count, _, kind = ran.partition(" ")
                    self.ways[kind] += int(count)

        def tell_of_start(result: CaseResult) -> None:
            if result.result == PASS:
                texts[result.name] = None
                self.survived += 1

        self._workers.run([Item(name, str(self._path(name))) for name in names], 1, tell)
        if died:
            as_a_start = replace(self._workers, options={"alternative": START})
            as_a_start.run(died, 1, tell_of_start)
        return list(texts.values())

    def _path(self, name: str) -> Path:
        return Path(self._scratch.name, f"{name}.tflite")

    def _shrunk(self, sound: int, edits: list[Any], fault: str) -> bytes:
        """Return the graph as reduced by the conformance suite, if that still fails."""
        whole = self._path(str(sound))
        way = fault.partition(", ")[2]
        workers = replace(self._workers, options={"alternative": way})
        with tempfile.TemporaryDirectory() as folder:
            try:
                for _ in reduce(str(whole), workers, Path(folder)):
                    pass
                small = Path(folder, "reduced.tflite").read_bytes()
            except (OneLineError, OSError):
                return whole.read_bytes()
        return small if self.verdicts([small]) != [None] else whole.read_bytes()

    def summary(self) -> str:
        """Return the number of nodes, and of runs in each way."""
        ways = ", ".join(f"{count} {kind}" for kind, count in self.ways.most_common())
        text = f"    {self.nodes} nodes, run in {sum(self.ways.values())} ways: {ways}"
        if self.survived:
            text += f"\n    {self.survived} ended a process, and were right as a start runs them"
        return text

    def close(self) -> None:
        self._scratch.cleanup()


class OfState(OfGraphs):
    """Graphs with state, each in one way of each kind."""

    name = "state"
    kinds = stateful.KINDS
