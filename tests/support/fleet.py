# SPDX-License-Identifier: Apache-2.0
"""A delegate for the conformance suite that differs from board to board."""

from __future__ import annotations

import os
from typing import Any

from tests.attacks import liars

LIAR = "TEST_BOARD_LIAR"  # environment variable: the function of tests/attacks/liars.py to use


def board_liar(model: bytes, options: dict[str, str]) -> Any:
    """Return the delegate that the board's environment names: an entry point for the suite."""
    return getattr(liars, os.environ.get(LIAR, "pass_through"))(model, options)


def select_liar(name: str) -> None:
    """Select the delegate of this process, a board's worker."""
    os.environ[LIAR] = name
