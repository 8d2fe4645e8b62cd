# SPDX-License-Identifier: Apache-2.0
"""The table of flags in docs/label_image.md matches the flags, and documents name each of ours."""

from __future__ import annotations

import re

import pytest

from docs import flags
from label_image.flag_table import ALL, TFLITE

MANUALS = [flags.DOCUMENT.parents[1] / "README.md", *flags.DOCUMENT.parent.rglob("*.md")]


def test_document_has_generated_table() -> None:
    _, _, table = flags.DOCUMENT.read_text().partition(flags.HEADING)
    assert table == flags.text(), "python -m docs.flags writes it"


@pytest.mark.parametrize("name", [name for name in ALL if name not in TFLITE])
def test_each_flag_of_ours_is_in_a_document(name: str) -> None:
    assert re.search(rf"--{name}\b", "".join(path.read_text() for path in MANUALS))
