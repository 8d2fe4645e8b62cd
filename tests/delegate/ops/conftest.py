# SPDX-License-Identifier: Apache-2.0
"""Keeps a device's context from one op test to the next; counts the cases compared with TFLite."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cases import RUN
from tests.support.opencl import hold_context


@pytest.fixture(autouse=True)
def _one_context(request: pytest.FixtureRequest) -> None:
    # tests/delegate/ tests that contexts are opened and closed.
    if "device" in request.fixturenames:
        hold_context(request.getfixturevalue("device"))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if RUN:
        counts = ", ".join(f"{op} {count}" for op, count in sorted(RUN.items()))
        terminalreporter.write_line(f"cases equal to TFLite's reference kernels: {counts}")
