# SPDX-License-Identifier: Apache-2.0
"""Tables of names and values, beside each other or below."""

from __future__ import annotations

import pytest

from tflite_opencl.console.tables import pairs, render

LONG = "/etc/OpenCL/vendors/rusticl.icd"


@pytest.mark.parametrize("width", [80, 100, 140])
def test_long_name_does_not_narrow_values(width: int) -> None:
    text = render(width, pairs([("loader", "v" * 60), (LONG, "w" * 60)], width))
    assert text.splitlines() == [f"  loader    {'v' * 60}", f"  {LONG}", f"    {'w' * 60}"]


def test_values_are_below_names_on_narrow_terminals() -> None:
    assert render(40, pairs([("loader", "value")], 40)) == "  loader\n    value"
