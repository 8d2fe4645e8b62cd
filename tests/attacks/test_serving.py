# SPDX-License-Identifier: Apache-2.0
"""A service whose device hangs, crashes or fails answers all requests and obeys SIGTERM."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from delegate import DeviceInfo
from tests.attacks.bed import write_files
from tests.attacks.faults import NO_COMPILER, Fault, build_library
from tests.support.process import ROOT
from tests.support.tiers import slow

_DEVICE_SECONDS = 3
_AGAIN_SECONDS = 30  # on a busy machine; 2 on an idle one


@dataclass
class Service:
    """A service in its own process."""

    process: subprocess.Popen[str]
    address: str

    def ask(self, path: str, body: bytes | None = None) -> tuple[int, dict[str, Any], float]:
        """Return the status, the body and the duration in seconds."""
        begun = time.monotonic()
        with contextlib.closing(http.client.HTTPConnection(self.address, timeout=60)) as connection:
            connection.request("GET" if body is None else "POST", path, body)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read()), time.monotonic() - begun


@contextlib.contextmanager
def service(folder: Path, device: DeviceInfo, fault: Fault, *more: str) -> Iterator[Service]:
    """Start a service on a driver that works until the fault's file exists."""
    library = build_library(folder)
    if library is None:
        pytest.skip(NO_COMPILER)
    write_files(folder)
    words = ["-m", "tflite_opencl", "serve", "m=model.tflite", "--listen", "127.0.0.1:0"]
    words += ["--device", str(device.index), "--tune", "off", "--labels", "labels.txt"]
    with subprocess.Popen(
        [sys.executable, *words, "--device_timeout", str(_DEVICE_SECONDS), *more],
        cwd=folder, text=True, stderr=subprocess.PIPE, stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT), "LD_PRELOAD": str(library)} | fault.environment,
    ) as process:  # fmt: skip
        try:
            assert process.stderr is not None
            address = ""
            for line in process.stderr:
                if line.startswith("INFO: listening: "):
                    address = line.split("//")[1].strip()
                if line.startswith("INFO: ready: "):
                    break
            yield Service(process, address)
        finally:
            process.kill()


@slow
@pytest.mark.parametrize("kind", ["hang", "abort", "crash", "error"])
def test_cpu_takes_over(device: DeviceInfo, tmp_path: Path, kind: str) -> None:
    gate = tmp_path / "gate"
    # pyopencl holds the GIL in this call.
    fault = Fault("clEnqueueNDRangeKernel", 1, kind, lasts=True, place="", until=str(gate))
    with service(tmp_path, device, fault, "--fallback", "cpu") as served:
        picture = (tmp_path / "picture.bmp").read_bytes()
        status, before, _ = served.ask("/classify", picture)
        assert status == 200
        assert before["device"] == device.name
        gate.touch()
        status, after, seconds = served.ask("/classify", picture)
        assert status == 200
        assert after.pop("device") == "CPU" != before.pop("device")
        assert after == before
        assert seconds < _DEVICE_SECONDS + 10
        status, body, seconds = served.ask("/v2/health/ready")
        assert (status, seconds < 1) == (200, True)
        assert body["models"][0]["failure"]
        served.process.send_signal(signal.SIGTERM)
        out, err = served.process.communicate(timeout=30)
        assert served.process.returncode == 0, err
        assert "2 requests answered" in out or "3 requests answered" in out


@slow
def test_hanging_device_does_not_block_other_models(device: DeviceInfo, tmp_path: Path) -> None:
    """Without a fallback other models answer at once, and SIGTERM ends the service in time."""
    gate = tmp_path / "gate"
    fault = Fault("clEnqueueNDRangeKernel", 1, "hang", lasts=True, place="", until=str(gate))
    with service(tmp_path, device, fault, "--device_timeout", "600", "--timeout", "2") as served:
        picture = (tmp_path / "picture.bmp").read_bytes()
        assert served.ask("/classify", picture)[0] == 200
        gate.touch()
        held = http.client.HTTPConnection(served.address, timeout=60)
        held.request("POST", "/classify", picture)
        for _ in range(5):
            status, _, seconds = served.ask("/v2/health/live")
            assert (status, seconds < 1) == (200, True)
            time.sleep(0.2)
        (child,) = _children(served.process.pid, "delegate.guard.isolated_child")
        served.process.send_signal(signal.SIGTERM)
        served.process.communicate(timeout=40)
        held.close()
        assert served.process.returncode == 0
        deadline = time.monotonic() + 10
        while Path(f"/proc/{child}").exists():
            assert time.monotonic() < deadline, "the child has outlived the service"
            time.sleep(0.1)


@slow
@pytest.mark.parametrize("more", [["--fallback", "cpu"], []], ids=["cpu", "repeated"])
def test_abort_of_driver_thread_after_500_launches(
    device: DeviceInfo, tmp_path: Path, more: list[str]
) -> None:
    """No request is lost, and OpenCL answers again; without a fallback it answers all."""
    fault = Fault("clEnqueueNDRangeKernel", 500, "thread", lasts=True, place="")
    with service(tmp_path, device, fault, *more) as served:
        picture = (tmp_path / "picture.bmp").read_bytes()
        status, wanted, _ = served.ask("/classify", picture)
        assert (status, wanted.pop("device")) == (200, device.name)
        (first,) = _children(served.process.pid, "delegate.guard.isolated_child")
        devices, died, again, slowest = [device.name], 0.0, 0.0, 0.0
        deadline = time.monotonic() + 120
        while not again:
            assert time.monotonic() < deadline, devices[-1]
            status, output, seconds = served.ask("/classify", picture)
            devices.append(output.pop("device"))
            assert (status, output) == (200, wanted)
            slowest = max(slowest, seconds)
            if not died and not Path(f"/proc/{first}").exists():
                died = time.monotonic()
            if died and devices[-1] == device.name:
                again = time.monotonic() - died
        print(f"{len(devices)} answers, OpenCL's next {again:.2f} s after, slowest {slowest:.2f} s")
        assert {*devices} == ({device.name, "CPU"} if more else {device.name})
        assert again < _AGAIN_SECONDS
        state = served.ask("/v2/health/ready")[1]["models"][0]
        assert (state["device"], "failure" in state) == (device.name, False)
        served.process.send_signal(signal.SIGTERM)
        _, err = served.process.communicate(timeout=30)
        assert served.process.returncode == 0, err
        assert "died with SIGABRT" in err


def _children(pid: int, module: str) -> list[str]:
    """Return the process ids of a process's children that run a module."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    results = [child for task in tasks for child in task.read_text().split()]
    return [each for each in results if module in Path(f"/proc/{each}/cmdline").read_text()]
