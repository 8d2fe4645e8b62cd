# SPDX-License-Identifier: Apache-2.0
"""Deals the cases out to devices, spares drivers work, counts the cases."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import RUN
from tests.support.deal import dealt, leave_out, sampled


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    of_ops = [item for item in items if item.path.is_relative_to(Path(__file__).parent)]
    left_out = dealt(of_ops)
    if one_in := int(os.environ.get("TEST_ONE_CASE_IN", 0)):
        left_out |= sampled([item for item in of_ops if item not in left_out], one_in)
    leave_out(config, items, left_out)


@pytest.fixture(autouse=True)
def _one_device(one_device: None) -> None:
    """Make each test use it; that devices are opened and closed is tested in tests/delegate/."""


@pytest.fixture(autouse=True)
def _unoptimised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let PoCL compile without optimisation, which takes it a third of the time and less.

    What is tried is what a kernel computes. TEST_OPTIMISED=1: as users have it. `.ci/run` does so
    on Debian 13, on aarch64 and with the oldest packages.
    """
    if not os.environ.get("TEST_OPTIMISED"):
        monkeypatch.setenv("POCL_EXTRA_BUILD_FLAGS", "-cl-opt-disable")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if RUN:
        counts = ", ".join(f"{op} {count}" for op, count in sorted(RUN.items()))
        terminalreporter.write_line(f"cases equal to TFLite's reference kernels: {counts}")
