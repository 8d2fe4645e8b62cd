# SPDX-License-Identifier: Apache-2.0
"""Destruction of delegates and interpreters, in any order, without leaks."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from typing import Any

import pytest

from delegate import DeviceInfo
from delegate.inspect import write_model
from tests.support.compare import inputs_for, interpreter, invoke
from tests.support.nets import CHAIN, THREE_PARTITIONS, delegate_for, error_line, run_with
from tests.support.process import run_python
from tests.support.tiers import slow


def test_run_after_close_is_an_error_and_delegate_is_reusable(device: DeviceInfo) -> None:
    model, inputs = write_model(CHAIN), inputs_for(CHAIN)[0]
    delegate = delegate_for(model, device)
    ours = interpreter(model, delegate)
    delegate.close()
    delegate.close()
    assert error_line(ours, inputs) == "OpenCL delegate: the delegate was closed"
    assert delegate.failure == "the delegate was closed"
    ours.resize_tensor_input(0, (2, 3, 3, 2))
    with pytest.raises(RuntimeError, match="the delegate was closed"):
        ours.allocate_tensors()
    assert run_with(delegate, model, CHAIN, 0)


@pytest.mark.parametrize(
    "order",
    [
        ("drop interpreter", "drop delegate"),
        ("drop delegate", "drop interpreter"),
        ("close", "drop interpreter", "drop delegate"),
        ("close", "drop delegate", "drop interpreter"),
        ("drop interpreter", "close", "drop delegate"),
    ],
    ids=", ".join,
)
def test_nothing_leaks_in_any_order(device: DeviceInfo, order: Sequence[str]) -> None:
    model = write_model(THREE_PARTITIONS)
    delegate = delegate_for(model, device)
    alive: dict[str, Any] = {
        "drop interpreter": interpreter(model, delegate),
        "drop delegate": delegate,
    }
    invoke(alive["drop interpreter"], inputs_for(THREE_PARTITIONS)[0])
    executors = [weakref.ref(kernel._runner) for kernel in delegate._last_run]
    references: list[Any] = [weakref.ref(delegate), weakref.ref(delegate._engine.device)]
    del delegate
    gc.disable()  # by reference counting alone
    try:
        for step in order:
            if step == "close":
                alive["drop delegate"].close()
            else:
                del alive[step]
        assert [reference() for reference in (*references, *executors)] == [None] * 5
    finally:
        gc.enable()


@slow
@pytest.mark.parametrize("is_closed", [False, True], ids=["open", "closed"])
def test_cycle_of_interpreter_and_delegate_is_collected(
    device: DeviceInfo, is_closed: bool
) -> None:
    code = """
import gc, sys, weakref
from delegate import OpenCLDelegate
from delegate.inspect import write_model
from tests.support.compare import interpreter, invoke, inputs_for
from tests.support.nets import conv_pool
graph = conv_pool()
model = write_model(graph)
for turn in range(5):
    delegate = OpenCLDelegate(model, int(sys.argv[1]))
    made = interpreter(model, delegate)
    invoke(made, inputs_for(graph)[0])
    delegate.mine, made.its = made, delegate
    references = weakref.ref(made), weakref.ref(delegate), weakref.ref(delegate._engine.device)
    if sys.argv[2] == "True":
        delegate.close()
    del delegate, made
    gc.collect()
    print([reference() for reference in references])
"""
    assert run_python(code, device.index, is_closed) == "[None, None, None]\n" * 5


@slow
@pytest.mark.parametrize(
    "keep",
    [
        "pass",
        "import builtins; builtins.kept = made",
        "import builtins; builtins.kept = [made, delegate]; made.it = builtins.kept",
        "import atexit; atexit.register(lambda: invoke(made, inputs))",
    ],
    ids=["module", "builtins", "cycle-in-builtins", "atexit"],
)
def test_process_exits_with_live_interpreter(device: DeviceInfo, keep: str) -> None:
    code = f"""
import sys
from delegate import OpenCLDelegate
from delegate.inspect import write_model
from tests.support.compare import interpreter, invoke, inputs_for
from tests.support.nets import conv_pool
graph = conv_pool()
model = write_model(graph)
inputs = inputs_for(graph)[0]
delegate = OpenCLDelegate(model, int(sys.argv[1]))
made = interpreter(model, delegate)
invoke(made, inputs)
{keep}
print("end")
"""
    assert run_python(code, device.index) == "end\n"


@slow
@pytest.mark.parametrize("delegates", ["one-each", "one-for-all"])
def test_hundred_interpreters_do_not_leak(device: DeviceInfo, delegates: str) -> None:
    code = """
import gc, os, sys
from collections import Counter
from delegate import OpenCLDelegate
from delegate.inspect import write_model
from tests.support.compare import interpreter, invoke, inputs_for
from tests.support.model import graph_of, op
from tests.support.nets import POOL, image
shape = (1, 96, 192, 8)  # 144 KiB a tensor, 288 KiB an arena
middle = image(*shape)
graph = graph_of([op("AVERAGE_POOL_2D", [image(*shape)], [middle], POOL),
                  op("AVERAGE_POOL_2D", [middle], [image(*shape)], POOL)])
model, inputs = write_model(graph), inputs_for(graph)[0]
shared = OpenCLDelegate(model, int(sys.argv[1])) if sys.argv[2] == "one-for-all" else None
def resident_kib():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
def counted():
    return Counter(type(thing).__name__ for thing in gc.get_objects())
before = counted()
for number in range(1, 111):
    delegate = shared or OpenCLDelegate(model, int(sys.argv[1]))
    made = interpreter(model, delegate)
    invoke(made, inputs)
    del made, delegate
    if number in (30, 110):
        print(resident_kib(), len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")))
kinds = counted() - before
print(*(kinds[name] for name in ("Executor", "Claim", "PartitionKernel", "Graph", "Buffer")))
"""
    early, late, objects = (
        tuple(map(int, line.split()))
        for line in run_python(code, device.index, delegates).splitlines()
    )
    # 80 leaked arenas would be 22 MiB.
    assert late[0] - early[0] < 6 * 1024, f"{early[0]} KiB after 30, {late[0]} KiB after 110"
    assert late[1] <= early[1], f"open files: {early[1]} after 30, {late[1]} after 110"
    # rusticl ends a queue's thread shortly after the queue.
    assert late[2] <= early[2] + 3, f"threads: {early[2]} after 30, {late[2]} after 110"
    # A shared delegate refers to its last interpreter's kernel; executors are freed.
    assert max(objects) <= 2
