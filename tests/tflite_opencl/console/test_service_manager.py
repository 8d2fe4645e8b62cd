# SPDX-License-Identifier: Apache-2.0
"""What systemd is told, by a stand-in for it."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from tests.support.notified import manager
from tflite_opencl.console import service_manager
from tflite_opencl.console.service_manager import Heartbeat, tell, tell_reloading, watchdog_s


def test_messages_reach_the_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with manager(tmp_path) as systemd:
        tell("READY=1")  # no NOTIFY_SOCKET: nothing
        monkeypatch.setenv("NOTIFY_SOCKET", systemd.path)
        tell("READY=1", "STATUS=serves a\nREADY=0")
        before = time.monotonic_ns() // 1000
        tell_reloading()
        first, second = systemd.read()
        assert first == {"READY": "1", "STATUS": "serves a READY=0"}
        assert second["RELOADING"] == "1"
        assert before <= int(second["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000


def test_abstract_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"tflite-opencl-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{name}")
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        tell("READY=1")
        assert listening.recv(100, socket.MSG_DONTWAIT) == b"READY=1"


@pytest.mark.parametrize("address", ["", "relative", "/nowhere/at/all", "@", "/" + "x" * 300])
def test_manager_that_does_not_listen_is_no_error(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    tell("READY=1")


@pytest.mark.parametrize(
    ("usec", "pid", "seconds"),
    [("2000000", None, 2.0), ("500000", "own", 0.5), ("2000000", "1", None), ("0", None, None),
     ("", None, None), ("-5", None, None), ("x", None, None)],
)  # fmt: skip
def test_watchdog_seconds(
    usec: str, pid: str | None, seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", usec)
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    if pid is not None:
        monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()) if pid == "own" else pid)
    assert watchdog_s() == seconds


def test_heartbeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([100.0, 101.0, 101.9, 102.1, 103.0, 104.2, 200.0, 300.0])
    monkeypatch.setattr(service_manager.time, "monotonic", lambda: next(times))
    monkeypatch.setenv("WATCHDOG_USEC", "8000000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    with manager(tmp_path) as systemd:
        monkeypatch.setenv("NOTIFY_SOCKET", systemd.path)
        heart = Heartbeat()
        for _ in range(6):
            heart.beat()
        assert systemd.read() == [{"READY": "1"}, {"WATCHDOG": "1"}, {"WATCHDOG": "1"}]
        monkeypatch.delenv("WATCHDOG_USEC")
        heart = Heartbeat()
        for _ in range(2):
            heart.beat()
        assert systemd.read()[3:] == [{"READY": "1"}]
