# SPDX-License-Identifier: Apache-2.0
"""Constants on a device: each content is stored once, and freed with its last user."""

from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from delegate import DeviceError, DeviceInfo, Options
from delegate.engine import Engine
from delegate.errors import TooLarge
from delegate.inspect import Graph
from delegate.isa import ORDERS
from delegate.launch import Constant, Launch
from delegate.plan.dispatch.kernels import Kernels
from delegate.plan.dispatch.planned import planned_executor
from delegate.plan.layout import SLACK_BYTES, Bytes
from delegate.plan.record import ONE_BY_ONE, PERSISTENT
from delegate.plan.tuning.agreement import same_outputs
from delegate.run import upload as module
from delegate.run import weights as weights_module
from delegate.run.device import Device
from delegate.run.executor import Executor
from delegate.run.weights import Lease, Slice, Weights
from tests.support.model import const, graph_of, op
from tests.support.nets import image
from tests.support.opencl import opencl_error
from tests.support.schedules import constant_bytes, executor_of, planner_of, selection_of

pytestmark = pytest.mark.device


class Counted:
    """Makes constants, and counts how often each is packed."""

    def __init__(self) -> None:
        self.packed: list[str] = []

    def constant(self, name: str, size: int = 100) -> Constant:
        """Return a constant whose content depends on its name and size."""

        def pack() -> np.ndarray[Any, np.dtype[np.uint8]]:
            self.packed.append(name)
            return content_of(name, size)

        return Constant(size, pack)


def content_of(name: str, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(list(name.encode())).integers(1, 256, size).astype(np.uint8)


def launch(*constants: Constant) -> Launch:
    return Launch("f", "f", 1, 1, {f"c{n}": each for n, each in enumerate(constants)}, (), ())


def read(device: Device, buffer: cl.Buffer) -> np.ndarray[Any, np.dtype[np.uint8]]:
    values = np.zeros(buffer.size, np.uint8)
    cl.enqueue_copy(device.queue, values, buffer)
    return values


def require(place: Slice | None) -> Slice:
    assert place is not None
    return place


@pytest.mark.parametrize("piece", [64, 128, 1 << 20, None])
def test_constants_are_at_their_offsets_with_zeros_between(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, piece: int | None
) -> None:
    opened, make = Device(device), Counted()
    if piece is not None:
        monkeypatch.setattr(module, "_PIECE_BYTES", piece)
        opened.shares_memory = False
    # Otherwise they are packed in place, if the host shares the device's memory.
    first, second, third = make.constant("a", 1), make.constant("b", 300), make.constant("c", 64)
    taken = Weights(opened).lease(
        opened.queue, [launch(first, second), launch(), launch(second, third)], as_one=False
    )
    one, none, other = taken.slices
    assert none is None
    one, other = require(one), require(other)
    assert one.buffer is other.buffer
    assert (*one.offsets, *other.offsets) == (first, second, second, third)
    expected = np.zeros(64 + 320 + 64 + SLACK_BYTES, np.uint8)
    for name, size, offset in (
        ("a", 1, one.offsets[first]),
        ("b", 300, one.offsets[second]),
        ("c", 64, other.offsets[third]),
    ):
        expected[offset : offset + size] = content_of(name, size)
    assert read(opened, one.buffer).tobytes() == expected.tobytes()
    assert sorted(make.packed) == ["a", "b", "c"]


def test_equal_content_is_shared(device: DeviceInfo) -> None:
    opened, make = Device(device), Counted()
    weights = Weights(opened)
    known = make.constant("a")
    first = weights.lease(opened.queue, [launch(known, make.constant("b"))], as_one=False)
    size = weights.size_bytes
    # The same record, as in a specialised kernel; and equal content, as for another shape.
    again = weights.lease(opened.queue, [launch(known)], as_one=False)
    assert sorted(make.packed) == ["a", "b"]
    equal = weights.lease(opened.queue, [launch(make.constant("a"))], as_one=False)
    assert sorted(make.packed) == ["a", "a", "b"]
    whole = weights.lease(opened.queue, [launch(make.constant("b")), launch(known)], as_one=True)
    assert weights.size_bytes == size
    buffer = require(first.slices[0]).buffer
    for place in (*again.slices, *equal.slices, *whole.slices):
        assert require(place).buffer is buffer
        for constant, offset in require(place).offsets.items():
            expected = constant.pack()
            assert read(opened, buffer)[offset : offset + 100].tobytes() == expected.tobytes()
    other = weights.lease(opened.queue, [launch(make.constant("other"))], as_one=False)
    assert require(other.slices[0]).buffer is not buffer
    assert weights.size_bytes == size + 128 + SLACK_BYTES


def test_constant_of_new_size_is_packed_once(device: DeviceInfo) -> None:
    opened, make = Device(device), Counted()
    weights = Weights(opened)
    entries = [
        weights.lease(opened.queue, [launch(make.constant("a", size))], as_one=False)
        for size in (100, 101, 102)
    ]
    assert len({require(each.slices[0]).buffer.int_ptr for each in entries}) == 3
    assert sorted(make.packed) == ["a", "a", "a"]


def test_constants_of_a_launch_share_a_buffer(device: DeviceInfo) -> None:
    opened, make = Device(device), Counted()
    weights = Weights(opened)
    a, b, c = (make.constant(name) for name in "abc")
    first = weights.lease(opened.queue, [launch(a), launch(b)], as_one=False)
    second = weights.lease(opened.queue, [launch(a), launch(b, c)], as_one=False)
    shared, apart = (require(place) for place in second.slices)
    assert shared.buffer is require(first.slices[0]).buffer
    assert apart.buffer is not shared.buffer
    assert list(apart.offsets) == [b, c]
    whole = weights.lease(opened.queue, [launch(a), launch(b, c)], as_one=True)
    one, other = (require(place) for place in whole.slices)
    assert one.buffer is other.buffer
    assert one.buffer not in (shared.buffer, apart.buffer)


def test_additional_constants_follow_in_the_buffer(device: DeviceInfo) -> None:
    opened, make = Device(device), Counted()
    weights = Weights(opened)
    names = [*"abcdefgh"]
    first = weights.lease(opened.queue, [launch(*(make.constant(n, 512) for n in names))], True)
    size, buffer = weights.size_bytes, require(first.slices[0]).buffer
    assert size == buffer.size == 8 * 512 + SLACK_BYTES + (8 * 512 + SLACK_BYTES) // 16
    # The last one has a new size; the one before has a known size, but new content.
    for more in ([("x", 100)], [("y", 64)]):
        constants = [make.constant(n, 512) for n in names] + [make.constant(*each) for each in more]
        second = weights.lease(opened.queue, [launch(each) for each in constants], as_one=True)
        assert {require(place).buffer for place in second.slices} == {buffer}
        assert weights.size_bytes == size
        result = read(opened, buffer)
        for place in second.slices:
            for constant, offset in require(place).offsets.items():
                own = result[offset : offset + constant.size_bytes]
                assert own.tobytes() == constant.pack().tobytes()
    assert [make.packed.count(name) for name in "xy"] == [2, 2]  # once by this test
    beyond = [make.constant(n, 512) for n in names] + [make.constant("z", 512)]
    third = weights.lease(opened.queue, [launch(*beyond)], as_one=True)
    assert require(third.slices[0]).buffer is not buffer
    apart = weights.lease(opened.queue, [launch(make.constant("w", 32))], as_one=False)
    assert require(apart.slices[0]).buffer is not buffer


def test_constants_are_shared_within_a_context(device: DeviceInfo) -> None:
    opened, make = [Device(device, shares_context=True) for _ in range(2)], Counted()
    alone = Device(device)
    assert opened[0].context is opened[1].context is not alone.context
    one, two, other = (Weights(each, is_shared=True) for each in (*opened, alone))
    first = one.lease(opened[0].queue, [launch(make.constant("a"))], as_one=False)
    second = two.lease(opened[1].queue, [launch(make.constant("a"))], as_one=False)
    third = other.lease(alone.queue, [launch(make.constant("a"))], as_one=False)
    buffer = require(first.slices[0]).buffer
    assert require(second.slices[0]).buffer is buffer is not require(third.slices[0]).buffer
    assert one.size_bytes == two.size_bytes > 0
    first.close()
    assert (one.size_bytes, two.size_bytes) == (0, 100 + 28 + SLACK_BYTES)
    assert read(opened[1], buffer)[:100].tobytes() == content_of("a", 100).tobytes()
    second.close()
    assert two.size_bytes == 0


def test_recipe_is_dropped_with_its_last_user(device: DeviceInfo) -> None:
    """Another file may be mapped at the same address."""
    opened = Device(device)
    weights = Weights(opened)
    memory = np.arange(1 << 15, dtype=np.uint8)  # large enough to be identified by address

    def of(values: np.ndarray[Any, np.dtype[np.uint8]]) -> Constant:
        return Constant(values.nbytes, lambda: values)

    first = weights.lease(opened.queue, [launch(of(memory))], as_one=False)
    second = weights.lease(opened.queue, [launch(of(memory.copy()))], as_one=False)
    buffer = require(first.slices[0]).buffer
    assert require(second.slices[0]).buffer is buffer
    first.close()
    memory[:] = 7
    third = weights.lease(opened.queue, [launch(of(memory))], as_one=False)
    place = require(third.slices[0])
    assert place.buffer is not buffer
    assert (read(opened, place.buffer)[: memory.size] == 7).all()


def test_memory_is_freed_with_its_last_user(device: DeviceInfo) -> None:
    opened, make = Device(device), Counted()
    weights = Weights(opened)
    launches = [launch(make.constant("a")), launch(make.constant("b"))]
    users = [weights.lease(opened.queue, launches, as_one=number == 1) for number in range(3)]
    buffer, size = require(users[0].slices[0]).buffer, weights.size_bytes
    for user in users[:2]:
        user.close()
        user.close()  # counts once
        assert weights.size_bytes == size
    assert read(opened, buffer).any()
    users[2].close()
    assert weights.size_bytes == 0
    with pytest.raises(cl.LogicError, match="double-unref"):
        buffer.release()
    weights.lease(opened.queue, launches, as_one=False)  # and no lease is left
    assert weights.size_bytes == 0


def refused(*_: object) -> cl.Buffer:
    raise opencl_error(
        cl.MemoryError, "clCreateBuffer", cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE
    )


def wrong_copy(*arguments: Any, **keywords: Any) -> None:
    if isinstance(arguments[1], np.ndarray):
        arguments[1][:] = 0  # after it is read back


def wrong_map(queue: cl.CommandQueue, buffer: cl.Buffer, flags: int, *more: Any) -> Any:
    result = real_map(queue, buffer, flags, *more)
    if flags == cl.map_flags.READ:
        result[0][-100] ^= 1
    return result


real_map = cl.enqueue_map_buffer


def lose_bytes(patch: pytest.MonkeyPatch, device: Device) -> None:
    patch.setattr(cl, "enqueue_copy", wrong_copy)
    patch.setattr(cl, "enqueue_map_buffer", wrong_map)


def broken() -> np.ndarray[Any, np.dtype[np.uint8]]:
    raise MemoryError


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (TooLarge, lambda patch, device: setattr(device, "max_alloc_bytes", 500)),
        (TooLarge, lambda patch, device: patch.setattr(cl, "Buffer", refused)),
        (DeviceError, lose_bytes),
        (MemoryError, None),
        (ValueError, None),
    ],
    ids=["limit", "refused", "lost bytes", "packing", "wrong size"],
)
def test_error_while_uploading_leaks_nothing(
    device: DeviceInfo,
    monkeypatch: pytest.MonkeyPatch,
    error: type[Exception],
    fault: Callable[[pytest.MonkeyPatch, Device], None] | None,
) -> None:
    opened, make = Device(device), Counted()
    weights = Weights(opened)
    lease = weights.lease(opened.queue, [launch(make.constant("a"))], as_one=False)
    size, limit = weights.size_bytes, opened.max_alloc_bytes
    wrong = Constant(1000, {MemoryError: broken}.get(error, lambda: np.zeros(999, np.uint8)))
    new = make.constant("b", 1000) if fault else wrong
    launches = [launch(make.constant("a")), launch(make.constant("c")), launch(new)]
    with monkeypatch.context() as patch:
        if fault:
            fault(patch, opened)
        with pytest.raises(error):
            weights.lease(opened.queue, launches, as_one=False)
    assert weights.size_bytes == size
    opened.max_alloc_bytes = limit
    if fault:
        again = weights.lease(opened.queue, launches, as_one=False)
        assert require(again.slices[0]).buffer is require(lease.slices[0]).buffer
        again.close()
    lease.close()
    assert weights.size_bytes == 0


def test_threads_share_constants(device: DeviceInfo) -> None:
    opened = Device(device)
    weights = Weights(opened)
    names = ["a", "b", "c", "d"]
    failures: list[object] = []

    def work(number: int) -> None:
        queue, rng, make = opened.another_queue(), np.random.default_rng(number), Counted()
        try:
            for _ in range(25):
                chosen = [names[n] for n in rng.choice(len(names), 2, replace=False)]
                constants = [make.constant(name) for name in chosen]
                taken = weights.lease(
                    queue, [launch(each) for each in constants], rng.random() < 0.5
                )
                for name, constant, place in zip(chosen, constants, taken.slices, strict=True):
                    content = np.zeros(100, np.uint8)
                    source = require(place)
                    offset = source.offsets[constant]
                    cl.enqueue_copy(queue, content, source.buffer, src_offset=offset)
                    if content.tobytes() != content_of(name, 100).tobytes():
                        failures.append(name)
                taken.close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert weights.size_bytes == 0


def convolutions(height: int = 7) -> Graph:
    """Return two nodes with equal weights in different tensors."""
    rng = np.random.default_rng(5)
    values = rng.integers(0, 255, (2, 3, 3, 2)).astype(np.uint8)
    tensors = [image(1, height, 6, 2) for _ in range(3)]
    options = {"padding": "SAME", "stride_w": 1, "stride_h": 1}
    return graph_of(
        [
            op(
                "CONV_2D",
                [source, const(values, 0.02, 120), const(np.zeros(2, np.int32), 0.01)],
                [result],
                options,
            )
            for source, result in itertools.pairwise(tensors)
        ]
    )


SECOND: dict[str, Callable[[Engine, Executor], Executor]] = {
    "shape": lambda engine, _: executor_of(engine, convolutions(height=9), (0,)),
    "partition": lambda engine, _: executor_of(engine, convolutions(), (1,)),
    "batch": lambda engine, _: executor_of(engine, convolutions(), (0,), batch=3),
    "sibling": lambda engine, first: engine.sibling(first),
    "literal": lambda engine, _: planner_of(engine)._executor(
        selection_of(engine, convolutions(), (0,)).schedule.specialised(), ONE_BY_ONE, 1
    ),
}


@pytest.mark.usefixtures("one_context")
@pytest.mark.parametrize("kind", SECOND)
def test_executors_of_an_engine_share_equal_constants(device: DeviceInfo, kind: str) -> None:
    engine = Engine(Options(device.index, tune="off"))
    first = executor_of(engine, convolutions(), (0,))
    size = constant_bytes(engine)
    assert size > 0
    second = SECOND[kind](engine, first)
    assert constant_bytes(engine) == size
    first.close()
    assert constant_bytes(engine) == size
    nodes = (1,) if kind == "partition" else (0,)
    graph = convolutions(height=9) if kind == "shape" else convolutions()
    schedule = selection_of(engine, graph, nodes, second.batch).schedule
    alone = planned_executor(engine.device, Kernels(engine.device), schedule, second.batch)
    assert same_outputs(second, alone)
    second.close()
    assert constant_bytes(engine) == 0
    engine.close()


@pytest.mark.usefixtures("one_context")
@pytest.mark.parametrize("first_form", [ONE_BY_ONE, PERSISTENT])
def test_dispatch_modes_share_constants(device: DeviceInfo, first_form: str) -> None:
    engine = Engine(Options(device.index, tune="off"))
    if not engine.device.proven & ORDERS:
        pytest.skip(f"{device.name} does not order memory between work-groups")
    schedule = selection_of(engine, convolutions()).schedule
    forms = first_form, PERSISTENT if first_form == ONE_BY_ONE else ONE_BY_ONE
    executors = [planner_of(engine)._executor(schedule, form, 1) for form in forms]
    assert tuple(each.dispatch_mode for each in executors) == forms
    size = constant_bytes(engine)
    assert same_outputs(*executors)
    executors[0].close()
    assert constant_bytes(engine) == size
    executors[1].close()
    assert constant_bytes(engine) == 0
    engine.close()


def test_executor_that_does_not_fit_leaks_nothing(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(Options(device.index, tune="off"))
    schedule = selection_of(engine, convolutions(), (0,)).schedule
    with executor_of(engine, convolutions(), (0,)):
        size = constant_bytes(engine)
    real, buffers = cl.Buffer, list[cl.Buffer]()

    def third_fails(*arguments: Any) -> cl.Buffer:  # arena, constants, blocks
        buffers.append((real if len(buffers) < 2 else refused)(*arguments))
        return buffers[-1]

    with monkeypatch.context() as patch:
        patch.setattr(cl, "Buffer", third_fails)
        with pytest.raises(TooLarge):
            planner_of(engine)._executor(schedule, ONE_BY_ONE, 1)
    assert len(buffers) == 2
    assert constant_bytes(engine) == 0
    with planner_of(engine)._executor(schedule, ONE_BY_ONE, 1):
        assert constant_bytes(engine) == size
    engine.close()


def test_unclosed_executor_is_collected(device: DeviceInfo) -> None:
    engine = Engine(Options(device.index, tune="off"))
    executor = executor_of(engine, convolutions(), (0,))
    assert constant_bytes(engine) > 0
    del executor
    gc.collect()
    assert constant_bytes(engine) == 0
    engine.close()


def test_constants_are_read_back_only_if_needed(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests: list[int] = []
    digest = weights_module.digest_of

    def told(values: Bytes) -> str:
        digests.append(values.size)
        return digest(values)

    monkeypatch.setattr(weights_module, "digest_of", told)
    opened, make = Device(device), Counted()
    weights, users = Weights(opened), list[Lease]()

    def take(*constants: Constant) -> Slice:
        users.append(weights.lease(opened.queue, [launch(*constants)], as_one=False))
        return require(users[-1].slices[0])

    mine = take(make.constant("a"), make.constant("b", 200))
    assert not digests
    take(make.constant("c", 300))
    assert not digests
    other = take(make.constant("a"))
    assert (digests, other.buffer) == ([100, 100], mine.buffer)
    take(make.constant("d"))  # the content of a is known now
    assert digests == [100, 100, 100]
