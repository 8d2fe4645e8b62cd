# SPDX-License-Identifier: Apache-2.0
"""The isolated child of a process that ends or forks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from delegate import DeviceInfo
from tests.support.isolated import children, is_alive
from tests.support.process import ROOT
from tests.support.tiers import slow

LIMIT_SECONDS = 30

# Prefix of the programs: a model, its child, and inputs.
USE = """
import os, signal, sys, time
import numpy as np
from delegate import DelegateError, Model
from tests.support.isolated import children
from tests.support.nets import conv_pool
model = Model(conv_pool(), int(sys.argv[1]), tune="off", isolate=True)
given = model.empty_input()
model.run(given)
(child,) = children()
"""
# A fork inherits the parent's end of the pipes.
ORPHANED = """
if os.fork() == 0:
    time.sleep(600)
if sys.argv[2] == "stopped":
    os.kill(child, signal.SIGSTOP)
print(child, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
FORKED = """
if os.fork() == 0:
    try:
        model.run(given)
    except DelegateError as error:
        print("start workers with spawn" in str(error), flush=True)
    model.close()
    sys.exit()
os.wait()
model.run(given)
print(children() == {child})
"""


@slow
@pytest.mark.parametrize("how", ["waits", "stopped"])
def test_child_does_not_outlive_parent(device: DeviceInfo, how: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", USE + ORPHANED, str(device.index), how],
        stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
        start_new_session=True,
    ) as parent:  # fmt: skip
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            assert parent.wait(LIMIT_SECONDS) == -signal.SIGKILL
            deadline = time.monotonic() + 10
            while is_alive(child):
                assert time.monotonic() < deadline
                time.sleep(0.05)
        finally:
            os.killpg(parent.pid, signal.SIGKILL)  # the fork


@slow
def test_fork_has_no_child(device: DeviceInfo) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", USE + FORKED, str(device.index)],
        capture_output=True, text=True, check=True, timeout=120,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert ran.stdout.split() == ["True", "True"], ran.stderr
    assert not children()
