# SPDX-License-Identifier: Apache-2.0
"""Processes that fork, exit or close running delegates while drivers are in use."""

from __future__ import annotations

import sys
import threading
import time

import pytest

from delegate import DeviceError, DeviceInfo
from delegate.guard.children import process
from tests.support.process import run_python
from tests.support.tiers import slow

# Prefix of the programs: an interpreter with a delegate and a Model of one network, and runs.
USE = """
import os, sys, threading, time
import numpy as np
from delegate import DelegateError, Model, OpenCLDelegate
from delegate.inspect import write_model
from tests.support.compare import interpreter
from tests.support.nets import conv_pool
net, device = write_model(conv_pool()), int(sys.argv[1])
def opened():
    return OpenCLDelegate(net, device, tune="off", min_nodes_per_partition=1)
delegate = opened()
made, model = interpreter(net, delegate), Model(net, device, tune="off")
pictures = model.empty_input()
made.invoke()
model.run(pictures)
"""
FORK = """
tried = {
    "invoke": made.invoke,
    "run": lambda: model.run(pictures),
    "open": opened,
    "close": lambda: (delegate.close(), model.close()),
}
for name, use in tried.items():
    child = os.fork()
    if child == 0:
        said = "nothing"
        try:
            use()
        except (DelegateError, RuntimeError) as error:
            said = "start workers with spawn" if "start workers with spawn" in str(error) else error
        print(name, "says", said, flush=True)
        os._exit(0)  # as workers of multiprocessing end
    _, status = os.waitpid(child, 0)
    assert status == 0, (name, status)
made.invoke()
"""
FORKED = [
    "invoke says start workers with spawn",
    "run says start workers with spawn",
    "open says start workers with spawn",
    "close says nothing",
]


def test_python_without_its_lock_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    with pytest.raises(DeviceError, match="without its GIL, which is untested: set PYTHON_GIL=1"):
        process.require_own()
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True)
    process.require_own()


@slow
def test_fork_after_use_is_an_error(device: DeviceInfo) -> None:
    assert run_python(USE + FORK, device.index).splitlines() == FORKED


@slow
def test_fork_by_c_code_is_detected(device: DeviceInfo) -> None:
    # Like a server that embeds Python: Python's hooks are not called.
    code = "import ctypes, os\nos.fork = ctypes.PyDLL(None).fork\n"
    assert run_python(f"{code}{USE}{FORK}", device.index).splitlines() == FORKED


@slow
def test_fork_before_use_works(device: DeviceInfo) -> None:
    code = "import os, delegate\nchild = os.fork()\nif child:\n    os.waitpid(child, 0)\n"
    assert run_python(f"{code}{USE}print('ran')", device.index) == "ran\nran\n"


END = """
def again():
    while True:
        {call}
for _ in range(2):
    threading.Thread(target=again, daemon=True).start()
time.sleep(0.05)
"""


@slow
@pytest.mark.parametrize("call", ["model.run(pictures)", "made.invoke()", "spread.run(many)"])
def test_process_exits_while_threads_run(device: DeviceInfo, call: str) -> None:
    own = END.format(call=call)
    if "spread" in call:  # a selector of several devices that matches only this one
        opened = 'spread = Model(net, f"{device},", tune="off")'
        own = f"{opened}\nmany = np.repeat(pictures, 50, axis=0)\n{own}"
    if "invoke" in call:  # an interpreter may be used by one thread only
        own = own.replace("range(2)", "range(1)")
    for _ in range(3):
        assert run_python(USE + own, device.index) == ""


CLOSE = """
import random
for _ in range(6):
    delegate = opened()
    made = interpreter(net, delegate)
    told = []
    def again():
        try:
            while True:
                made.invoke()
        except RuntimeError as error:
            told.append(str(error))
    thread = threading.Thread(target=again)
    thread.start()
    time.sleep(random.random() * 0.02)
    delegate.close()
    thread.join(60)
    assert "the delegate was closed" in told[0], told
"""


@slow
def test_close_while_another_thread_invokes(device: DeviceInfo) -> None:
    assert run_python(USE + CLOSE, device.index) == ""


def test_forked_process_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    process.require_own()
    monkeypatch.setattr(process, "_driver_pid", -1)
    with pytest.raises(DeviceError, match="start workers with spawn"):
        process.require_own()


def test_exit_waits_for_threads_in_driver_and_blocks_new_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = []
    is_inside, may_leave = threading.Event(), threading.Event()

    def stays() -> None:
        with process.ProtectedCall(), process.ProtectedCall():
            is_inside.set()
            may_leave.wait()
            steps.append("left")

    def comes() -> None:
        with process.ProtectedCall():
            steps.append("came")

    monkeypatch.setattr(process, "_ending", None)
    threading.Thread(target=stays).start()
    is_inside.wait()
    ending = threading.Thread(target=lambda: (process._end(), steps.append("ended")))
    ending.start()
    while process._ending is None:
        time.sleep(0.001)
    threading.Thread(target=comes, daemon=True).start()
    assert steps == []
    may_leave.set()
    ending.join()
    assert steps == ["left", "ended"]


def test_exit_does_not_wait_for_hanging_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_ending", None)
    monkeypatch.setattr(process, "LAST_WAIT_SECONDS", 0.0)
    monkeypatch.setitem(process._depths, -1, 1)
    process._end()
    assert process._ending == threading.get_ident()
