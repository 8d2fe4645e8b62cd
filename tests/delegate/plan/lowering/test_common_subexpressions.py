# SPDX-License-Identifier: Apache-2.0
"""Quantised rows that several nodes need are computed once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from delegate import DeviceInfo
from delegate.inspect import Graph, Tensor, write_model
from delegate.launch import Alternative, Launch, Schedule, Step, temporary
from delegate.plan.layout import phases_of
from delegate.plan.lowering.common_subexpressions import eliminate_common_launches
from delegate.plan.per_group_copies import no_group_copies
from tests.support.cases import LANES_16, PLAIN, SIMT, Strategy, assert_exact_strategy
from tests.support.model import const, graph_of, op, t
from tests.support.schedules import fallback_schedule
from tests.support.tiers import where_rows_are_known


def products(asymmetric: tuple[bool, ...]) -> Graph:
    """Return hybrid FULLY_CONNECTED nodes with one input, and one that reads their first result."""
    rng = np.random.default_rng(3)
    x, results, nodes = t((1, 64)), [], []
    for number, is_asymmetric in enumerate(asymmetric):
        weights = rng.integers(-127, 127, (64, 64), endpoint=True).astype(np.int8)
        options = {
            "fused_activation_function": "NONE",
            "keep_num_dims": False,
            "asymmetric_quantize_inputs": is_asymmetric,
        }
        source = results[0] if number == len(asymmetric) - 1 else x
        results.append(t((1, 64)))
        inputs = [source, const(weights, np.float32([0.01])), None]
        nodes.append(op("FULLY_CONNECTED", inputs, [results[-1]], options, version=9))
    return graph_of(nodes, [x], results)


def test_equal_rows_are_quantised_once() -> None:
    graph = products((False, False, True, False, False))
    schedule = fallback_schedule(graph)
    kernels = Counter(launch.kernel for launch in schedule.launches)
    # x with and without a zero point, and the last one's input.
    assert kernels["quantize_row_float"] == 3
    assert kernels["fully_connected_hybrid"] == 5
    # Rows of x; their products, and rows of x the other way; their products, and rows of the first
    # result; their product.
    assert phases_of(schedule, no_group_copies(schedule)) == (0, 1, 1, 1, 2, 2, 2, 3)


@where_rows_are_known
@pytest.mark.parametrize("strategy", [PLAIN, SIMT, LANES_16], ids=str)
def test_results_are_equal(device: DeviceInfo, strategy: Strategy) -> None:
    assert_exact_strategy(
        write_model(products((False, False, True, False, False))), device, strategy
    )


def launch(reads: Tensor, writes: Tensor) -> Launch:
    return Launch("file", "kernel", 1, 1, {"x": reads, "y": writes}, (reads,), (writes,))


def of(*launches: Launch, view: tuple[Tensor, Tensor] | None = None) -> list[Launch]:
    """Return the remaining launches, optionally after a view of the first one's input."""
    steps = [Step(n, "OP", Alternative("", (each,))) for n, each in enumerate(launches)]
    if view is not None:
        steps.insert(0, Step(len(steps), "OP", Alternative("", (), view)))
    return [*eliminate_common_launches(Schedule(tuple(steps), (), ())).launches]


X, Y, Z = t((4,)), t((4,)), t((4,))
FIRST, SECOND = (temporary("rows", (4,), "int8") for _ in range(2))
A, B = launch(X, FIRST), launch(X, SECOND)


def test_readers_of_duplicate_read_original() -> None:
    first, last = of(A, B, launch(SECOND, Y))
    assert first is A
    assert (last.reads, last.params["x"]) == ((FIRST,), FIRST)


@pytest.mark.parametrize(
    ("launches", "view"),
    [
        pytest.param((A, launch(Y, X), B), None, id="written-anew"),
        pytest.param((A, launch(Y, Z), B), (X, Z), id="written-anew-by-a-view"),
        pytest.param((A, B, launch(Y, SECOND)), None, id="written-twice"),
        pytest.param((A, launch(Y, SECOND)), None, id="of-another"),
        pytest.param((launch(X, Y), launch(X, Z)), None, id="no-temporaries"),
        pytest.param((A, replace(B, tiles=2)), None, id="other-sizes"),
        pytest.param((A, replace(B, defines={"OUT": "char"})), None, id="other-macros"),
    ],
)
def test_different_launches_stay(
    launches: tuple[Launch, ...], view: tuple[Tensor, Tensor] | None
) -> None:
    assert of(*launches, view=view) == [*launches]
