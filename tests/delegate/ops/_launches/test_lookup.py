# SPDX-License-Identifier: Apache-2.0
"""Tables of every input: their launches, and what they cannot be made of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.inspect import Tensor
from delegate.launch import Constant
from delegate.ops._launches.lookup import lookup, lookup_by_channel
from tests.support.cases import AVX2, LANES_8, SIMT, VNNI, only_launch
from tests.support.model import t


def identity(values: NDArray[np.int64]) -> NDArray[np.int64]:
    return values


@pytest.mark.parametrize(
    ("before", "after", "index", "elem", "entries"),
    [
        ("uint8", "uint8", "uchar", "uchar", 256),
        ("int8", "int16", "uchar", "ushort", 256),
        ("int16", "float32", "ushort", "uint", 65536),
        ("bool", "int32", "uchar", "uint", 256),
    ],
)
def test_table(before: str, after: str, index: str, elem: str, entries: int) -> None:
    vector, plain = lookup(t((9,), before), t((9,), after), identity, SIMT.target)
    for alternative, kernel in ((vector, "lookup_vector"), (plain, "lookup")):
        launch = only_launch(alternative)
        assert (launch.file, launch.kernel) == ("lookup", kernel)
        assert launch.defines == {"INDEX": index, "ELEM": elem}
        table = launch.params["table"]
        assert isinstance(table, Constant)
        packed = table.pack()
        assert (packed.dtype, packed.size, packed.nbytes) == (after, entries, table.size_bytes)
        # Each value lies where its bits, read without a sign, point to.
        place = np.arange(entries).astype("uint8" if entries == 256 else "uint16")
        values = place if before == "bool" else place.view(before)
        assert (packed == values).all()


def test_fours_of_neighbours() -> None:
    vector, plain = lookup(t((4097,), "uint8"), t((4097,), "uint8"), identity, LANES_8.target)
    assert (vector.name, only_launch(vector).tiles, only_launch(plain).tiles) == ("vector 4", 1, 2)
    assert only_launch(vector).params["tile_items"] == 1025


def test_vectors_of_x86() -> None:
    def halved(values: NDArray[np.int64]) -> NDArray[np.int64]:
        return values // 2

    for strategy, name, size in ((VNNI, "vnni 64", 64), (AVX2, "avx2 32", 32)):
        first, *others = lookup(t((9000,), "int8"), t((9000,), "int8"), halved, strategy.target)
        assert [first.name, *(each.name for each in others)] == [name, "vector 4", "plain"]
        launch = only_launch(first)
        table = launch.params["table"]
        assert isinstance(table, Constant)
        packed = table.pack().reshape(16, size // 16, 16)
        assert packed.nbytes == table.size_bytes
        expected = np.arange(256, dtype=np.uint8).view(np.int8) // 2
        assert (packed == expected.reshape(16, 1, 16)).all()
        assert launch.params["tile_items"] % size == 0
    both = replace(VNNI.target, isa=frozenset({"vnni", "avx2"}))
    found = lookup(t((9000,), "int8"), t((9000,), "int8"), halved, both)
    assert [each.name for each in found] == ["vnni 64", "vector 4", "plain"]
    for source, result in (((63,), "int8"), ((9000,), "int16")):
        shapes = t(source, "int8"), t(source, result)
        assert lookup(*shapes, halved, VNNI.target)[0].name == "vector 4"


@pytest.mark.parametrize(("elements", "after"), [(3, "uint8"), (100, "int64")])
def test_without_vectors(elements: int, after: str) -> None:
    (plain,) = lookup(t((elements,), "uint8"), t((elements,), after), identity, SIMT.target)
    assert plain.name == "plain"


@pytest.mark.parametrize(
    ("source", "result", "reason"),
    [
        (t((3,), "int32"), t((3,), "int32"), "int32: a table is for integers of 8 or 16 bits"),
        (t((3,), "float16"), t((3,)), "float16: a table is for integers of 8 or 16 bits"),
        (t((3,), "string"), t((3,)), "string: a table is for integers of 8 or 16 bits"),
        (t((3,), "uint8"), t((1, 3), "uint8"), "3 -> 1x3: the shape must stay"),
        (t((0,), "uint8"), t((0,), "uint8"), "shape 0: it is empty"),
        (t((3,), "uint8"), t((3,), "string"), "string: only types of a fixed size"),
    ],
)
def test_refusals(source: Tensor, result: Tensor, reason: str) -> None:
    with pytest.raises(Unsupported) as caught:
        lookup(source, result, identity, SIMT.target)
    assert str(caught.value) == reason


@pytest.mark.parametrize(("channels", "repeats"), [(64, 1), (6, 2), (3, 4)])
def test_a_table_for_each_channel(channels: int, repeats: int) -> None:
    def shifted(values: NDArray[np.int64]) -> NDArray[np.int64]:
        return values + np.arange(channels)[:, None]

    x, y = (t((5, 7, channels), "uint8") for _ in range(2))
    columns, plain = lookup_by_channel(x, y, shifted, channels, LANES_8.target)
    row, fours = only_launch(plain), only_launch(columns)
    assert (row.kernel, fours.kernel) == ("lookup_row", "lookup_columns")
    assert row.params["tables"] == channels
    assert fours.params["columns"] == repeats * channels // 4
    for launch, times in ((row, 1), (fours, repeats)):
        table = launch.params["table"]
        assert isinstance(table, Constant)
        packed = table.pack()
        assert packed.nbytes == table.size_bytes
        own = (np.arange(256) + np.arange(channels)[:, None]).astype(np.uint8)
        assert (packed == np.tile(own, (times, 1))).all()
    # A table that both read is packed once.
    assert (row.params["table"] is fours.params["table"]) == (repeats == 1)
    few = t((1, channels - 1), "uint8"), t((1, channels - 1), "uint8")
    (only,) = lookup_by_channel(*few, shifted, channels, LANES_8.target)
    assert only.name == "plain"
