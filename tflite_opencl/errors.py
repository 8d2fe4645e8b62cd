# SPDX-License-Identifier: Apache-2.0
"""What ends a subcommand with exit code 1."""

from __future__ import annotations


class CommandError(Exception):
    """What was asked for cannot be done; the text is one line.

    Attributes:
        is_answer: it is what was asked for, so it goes to stdout.
    """

    def __init__(self, text: str, is_answer: bool = False) -> None:
        super().__init__(text)
        self.is_answer = is_answer
