# SPDX-License-Identifier: Apache-2.0
"""BERT and Whisper's encoder with int8 weights: which nodes run on the device, and each result.

MobileBERT has 2 of its 24 layers and 48 of its 384 places, Whisper's encoder 40 of its 1,500: of
all there are more products than a test has time for.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from delegate import DeviceInfo, Options
from delegate.inspect import Graph, read_model, write_model
from tests.support.compare import RUNTIME, Arrays
from tests.support.deal import any_driver, where_hybrid_runs
from tests.support.transformers import Bert, MobileBert, Whisper
from tflite_opencl.verify.runs import InputSets, Verification, verified

pytestmark = [
    pytest.mark.model,
    any_driver,
    where_hybrid_runs,
    pytest.mark.skipif(
        RUNTIME.name == "tflite-runtime",
        reason="tflite-runtime writes sums over what they read, also where it keeps all tensors",
    ),
]

MOBILE, WHISPER = MobileBert(layers=2, places=48), Whisper(places=40)


def checked(graph: Graph, inputs: Arrays, device: DeviceInfo, folder: Path) -> Verification:
    """Return what each node gives alone and in the model; products of int8 must equal TFLite's."""
    path = folder / "model.tflite"
    path.write_bytes(write_model(graph))
    graph = read_model(path)
    options = Options(device.index, tune="off", profiling=True, min_nodes_per_partition=1)
    sets = InputSets(1, lambda _: inputs)
    found = verified(str(path), graph, options, RUNTIME, sets, 0)
    assert found.fault is None
    exact = [
        each.alone
        for each in found.checks
        if graph.nodes[each.step.node].op in ("CONV_2D", "FULLY_CONNECTED")
    ]
    assert exact == [None] * sum(node.op in ("CONV_2D", "FULLY_CONNECTED") for node in graph.nodes)
    return found


@pytest.mark.parametrize("sizes", [Bert(), MOBILE], ids=["tiny", "mobile"])
def test_bert(sizes: Bert | MobileBert, device: DeviceInfo, tmp_path: Path) -> None:
    rng, shape = np.random.default_rng(1), (1, sizes.places)
    ids, segments = (rng.integers(0, most, shape).astype(np.int32) for most in (sizes.words, 2))
    counted = (np.arange(sizes.places) < sizes.places * 3 // 4).astype(np.int32)[None]
    found = checked(sizes.graph(), [ids, counted, segments], device, tmp_path)
    # An id out of range fails in TFLite, and any may be given.
    left = [verdict for verdict in found.verdicts if not verdict.is_taken]
    assert [verdict.op for verdict in left] == ["EMBEDDING_LOOKUP"] * 2


def test_whisper_s_encoder(device: DeviceInfo, tmp_path: Path) -> None:
    graph = WHISPER.graph()
    mel = np.random.default_rng(1).normal(0, 1, graph.inputs[0].shape).astype(np.float32)
    found = checked(graph, [mel], device, tmp_path)
    assert all(verdict.is_taken for verdict in found.verdicts)
