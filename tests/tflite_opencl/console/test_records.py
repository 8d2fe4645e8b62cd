# SPDX-License-Identifier: Apache-2.0
"""Records round-trip through JSON, and other JSON is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pytest

from tflite_opencl.console.records import from_json


@dataclass(frozen=True)
class Inner:
    pair: tuple[float, float]
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outer:
    inner: Inner | None
    counts: Mapping[str, Sequence[int]]
    note: str = ""


OUTER = Outer(Inner((1, 2.5), ("a", "b")), {"x": [1, 2]})


@pytest.mark.parametrize("record", [OUTER, Outer(None, {})], ids=["all", "least"])
def test_records_round_trip(record: Outer) -> None:
    assert from_json(Outer, json.loads(json.dumps(asdict(record)))) == record


@pytest.mark.parametrize(
    "changed",
    [
        {"inner": {"pair": [1]}},
        {"inner": {"pair": [1, "2"]}},
        {"inner": [1, 2]},
        {"inner": {}},
        {"counts": {"x": 1}},
        {"counts": [1]},
        {"note": None},
        {"more": 1},
    ],
    ids=str,
)
def test_invalid_records(changed: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        from_json(Outer, {**json.loads(json.dumps(asdict(OUTER))), **changed})
