# SPDX-License-Identifier: Apache-2.0
"""Values of which several share a byte: read, written, and how many bytes they take."""

from __future__ import annotations

import numpy as np
import pytest

from delegate.graph.packed import BITS, packed, packed_bytes, unpacked


def test_the_first_value_has_the_low_bits() -> None:
    assert packed(np.array([1, -1, -8], np.int8), "int4").tolist() == [0xF1, 0x08]
    assert packed(np.array([1, -1, -2, 0, 1], np.int8), "int2").tolist() == [0b00101101, 1]


@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (2, 8), (0, 4)])
def test_what_is_packed_is_unpacked(shape: tuple[int, ...], dtype: str) -> None:
    reach = 2 ** (BITS[dtype] - 1)
    rng = np.random.default_rng(1)
    values = np.asarray(rng.integers(-reach, reach, shape), np.int8)
    content = packed(values, dtype)
    assert content.size == packed_bytes(shape, dtype)
    found = unpacked(content, shape, dtype)
    assert (found.dtype, found.shape, found.tolist()) == (np.int8, shape, values.tolist())


def test_bytes_of_another_shape() -> None:
    with pytest.raises(ValueError, match="2 bytes for int4 5x1"):
        unpacked(np.zeros(2, np.uint8), (5, 1), "int4")
