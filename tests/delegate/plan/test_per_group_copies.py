# SPDX-License-Identifier: Apache-2.0
"""Per-group copies of results in a persistent launch, and their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from delegate.graph.ir import Tensor
from delegate.launch import Alternative, Constant, Launch, Schedule, Step
from delegate.plan.layout import layout_of, phases_of
from delegate.plan.per_group_copies import group_copies
from tests.support.model import t


def tensor(size: int = 64) -> Tensor:
    return t((size,), "uint8")


def launch(
    reads: Sequence[Tensor],
    writes: Sequence[Tensor],
    tiles: int = 1,
    weights: int = 0,
    group_items: int = 1,
) -> Launch:
    constant = Constant(weights, lambda: np.zeros(weights, np.uint8))
    params = {"weights": constant} if weights else {}
    params |= {f"tensor{n}": each for n, each in enumerate((*reads, *writes))}
    return Launch("file", "kernel", tiles, group_items, params, tuple(reads), tuple(writes))


def schedule(
    launches: Sequence[Launch | tuple[Tensor, Tensor]],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
) -> Schedule:
    strategies = [
        Alternative("view", (), each) if isinstance(each, tuple) else Alternative("", (each,))
        for each in launches
    ]
    steps = tuple(Step(n, "OP", strategy) for n, strategy in enumerate(strategies))
    return Schedule(steps, tuple(inputs), tuple(outputs))


def test_launches_between_products_are_replicated() -> None:
    given, left, right, answer = (tensor() for _ in range(4))
    small = [tensor() for _ in range(5)]
    whole = schedule(
        [
            launch([given], [small[0]]),
            launch([small[0]], [left], tiles=9, weights=1 << 20),
            launch([left], [small[1]]),
            launch([small[0]], [right], tiles=9, weights=1 << 20),
            launch([right], [small[2]]),
            (small[2], small[3]),
            launch([small[1], small[3]], [small[4]], tiles=3),
            launch([small[4]], [answer]),
        ],
        [given],
        [answer],
    )
    outcome = group_copies(whole)
    assert outcome.launches == {0, 2, 4, 5}
    assert outcome.tensors == {small[0], small[1], small[2], small[3], small[4]}
    # Both products are independent; their readers follow both.
    assert outcome.order == (0, 1, 3, 2, 4, 5, 6)
    assert phases_of(whole, outcome) == (0, 0, 1, 0, 1, 1, 1)


@pytest.mark.parametrize(
    "middle",
    [
        pytest.param({"size": 1 << 15}, id="many bytes"),
        pytest.param({"size": 3 << 12, "tiles": 2}, id="tiles of many bytes"),
        pytest.param({"weights": 1 << 14}, id="weights"),
        pytest.param({"tiles": 2, "weights": 64}, id="tiles of weights"),
        pytest.param({"tiles": 2, "group_items": 64}, id="tiles of many items"),
    ],
)
def test_large_launches_are_shared(middle: dict[str, int]) -> None:
    size = middle.pop("size", 64)
    given, between, answer = tensor(size), tensor(size), tensor()
    of_group = middle.get("group_items", 1)
    whole = schedule(
        [launch([given], [between], **middle), launch([between], [answer], group_items=of_group)],
        [given],
        [answer],
    )
    assert not group_copies(whole).launches


def test_outputs_are_shared() -> None:
    given, answer = tensor(), tensor()
    assert not group_copies(schedule([launch([given], [answer])], [given], [answer])).launches


def test_inputs_of_shared_launches_are_shared() -> None:
    # Many tiles write half of `joined`.
    given, joined, answer = tensor(), tensor(), tensor()
    whole = schedule(
        [
            launch([given], [joined], tiles=5, weights=100),
            launch([given], [joined]),
            launch([joined], [answer]),
        ],
        [given],
        [answer],
    )
    assert not group_copies(whole).launches


def test_overwritten_tensor_is_not_read_late() -> None:
    given, made_of_it, answer = tensor(), tensor(), tensor()
    steps = [
        launch([given], [made_of_it]),
        launch([made_of_it], [answer]),
        launch([answer], [given]),  # in place of the first one's input
    ]
    assert not group_copies(schedule(steps, [given], [answer])).launches
    assert group_copies(schedule(steps[:2], [given], [answer])).launches == {0}


def test_state_is_not_read_late() -> None:
    # Its new value has the same place.
    given, made_of_it, answer = tensor(), tensor(), tensor()
    old, new = (replace(tensor(), state_name="state") for _ in range(2))
    steps = [
        launch([given, old], [made_of_it]),
        launch([made_of_it], [answer]),
        launch([answer], [new]),
    ]
    whole = schedule(steps, [given, old], [answer, new])
    assert not group_copies(whole).launches
    layout = layout_of(whole, is_whole=True)
    assert layout.offsets[new] == layout.offsets[old]


def test_order_of_in_place_updates() -> None:
    given, own, early, late, answer, second = (tensor() for _ in range(6))
    steps = [
        launch([given], [own]),
        launch([own], [early]),
        launch([own], [own]),
        launch([own], [late]),
        launch([late], [answer], tiles=9, weights=1 << 20),
        launch([early], [second]),
    ]
    whole = group_copies(schedule(steps, [given], [answer, second]))
    assert whole.launches == {0, 1, 2, 3}
    # The reader of the old value must come before the update, although its result is needed later.
    assert whole.order == (0, 1, 2, 3, 4, 5)


def test_unneeded_launches_come_last() -> None:
    given, unused, answer = tensor(), tensor(), tensor()
    steps = [launch([given], [unused]), launch([given], [answer])]
    whole = schedule(steps, [given], [answer])
    assert group_copies(whole).order == (1, 0)
    assert unused in layout_of(whole, is_whole=True).offsets


def test_replicas_follow_arena() -> None:
    given, own, answer = tensor(), tensor(), tensor()
    whole = schedule([launch([given], [own]), launch([own], [answer])], [given], [answer])
    layout = replace(layout_of(whole, is_whole=True), groups=3)
    size = layout.group_copy_bytes
    assert layout.offsets[own] == layout.slot_bytes
    assert layout.arena_bytes == layout.slot_bytes + 3 * size
    assert layout.strides(whole.launches) == (0, 0, 0, size, 0, 0, size, 0)


@pytest.mark.parametrize(("batch", "is_whole"), [(1, False), (2, True)])
def test_other_tensors_have_no_replicas(batch: int, is_whole: bool) -> None:
    given, own, answer = tensor(), tensor(), tensor()
    whole = schedule([launch([given], [own]), launch([own], [answer])], [given], [answer])
    layout = layout_of(whole, batch, is_whole)
    assert layout.group_copies.order == (0, 1)
    assert not layout.group_copies.launches
    assert layout.arena_bytes == layout.slot_bytes * batch
