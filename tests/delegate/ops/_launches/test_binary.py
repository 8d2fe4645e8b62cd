# SPDX-License-Identifier: Apache-2.0
"""Ops of two inputs: narrower vectors, or none, where a work-item keeps few values in registers."""

from __future__ import annotations

from dataclasses import replace

from delegate import ops
from tests.support.cases import SIMT
from tests.support.model import op, t


def test_elements_of_two_inputs() -> None:
    tensors = [t((1, 5, 5, 16), "int8", 0.5) for _ in range(3)]
    node = op("SUB", tensors[:2], tensors[2:], {})
    for count, names in {
        0: ["vector 4", "plain"],
        48: ["vector 4", "plain"],
        24: ["vector 2", "plain"],
    }.items():
        found = ops.lower(node, replace(SIMT.target, registers=count))
        assert [each.name for each in found] == names


def test_divisions_of_floats_have_no_vectors_where_registers_are_few() -> None:
    tensors = [t((1, 5, 5, 16), "float32") for _ in range(3)]
    node = op("DIV", tensors[:2], tensors[2:], {})
    for count, names in {0: ["vector 4", "plain"], 24: ["plain"]}.items():
        found = ops.lower(node, replace(SIMT.target, registers=count))
        assert [each.name for each in found] == names
