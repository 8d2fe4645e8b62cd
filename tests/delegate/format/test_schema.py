# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from delegate.format import schema
from delegate.format.bodies import BODY_OPTIONS
from delegate.format.make_schema import SCHEMA, schema_of, text_of
from delegate.graph.partition import CALLERS
from delegate.inspect import builtin_op_numbers

CLASSES = """
class Kind(object):
    FIRST = 0
    LAST = 7

class Leaf(object):
    @classmethod
    def GetRootAs(cls, buf, offset=0):
        return Leaf()

    def Init(self, buf, pos):
        self._tab = flatbuffers.table.Table(buf, pos)

    def StrideW(self):
        o = flatbuffers.number_types.UOffsetTFlags.py_type(self._tab.Offset(8))
        if o != 0:
            return self._tab.Get(flatbuffers.number_types.Int32Flags, o + self._tab.Pos)
        return 1

    def Names(self, j):
        o = flatbuffers.number_types.UOffsetTFlags.py_type(self._tab.Offset(4))
        if o != 0:
            a = self._tab.Vector(o)
            return self._tab.String(a + j * 4)
        return ""

    def NamesLength(self):
        return self._tab.VectorLen(self._tab.Offset(4))

class LeafT(object):
    def __init__(self):
        self.strideW = 1
"""


def test_flatcs_classes_are_read_as_text() -> None:
    assert schema_of(CLASSES) == {
        "enums": {"Kind": {"FIRST": 0, "LAST": 7}},
        "tables": {"Leaf": {"stride_w": [2, "int32", 1], "names": [0, "vector string"]}},
    }


def test_the_table_is_the_newest_schemas() -> None:
    package = importlib.util.find_spec("ai_edge_litert")
    if package is None or package.origin is None:
        pytest.skip("ai-edge-litert is not installed")
    made = schema_of(Path(package.origin).with_name("schema_py_generated.py").read_text())
    if not made["tables"].keys() >= json.loads(SCHEMA.read_text())["tables"].keys():
        pytest.skip("this ai-edge-litert has an older schema")
    assert SCHEMA.read_text() == text_of(made)


def test_op_numbers_are_tflites() -> None:
    numbers = builtin_op_numbers()
    assert (numbers["ADD"], numbers["CONV_2D"], numbers["DEPTHWISE_CONV_2D"]) == (0, 3, 4)
    assert numbers["CUSTOM"] == 32


def test_every_op_that_names_a_subgraph_calls_it_or_has_it_as_body() -> None:
    kinds = {op: schema.options_class(op) for op in builtin_op_numbers()}
    naming = {
        op
        for op, kind in kinds.items()
        if kind is not None and any("subgraph" in name for name in schema.fields(kind[0]))
    }
    without_kernels = {f"STABLEHLO_{name}" for name in ("CASE", "REDUCE", "SORT", "WHILE")}
    assert naming == CALLERS | BODY_OPTIONS.keys() | without_kernels
