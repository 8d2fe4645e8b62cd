# SPDX-License-Identifier: Apache-2.0
"""The environment of drivers: variables, resource limits and available memory."""

from __future__ import annotations

import os
import resource

import pytest

from delegate.guard.children import environment
from delegate.guard.children.environment import ResourceUsage, reserve_as_much, resource_usage
from tests.support.process import run_python


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("PATH", True), ("POCL_DEVICES", True), ("LD_PRELOAD", True), ("HOME", True),
        ("PWD", False), ("POCL_AFFINITY", False),
    ],
)  # fmt: skip
def test_relevant_variables(name: str, counts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    before = environment.digest()
    monkeypatch.setenv(name, "changed")
    assert (environment.digest() != before) == counts


@pytest.mark.parametrize(
    ("limit", "soft", "words"),
    [
        (resource.RLIMIT_AS, 700 << 20, "700 MiB of address space (ulimit -v)"),
        (resource.RLIMIT_NOFILE, 8, "8 open files (ulimit -n)"),
        (resource.RLIMIT_NOFILE, 1024, ""),
        (resource.RLIMIT_CPU, 9, "9 seconds of processor time (ulimit -t)"),
        (resource.RLIMIT_NPROC, 7000, ""),
    ],
)
def test_low_limits_are_named(
    limit: int, soft: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = resource.RLIM_INFINITY, resource.RLIM_INFINITY
    monkeypatch.setattr(
        environment.resource, "getrlimit", lambda each: (soft, soft) if each == limit else endless
    )
    assert environment.shortages() == words
    assert environment.remedy().startswith("; this process may") == bool(words)
    # A child runs under the same limits.
    monkeypatch.setattr(environment, "_is_trusted", True)
    assert environment.shortages() == ""


def test_child_reserves_as_much_memory_as_parent() -> None:
    own = resource_usage()
    assert own.address_bytes > 1 << 20
    assert own.files == len(os.listdir("/proc/self/fd"))
    wanted = ResourceUsage(own.address_bytes + (1 << 30), own.files + 20)
    result = run_python(
        "from delegate.guard.children.environment import *\n"
        f"reserve_as_much({wanted}); found = resource_usage()\n"
        f"reserve_as_much({wanted}); again = resource_usage()\n"
        "print(*found, *again)"
    )
    address_bytes, files, more_bytes, more_files = map(int, result.split())
    assert abs(address_bytes - wanted.address_bytes) < 32 << 20
    assert files == more_files == wanted.files
    assert more_bytes - address_bytes < 32 << 20
    reserve_as_much(ResourceUsage(0, 0))
