# SPDX-License-Identifier: Apache-2.0
"""The tests that each tier selects, from a test file in a temporary folder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.process import ROOT
from tests.support.tiers import slow

TESTS = """
import pytest
from tests.support.tiers import add_options, select

@pytest.mark.parametrize("case", [0, 1, 2])
@pytest.mark.parametrize("strategy", ["simt", "lanes8"])
def test_strategies(strategy, case): ...

@pytest.mark.parametrize("case", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_types(dtype, case): ...

@pytest.mark.parametrize("case", [0, 1, 2])
def test_cases(case): ...

@pytest.mark.slow
def test_slow(): ...
"""
FAST = {
    *("strategies[simt-0]", "strategies[lanes8-0]", "types[int8-0]", "types[float32-0]", "cases[0]")
}
CONFTEST = """
from tests.support import tiers
def pytest_addoption(parser):
    tiers.add_options(parser)
def pytest_configure(config):
    config.addinivalue_line("markers", "slow: tests")
def pytest_collection_modifyitems(config, items):
    tiers.select(config, items)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    return tmp_path


def run(folder: Path, *options: str) -> tuple[int, set[str], str]:
    """Return the exit code, the selected tests, and stderr."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    done = subprocess.run(
        [*command, *options, str(folder)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
    )
    return done.returncode, {*re.findall(r"::test_(\S+)", done.stdout)}, done.stderr


def test_fast_tier_selects_one_case_per_strategy_and_type(folder: Path) -> None:
    assert run(folder)[:2] == (0, FAST)


@slow
def test_parts_of_full_tier_are_disjoint_and_complete(folder: Path) -> None:
    _, whole, _ = run(folder, "--full")
    assert len(whole) == 6 + 6 + 3 + 1
    parts = [run(folder, "--full", "--part", f"{number}/3")[1] for number in (1, 2, 3)]
    assert sorted(each for part in parts for each in part) == sorted(whole)
    assert all(parts)
    assert run(folder, "--full", "--part", "2/3")[1] == parts[1]


@pytest.mark.parametrize("part", ["0/3", "4/3", "3", "a/b", ""])
def test_invalid_part_is_usage_error(folder: Path, part: str) -> None:
    code, _, message = run(folder, "--full", "--part", part)
    assert (code, f"--part {part}: K/N, with K from 1 to N" in message) == (4, True)
