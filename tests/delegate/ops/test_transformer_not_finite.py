# SPDX-License-Identifier: Apache-2.0
"""NaN, infinities and overflow through nodes that passes join: what TFLite's nodes apart give."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate import DeviceInfo, OpenCLDelegate
from delegate.inspect import Node, read_model
from tests.support.cases import (
    LANES_8,
    PLAIN,
    SIMT,
    Strategy,
    changed,
    forced,
    refusal,
    require_isa,
)
from tests.support.compare import interpreter, invoke
from tests.support.floats import kinds
from tests.support.fused import (
    ATTENTIONS,
    GATES,
    LAYER_NORMS,
    NORMS,
    ROPES,
    SCALED,
    SHARES,
    fused,
    layer_norm,
)
from tests.support.model import chain_model

# By element: what is not finite, what overflows in a sum, product or square, what does not.
ODD = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 1e25, 1e-40, 0.0, -0.0, 1.0, -2.0], "f")
# By row: one of these among small numbers.
ROWS = [[np.nan], [np.inf], [-np.inf, np.inf], [1e25], [-1e30, 1e30], [3e38], [0.0]]
ELEMENTWISE = {
    "gate": GATES["swapped"],
    "share": SHARES["swapped"],
    "glu": SHARES["other"],
    "scaled": SCALED["narrow"],
    "scaled_sum": SCALED["rows"],
    "scaled_vectors": SCALED["swapped"],
    "rope": ROPES["odd"],
    "rope_vectors": ROPES["rows"],
}
BY_ROW = {
    "norm": NORMS["rows"],
    "norm_swapped": NORMS["swapped"],
    "layer_norm": LAYER_NORMS["rows"],
    "layer_norm_swapped": LAYER_NORMS["swapped"],
    "layer_norm_of_vectors": LAYER_NORMS["vectors"],
}
# Products of these neither overflow nor are rounded to an infinity by one kernel alone.
SCORES = {
    "alone": ATTENTIONS["alone"],
    "no_scale": ATTENTIONS["no_scale"],
    "no_mask": ATTENTIONS["no_mask"],
    "infinite": ATTENTIONS["infinite"],
    "computed": ATTENTIONS["computed"],
    "distances": ATTENTIONS["distances"],
    "many": ATTENTIONS["many"],
}


def assert_same_kinds(nodes: list[Node], inputs: list[list[NDArray[np.float32]]],
                      strategy: Strategy, device: DeviceInfo) -> None:  # fmt: skip
    require_isa(strategy, device)
    model = chain_model(nodes)
    with forced(strategy):
        delegate = OpenCLDelegate(model, device.index, tune="off", profiling=True)
        made = interpreter(model, delegate)
    reference = interpreter(model)
    seen = 0
    for given in inputs:
        (ours,), (theirs,) = invoke(made, given), invoke(reference, given)
        wrong = np.argwhere(kinds(ours) != kinds(theirs))
        first = [tuple(map(int, place)) for place in wrong[:3]]
        assert len(wrong) == 0, [(place, ours[place], theirs[place]) for place in first]
        seen += np.count_nonzero(kinds(theirs))
    assert seen
    (op,) = {row.op for row in delegate.profile()}
    assert op == fused(nodes).op


@pytest.mark.parametrize("strategy", [PLAIN, SIMT, LANES_8], ids=str)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_element_by_element(name: str, strategy: Strategy, device: DeviceInfo) -> None:
    rng = np.random.default_rng(3)
    shapes = [each.shape for each in read_model(chain_model(ELEMENTWISE[name])).inputs]
    given = [[rng.choice(ODD, shape) for shape in shapes] for _ in range(3)]
    assert_same_kinds(ELEMENTWISE[name], given, strategy, device)


@pytest.mark.parametrize("strategy", [PLAIN, SIMT, LANES_8], ids=str)
@pytest.mark.parametrize("name", BY_ROW)
def test_row_by_row(name: str, strategy: Strategy, device: DeviceInfo) -> None:
    rng = np.random.default_rng(4)
    (x,) = read_model(chain_model(BY_ROW[name])).inputs
    given = []
    for odd in ROWS:
        values = rng.normal(0, 1.5, x.shape).astype(np.float32)
        places = rng.permutation(x.shape[-1])[: len(odd)]
        values[..., 0, places] = odd
        given.append([values])
    assert_same_kinds(BY_ROW[name], given, strategy, device)


@pytest.mark.parametrize("strategy", [PLAIN, SIMT, LANES_8], ids=str)
@pytest.mark.parametrize("name", SCORES)
def test_scores(name: str, strategy: Strategy, device: DeviceInfo) -> None:
    rng = np.random.default_rng(5)
    queries, *others = read_model(chain_model(SCORES[name])).inputs
    given = []
    for odd in (np.nan, np.inf, -np.inf):
        values = rng.normal(0, 1.5, queries.shape).astype(np.float32)
        values[..., 0, 0] = odd
        rest = [rng.normal(0, 1.5, each.shape).astype(np.float32) for each in others]
        given.append([values, *rest])
    assert_same_kinds(SCORES[name], given, strategy, device)


def test_constants_that_overflow_by_themselves_are_left_apart() -> None:
    node = fused(layer_norm((2, 8), 1e-3))
    for position, value in ((1, 1e38), (2, 1e32), (2, np.nan)):
        wide = changed(node, position, data=np.full(8, value, np.float32))
        assert refusal(wide).endswith("may overflow")
