# SPDX-License-Identifier: Apache-2.0
"""The tables of flags in docs/label_image.md and the help match the flags."""

from __future__ import annotations

import re

from docs import flags
from label_image.flags import usage


def test_document_has_generated_tables() -> None:
    _, _, tables = flags.DOCUMENT.read_text().partition(flags.HEADING)
    assert tables == flags.text(), "python -m docs.flags writes them"


def test_each_flag_is_in_tables_once() -> None:
    rows = re.findall(r"^\| \[?(`-.*?) \|", flags.DOCUMENT.read_text(), re.MULTILINE)
    described = [flag for row in rows for flag in re.findall(r"`(--?\w+)", row)]
    # Lines of the help that list flags begin with them.
    names = re.findall(r"^  (-.*?)(?:  |$)", usage(has_all=True), re.MULTILINE)
    assert set(described) == {flag for line in names for flag in re.findall(r"(--?\w+)", line)}
    assert len(described) == len(set(described))
