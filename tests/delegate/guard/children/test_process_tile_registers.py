# SPDX-License-Identifier: Apache-2.0
"""AMX's tile registers, which a process must request, and processes whose request fails."""

from __future__ import annotations

import logging
import platform

import pytest

from delegate import DeviceInfo, Options
from delegate.engine import Engine
from delegate.guard.children import process
from delegate.guard.probing import opening
from delegate.guard.probing.probe import Proof, examine
from delegate.guard.probing.self_tests import feature_test
from delegate.isa import BY_NAME
from delegate.run.device import Device
from delegate.target import Rules
from tests.support.process import run_python
from tests.support.tiers import slow

AMX = "amx"
WHY = "Linux gives this process no tile registers: No space left on device"


def test_refused_process_has_other_instructions(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    proven = examine(device).isa - {AMX}
    monkeypatch.setattr(opening, "examine", lambda info, *about: Proof(None, proven | {AMX}))
    for why, isa in ((WHY, proven), ("", proven | {AMX})):
        monkeypatch.setattr(process, "tile_registers_refused", lambda why=why: why)
        caplog.clear()
        with caplog.at_level(logging.INFO, "delegate"):
            opened = Engine(Options(device.index, tune="off"))
        assert opened.target(Rules()).isa == isa
        assert caplog.messages == ([f"{why}: amx is not used"] if why else [])


def test_process_that_excludes_amx_does_not_request_it(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    proven = examine(device).isa - {AMX}
    monkeypatch.setattr(opening, "examine", lambda info, *about: Proof(None, proven | {AMX}))
    monkeypatch.setattr(process, "tile_registers_refused", lambda: pytest.fail("it asked"))
    assert Engine(Options(device.index, tune="off", exclude_isa=[AMX])).device.proven == proven
    assert (
        Engine(Options(device.index, tune="off", exclude_isa=["all"])).device.proven == frozenset()
    )


def test_amx_is_not_proven_if_child_is_refused(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "tile_registers_refused", lambda: WHY)
    assert feature_test(Device(device), BY_NAME[AMX]) == WHY


def test_other_processors_do_not_request_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert process.tile_registers_refused() == "tile registers are those of Linux on x86-64"


# A convolution that prefers AMX, in a process with a signal stack of this size.
USE = """
import ctypes, sys, threading
from delegate import OpenCLDelegate
from delegate.inspect import read_model
from delegate.guard.children import process
from tests.support.compare import inputs_for, interpreter, invoke
from tests.support.convolution import Convolution
from tests.support.nets import assert_equal_outputs
class Stack(ctypes.Structure):
    _fields_ = (("at", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))
is_set = threading.Event()
def other():
    place = ctypes.create_string_buffer(int(sys.argv[2]))
    stack = Stack(ctypes.addressof(place), 0, len(place))
    assert ctypes.CDLL(None).sigaltstack(ctypes.byref(stack), None) == 0
    is_set.set()
    threading.Event().wait()
threading.Thread(target=other, daemon=True).start()
assert is_set.wait(60)
model = Convolution(size=(9, 9, 64), kernel=(1, 1), out_c=64).model()
delegate = OpenCLDelegate(model, int(sys.argv[1]), tune="off")
ours, reference = interpreter(model, delegate), interpreter(model)
for inputs in inputs_for(read_model(model)):
    assert_equal_outputs(invoke(ours, inputs), invoke(reference, inputs))
(node,) = delegate.alternatives
print(process.tile_registers_refused() or "given", node.taken.split()[0])
"""


@slow
@pytest.mark.parametrize("size", [4096, 1 << 16])
def test_small_signal_stack_disables_amx(device: DeviceInfo, size: int) -> None:
    refused, word = run_python(USE, device.index, size).rsplit(maxsplit=1)
    if AMX in examine(device).isa:
        assert (refused == "given") == (size > 4096)
        assert word == ("amx" if refused == "given" else "vnni")
    else:
        assert word != "amx"
