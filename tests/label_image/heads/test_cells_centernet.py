# SPDX-License-Identifier: Apache-2.0
"""CenterNet's heat maps."""

from __future__ import annotations

import numpy as np
import pytest

from label_image.heads.cells import peaks
from tests.support.model import t
from tests.support.views import name_of, scene_of_arrays, thing, view_of

SIZE = (100, 200)


@pytest.mark.parametrize("names", [("hm", "wh", "reg"), ("a", "b", "c"), ("hm", "offset", "size")])
def test_centernet_s_peaks(names: tuple[str, str, str]) -> None:
    scores, sizes, offsets = (np.zeros((1, 16, 16, n), np.float32) for n in (3, 2, 2))
    scores[0, 8, 4, 1] = 0.75
    scores[0, 8, 5, 1] = 0.5  # beside the peak
    scores[0, 2, 2, 0] = 0.5
    sizes[0, 8, 4], offsets[0, 8, 4] = (8, 4), (0.5, 0)
    sizes[0, 2, 2] = (4, 4)
    outputs = [scores, sizes, offsets] if names[1] != "offset" else [scores, offsets, sizes]
    view = view_of([t(o.shape, name=n) for o, n in zip(outputs, names, strict=True)], size=SIZE)
    assert name_of(view) == "detection:centernet"
    found = scene_of_arrays(*outputs, size=SIZE) if names[1] != "offset" else None
    if found is not None:
        assert found.boxes == [
            thing(1, 0.75, 6.25, 37.5, 106.25, 62.5),
            thing(0, 0.5, 0, 0, 50, 25),
        ]


def test_peaks_are_of_each_class() -> None:
    scores = np.zeros((4, 4, 2), np.float32)
    scores[0, 0], scores[0, 1], scores[3, 3] = (3, 1), (2, 2), (1, 1)
    found = peaks(scores)
    assert sorted(found[found > 0].tolist()) == [1, 1, 2, 3]
