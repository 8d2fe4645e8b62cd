# SPDX-License-Identifier: Apache-2.0
"""Speech models run fully on the device, with the state of TFLite's reference kernels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from delegate import DeviceInfo, OpenCLDelegate
from delegate.inspect import Graph
from tests.support import remembering
from tests.support.compare import assert_same, interpreter, invoke, refusals
from tests.support.speech import dtln, keyword_lstm, keywords, wake_word, yamnet, yamnet_of_waves
from tests.support.tiers import where_rows_are_known

pytestmark = [pytest.mark.model, where_rows_are_known]


@pytest.mark.parametrize(
    ("model", "counts"),
    [
        (keywords, (12, 3)),
        (keyword_lstm, (12, 3)),
        (dtln, (12, 3)),
        (yamnet, (1,)),
        (yamnet_of_waves, (2,)),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_model_is_fully_delegated(
    model: Callable[[], Graph], counts: tuple[int, ...], device: DeviceInfo
) -> None:
    remembering.assert_runs(model(), device, counts)


def test_wake_word_is_exact_over_many_steps(device: DeviceInfo) -> None:
    model = wake_word()
    delegate = OpenCLDelegate(model, device.index, tune="off")
    ours, reference = interpreter(model, delegate), interpreter(model)
    assert refusals(delegate) == {}
    rng, heard = np.random.default_rng(1), set()
    for step in range(40):  # the longest window has 23 steps
        features = [rng.integers(-128, 128, (1, 3, 40)).astype(np.int8)]
        got, wanted = invoke(ours, features), invoke(reference, features)
        assert_same(got[0], wanted[0], f"step {step}")
        heard.add(int(wanted[0].item()))
    assert len(heard) > 10
