# SPDX-License-Identifier: Apache-2.0
"""Models of speech run whole on the device, and remember as TFLite's reference kernels do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from delegate import DeviceInfo
from delegate.inspect import Graph
from tests.support import remembering
from tests.support.deal import any_driver, where_hybrid_runs
from tests.support.speech import dtln, keywords, yamnet

pytestmark = [pytest.mark.model, any_driver, where_hybrid_runs]


@pytest.mark.parametrize(
    ("model", "counts"),
    [(keywords, (12, 3)), (dtln, (12, 3)), (yamnet, (1,))],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_it_runs_whole(
    model: Callable[[], Graph], counts: tuple[int, ...], device: DeviceInfo
) -> None:
    remembering.assert_runs(model(), device, counts)
