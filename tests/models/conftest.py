# SPDX-License-Identifier: Apache-2.0
"""Tests of whole models share one context for each device."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _one_context(one_context: None) -> None:
    """Use the fixture in each test."""
