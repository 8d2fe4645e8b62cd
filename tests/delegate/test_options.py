# SPDX-License-Identifier: Apache-2.0
"""The record Options: refused values, and equivalence with keyword arguments."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import fields
from typing import Any

import pytest

from delegate import DeviceInfo, Model, OpenCLDelegate, Options
from delegate.engine import Engine
from delegate.graph.verdict import Verdict
from delegate.inspect import write_model
from delegate.options import DELEGATE_ONLY
from delegate.plan.passes import PASSES
from delegate.plan.planners.child_planner import ChildPlanner
from delegate.plan.planners.plan_reader import IN_KEY
from tests.support.nets import net

MODEL = write_model(net([("ADD", [0, 0], 1)]))


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"exclude_ops": "ADD"}, TypeError, "exclude_ops is a list of op names: ['ADD']"),
        ({"exclude_isa": "vnni"}, TypeError, "exclude_isa is a list of names: ['vnni']"),
        ({"passes": "fuse_add"}, TypeError, "passes is a list of names: ['fuse_add']"),
        ({"passes": ["fuse"]}, ValueError, "passes='fuse': one of " + ", ".join(PASSES)),
        ({"exclude_ops": [1]}, TypeError, "exclude_ops is a list of op names: [1]"),
        ({"exclude_ops": None}, TypeError, "exclude_ops=None: its type is Iterable[str]"),
        ({"placement": None}, TypeError, "placement=None: its type is str"),
        ({"isolate": "no"}, TypeError, "isolate='no': its type is bool"),
        ({"run_timeout": "3"}, TypeError, "run_timeout='3': its type is float"),
        ({"run_timeout": math.nan}, ValueError, "run_timeout=nan is less than 0"),
        (
            {"precision": "ieee", "placement": "offload"},
            ValueError,
            "placement='offload' leaves the bits of floats to timings: not with precision='ieee'",
        ),
        ({"device": 1.5}, TypeError, "device=1.5: its type is str | int | None"),
        ({"plan": b"x"}, TypeError, "plan=b'x': its type is str | os.PathLike[str] | None"),
        ({"tune": "slow"}, ValueError, "tune='slow': one of off, quick, full"),
        *(
            (
                {"placement": word},
                ValueError,
                f"placement='{word}': one of device, fastest, offload, offload:FACTOR (>= 1)",
            )
            for word in ("", "cpu", "fastest:2", "offload:0.9", "offload:nan", "offload:x")
        ),
        ({"min_nodes_per_partition": -1}, ValueError, "min_nodes_per_partition=-1 is less than 0"),
        (
            {"max_delegated_partitions": -2},
            ValueError,
            "max_delegated_partitions=-2 is less than 0",
        ),
    ],
)
def test_wrong_values_are_refused(wrong: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as raised:
        Options(**wrong)
    assert str(raised.value) == text


def test_lists_become_tuples_and_equal_options_compare_equal() -> None:
    assert Options(exclude_ops=iter(["ADD"])) == Options(exclude_ops=["ADD"])
    assert Options(exclude_ops=["ADD"]).exclude_ops == ("ADD",)


def test_every_option_is_a_keyword(device: DeviceInfo) -> None:
    options = Options(device.index, tune="off", exclude_ops=["ADD"], alternative="plain")
    keywords = {field.name: getattr(options, field.name) for field in fields(options)}
    assert OpenCLDelegate(MODEL, **keywords)._options == options
    with pytest.raises(TypeError, match="tuned"):
        OpenCLDelegate(MODEL, tuned="off")
    with pytest.raises(TypeError, match="runs the whole graph on the device: no exclude_ops"):
        Model(MODEL, device.index, exclude_ops=["ADD"])


def test_model_has_options_that_apply(device: DeviceInfo) -> None:
    options = Options(device.index, tune="off", alternative="plain", exclude_ops=["ADD"])
    with Model(MODEL, **options.of_model()) as model:
        assert model.device == device
    for name in DELEGATE_ONLY:
        with pytest.raises(TypeError, match=f"no {name}"):
            Model(MODEL, device.index, **{name: getattr(options, name)})


def test_options_of_key_make_other_plans(device: DeviceInfo) -> None:
    others: dict[str, Any] = {
        "alternative": "plain", "passes": (), "precision": "fp16", "profiling": True,
    }  # fmt: skip
    assert sorted(others) == IN_KEY

    def key(**keywords: Any) -> str:
        with closing(Engine(Options(device.index, tune="off", **keywords), ChildPlanner)) as engine:
            assert isinstance(engine._planning, ChildPlanner)
            return engine._planning._name("registers", ())

    keys = [key(), *(key(**{name: value}) for name, value in others.items())]
    assert len(set(keys)) == len(keys)
    assert key(run_timeout=5.0) == keys[0]


def test_record_replaces_keywords(device: DeviceInfo) -> None:
    options = Options(device=device.index, exclude_ops=["ADD"], tune="off")
    assert OpenCLDelegate(MODEL, options=options).device == device
    with pytest.raises(TypeError, match="options is given, and other keywords, too"):
        OpenCLDelegate(MODEL, device.index, options=options)


def test_verdict_is_record_and_tuple() -> None:
    taken = Verdict(3, "ADD", None)
    node, op, reason = taken
    assert (node, op, reason, taken.is_taken) == (3, "ADD", None, True)
    left = taken.refused("too small")
    assert left == (3, "ADD", "too small")
    assert not left.is_taken
    assert left.refused("another reason") is left
