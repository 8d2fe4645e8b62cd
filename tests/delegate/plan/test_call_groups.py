# SPDX-License-Identifier: Apache-2.0
"""Which launches share a kernel call, and their order; run in test_fused_launches.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from delegate.graph.ir import Tensor
from delegate.launch import Launch, Schedule
from delegate.plan.call_groups import call_groups, call_numbers, has_shared_calls, reordered
from delegate.plan.layout import layout_of
from tests.delegate.plan.test_per_group_copies import launch, schedule, tensor

LARGE = 17  # tiles: too many to be small, or to repeat a chain


def groups_of(launches: Sequence[Launch]) -> list[tuple[int, int]]:
    """Return the lengths of chain and spread of each call, in the launches' own order."""
    found = call_groups(schedule(launches, [], []))
    assert [each for group in found for each in group.launches] == [*launches]
    return [(len(group.chain), len(group.spread)) for group in found]


def order_of(whole: Schedule) -> list[int]:
    return [step.node_index for step in reordered(whole).steps]


def large(reads: Sequence[Tensor], writes: Sequence[Tensor], tiles: int = LARGE) -> Launch:
    return launch(reads, writes, tiles, group_items=64)


def small(reads: Sequence[Tensor], writes: Sequence[Tensor], tiles: int = 1) -> Launch:
    return launch(reads, writes, tiles, group_items=64)


def test_small_launches_form_chains() -> None:
    a = tensor()
    few, many, one_item = small([a], [a], 8), small([a], [a], 9), launch([a], [a])
    heavy = launch([a], [a], weights=8193, group_items=64)
    wide = small([tensor(65537)], [a])  # as attention over a cache, of few heads
    assert groups_of([few, few, many, few, heavy, few]) == [(2, 0), (0, 1), (1, 0), (0, 1), (1, 0)]
    assert groups_of([few, wide, few]) == [(1, 0), (0, 1), (1, 0)]
    assert groups_of([few, one_item, one_item, few]) == [(1, 0), (2, 0), (1, 0)]
    assert groups_of([few] * 19) == [(8, 0), (8, 0), (3, 0)]


def test_independent_launches_of_one_kernel_are_spread() -> None:
    a, b, c, d = (tensor() for _ in range(4))
    one, two, three = large([a], [b]), large([a], [c], 99), large([a], [d])
    assert groups_of([one, two, three]) == [(0, 3)]
    (group,) = call_groups(schedule([one, two], [], []))
    assert group.groups == LARGE + 99
    other = replace(three, kernel="other")
    narrow = replace(three, defines={"LANES": 1})
    literal = replace(three, is_specialised=True)
    for each in (other, narrow, literal):
        assert groups_of([one, two, each]) == [(0, 2), (0, 1)]
    for each in (large([b], [d]), large([a], [b]), large([d], [a])):
        assert groups_of([one, two, each]) == [(0, 2), (0, 1)]
    assert groups_of([one] + [large([a], [tensor()]) for _ in range(8)]) == [(0, 8), (0, 1)]


def test_chain_is_repeated_by_few_work_groups() -> None:
    a, b, c, d = (tensor() for _ in range(4))
    chain = [small([a], [b]), small([b], [c])]
    assert groups_of([*chain, large([c], [d], 16)]) == [(2, 1)]
    assert groups_of([*chain, large([c], [d], 9), large([c], [a], 9)]) == [(2, 1), (0, 1)]
    assert groups_of([*chain, large([c], [d], 17)]) == [(2, 0), (0, 1)]


@pytest.mark.parametrize("what", ["input", "between", "itself"])
def test_chain_that_overwrites_what_it_reads_is_not_repeated(what: str) -> None:
    # A work-group that begins late would read what another one has written.
    a, b, c = (tensor() for _ in range(3))
    chain, last = {
        "input": ([small([a], [b])], large([b], [a], 16)),
        "between": ([small([a], [b]), small([b], [a])], large([a], [c], 16)),
        "itself": ([small([a, b], [b])], large([b], [c], 16)),
    }[what]
    assert groups_of([*chain, last]) == [(len(chain), 0), (0, 1)]


def test_views_are_the_same_memory() -> None:
    a, b, view, c = (tensor() for _ in range(4))
    whole = schedule([large([a], [b]), (b, view), large([view], [c])], [a], [c])
    assert len(call_groups(whole)) == 2
    assert order_of(whole) == [0, 1, 2]


def test_launches_of_a_stage_come_together() -> None:
    x, q, k, q2, k2, v, y = (tensor() for _ in range(7))
    whole = schedule(
        [
            large([x], [q]),
            small([q], [q2]),
            large([x], [k]),
            small([k], [k2]),
            large([x], [v]),
            large([q2, k2, v], [y]),
        ],
        [x],
        [y],
    )
    assert order_of(whole) == [0, 2, 4, 1, 3, 5]
    found = call_groups(reordered(whole))
    assert [(len(group.chain), len(group.spread)) for group in found] == [(0, 3), (2, 0), (0, 1)]
    assert call_numbers(found) == [0, 0, 0, 1, 1, 2]
    assert has_shared_calls(whole)
    assert not has_shared_calls(schedule([large([x], [y])], [x], [y]))


def test_overwritten_values_are_read_before() -> None:
    x, old, far, y, z = (tensor() for _ in range(5))
    whole = schedule(
        [
            large([x], [far]),
            small([far, old], [y]),  # in a later stage than the next one would be
            small([x], [old]),
            small([old], [z]),
        ],
        [x, old],
        [y, z],
    )
    assert order_of(whole) == [0, 1, 2, 3]


def test_tensors_of_a_call_do_not_overlap() -> None:
    # All launches of a call may run at once, and a repeated chain again.
    a, b, c, d = (tensor() for _ in range(4))
    whole = schedule([small([a], [b]), small([b], [c]), large([c], [d], 9)], [a], [d])
    groups = call_groups(whole)
    assert len(groups) == 1
    apart = layout_of(whole)
    assert apart.offsets[a] == apart.offsets[c]
    shared = layout_of(whole, calls=call_numbers(groups))
    assert len({shared.offsets[each] for each in (a, b, c, d)}) == 4
