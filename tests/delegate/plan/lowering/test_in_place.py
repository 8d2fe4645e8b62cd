# SPDX-License-Identifier: Apache-2.0
"""Updates of tensors in place, if nothing needs the old value."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from delegate.graph.persistent import with_carry, with_variables
from delegate.inspect import Graph, Node, Tensor
from tests.support.model import const, graph_of, op, t
from tests.support.schedules import fallback_schedule

SHAPE, PART = (6, 4), (1, 4)
OLD, NEW, MADE = (t(SHAPE, "float32", name=name) for name in ("old", "new", "made"))
ROW, AT = t(PART, "float32", name="row"), t((2,), "int32", name="at")
SHAPED, SUM = (t(shape, "float32", name="other") for shape in ((4, 6), SHAPE))
UPDATE = op("DYNAMIC_UPDATE_SLICE", [OLD, ROW, AT], [NEW])
NEG, ADD = op("NEG", [NEW], [MADE]), op("ADD", [OLD, NEW], [SUM])
ONES = const(np.ones(SHAPE, np.float32))
OF_VIEW = op("NEG", [SHAPED], [t((4, 6), "float32")])
VIEW = op("RESHAPE", [OLD, const(np.array([4, 6], np.int32))], [SHAPED])


def copies(graph: Graph) -> int:
    """Return the number of launches that copy a whole tensor before an update."""
    schedule = fallback_schedule(graph)
    updates = [step for step in schedule.steps if step.op == "DYNAMIC_UPDATE_SLICE"]
    assert all(
        (len(step.alternative.launches) == 1) == (step.alternative.view is not None)
        for step in updates
    )
    return sum(len(step.alternative.launches) - 1 for step in updates)


def of(nodes: list[Node], outputs: list[Tensor]) -> Graph:
    return graph_of(nodes, [OLD, ROW, AT], outputs)


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        pytest.param(of([UPDATE, NEG], [MADE]), 0, id="dead"),
        pytest.param(of([UPDATE, ADD], [SUM]), 1, id="read"),
        pytest.param(of([VIEW, OF_VIEW, UPDATE], [NEW]), 0, id="view-before"),
        pytest.param(of([VIEW, UPDATE, OF_VIEW], [NEW]), 1, id="view-after"),
        pytest.param(of([VIEW, UPDATE], [NEW, SHAPED]), 1, id="output"),
        pytest.param(of([replace(UPDATE, inputs=(OLD, OLD, AT))], [NEW]), 1, id="itself"),
        pytest.param(of([replace(UPDATE, inputs=(ONES, ROW, AT))], [NEW]), 1, id="constant"),
    ],
)
def test_needed_operand_is_copied(graph: Graph, expected: int) -> None:
    assert copies(graph) == expected


def test_state_is_overwritten_only_by_its_next_value() -> None:
    graph = of([UPDATE, NEG], [MADE, NEW])
    assert copies(with_carry(graph, {"new": "old"})) == 0
    assert copies(with_carry(graph, {"made": "old"})) == 0  # it is written later
    held = replace(OLD, is_variable=True)
    read = graph_of([replace(UPDATE, inputs=(held, ROW, AT))], [ROW, AT], [NEW])
    assert copies(with_variables(read)) == 1


def test_chain_of_updates_shares_memory() -> None:
    again = op("DYNAMIC_UPDATE_SLICE", [NEW, ROW, AT], [MADE])
    assert copies(of([UPDATE, again], [MADE])) == 0
    assert copies(of([UPDATE, again], [NEW, MADE])) == 1
