# SPDX-License-Identifier: Apache-2.0
"""What `python -m tests.fuzz` found once stays mended, and the command finds and shrinks faults."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from delegate import DeviceInfo
from tests.fuzz import targets, worker
from tests.fuzz.__main__ import CASES, attack_of
from tests.fuzz.attacks import OfFiles
from tests.fuzz.targets import KINDS, Kind
from tests.support.deal import any_driver, slow

pytestmark = any_driver

FOUND = sorted(path for path in CASES.rglob("*") if path.is_file())
IN_ONE_CHILD = [path for path in FOUND if path.parent.name in KINDS]


def name(path: Path) -> str:
    return f"{path.parent.name}-{path.name}"


@pytest.mark.parametrize("path", IN_ONE_CHILD, ids=name)
def test_a_file_is_taken_or_refused(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "file"
    copy.write_bytes(path.read_bytes())
    assert worker.finding(path.parent.name, copy) is None


@slow
@pytest.mark.parametrize("path", [p for p in FOUND if p not in IN_ONE_CHILD], ids=name)
def test_a_run_is_right(path: Path, device: DeviceInfo, tmp_path: Path) -> None:
    with closing(attack_of(path.parent.name, device.platform, tmp_path)) as attack:
        assert attack.verdicts([path.read_bytes()]) == [None]


@pytest.mark.parametrize("kind", KINDS)
def test_sound_files_are_taken(kind: str, tmp_path: Path) -> None:
    seeds = list(KINDS[kind].seeds().values())
    assert seeds
    for seed in random.Random(0).sample(seeds, min(len(seeds), 20)):
        KINDS[kind].verdict(seed, tmp_path / "file")


class Planted(OfFiles):
    """Has a fault that takes one byte of the file."""

    def verdicts(self, contents: Sequence[bytes]) -> list[str | None]:
        return ["the fault: it is there" if b"\x80" in text else None for text in contents]


def test_a_fault_is_found_once_and_shrunk_to_the_byte_that_shows_it() -> None:
    sound = bytes(range(1, 100))
    with closing(Planted("planted", [sound])) as attack:
        (finding,) = attack.findings(random.Random(1), 0.5)
    assert attack.found["the fault"] > 1
    assert sum(map(int.__ne__, sound, finding.content)) == 1
    assert finding.text == "the fault: it is there"


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (lambda data, path: targets.read_model(data[0]), "in delegate/tflite/"),
        (lambda data, path: [None for _ in iter(int, 1)], "TimeoutError in a test"),
    ],
    ids=["error", "hang"],
)
def test_what_a_verdict_raises_is_told(
    verdict: object, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, "planted", Kind("planted", dict, verdict))  # type: ignore[arg-type]
    monkeypatch.setattr(worker, "SECONDS", 1)
    path = tmp_path / "file"
    path.write_bytes(os.urandom(1))
    told = worker.finding("planted", path)
    assert told is not None
    assert words in told


def test_a_child_s_death_is_a_finding() -> None:
    with closing(attack_of("checkpoints", "", Path())) as attack:
        assert attack.verdicts([b"no checkpoint"]) == [None]
        attack._child.kill()  # type: ignore[attr-defined]
        assert attack.verdicts([b"no checkpoint"]) == ["the process died by SIGKILL"]
        assert attack.verdicts([b"no checkpoint"]) == [None]
