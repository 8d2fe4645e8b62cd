# SPDX-License-Identifier: Apache-2.0
"""attention: what it refuses, and what it does not read. test_transformer.py compares it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from delegate import DeviceInfo, OpenCLDelegate
from delegate.inspect import read_model
from delegate.ops.attention import lower_attention
from tests.delegate.ops.test_transformer import fused, given
from tests.support.cases import LANES_4, LANES_16, Strategy
from tests.support.compare import interpreter, invoke
from tests.support.factories import refused
from tests.support.fused import ATTENTIONS, assert_near_nodes, attention, seen
from tests.support.model import chain_model, t

ATTENTION = fused(ATTENTIONS["computed"])
test_refusals = refused(
    {
        "attention_type": (
            given(ATTENTION, 3, (3, 12), "int32"), "int32: only float32 is implemented"
        ),
        "attention_values": (
            given(ATTENTION, 2, (2, 13, 16)), "output 2x13x16: the inputs give 2x12x16"
        ),
        "attention_keys": (
            given(ATTENTION, 1, (3, 12, 16)), "output 3x12x16: the inputs give 2x12x16"
        ),
        "attention_mask": (
            given(ATTENTION, 3, (2, 1, 3, 12)),
            "a mask 2x1x3x12 of scores (2, 3, 12): they do not fit",
        ),
        "attention_places": (
            replace(
                ATTENTION,
                inputs=(ATTENTION.inputs[0], t((2, 40_000, 16)), t((2, 40_000, 16))),
            ),
            "40000 places of 16: too many for one kernel",
        ),
        "attention_rows": (
            fused(attention((1, 17, 8), 33)), "17 rows: separate products of matrices are faster"
        ),
    }
)  # fmt: skip


@pytest.mark.parametrize(
    ("units", "name"),
    [(1, "parts 1x3"), (2, "parts 2x3"), (3, "parts 1x3"), (7, "parts 3x3")],
)
def test_cores_share_the_places_of_a_matrix(units: int, name: str) -> None:
    # Three matrices; a part has 32 places at least.
    target = replace(LANES_16.target, compute_units=units)
    first, *_ = lower_attention(fused(ATTENTIONS["hidden_first"]), target)
    assert first.name == name


@pytest.mark.device
@pytest.mark.parametrize("units", [1, 2, 7])
@pytest.mark.parametrize("strategy", [LANES_4, LANES_16], ids=str)
@pytest.mark.parametrize("name", ["hidden_first", "full", "cache"])
def test_any_number_of_parts(name: str, strategy: Strategy, units: int, device: DeviceInfo) -> None:
    strategy = replace(strategy, facts={**strategy.facts, "compute_units": units})
    assert_near_nodes(ATTENTIONS[name], device, strategy)


@pytest.mark.device
@pytest.mark.parametrize(
    ("counts", "places", "read"),
    [((10,) * 3, 64, 16), (range(1, 17), 128, 64)],  # by fours, and by some vectors
    ids=["few", "many"],
)
def test_what_a_mask_hides_at_the_end_is_not_read(
    device: DeviceInfo, counts: Sequence[int], places: int, read: int
) -> None:
    model = chain_model(attention((2, len(counts), 32), places, seen(places, *counts)))
    made = interpreter(model, OpenCLDelegate(model, device.index, tune="off"))
    rng = np.random.default_rng(1)
    values = [rng.normal(0, 1, x.shape).astype(np.float32) for x in read_model(model).inputs]
    (before,) = invoke(made, values)
    for cache in values[1:]:
        cache[:, read:] = np.nan
    (after,) = invoke(made, values)
    assert np.isfinite(after).all()
    assert (before == after).all()
