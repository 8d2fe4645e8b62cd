# SPDX-License-Identifier: Apache-2.0
"""Passes on partitions share one context a device."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _one_context(one_context: None) -> None:
    """Make each test use it."""
