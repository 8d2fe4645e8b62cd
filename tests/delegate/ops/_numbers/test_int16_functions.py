# SPDX-License-Identifier: Apache-2.0
"""The tables of integer LSTMs: near the functions, and with the values that TFLite's have."""

from __future__ import annotations

import numpy as np
import pytest

from delegate.ops._numbers.int16_functions import logistic_table, tanh_table

WHOLE = np.arange(-(1 << 15), 1 << 15)


def test_the_logistic_function() -> None:
    reals = 1 / (1 + np.exp(-WHOLE / 4096))
    assert np.abs(logistic_table() - reals * 32768).max() < 7
    # the ends, and around 0
    assert logistic_table()[[0, 28672, 32767, 32768, 32769, 65535]].tolist() == [
        11, 8815, 16383, 16384, 16384, 32756,
    ]  # fmt: skip


@pytest.mark.parametrize("bits", range(7))
def test_the_tangent(bits: int) -> None:
    table = tanh_table(bits)
    reals = np.tanh(WHOLE / (1 << 15 - bits))
    assert np.abs(table - reals * 32768).max() < 13
    assert table[32768] == 0
    assert np.array_equal(table[1:32768], -table[:32768:-1])
