# SPDX-License-Identifier: Apache-2.0
"""BERT-tiny with int8 weights: which nodes run on the device, and each against TFLite's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from delegate import DeviceInfo, Options
from delegate.inspect import read_model, write_model
from tests.support.bert import Bert
from tests.support.compare import RUNTIME
from tests.support.deal import any_driver, where_hybrid_runs
from tflite_opencl.verify.runs import InputSets, verified

pytestmark = [pytest.mark.model, any_driver, where_hybrid_runs]

TINY = Bert()


@pytest.mark.skipif(
    RUNTIME.name == "tflite-runtime",
    reason="tflite-runtime writes sums over what they read, even where it shall keep all tensors",
)
def test_bert_tiny(device: DeviceInfo, tmp_path: Path) -> None:
    path = tmp_path / "bert_tiny.tflite"
    path.write_bytes(write_model(TINY.graph()))
    graph, rng, shape = read_model(path), np.random.default_rng(1), (1, TINY.places)
    ids, segments = (rng.integers(0, most, shape).astype(np.int32) for most in (TINY.words, 2))
    counted = (np.arange(TINY.places) < 100).astype(np.int32)[None]
    sets = InputSets(1, lambda _: [ids, counted, segments])
    options = Options(device.index, tune="off", profiling=True, min_nodes_per_partition=1)
    found = verified(str(path), graph, options, RUNTIME, sets, 0)
    # An id out of range fails in TFLite, and any may be given.
    left = [verdict for verdict in found.verdicts if not verdict.is_taken]
    assert {verdict.op for verdict in left} == {"EMBEDDING_LOOKUP"}
    assert len(left) == 2
    assert found.fault is None
    products = [
        each for each in found.checks if graph.nodes[each.step.node].op == "FULLY_CONNECTED"
    ]
    assert len(products) == 6 * TINY.layers + 1
    assert [each.alone for each in products] == [None] * len(products)  # bit for bit
