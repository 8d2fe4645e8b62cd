# SPDX-License-Identifier: Apache-2.0
"""A short attack by clients, and the detection of lost answers and leaks."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from delegate import DeviceInfo
from delegate.format.reader import read_model
from tests.attacks.clients import MODEL, Clients, attack
from tests.support.service import BOUNDS, LIMITS, Doubling, served, serving
from tests.support.tiers import slow
from tflite_opencl.serve.tensors import Arrays, signature_of
from tflite_opencl.serve.worker import BatchScheduler


@slow
def test_no_answer_is_lost_and_nothing_leaks(device: DeviceInfo) -> None:
    seen = attack(8.0, 200, 7, str(device.index))
    for word in ("right: 200", "wrong: 400", "wrong: gone", "wrong: slow", "wrong: no HTTP"):
        assert word in seen


@pytest.mark.parametrize("fault", ["another answer", "no answer"])
def test_lost_answer_is_detected(fault: str) -> None:
    signature = signature_of("model", read_model(MODEL))
    output = signature.outputs[0]

    class Wrong(Doubling):
        def run(self, arrays: Arrays, pictures: int) -> Arrays:
            if fault == "no answer":
                raise ValueError("a fault")
            return [np.full((pictures, *output.row), 77, output.dtype)]

    def load() -> Any:
        return [served(BatchScheduler(Wrong(), LIMITS), signature)]

    with serving(load, replace(BOUNDS, seconds=5.0)) as (address, server, _):
        while server.state:
            pass
        host, port = address.split(":")
        clients = Clients(host, int(port))
        clients.right(random.Random(7))
        assert clients.lost
