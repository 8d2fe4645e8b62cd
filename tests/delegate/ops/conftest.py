# SPDX-License-Identifier: Apache-2.0
"""Deals the cases out to devices, keeps a device open between tests, counts the cases."""

from __future__ import annotations

import os
from typing import Any

import pytest

from delegate import engine
from delegate.runtime.kernels import Kernels
from tests.support.cases import RUN
from tests.support.deal import dealt, leave_out, sampled
from tests.support.opencl import hold_context, open_kept


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    of_ops = [item for item in items if item.path.parent.match("delegate/ops")]
    left_out = dealt(of_ops)
    if one_in := int(os.environ.get("TEST_ONE_CASE_IN", 0)):
        left_out |= sampled([item for item in of_ops if item not in left_out], one_in)
    leave_out(config, items, left_out)


@pytest.fixture(autouse=True)
def _one_context(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    # tests/delegate/ tests that devices and contexts are opened and closed.
    if "device" in request.fixturenames:
        hold_context(request.getfixturevalue("device"))
        monkeypatch.setattr(engine, "open_device", open_kept)
        # For a binary PoCL compiles a program once more, which takes 0.3 s.
        monkeypatch.setattr(Kernels, "_binary_of", lambda *program: None)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if RUN:
        counts = ", ".join(f"{op} {count}" for op, count in sorted(RUN.items()))
        terminalreporter.write_line(f"cases equal to TFLite's reference kernels: {counts}")
