# SPDX-License-Identifier: Apache-2.0
"""Bounds of float errors: of a sum, and of networks with unknown sums."""

from __future__ import annotations

import numpy as np
import pytest

from delegate.plan.tuning.rounding import are_near, sum_bound


def test_sum_bound() -> None:
    assert sum_bound(np.array([1.0, 1.5, 2.0]), 4) == pytest.approx([2**-21, 2**-21, 2**-20])


def test_error_of_reference_is_added() -> None:
    assert sum_bound(np.array([1.0, 1.0]), 4, np.array([0.5, 0])) == pytest.approx(
        [0.5, 0], abs=1e-6
    )


def test_networks_agree_within_a_thousandth() -> None:
    values = np.array([1000.0, 1.0, 0.0], np.float32)
    assert are_near(values * np.float32(1.0009), values)
    assert are_near(values + np.float32(0.09), values)
    assert not are_near(values + np.float32([0, 0.2, 0]), values)
