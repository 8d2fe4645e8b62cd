# SPDX-License-Identifier: Apache-2.0
"""Processors and memory by the files of cgroups, of both versions, in and out of a container."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from delegate.guard.children import cgroup, environment
from delegate.guard.children.cgroup import memory_limit_bytes, usable_processors
from tflite_opencl.cli.flags import prepare_environment


@pytest.fixture(autouse=True)
def _eight_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(cgroup, "_MOUNT", str(tmp_path))
    monkeypatch.setattr(cgroup, "_OWN", str(tmp_path / "own"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {*range(8)})
    monkeypatch.setattr(os, "process_cpu_count", lambda: 8, raising=False)
    usable_processors.cache_clear()
    yield
    usable_processors.cache_clear()


def write(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({}, 8),
        ({"own": "0::/\n"}, 8),
        ({"own": "0::/\n", "cpu.max": "max 100000\n"}, 8),
        ({"own": "0::/\n", "cpu.max": "150000 100000\n"}, 2),
        ({"own": "0::/\n", "cpu.max": "20000 100000\n"}, 1),
        ({"own": "0::/\n", "cpu.max": "nonsense"}, 8),
        ({"own": "0::/a/b\n", "a/cpu.max": "300000 100000", "a/b/cpu.max": "max 100000"}, 3),
        ({"own": "0::/of/the/host\n", "cpu.max": "100000 50000\n"}, 2),  # no cgroup namespace
        ({"own": "4:cpu,cpuacct:/x\n1:memory:/x\n", "cpu,cpuacct/x/cpu.cfs_quota_us": "-1",
          "cpu,cpuacct/x/cpu.cfs_period_us": "100000", "cpu/x/cpu.cfs_quota_us": "200000",
          "cpu/x/cpu.cfs_period_us": "50000"}, 4),
        ({"own": "4:cpuacct,cpu:/gone\n0::/\n", "cpu/cpu.cfs_quota_us": "100000",
          "cpu/cpu.cfs_period_us": "100000"}, 1),
    ],
)  # fmt: skip
def test_processors(files: dict[str, str], count: int, tmp_path: Path) -> None:
    write(tmp_path, files)
    assert usable_processors() == count


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({"own": "0::/a\n", "memory.max": "max\n", "a/memory.max": "268435456\n"}, 256 << 20),
        ({"own": "9:memory:/a\n", "memory/a/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        ({"own": "9:memory:/a\n", "memory/memory.limit_in_bytes": "1048576\n"}, 1 << 20),
    ],
)  # fmt: skip
def test_memory(files: dict[str, str], limit: int | None, tmp_path: Path) -> None:
    write(tmp_path, files)
    assert memory_limit_bytes() == limit


def test_killed_process_names_the_limit_of_memory(tmp_path: Path) -> None:
    assert "the machine is short of memory" in environment.remedy(was_killed=True)
    write(tmp_path, {"own": "0::/\n", "memory.max": "268435456\n"})
    assert "256 MiB of memory are too few, which are this cgroup's limit" in environment.remedy(
        True
    )


def test_drivers_start_as_many_threads_as_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT", "LP_NUM_THREADS")
    for name in (*names, "POCL_AFFINITY"):
        monkeypatch.setenv(name, "")  # so that monkeypatch restores it afterwards
        del os.environ[name]
    prepare_environment()
    assert not {*names} & {*os.environ}
    write(tmp_path, {"own": "0::/\n", "cpu.max": "300000 100000\n"})
    usable_processors.cache_clear()
    monkeypatch.setenv("LP_NUM_THREADS", "7")
    prepare_environment()
    assert [os.environ[name] for name in names] == ["3", "3", "7"]
