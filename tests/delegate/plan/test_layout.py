# SPDX-License-Identifier: Apache-2.0
"""Memory layout: tensors that live at once do not overlap, others may share memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from delegate.graph.ir import Tensor
from delegate.launch import (
    Alternative,
    Constant,
    Launch,
    Schedule,
    Step,
    constants_of,
    size_bytes,
    temporary,
)
from delegate.plan.layout import (
    ALIGNMENT,
    SLACK_BYTES,
    block_of,
    layout_of,
    phases_of,
    plan_constants,
)
from delegate.plan.per_group_copies import no_group_copies
from delegate.plan.record import Region
from tests.support.model import const, t


def launch(
    reads: Sequence[Tensor], writes: Sequence[Tensor], constants: Sequence[Constant] = ()
) -> Launch:
    params = {f"constant{i}": constant for i, constant in enumerate(constants)}
    return Launch("file", "kernel", 1, 1, params, tuple(reads), tuple(writes))


def schedule(
    steps: Sequence[list[Launch] | tuple[Tensor, Tensor]],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
) -> Schedule:
    """Return a program of steps, each a launch or a view (source, result)."""
    numbered = []
    for index, step in enumerate(steps):
        if isinstance(step, tuple):
            strategy = Alternative("view", (), step)
        else:
            strategy = Alternative("plain", tuple(step))
        numbered.append(Step(index, "OP", strategy))
    return Schedule(tuple(numbered), tuple(inputs), tuple(outputs))


def planned(made: Schedule) -> tuple[int, Mapping[Tensor, int]]:
    """Return the arena's size and each tensor's offset, for separate launches."""
    layout = layout_of(made)
    return layout.slot_bytes, layout.offsets


def bytes_of(tensor: Tensor, offset: int) -> range:
    return range(offset, offset + size_bytes(tensor))


def tensor(size: int) -> Tensor:
    return t((size,), "uint8")


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    sizes = st.sampled_from([1, 16, 47, 48, 49, 64, 100, 1000])
    inputs = [tensor(draw(sizes)) for _ in range(draw(st.integers(1, 3)))]
    constants = [const(np.zeros(draw(sizes), np.uint8)) for _ in range(draw(st.integers(0, 2)))]
    known = [*inputs, *constants]
    steps: list[list[Launch] | tuple[Tensor, Tensor]] = []
    written: list[Tensor] = []
    for _ in range(draw(st.integers(1, 10))):
        source = draw(st.sampled_from(known))
        kind = draw(st.sampled_from(["launch", "two launches", "view"]))
        result = tensor(size_bytes(source) if kind == "view" else draw(sizes))
        if kind == "view":
            steps.append((source, result))
        elif kind == "launch":
            steps.append([launch([source, draw(st.sampled_from(known))], [result])])
        else:
            scratch = tensor(draw(sizes))
            steps.append([launch([source], [scratch]), launch([scratch], [result])])
        known.append(result)
        written.append(result)
    outputs = draw(st.lists(st.sampled_from(written), min_size=1, max_size=3, unique_by=id))
    return schedule(steps, inputs, outputs)


@given(schedules())
def test_values_survive_until_last_read(made: Schedule) -> None:
    # Each byte of a simulated arena holds the name of its value; views have that of their source.
    size, offsets = planned(made)
    arena = np.full(size, -1)
    value: dict[Tensor, int] = {}

    def write(target: Tensor, number: int) -> None:
        value[target] = number
        arena[offsets[target] :][: size_bytes(target)] = number

    def check(source: Tensor) -> None:
        held = arena[offsets[source] :][: size_bytes(source)]
        assert (held == value[source]).all()

    for number, source in enumerate(offsets):
        if source.data is not None and source not in value:
            write(source, 1000 + number)
    for _ in range(2):  # the first run must not overwrite constants
        for number, source in enumerate(made.inputs):
            write(source, number)
        for index, step in enumerate(made.steps):
            if step.alternative.view:
                source, result = step.alternative.view
                assert offsets[source] == offsets[result]
                value[result] = value[source]
                check(result)
            for number, entry in enumerate(step.alternative.launches):
                for source in entry.reads:
                    check(source)
                for target in entry.writes:
                    write(target, 100 * (index + 1) + number)
                for source in entry.reads:
                    check(source)  # some work-groups still read while others write
        for result in made.outputs:
            check(result)


@given(schedules())
def test_launches_of_a_phase_are_independent(made: Schedule) -> None:
    layout = replace(layout_of(made, is_whole=True), groups=2)
    root, launches = made.roots(), made.launches
    order, own = layout.group_copies.order, layout.group_copies.tensors
    arena = np.full(layout.arena_bytes, -1)
    value: dict[Tensor, int] = {}

    def held(tensor: Tensor, group: int) -> NDArray[np.int64]:
        offset = layout.offsets[tensor] + (group * layout.group_copy_bytes if tensor in own else 0)
        return arena[offset:][: size_bytes(tensor)]

    def write(targets: Iterable[Tensor], group: int = 0) -> None:
        for target in targets:
            held(target, group)[:] = value.setdefault(root.get(target, target), len(value))

    def check(sources: Iterable[Tensor], group: int = 0) -> None:
        for source in sources:
            assert (held(source, group) == value[root.get(source, source)]).all()

    write([*layout.arena_constants, *made.inputs])
    for _, some in itertools.groupby(order, lambda place: layout.phases[place]):
        claimed = []
        for place in some:
            check(launches[place].reads)
            if place in layout.group_copies.launches:
                write(launches[place].writes)
            else:
                claimed.append(launches[place])
        for each in claimed:
            write(each.writes)
        for each in claimed:
            check([t for t in (*each.reads, *each.writes) if t not in own])
    for place in order:  # the other group begins after the first one
        reads = launches[place].reads
        if place in layout.group_copies.launches:
            check(reads, 1)
            write(launches[place].writes, 1)
        else:
            check([t for t in reads if t in own], 1)
    check(made.outputs)


def test_dependent_launches_have_different_phases() -> None:
    first, left, right, both = (tensor(64) for _ in range(4))
    view, other = tensor(64), tensor(64)
    whole = schedule(
        [
            [launch([first], [left])],
            [launch([first], [right])],
            (right, view),
            [launch([left], [both]), launch([view], [other])],
            [launch([both], [left])],  # read by another launch
        ],
        [first],
        [left],
    )
    assert phases_of(whole, no_group_copies(whole)) == (0, 0, 1, 1, 2)


@given(schedules())
def test_offsets_are_aligned_with_padding(made: Schedule) -> None:
    size, offsets = planned(made)
    for placed, offset in offsets.items():
        assert offset % ALIGNMENT == 0
        assert offset + size_bytes(placed) + SLACK_BYTES <= size


def chain(sizes: Sequence[int]) -> Schedule:
    tensors = [tensor(size) for size in sizes]
    steps = [[launch([a], [b])] for a, b in itertools.pairwise(tensors)]
    return schedule(steps, tensors[:1], tensors[-1:])


def test_chain_needs_memory_of_two_tensors() -> None:
    assert planned(chain([1000] * 20))[0] == 2 * 1024 + SLACK_BYTES
    assert planned(chain([64] * 20))[0] == 2 * 64 + SLACK_BYTES
    assert planned(chain([65] * 20))[0] == 2 * 128 + SLACK_BYTES


def test_temporary_lives_while_its_alternative_runs() -> None:
    first, middle, last = (tensor(48) for _ in range(3))
    here, there = (temporary("between", (1000,), "uint8") for _ in range(2))
    steps = [
        [launch([a], [between]), launch([between], [b])]
        for a, between, b in ((first, here, middle), (middle, there, last))
    ]
    size, offsets = planned(schedule(steps, [first], [last]))
    assert offsets[here] == offsets[there]
    assert size == 1024 + 2 * 64 + SLACK_BYTES


def test_tensor_read_late_is_not_overwritten() -> None:
    source, middle, last, result = (tensor(48) for _ in range(4))
    chain = schedule(
        [
            [launch([source], [middle])],
            [launch([middle], [last])],
            [launch([source, last], [result])],
        ],
        [source],
        [result],
    )
    assert planned(chain)[0] == 3 * 64 + SLACK_BYTES


def test_state_is_written_where_next_run_reads_it() -> None:
    x, middle = tensor(48), tensor(48)
    old, new = (replace(tensor(48), state_name="value") for _ in range(2))

    def places(steps: Sequence[list[Launch]], outputs: Sequence[Tensor]) -> Mapping[Tensor, int]:
        return planned(schedule(steps, [old, x], outputs))[1]

    first, last = launch([old, x], [middle]), launch([middle], [new])
    offsets = places([[first], [last]], [new])
    assert offsets[new] == offsets[old] != offsets[middle]
    # One launch reads the old and writes the new value, or a later one reads the old value.
    for steps in ([[launch([old, x], [new])]], [[first], [last], [launch([old], [x])]]):
        offsets = places(steps, [new])
        assert offsets[new] != offsets[old]
    offsets = places([[first], [last]], [new, old])
    assert offsets[new] != offsets[old]


def test_states_with_one_new_value_are_separate() -> None:
    x, new = tensor(48), replace(tensor(48), state_name="one")
    old = [replace(tensor(48), state_name=name) for name in ("one", "two")]
    result = replace(new, state_name="two")
    steps = [[launch([*old], [x])], [launch([x], [new])]]
    offsets = planned(schedule([*steps, (new, result)], old, [new, result]))[1]
    assert offsets[new] == offsets[result] == offsets[old[0]] != offsets[old[1]]


def test_region_contains_only_its_values() -> None:
    region = Region({"other": 0, "value": 192, "made": 64}, 256)
    x, middle, result = (tensor(48) for _ in range(3))
    old, new = (replace(tensor(48), state_name="value") for _ in range(2))
    first, again = (replace(tensor(48), state_name=name) for name in ("made", "other"))
    steps = [[launch([old, x], [middle])], [launch([middle], [new, result])]]
    ends = [new, result, first, again]
    views = [(x, first), (x, again)]  # an input, which may be assigned to a variable
    layout = layout_of(schedule([*steps, *views], [old, x], ends), region=region)
    offsets = layout.offsets
    assert offsets[old] == offsets[new] == 192
    assert offsets[x] == offsets[first] == offsets[again] == 0
    assert min(offsets[middle], offsets[result]) >= 256
    # An initial value is in its own place, whatever reads it.
    layout = layout_of(schedule([(old, first)], [old], [first]), region=region)
    assert (layout.offsets[old], layout.offsets[first]) == (192, 192)


def test_arena_constants_do_not_share_memory() -> None:
    constant, source = const(np.zeros(48, np.uint8)), tensor(48)
    middle, result = tensor(48), tensor(48)
    chain = schedule(
        [[launch([source, constant], [middle])], [launch([middle], [result])]], [source], [result]
    )
    offsets = planned(chain)[1]
    assert offsets[source] == offsets[result]
    assert offsets[constant] not in (offsets[source], offsets[middle])


def test_schedule_of_views() -> None:
    source, middle, result = tensor(100), tensor(100), tensor(100)
    size, offsets = planned(schedule([(source, middle), (middle, result)], [source], [result]))
    assert offsets[source] == offsets[middle] == offsets[result]
    assert size == 128 + SLACK_BYTES


def constant(size: int) -> Constant:
    return Constant(size, lambda: np.zeros(size, np.uint8))


def test_constants_are_stored_once_in_sequence() -> None:
    first, second, third = constant(1), constant(64), constant(65)
    whole = schedule(
        [[launch([], [], [first, second])], [launch([], [], [second]), launch([], [], [third])]],
        [],
        [],
    )
    assert constants_of(whole.launches) == (first, second, third)
    size, offsets = plan_constants(constants_of(whole.launches))
    assert dict(offsets) == {first: 0, second: 64, third: 128}
    assert size == 256 + SLACK_BYTES


X, Y = Tensor(0, "", (5,), "uint8"), Tensor(1, "", (3,), "int32")
STATE = Tensor(2, "", (2,), "uint8", data=np.array([8, 9], np.uint8))
WEIGHTS = Constant(3, lambda: np.array([1, 2, 3], np.uint8))
BIAS = Constant(8, lambda: np.array([7, -1], np.int32))


def two_launches() -> Schedule:
    first = Launch("f", "f", 4, 1, {"x": X, "w": WEIGHTS, "n": 11}, (X, STATE), (Y,))
    second = Launch("g", "g", 9, 1, {"b": BIAS, "w": WEIGHTS, "y": Y}, (Y,), (Y,))
    steps = tuple(Step(i, "", Alternative("", (each,))) for i, each in enumerate((first, second)))
    return Schedule(steps, (X,), (Y,))


def test_parameter_block_contents() -> None:
    result = two_launches()
    layout = layout_of(result, batch=3)
    assert layout.constant_bytes == 2 * ALIGNMENT + SLACK_BYTES
    blocks = layout.blocks(result.launches, [{WEIGHTS: 64}, {WEIGHTS: 128, BIAS: 0}])
    ((x, x_bytes),), ((y, y_bytes),) = layout.inputs, layout.outputs
    slot = layout.slot_bytes
    assert blocks == (4, slot, x, 64, 11, 9, slot, 0, 128, y)
    assert layout.firsts == (2, 7)
    second = np.array([9, slot, 0, 128, y], np.int32)
    assert block_of(blocks, 7, 3).tobytes() == second.tobytes()
    assert (x_bytes, y_bytes) == (5, 12)
    assert layout.arena_bytes == 3 * slot
    assert list(layout.arena_constants) == [STATE]
