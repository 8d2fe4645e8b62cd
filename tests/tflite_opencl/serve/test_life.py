# SPDX-License-Identifier: Apache-2.0
"""A service that stays: models that are loaded again, and what systemd is told."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delegate import DeviceInfo
from tests.support.model import chain_model, op, t
from tests.support.notified import manager
from tests.support.process import ROOT
from tests.support.service import LIMITS, Doubling, served, serving
from tests.support.tiers import slow
from tflite_opencl.serve.models import Served
from tflite_opencl.serve.tensors import Arrays
from tflite_opencl.serve.worker import BatchScheduler

INFER = "/v2/models/model/infer"
REQUEST = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}]}


class Adding(Doubling):
    """A runner that adds a number, which tells the loads apart."""

    def __init__(self, number: int, work: Callable[[int], None]) -> None:
        super().__init__(work)
        self._number = number

    def run(self, arrays: Arrays, pictures: int) -> Arrays:
        self._work(pictures)
        return [array + np.float32(self._number) for array in arrays]


def ask(address: str, request: Any = REQUEST) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request("POST", INFER, json.dumps(request))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def first_value(address: str) -> float:
    status, output = ask(address)
    assert status == 200, output
    value: float = output["outputs"][0]["data"][0]
    return value


def test_reload_keeps_requests_under_way() -> None:
    runners: list[Adding] = []
    is_running, may_end = threading.Event(), threading.Event()

    def work(pictures: int) -> None:
        is_running.set()
        assert may_end.wait(60)

    def load() -> Sequence[Served]:
        runners.append(Adding(len(runners), work if not runners else lambda pictures: None))
        return [served(BatchScheduler(runners[-1], LIMITS))]

    reloads: list[Callable[[], None]] = []
    values: list[float] = []
    with serving(load, reloads=reloads) as (address, server, _):
        wait(lambda: not server.state)
        thread = threading.Thread(target=lambda: values.append(first_value(address)))
        thread.start()
        assert is_running.wait(60)
        reloads[0]()
        wait(lambda: len(runners) == 2 and server.models["model"].worker.runner is runners[1])
        assert first_value(address) == 2.0  # by the new one, beside the old one
        assert not runners[0].closed.is_set()
        may_end.set()
        thread.join(60)
        assert values == [1.0]
        assert runners[0].closed.wait(60)
        wait(lambda: len(server.users) == 1)
    assert runners[1].closed.is_set()


def test_failed_reload_keeps_the_models() -> None:
    loads: list[int] = []

    def load() -> Sequence[Served]:
        loads.append(1)
        if len(loads) == 2:
            raise ValueError("no such file")
        return [served(BatchScheduler(Adding(len(loads), lambda pictures: None), LIMITS))]

    reloads: list[Callable[[], None]] = []
    with serving(load, reloads=reloads) as (address, server, _):
        wait(lambda: not server.state)
        reloads[0]()
        wait(lambda: len(loads) == 2)
        assert first_value(address) == 2.0
        reloads[0]()
        wait(lambda: len(loads) == 3)
        wait(lambda: first_value(address) == 4.0)


def test_end_during_a_reload() -> None:
    loads, never = [0], threading.Event()

    def load() -> Sequence[Served]:
        loads[0] += 1
        if loads[0] == 2:
            never.wait(60)
        return [served(BatchScheduler(Doubling(), LIMITS))]

    reloads: list[Callable[[], None]] = []
    begun = time.monotonic()
    with serving(load, reloads=reloads) as (_, server, end):
        wait(lambda: not server.state)
        reloads[0]()
        wait(lambda: loads[0] == 2)
        end()
    assert time.monotonic() - begun < 30
    never.set()


def test_watchdog_hears_of_a_run_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end, is_running = threading.Event(), threading.Event()

    def work(pictures: int) -> None:
        is_running.set()
        assert may_end.wait(60)

    monkeypatch.setenv("WATCHDOG_USEC", "200000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    with manager(tmp_path) as systemd:
        monkeypatch.setenv("NOTIFY_SOCKET", systemd.path)
        load = lambda: [served(BatchScheduler(Doubling(work), LIMITS))]  # noqa: E731
        with serving(load, longest_run=0.3) as (address, _, end):
            assert systemd.wait_for("READY")["STATUS"] == f"serves model at http://{address}"
            systemd.wait_for("WATCHDOG", 3)
            thread = threading.Thread(target=lambda: ask(address))
            thread.start()
            assert is_running.wait(60)
            time.sleep(0.5)
            count = len(systemd.read())
            time.sleep(0.5)
            assert len(systemd.read()) == count
            may_end.set()
            thread.join(60)
            systemd.wait_for("WATCHDOG", count)
            end()
        assert "STOPPING" in systemd.read()[-1]


def scaled(zero_point: int) -> bytes:
    """Return a model whose output tells its zero point apart."""
    nodes = [op("RELU", [t((1, 8), "int8", 0.5, zero_point)], [t((1, 8), "int8", 0.5, zero_point)])]
    return chain_model(nodes)


@slow
def test_hangup_under_load_loses_no_request(device: DeviceInfo, tmp_path: Path) -> None:
    model = tmp_path / "model.tflite"
    model.write_bytes(scaled(0))
    with manager(tmp_path) as systemd:
        environment = {"NOTIFY_SOCKET": systemd.path, "WATCHDOG_USEC": "2000000"}
        command = [sys.executable, "-m", "tflite_opencl", "serve", str(model), "--tune", "off"]
        command += ["--listen", "127.0.0.1:0", "--device", str(device.index)]
        with subprocess.Popen(
            command, cwd=ROOT, stderr=subprocess.PIPE, text=True, env=os.environ | environment
        ) as process:
            ready = systemd.wait_for("READY", alive=lambda: process.poll() is None)
            address = ready["STATUS"].rpartition("//")[2]
            answers: list[tuple[int, int]] = []
            ends = threading.Event()

            def client() -> None:
                body = {"name": "x0", "datatype": "INT8", "shape": [1, 8], "data": [-3] * 8}
                name = json.loads(get(address, "/v2/models/model"))["inputs"][0]["name"]
                while not ends.is_set():
                    status, output = ask(address, {"inputs": [body | {"name": name}]})
                    answers.append(
                        (status, output["outputs"][0]["data"][0] if status == 200 else 99)
                    )

            clients = [threading.Thread(target=client) for _ in range(4)]
            for each in clients:
                each.start()
            for number in range(1, 4):
                model.write_bytes(scaled(-number))
                process.send_signal(signal.SIGHUP)
                assert int(systemd.wait_for("RELOADING", number)["MONOTONIC_USEC"]) > 0
                systemd.wait_for("READY", 1 + number)
            time.sleep(0.3)
            ends.set()
            for each in clients:
                each.join(60)
            systemd.wait_for("WATCHDOG")
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=60)
        systemd.wait_for("STOPPING")
    assert process.returncode == 0, err
    # ReLU's zero is the zero point of the model that answered.
    assert [*dict.fromkeys(answers)] == [(200, 0), (200, -1), (200, -2), (200, -3)]


def get(address: str, path: str) -> bytes:
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    finally:
        connection.close()
