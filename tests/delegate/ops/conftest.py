# SPDX-License-Identifier: Apache-2.0
"""Deals the cases out to devices, keeps a device's context between tests, counts the cases."""

from __future__ import annotations

from typing import Any

import pytest

from delegate.runtime.kernels import Kernels
from tests.support.cases import RUN
from tests.support.deal import dealt
from tests.support.opencl import hold_context


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = dealt([item for item in items if item.path.parent.match("delegate/ops")])
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=list(left_out))


@pytest.fixture(autouse=True)
def _one_context(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    # tests/delegate/ tests that contexts are opened and closed.
    if "device" in request.fixturenames:
        hold_context(request.getfixturevalue("device"))
        # For a binary PoCL compiles a program once more, which takes 0.3 s.
        monkeypatch.setattr(Kernels, "_binary_of", lambda *program: None)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if RUN:
        counts = ", ".join(f"{op} {count}" for op, count in sorted(RUN.items()))
        terminalreporter.write_line(f"cases equal to TFLite's reference kernels: {counts}")
