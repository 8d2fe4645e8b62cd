# SPDX-License-Identifier: Apache-2.0
"""What an earlier start chose for a graph: when it is used again, and what makes it useless."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from delegate import DeviceInfo, Options, cache
from delegate.errors import Unsupported
from delegate.graph.partition import partition_of
from delegate.graph.verdict import Verdict
from delegate.inspect import Graph
from delegate.launch import Program
from delegate.runtime.agreement import same_outputs
from delegate.sandbox.trials import BUILD, Trial
from delegate.start import plans
from delegate.start.engine import Engine
from delegate.start.plans import Plan
from delegate.start.rehearsal import Repeated, open_engine
from delegate.store import CHOICES, Store
from delegate.target import Rules
from tests.support.deal import any_driver
from tests.support.model import const, graph_of, op, t
from tests.support.nets import conv_pool, net

pytestmark = [any_driver, pytest.mark.usefixtures("own_cache")]

NAMES = {"fused_activation_function": "NONE", "asymmetric_quantize_inputs": True}


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """Return the plans that were followed to a program."""
    found: list[Plan] = []
    planned = Engine._planned

    def noted(self: Engine, *more: object) -> object:
        chosen = planned(self, *more)  # type: ignore[arg-type]
        if chosen is not None:
            found.append(Plan.of(chosen, more[0]))  # type: ignore[arg-type]
        return chosen

    monkeypatch.setattr(Engine, "_planned", noted)
    return found


def start(device: DeviceInfo, graph: Graph, tune: str = "off") -> tuple[list[Verdict], Program]:
    """Start a graph; return its verdicts, and its program, which gave what its nodes give."""
    return started(open_engine(Options(device.index, tune=tune)), graph)


def started(engine: Engine, graph: Graph) -> tuple[list[Verdict], Program]:
    target = engine.target(Rules())
    verdicts = engine.verdicts(graph, target)
    partition = partition_of(graph, range(len(graph.nodes)))
    with engine.executor(partition, target) as executor:
        options = Options(engine.device.info.index, tune="off", passes=(), alternative="plain")
        with Engine(options).executor(partition, target) as other:
            assert same_outputs(executor, other)
        return verdicts, executor.program


@pytest.mark.parametrize("tune", ["off", "full"])
@pytest.mark.parametrize("graph", [net([("ADD", [0, 0], 1), ("ADD", [1, 0], 2)]), conv_pool()])
def test_a_later_start_takes_what_an_earlier_one_chose(
    device: DeviceInfo, used: list[Plan], graph: Graph, tune: str
) -> None:
    start(device, graph, tune)
    assert used == []
    verdicts, program = start(device, graph, tune)  # measures what those chosen before lead to
    del used[:]
    again, same = start(device, graph, tune)
    assert len(used) == 1
    assert again == verdicts
    names, others = ([step.alternative.name for step in each.steps] for each in (program, same))
    assert names == others
    # Neither other sizes nor other choices are the same.
    start(device, net([("ADD", [0, 0], 1)]), tune)
    start(device, graph, "quick")
    assert len(used) == 1


def damaged(_: Engine) -> None:
    for path in cache.cache_folder().glob("plans/*"):
        path.write_bytes(path.read_bytes()[:-3])


def foreign(_: Engine) -> None:
    for path in cache.cache_folder().glob("plans/*"):
        cache.store(f"plans/{path.name}", b'{"1": 7}')


def of_other_names(_: Engine) -> None:
    replaced(b"plain", b"none")


def of_another_program(_: Engine) -> None:
    replaced(b", one by one", b", otherwise")


def replaced(old: bytes, new: bytes) -> None:
    for path in cache.cache_folder().glob("plans/*"):
        name = f"plans/{path.name}"
        content = cache.load(name)
        assert content is not None
        cache.store(name, content.replace(old, new))


def more_is_known(engine: Engine) -> None:
    Store(engine.device.identity).save(CHOICES, {"new": "plain"})


@pytest.mark.parametrize(
    "change", [damaged, foreign, of_other_names, of_another_program, more_is_known]
)
def test_it_is_not_used_where_it_may_not_hold(
    device: DeviceInfo, used: list[Plan], change: Callable[[Engine], None]
) -> None:
    graph = conv_pool()
    options = Options(device.index, tune="off", alternative="plain", profiling=True)
    started(open_engine(options), graph)
    change(open_engine(options))
    started(open_engine(options), graph)
    assert used == []
    started(open_engine(options), graph)  # the start before has kept it anew
    assert len(used) == 1


def test_other_code_and_what_is_left_out_end_it(
    device: DeviceInfo, used: list[Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = conv_pool()
    start(device, graph)
    engine = open_engine(Options(device.index, tune="off"))
    assert isinstance(engine.trials, Repeated)
    engine.trials.records.left_out[Trial(BUILD, "other", "a1")] = "it died"
    started(engine, graph)
    monkeypatch.setattr(plans, "_code", lambda: "another version")
    start(device, graph)
    assert used == []


def product(least: int) -> Graph:
    """Return float rows times int8 weights, the first of which is `least`."""
    values = np.random.default_rng(3).integers(-127, 128, (64, 64)).astype(np.int8)
    values[0, 0] = least
    rows, result = t((2, 64), "float32"), t((2, 64), "float32")
    node = op("FULLY_CONNECTED", [rows, const(values, 0.01, 0)], [result], NAMES, 9)
    return graph_of([node], [rows], [result])


def test_weights_that_tflite_multiplies_wrongly_are_found(
    device: DeviceInfo, used: list[Plan]
) -> None:
    engine = open_engine(Options(device.index, tune="off"))
    good, bad, target = product(-127), product(-128), engine.target(Rules())
    assert engine.verdicts(good, target)[0].is_taken
    engine.executor(partition_of(good, [0]), target).close()
    again = open_engine(Options(device.index, tune="off"))
    assert again.verdicts(bad, target)[0].is_taken  # all but the bytes of its weights is known
    with pytest.raises(Unsupported, match="a weight of -128"):
        again.executor(partition_of(bad, [0]), target)
    reason = again.verdicts(bad, target)[0].reason
    assert reason is not None
    assert "a weight of -128" in reason
    assert used == []
    last = open_engine(Options(device.index, tune="off"))
    last.verdicts(good, target)
    last.executor(partition_of(good, [0]), target).close()
    assert len(used) == 1
