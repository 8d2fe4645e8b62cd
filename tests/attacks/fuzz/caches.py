# SPDX-License-Identifier: Apache-2.0
"""The attack on the cache folder: label_image has the right rows whatever its content."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from delegate.guard import cache
from tests.attacks.bed import ALLOWED, RIGHT, FinishedRun, run_label_image, write_files
from tests.attacks.fuzz.attacks import Attack

_WARM_UPS = 3
_SECONDS = 60  # a run without a cache takes a few seconds
_FLIP, _CUT, _SWAP, _FOREIGN, _FOLDER, _PIPE, _LINK = (
    "flip", "cut", "swap", "foreign", "folder", "pipe", "link",
)  # fmt: skip
_WRITABLE, _GIVEN, _AT_ONCE = "others may write to it", "another user's", "two runs at once"
_NOBODY = 65534
# Valid JSON or text with a valid digest, but other content.
_FOREIGN_TEXTS = (
    "",
    "[]",
    "{}",
    "null",
    "1e999",
    '{"a": 1}',
    '{"proven": null}',
    '{"bans": {"a": {}}}',
    '{"choices": {"": 1}}',
    "[" * 9999,
    "\xff\x00",
)
# Program binaries are native code: a foreign one with a valid digest may do anything.
_TEXTS = ("devices", "records")


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of one entry.

    Attributes:
        folder: of the cache; number: of the file, by name; at: a fraction of its bytes, a
            number of _FOREIGN_TEXTS, or the other file of a swap.
    """

    folder: str
    number: int
    kind: str
    at: int


class OfCaches(Attack):
    """A small model's warm cache with some of its entries changed.

    Two concurrent runs have a limit of 0 MiB: each removes what the other does not use yet.
    """

    name = "caches"

    def __init__(self, device: str, scratch: Path) -> None:
        super().__init__()
        self._device, self._scratch = device, scratch
        self._warm = scratch / "warm"
        self._warm.mkdir()
        write_files(scratch)
        for _ in range(_WARM_UPS):
            ran = self._run(self._warm)
            if ran.outcome != RIGHT:
                raise RuntimeError(f"with a sound cache: {ran.outcome}: {ran.lines}")

    def _run(self, folder: Path, **more: str) -> FinishedRun:
        variables = {cache.ENVIRONMENT_VARIABLE: str(folder), **more}
        return run_label_image(self._scratch, self._device, seconds=_SECONDS, **variables)

    def _run_at_once(self, folder: Path) -> FinishedRun:
        """Return the outcome of the worse of two concurrent runs."""
        with ThreadPoolExecutor(2) as pool:
            both = [pool.submit(self._run, folder, **{cache.LIMIT_VARIABLE: "0"}) for _ in "12"]
        ended = [each.result() for each in both]
        return next((each for each in ended if each.outcome != RIGHT), ended[0])

    def draw(self, rng: random.Random) -> tuple[None, list[Any]]:
        return None, [self._edit(rng) for _ in range(rng.randint(1, 3))]

    def content(self, sound: None, edits: Sequence[Any]) -> bytes:
        return json.dumps([dataclasses.asdict(edit) for edit in edits]).encode()

    def verdicts(self, contents: Sequence[bytes]) -> list[str | None]:
        return [self._verdict([Edit(**each) for each in json.loads(text)]) for text in contents]

    def _edit(self, rng: random.Random) -> Edit:
        kinds = (_FLIP, _CUT, _SWAP, _FOREIGN, _FOREIGN, _FOLDER, _PIPE, _LINK, _WRITABLE)
        kind = rng.choice((*kinds, _GIVEN, _AT_ONCE))
        folders = sorted(path.name for path in self._warm.iterdir() if path.is_dir())
        folder = rng.choice(_TEXTS if kind == _FOREIGN else folders)
        return Edit(folder, rng.randrange(100), kind, rng.randrange(1000))

    def _verdict(self, edits: Sequence[Edit]) -> str | None:
        tampered = self._scratch / "tampered"
        shutil.copytree(self._warm, tampered)
        try:
            for edit in edits:
                _make(tampered, edit)
            is_at_once = any(edit.kind == _AT_ONCE for edit in edits)
            ran = self._run_at_once(tampered) if is_at_once else self._run(tampered)
        finally:
            shutil.rmtree(tampered)
        if ran.outcome == RIGHT:
            return None
        messages = [line for line in ran.lines if line.startswith(("ERROR: ", "WARN: "))]
        how = "right rows" if ran.outcome in ALLOWED else ran.outcome
        return f"{how.replace(':', '')}: {edits}: {messages}"


def _make(folder: Path, edit: Edit) -> None:
    """Change one entry, if it still exists."""
    files = sorted(path for path in (folder / edit.folder).iterdir() if path.is_file())
    if not files:
        return
    path = files[edit.number % len(files)]
    data = path.read_bytes()
    at = len(data) * edit.at // 1000
    if edit.kind == _FLIP and data:
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    elif edit.kind == _CUT:
        path.write_bytes(data[:at])
    elif edit.kind == _SWAP:
        other = files[edit.at % len(files)]
        content = other.read_bytes()
        other.write_bytes(data)
        path.write_bytes(content)
    elif edit.kind == _FOREIGN:
        text = _FOREIGN_TEXTS[edit.at % len(_FOREIGN_TEXTS)]
        with mock.patch.dict(os.environ, {cache.ENVIRONMENT_VARIABLE: str(folder)}):
            cache.store(f"{edit.folder}/{path.name}", text.encode("latin-1"))
    elif edit.kind == _WRITABLE:
        path.chmod(0o666)
    elif edit.kind == _GIVEN:
        if os.geteuid() == 0:  # only root can change a file's owner
            os.chown(path, _NOBODY, _NOBODY)
    elif edit.kind != _AT_ONCE:
        path.unlink()
        if edit.kind == _FOLDER:
            path.mkdir()
        elif edit.kind == _PIPE:
            os.mkfifo(path)
        else:
            path.symlink_to(folder / "nothing")
