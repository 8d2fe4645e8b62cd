# SPDX-License-Identifier: Apache-2.0
"""No test of isolation leaves a child process."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

import pytest

from tests.support.isolated import children


@pytest.fixture(autouse=True)
def no_child_remains() -> Iterator[None]:
    """Assert that a test leaves no child process."""
    before = children()
    yield
    deadline = time.monotonic() + 20
    while gc.collect() >= 0 and not children() <= before:
        assert time.monotonic() < deadline, "a child is left behind"
        time.sleep(0.1)
