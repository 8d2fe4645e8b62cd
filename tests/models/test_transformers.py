# SPDX-License-Identifier: Apache-2.0
"""BERT and encoders with int8 weights: the nodes on the device, and all results.

To save time, MobileBERT has 2 of its 24 layers and 48 of its 384 places, Whisper's encoder 40 of
its 1,500 places, and Conformer 2 of its 16 layers and 25 of its 250 places.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from delegate import DeviceInfo
from delegate.inspect import Graph
from tests.support import verifying
from tests.support.compare import Arrays
from tests.support.tiers import slow, where_rows_are_known
from tests.support.transformers import Bert, Conformer, MobileBert, Whisper
from tflite_opencl.verify.records import Verification

pytestmark = [pytest.mark.model, where_rows_are_known, verifying.where_all_is_kept]

MOBILE, WHISPER = MobileBert(layers=2, places=48), Whisper(places=40)
CONFORMER = Conformer(layers=2, places=25)
PRODUCTS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")


def checked(graph: Graph, inputs: Arrays, device: DeviceInfo, folder: Path) -> Verification:
    """Return the verification of a model; int8 products must equal TFLite's."""
    result = verifying.checked(graph, inputs, device, folder)
    products = {
        node.index
        for node in graph.nodes
        if node.op in PRODUCTS
        or (node.op == "BATCH_MATMUL" and getattr(node.inputs[1], "dtype", "") == "int8")
    }
    exact = [each.alone for each in result.checks if each.step.node in products]
    assert exact == [None] * len(products)
    return result


@slow
@pytest.mark.parametrize("sizes", [Bert(), MOBILE], ids=["tiny", "mobile"])
def test_bert(sizes: Bert | MobileBert, device: DeviceInfo, tmp_path: Path) -> None:
    rng, shape = np.random.default_rng(1), (1, sizes.places)
    ids, segments = (rng.integers(0, most, shape).astype(np.int32) for most in (sizes.words, 2))
    counted = (np.arange(sizes.places) < sizes.places * 3 // 4).astype(np.int32)[None]
    result = checked(sizes.graph(), [ids, counted, segments], device, tmp_path)
    assert all(verdict.is_taken for verdict in result.verdicts)


@slow
@pytest.mark.parametrize("sizes", [WHISPER, CONFORMER], ids=["whisper", "conformer"])
def test_encoder(sizes: Whisper | Conformer, device: DeviceInfo, tmp_path: Path) -> None:
    graph = sizes.graph()
    mel = np.random.default_rng(1).normal(0, 1, graph.inputs[0].shape).astype(np.float32)
    result = checked(graph, [mel], device, tmp_path)
    assert all(verdict.is_taken for verdict in result.verdicts)
