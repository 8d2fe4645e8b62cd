# SPDX-License-Identifier: Apache-2.0
"""The attacks on files: each draws mutated content, and feeds it to other processes."""

from __future__ import annotations

import hashlib
import math
import random
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from delegate import DelegateError
from delegate.guard.children.child import Child, ChildDied
from delegate.inspect import read_model
from tests.attacks.fuzz.edits import Edit, drawn, edited, smaller
from tests.attacks.fuzz.targets import KINDS, small_models
from tests.attacks.fuzz.worker import SECONDS
from tests.support.process import ROOT
from tflite_opencl.conformance.results import CRASH, FAIL, TIMEOUT, CaseResult
from tflite_opencl.conformance.runner import Item, Workers

# Input types for which the suite draws values: not strings or resources.
_DRAWN = ("bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32")
_MOST_ELEMENTS = 1 << 24  # of an input, whose values the suite holds in memory


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault, and the content that shows it."""

    attack: str
    text: str
    content: bytes

    def save(self, folder: Path) -> Path:
        """Write the content as a case of its attack; return its path."""
        path = folder / self.attack / hashlib.sha256(self.content).hexdigest()[:12]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.content)
        return path


class Attack(ABC):
    """An attack: valid content, edits of it, and verdicts.

    Attributes:
        tried: number of contents; found: number of occurrences of each fault, by `fault_of`.
    """

    name: str
    batch = 1  # contents per batch

    def __init__(self) -> None:
        self.tried = 0
        self.found: Counter[str] = Counter()

    @abstractmethod
    def draw(self, rng: random.Random) -> tuple[Any, list[Any]]:
        """Return valid content, and edits of it."""

    @abstractmethod
    def content(self, sound: Any, edits: Sequence[Any]) -> bytes:
        """Return the edited content, as in a case's file."""

    def smaller(self, sound: Any, edit: Any) -> Iterator[Any]:
        """Yield smaller edits."""
        return iter(())

    @abstractmethod
    def verdicts(self, contents: Sequence[bytes]) -> list[str | None]:
        """Return the fault of each content; None if there is none."""

    def close(self) -> None:  # noqa: B027
        """End its child processes, if any."""

    def summary(self) -> str:
        """Return further statistics."""
        return ""

    def findings(
        self, rng: random.Random, seconds: float, most: int | None = None
    ) -> Iterator[Finding]:
        """Run up to a time or number of contents; yield each new fault, shrunk."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and (most is None or self.tried < most):
            left = self.batch if most is None else min(self.batch, most - self.tried)
            tries = [self.draw(rng) for _ in range(left)]
            texts = self.verdicts([self.content(*each) for each in tries])
            for (sound, edits), text in zip(tries, texts, strict=True):
                self.tried += 1
                if text is None:
                    continue
                self.found[fault_of(text)] += 1
                if self.found[fault_of(text)] == 1:
                    yield Finding(self.name, text, self._shrunk(sound, edits, fault_of(text)))

    def _shrunk(self, sound: Any, edits: list[Any], fault: str) -> bytes:
        """Return the content with the fewest and smallest edits that show the fault."""

        def shows(tried: list[Any]) -> bool:
            (text,) = self.verdicts([self.content(sound, tried)])
            return text is not None and fault_of(text) == fault

        for edit in list(edits):
            fewer = [each for each in edits if each is not edit]
            if fewer and shows(fewer):
                edits = fewer
        for place in range(len(edits)):
            while True:
                tries = [
                    [*edits[:place], less, *edits[place + 1 :]]
                    for less in self.smaller(sound, edits[place])
                ]
                result = next((tried for tried in tries if shows(tried)), None)
                if result is None:
                    break
                edits = result
        return self.content(sound, edits)


def fault_of(text: str) -> str:
    """Return the common part of texts about one fault."""
    return text.partition(":")[0]


class OfFiles(Attack):
    """An attack that edits the bytes of a file."""

    _drawn: Callable[[random.Random, bytes], list[Edit]] = staticmethod(drawn)

    def __init__(self, name: str, seeds: Sequence[bytes]) -> None:
        super().__init__()
        self.name = name
        self._seeds = seeds
        self._scratch = tempfile.TemporaryDirectory(prefix="fuzz-")

    def draw(self, rng: random.Random) -> tuple[bytes, list[Any]]:
        seed = rng.choice(self._seeds)
        return seed, self._drawn(rng, seed)

    def content(self, sound: bytes, edits: Sequence[Any]) -> bytes:
        return edited(sound, edits)

    def smaller(self, sound: bytes, edit: Any) -> Iterator[Any]:
        return smaller(sound, edit)

    def close(self) -> None:
        self._scratch.cleanup()


class InOneChild(OfFiles):
    """Files of one of KINDS, read by tests/attacks/fuzz/worker.py."""

    batch = 20

    def __init__(self, kind: str) -> None:
        super().__init__(kind, list(KINDS[kind].seeds().values()))
        self._drawn = KINDS[kind].drawn
        self._path = Path(self._scratch.name, "file")
        self._child: Child | None = None

    def verdicts(self, contents: Sequence[bytes]) -> list[str | None]:
        return [self._verdict(content) for content in contents]

    def _verdict(self, content: bytes) -> str | None:
        self._path.write_bytes(content)
        if self._child is None:
            command = [sys.executable, "-m", "tests.attacks.fuzz.worker", self.name]
            self._child = Child(command, {"PYTHONPATH": str(ROOT)})
            self._child.ask(math.inf, path=None)  # its slow imports do not count as a case
        try:
            result: str | None = self._child.ask(3 * SECONDS, path=str(self._path))["answer"]
        except ChildDied as died:
            self.close_child()
            ended = died.exit
            if ended.is_late:
                return "the process hangs"
            return f"the process died by {ended.signal or f'exit code {ended.code}'}"
        return result

    def close_child(self) -> None:
        """End the child process, if any."""
        if self._child is not None:
            self._child.close()
        self._child = None

    def close(self) -> None:
        self.close_child()
        super().close()


class BesideTFLite(OfFiles):
    """Models next to TFLite: the delegate has its values, and must not crash where it does not.

    The conformance suite's workers run both.
    """

    name = "models"
    batch = 60

    def __init__(self, device: str | None) -> None:
        super().__init__(self.name, list(small_models().values()))
        self._workers = Workers("opencl", {}, device, None, None, 30.0)

    def draw(self, rng: random.Random) -> tuple[bytes, list[Any]]:
        # Models that the reader refuses have another attack.
        while True:
            seed, edits = super().draw(rng)
            if _is_read(edited(seed, edits)):
                return seed, edits

    def verdicts(self, contents: Sequence[bytes]) -> list[str | None]:
        texts: dict[str, str | None] = {str(number): None for number in range(len(contents))}
        items = []
        for number, content in enumerate(contents):
            if _is_read(content):
                path = Path(self._scratch.name, f"{number}.tflite")
                path.write_bytes(content)
                items.append(Item(str(number), str(path)))

        def tell(result: CaseResult) -> None:
            if result.result in (FAIL, CRASH, TIMEOUT):
                words = result.stderr.splitlines()[-1:]
                texts[result.name] = " ".join([f"{result.result}: {result.detail}", *words])

        if items:
            self._workers.run(items, 1, tell)
        return list(texts.values())


def _is_read(model: bytes) -> bool:
    """Whether the reader accepts a model, and the suite can draw values for its inputs."""
    try:
        graph = read_model(model)
        # TFLite's Python fails for tensor names that are not UTF-8.
        named = [tensor for node in graph.nodes for tensor in (*node.inputs, *node.outputs)]
        return all(tensor is None or "\ufffd" not in tensor.name for tensor in named) and all(
            # NumPy has no arrays with huge dimensions, even if they are empty.
            tensor.dtype in _DRAWN and math.prod(max(1, n) for n in tensor.shape) <= _MOST_ELEMENTS
            for tensor in graph.inputs
        )
    except DelegateError:
        return False
