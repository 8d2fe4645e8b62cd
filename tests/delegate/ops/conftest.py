# SPDX-License-Identifier: Apache-2.0
"""Deals the cases out to devices, spares drivers work, counts the cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import RUN
from tests.support.deal import dealt, leave_out


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    of_ops = [item for item in items if item.path.is_relative_to(Path(__file__).parent)]
    leave_out(config, items, dealt(of_ops))


@pytest.fixture(autouse=True)
def _one_device(one_device: None) -> None:
    """Make each test use it; that devices are opened and closed is tested in tests/delegate/."""


@pytest.fixture(autouse=True)
def _unoptimised(unoptimised: None) -> None:
    """Let PoCL compile without optimisation: what is tried is what a kernel computes."""


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if RUN:
        counts = ", ".join(f"{op} {count}" for op, count in sorted(RUN.items()))
        terminalreporter.write_line(f"cases equal to TFLite's reference kernels: {counts}")
