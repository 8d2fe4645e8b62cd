# SPDX-License-Identifier: Apache-2.0
"""Text of foreign origin, such as names of files, labels and drivers' messages, for a terminal."""

from __future__ import annotations

import re

# Control characters; what Unicode takes for line ends; what turns the direction of writing.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def printable(text: str, kept: str = "") -> str:
    r"""Return the text with what a terminal would obey as Python's escapes, "\x1b" for one.

    `kept`: characters that stay, such as line ends in a table.
    """
    return _UNPRINTABLE.sub(
        lambda found: found[0] if found[0] in kept else found[0].encode("unicode_escape").decode(),
        text,
    )
