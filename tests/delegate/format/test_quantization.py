# SPDX-License-Identifier: Apache-2.0
"""Scales of blocks: another tensor of the file, which the reader finds and the writer makes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from delegate.errors import ModelError
from delegate.format.reader import read_model
from delegate.format.tree import packed
from delegate.format.writer import model_tree, write_model
from delegate.graph.ir import Blocks, Graph
from tests.support.model import graph_of, graph_values, op, t

SCALES = np.arange(8, dtype=np.float16).reshape(4, 2)


def products(*scales: np.ndarray[Any, Any]) -> Graph:
    """Return a graph of a FULLY_CONNECTED for each of these scales of blocks."""
    weights = [
        replace(
            t((4, 64), "int4", name=f"w{number}"),
            data=np.full(128, 0x2F, np.uint8),
            blocks=Blocks(each, 32),
        )
        for number, each in enumerate(scales)
    ]
    x = t((1, 64))
    return graph_of([op("FULLY_CONNECTED", [x, each, None], [t((1, 4))]) for each in weights])


def test_blocks_survive_the_round_trip() -> None:
    graph = read_model(write_model(products(SCALES, SCALES + 1)))
    found = [tensor.blocks for tensor in graph.tensors if tensor.blocks is not None]
    assert [(blocks.size, blocks.scales.tolist()) for blocks in found] == [
        (32, SCALES.tolist()),
        (32, (SCALES + 1).tolist()),
    ]
    assert all(tensor.quantization is None for tensor in graph.tensors)
    again = write_model(graph)
    assert graph_values(read_model(again)) == graph_values(graph)
    assert write_model(read_model(again)) == again


def test_scales_become_the_last_tensors_and_are_shared() -> None:
    graph = products(SCALES, SCALES)
    read = read_model(write_model(graph))
    assert len(read.tensors) == len(graph.tensors) + 1
    scales = read.tensors[-1]
    assert (scales.name, scales.dtype, scales.shape) == ("w0/scales", "float16", (4, 2))
    assert [t.blocks.scales is scales.data for t in read.tensors if t.blocks] == [True, True]


def changed(**details: int) -> bytes:
    """Return the model of one product, its table of blocks changed."""
    tree = model_tree(products(SCALES))
    table = next(
        each
        for each in tree["subgraphs"][0]["tensors"]
        if "details" in each.get("quantization", {})
    )
    table["quantization"]["details"].update(details)
    return packed(tree)


@pytest.mark.parametrize("scales", [-1, 4, 2**31 - 1, -(2**31)])
def test_scales_that_are_no_tensor(scales: int) -> None:
    message = f"tensor 1 'w0': the scales of its blocks are tensor {scales}, but the model has 4"
    with pytest.raises(ModelError, match=message):
        read_model(changed(scales=scales))


@pytest.mark.parametrize("size", [0, -32])
def test_blocks_without_values(size: int) -> None:
    with pytest.raises(ModelError, match=f"tensor 1 'w0' has blocks of {size} values"):
        read_model(changed(block_size=size))


def test_zero_points_are_passed_over_as_in_tflite() -> None:
    assert read_model(changed(zero_points=0)).tensors[1].blocks is not None


def test_scales_that_are_computed_are_not_known() -> None:
    assert read_model(changed(scales=0)).tensors[1].blocks is None


def test_scales_that_a_caller_may_set_are_not_known() -> None:
    tree = model_tree(products(SCALES))
    tree["subgraphs"][0]["inputs"].append(3)
    assert read_model(packed(tree)).tensors[1].blocks is None
