# SPDX-License-Identifier: Apache-2.0
"""Names with their values: beside them, or below a name that leaves no place."""

from __future__ import annotations

import pytest

from tflite_opencl.console.tables import pairs, render

LONG = "/etc/OpenCL/vendors/rusticl.icd"


@pytest.mark.parametrize("width", [80, 100, 140])
def test_a_long_name_stays_whole_and_takes_no_place_from_the_values(width: int) -> None:
    text = render(width, pairs([("loader", "v" * 60), (LONG, "w" * 60)], width))
    assert text.splitlines() == [f"  loader    {'v' * 60}", f"  {LONG}", f"    {'w' * 60}"]


def test_values_stand_below_names_where_it_is_narrow() -> None:
    assert render(40, pairs([("loader", "value")], 40)) == "  loader\n    value"
