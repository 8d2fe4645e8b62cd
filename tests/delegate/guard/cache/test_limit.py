# SPDX-License-Identifier: Apache-2.0
"""The size limit of the cache: which entries are removed, and when the folder is scanned."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from delegate.errors import CacheError
from delegate.guard import cache
from delegate.guard.cache import leases, limit
from delegate.guard.cache.folder import check_owner
from delegate.guard.cache.limit import (
    DOWNLOADS,
    ICDS,
    MODELS,
    PROGRAMS,
    RECORDS,
    UNFINISHED,
    cache_entries,
    cache_in_use,
    kind_of,
    prune_cache,
)
from delegate.guard.store import Store
from tests.support.tiers import slow
from tflite_opencl.generate.package import GGUF
from tflite_opencl.models.default_model import MODEL_FILE
from tflite_opencl.models.fetch import OFFICIAL

ROOT = Path(__file__).parents[4]
HASH = "0123456789" * 4
MODEL = f"language_models/{HASH[:32]}-int8-512-2"
KIB = 1 << 10


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, new to this process."""
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, str(tmp_path))
    monkeypatch.delenv(limit.LIMIT_VARIABLE, raising=False)
    monkeypatch.setattr(limit, "_scan_state", limit._ScanState())
    return tmp_path


def program(number: int) -> str:
    return f"programs/conv_2d_avx2-{number:040x}.bin"


def age(name: str, hours: float) -> None:
    """Set a file's last use to some hours ago."""
    then = time.time() - 3600 * hours
    os.utime(cache.cache_folder() / name, (then, then))


def put(name: str, hours: float, kib: int = 8) -> None:
    """Write an entry that another process used some hours ago."""
    cache.write_cached(name, bytes(kib * KIB))
    leases._end()
    age(name, hours)


def names() -> list[str]:
    return [entry.name for entry in cache_entries()]


def test_entries_are_recognised_by_name() -> None:
    assert kind_of(f"{MODEL}/model.tflite") == (MODELS, MODEL)
    assert kind_of(program(1)) == (PROGRAMS, program(1))
    assert kind_of("records/0af") == (RECORDS, "records/0af")
    assert kind_of(f"icds/{HASH}-only/00.icd") == (ICDS, f"icds/{HASH}-only")
    for name in (MODEL_FILE, GGUF, *(each.file_name for each in OFFICIAL.values())):
        assert kind_of(name) == (DOWNLOADS, name)
    for each in OFFICIAL.values():
        part = f"{each.url.rpartition('/')[2]}.part"
        assert kind_of(part) == (DOWNLOADS, part)
    assert kind_of("records/.0af.x_1234ab") == (UNFINISHED, "records/.0af.x_1234ab")
    foreign = ("programs/mine.sh", "records/0af.txt", "notes.tflite", ".bashrc.x_1234ab", "drivers")
    assert [kind_of(name) for name in foreign] == [None] * 5


def test_every_file_of_a_start_is_recognised(folder: Path) -> None:
    Store("a").save("choices", {"one": "done"})
    cache.store(program(1), b"")
    cache.load(program(1))
    left = [p for p in folder.rglob("*") if p.is_file() and p.parent.name != leases.FOLDER]
    results = {path.relative_to(folder).as_posix() for path in left if path.name != ".lock"}
    assert results == {*names()}
    assert len(results) == 3


def test_least_recently_used_entries_are_removed() -> None:
    for number, hours in enumerate((5, 9, 2, 7)):
        put(program(number), hours)
    assert names() == [program(each) for each in (1, 3, 0, 2)]
    assert {entry.bytes for entry in cache_entries()} == {8 * KIB}
    assert prune_cache(32 * KIB) == []
    assert [entry.name for entry in prune_cache(16 * KIB)] == [program(1), program(3)]
    assert names() == [program(0), program(2)]
    put(program(4), 1)
    assert len(prune_cache(23 * KIB, down_to=8 * KIB)) == 2


def test_loading_counts_as_use_and_is_recorded_hourly(folder: Path) -> None:
    for number in (0, 1):
        cache.store(program(number), bytes(KIB))
        age(program(number), 30)
    assert cache.load(program(0)) == bytes(KIB)
    assert names() == [program(1), program(0)]
    age(program(0), 0.5)
    before = (folder / program(0)).stat().st_mtime
    assert cache.load(program(0)) == bytes(KIB)
    assert (folder / program(0)).stat().st_mtime == before
    age(program(1), -30)  # in the future: a wrong clock
    cache.load(program(1))
    assert (folder / program(1)).stat().st_mtime < time.time() + 60


def test_folder_is_removed_as_a_whole() -> None:
    put(f"{MODEL}/model.tflite", 9)
    put(f"{MODEL}/tokenizer.json", 3)
    put(program(0), 5)
    (model,) = [entry for entry in cache_entries() if entry.kind == MODELS]
    assert model.bytes >= 16 * KIB
    assert names() == [program(0), MODEL]  # by its most recently used file
    assert [entry.name for entry in prune_cache(0)] == [program(0), MODEL]
    assert os.listdir(cache.cache_folder() / "language_models") == []


def test_foreign_files_are_neither_counted_nor_removed(folder: Path, tmp_path: Path) -> None:
    put(program(0), 5)
    for name in ("programs/mine.sh", "plans/thesis", "model.tflite", "deep/programs/x.bin"):
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text("mine")
    precious = folder / "precious"
    precious.mkdir()
    (precious / f"{0:03x}").write_text("mine")
    (folder / "records").symlink_to(precious)
    assert [entry.name for entry in prune_cache(0)] == [program(0)]
    for name in ("programs/mine.sh", "plans/thesis", "model.tflite", "precious/000"):
        assert (folder / name).read_text() == "mine"


def test_link_is_removed_but_not_its_target(folder: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    (precious / "folder").mkdir(parents=True)
    (folder / "programs").mkdir()
    (folder / program(0)).symlink_to(precious / "folder")
    (folder / "language_models").mkdir()
    (folder / MODEL).symlink_to(precious)
    assert len(prune_cache(0)) == 2
    assert (precious / "folder").is_dir()


def test_folder_writable_by_others_is_left_alone(folder: Path) -> None:
    put(program(0), 5)
    (folder / "programs").chmod(0o777)
    assert prune_cache(0) == []
    folder.chmod(0o777)
    with pytest.raises(CacheError, match="other users may write to it"):
        prune_cache(0)
    folder.chmod(0o700)


def test_shared_folders_and_devices_keep_their_modes(tmp_path: Path) -> None:
    """No advice to take /tmp or /dev/null from all others."""
    shared = tmp_path / "shared"
    shared.mkdir()
    for mode, has_advice in ((0o777, True), (0o1777, False)):
        shared.chmod(mode)
        with pytest.raises(CacheError, match="other users may write to it") as caught:
            check_owner(str(shared), shared.stat())
        assert (f"chmod go-w {shared}" in str(caught.value)) == has_advice


def test_abandoned_temporary_files_are_removed_after_an_hour() -> None:
    put("records/.0af.x_1234ab", 0.5)
    put("programs/.conv_2d-0123456789abcdef.bin.12345678", 2)
    (gone,) = prune_cache(1 << 30)
    assert gone.name.startswith("programs/")


_USER = """
import sys
from delegate.guard import cache
from delegate.guard.cache import leases
for name in sys.argv[1:]:
    cache.load(name) if name.startswith("programs/") else cache.hold(name)
print("ready", flush=True)
sys.stdin.read()
"""


def user_of(*used: str) -> subprocess.Popen[bytes]:
    """Start a process that uses entries until its stdin ends."""
    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _USER, *used],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    return child


@slow
@pytest.mark.parametrize("is_killed", [False, True])
def test_entries_in_use_are_not_removed(folder: Path, is_killed: bool) -> None:
    for number in (0, 1):
        cache.store(program(number), b"x")
    leases._end()
    put(f"{MODEL}/model.tflite", 99)
    with user_of(program(0), MODEL) as child:
        assert cache_in_use() == {program(0), MODEL}
        assert [entry.name for entry in prune_cache(0)] == [program(1)]
        child.kill() if is_killed else child.communicate(b"", 60)
        child.wait(60)
    assert cache_in_use() == set()
    assert {entry.name for entry in prune_cache(0)} == {program(0), MODEL}
    assert [*(folder / leases.FOLDER).glob("[!.]*")] == []


def test_written_entry_is_in_use() -> None:
    cache.store(program(0), b"x")
    assert cache_in_use() == {program(0)}
    assert prune_cache(0) == []


def test_forked_process_shares_entries_in_use() -> None:
    cache.store(program(0), b"x")
    cache.load(program(0))
    child = os.fork()
    if child == 0:
        leases._end()  # as the end of its interpreter does
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert cache_in_use() == {program(0)}
    leases._end()
    assert cache_in_use() == set()


def test_entry_used_during_pruning_is_not_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    put(program(0), 9)
    result = cache_entries()
    monkeypatch.setattr(limit, "cache_entries", lambda: result)
    age(program(0), 0)
    assert prune_cache(0) == []
    assert names() == [program(0)]


def test_writes_respect_limit_and_rarely_scan_folder(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(limit.LIMIT_VARIABLE, "20")
    scans: list[float] = []
    result = limit.cache_entries

    def counted() -> list[limit.CacheEntry]:
        scans.append(time.time())
        return result()

    monkeypatch.setattr(limit, "cache_entries", counted)
    with caplog.at_level(logging.INFO, "delegate"):
        for number in range(30):
            put(program(number), 60 - number, kib=1 << 10)
    assert len(scans) < 6
    usage = result()
    assert sum(entry.bytes for entry in usage) <= 20 << 20
    assert [entry.name for entry in usage] == [program(n) for n in range(30 - len(usage), 30)]
    assert any("entries of the cache, " in line for line in caplog.messages)
    # Another process uses the last one's result, and does not scan the folder.
    del scans[:]
    monkeypatch.setattr(limit, "_scan_state", limit._ScanState())
    cache.store("records/0af", b"x")
    assert scans == []
    # After an hour it scans.
    lock = cache.cache_folder() / leases.FOLDER / ".lock"
    os.utime(lock, (0, time.time() - 3601))
    monkeypatch.setattr(limit, "_scan_state", limit._ScanState())
    cache.store("records/0af", b"y")
    assert len(scans) == 1


@pytest.mark.parametrize("text", ["2 GiB", "-1", "1e3"])
def test_invalid_limit_is_reported_once(
    text: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(limit.LIMIT_VARIABLE, text)
    limit._limit.cache_clear()
    assert (limit.cache_limit_bytes(), limit.cache_limit_bytes()) == (2 << 30, 2 << 30)
    assert caplog.messages == [f"{limit.LIMIT_VARIABLE}={text} is no number of MiB: 2048 is used"]
