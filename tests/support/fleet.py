# SPDX-License-Identifier: Apache-2.0
"""A delegate for the suite that is another one on each board."""

from __future__ import annotations

import os
from typing import Any

from tests.attacks import liars

LIAR = "TEST_BOARD_LIAR"  # environment variable: which of tests/attacks/liars.py a board has


def liar_of_the_board(model: bytes, options: dict[str, str]) -> Any:
    """Return the delegate that the board's own environment names, as the suite asks for it."""
    return getattr(liars, os.environ.get(LIAR, "pass_through"))(model, options)


def let_it_be(name: str) -> None:
    """Give this process, which is a board's worker, one of these delegates."""
    os.environ[LIAR] = name
