# SPDX-License-Identifier: Apache-2.0
"""Spares drivers work, and counts the cases."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cases import RUN


@pytest.fixture(autouse=True)
def _one_device(one_device: None) -> None:
    """Make each test use it; that devices are opened and closed is tested in tests/delegate/."""


@pytest.fixture(autouse=True)
def _unoptimised(unoptimised: None) -> None:
    """Let PoCL compile without optimisation in the fast tier, which asks what a kernel computes."""


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if RUN:
        counts = ", ".join(f"{op} {count}" for op, count in sorted(RUN.items()))
        terminalreporter.write_line(f"cases equal to TFLite's reference kernels: {counts}")
