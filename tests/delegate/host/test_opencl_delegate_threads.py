# SPDX-License-Identifier: Apache-2.0
"""Several interpreters and delegates, interleaved and in threads."""

from __future__ import annotations

import threading

import pytest

from delegate import DeviceInfo
from delegate.inspect import write_model
from tests.support.compare import inputs_for, interpreter, invoke
from tests.support.nets import (
    CHAIN,
    THREE_PARTITIONS,
    assert_equal_outputs,
    conv_pool,
    delegate_for,
    run_with,
)
from tests.support.without_tflite import needs_tflite


def test_interpreters_of_several_delegates_run_interleaved(device: DeviceInfo) -> None:
    graphs = [CHAIN, THREE_PARTITIONS, conv_pool()]
    models = [write_model(graph) for graph in graphs]
    # Tuned, so that some may run as a persistent launch.
    ours = [interpreter(model, delegate_for(model, device, tune="quick")) for model in models]
    for _ in range(3):
        for graph, model, interp in zip(graphs, models, ours, strict=True):
            inputs = inputs_for(graph)[0]
            assert_equal_outputs(invoke(interp, inputs), invoke(interpreter(model), inputs))


def test_delegate_serves_two_interpreters(device: DeviceInfo) -> None:
    model = write_model(THREE_PARTITIONS)
    delegate = delegate_for(model, device)
    first, second = interpreter(model, delegate), interpreter(model, delegate)
    one, two = inputs_for(THREE_PARTITIONS)[:2]
    reference = interpreter(model)
    for inputs in (one, two):
        assert_equal_outputs(invoke(first, inputs), invoke(reference, inputs))
        assert_equal_outputs(invoke(second, two), invoke(reference, two))
    del first
    assert_equal_outputs(invoke(second, one), invoke(reference, one))


@pytest.mark.parametrize("is_shared", [False, True], ids=["own-delegates", "one-delegate"])
@needs_tflite
def test_interpreters_run_in_threads(device: DeviceInfo, is_shared: bool) -> None:
    model = write_model(THREE_PARTITIONS)
    shared = delegate_for(model, device, tune="quick")
    results: list[bool] = []

    def work(seed: int) -> None:
        for number in range(4):
            delegate = shared if is_shared else delegate_for(model, device)
            results.append(run_with(delegate, model, THREE_PARTITIONS, 10 * seed + number))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 16
