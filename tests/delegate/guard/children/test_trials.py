# SPDX-License-Identifier: Apache-2.0
"""Trials: their names, and who may do them: a child, one that does without."""

from __future__ import annotations

import json
from typing import Any

import pytest

from delegate.errors import KilledChild
from delegate.guard.children.trials import (
    BINARY_OF,
    BUILD,
    DONE,
    EXECUTOR,
    FILE,
    KERNEL,
    PLATFORMS,
    REFUSED,
    RUN,
    SELF_TEST,
    WRONG,
    ReportedTrials,
    Trial,
    Trials,
)

MADE = Trial(BUILD, "add_vector", "a1")
MADE_KERNEL, RAN = (Trial(kind, "add_vector", "a1", "add", (1, 1)) for kind in (KERNEL, RUN))


@pytest.mark.parametrize("left_out", [MADE, Trial(FILE, "add_vector")])
def test_what_is_left_out_is_not_done(left_out: Trial) -> None:
    free = Trials({left_out: "it died"})
    told = ReportedTrials({left_out: "it died"}, lambda **it: None)
    free.note(MADE_KERNEL, DONE)
    for trial in (MADE, MADE_KERNEL, RAN):  # the build's kernels neither, tried or not
        assert free.outcome(trial) is None
        for policy in (free, told):
            with pytest.raises(KilledChild, match=r"^it died$"), policy.attempt(trial):
                pytest.fail("it was done")
    assert free.encountered == told.encountered == {"it died"}
    for policy in (free, told):
        with policy.attempt(Trial(BUILD, "add", "a1")):
            pass


def test_what_computes_wrongly_is_not_done() -> None:
    for policy in (ReportedTrials({}, lambda **it: None), Trials()):
        policy.note(RAN, WRONG)
        assert policy.outcome(RAN) is None
        with pytest.raises(KilledChild, match="computes wrongly"), policy.attempt(RAN):
            pytest.fail("it was done")


def test_a_child_tells_each_trial_before_and_after() -> None:
    said: list[dict[str, Any]] = []
    told = ReportedTrials({}, lambda **it: said.append(it))
    assert told.is_due(MADE)
    with told.attempt(MADE) as under_way:
        assert said == [{"trying": MADE}]
        under_way.how = REFUSED
    assert said[1:] == [{"tried": MADE, "how": REFUSED}]
    assert not told.is_due(MADE)
    with pytest.raises(ZeroDivisionError), told.attempt(RAN):
        raise ZeroDivisionError
    assert said[2:] == [{"trying": RAN}, {"tried": RAN, "how": DONE}]
    assert (told.outcome(MADE), told.outcome(RAN)) == (REFUSED, DONE)


def test_who_does_without_keeps_what_it_is_told() -> None:
    free = Trials()
    with free.attempt(MADE):
        free.note(RAN, DONE)
    assert (free.outcome(MADE), free.outcome(RAN), free.is_due(MADE)) == (None, DONE, False)


def test_trials_differ_by_all_that_a_driver_is_given() -> None:
    assert Trial.of(EXECUTOR, [1, 2], "x") == Trial.of(EXECUTOR, [1, 2], "x")
    assert Trial.of(EXECUTOR, [1, 2], "x") != Trial.of(EXECUTOR, [1, 2], "y")


def test_a_trial_goes_through_json() -> None:
    for trial in (MADE, RAN, Trial(PLATFORMS)):
        assert Trial.unpacked(json.loads(json.dumps(trial))) == trial
    for foreign in (None, 7, [], ["build"], [1, "", "", "", []], ["build", "a", "1", "", ["x"]]):
        with pytest.raises((TypeError, ValueError)):
            Trial.unpacked(foreign)


@pytest.mark.parametrize(
    ("trial", "words"),
    [
        (Trial(BUILD, "add", "1f"), "build add.cl"),
        (Trial(BINARY_OF, "add", "1f"), "get the binary of add.cl"),
        (Trial(KERNEL, "add", "1f", "add_quant8", (8, 1)), "make the kernel add_quant8"),
        (Trial(RUN, "add", "1f", "add_quant8", (8, 1)), "run the kernel add_quant8"),
        (Trial(FILE, "add"), "build anything else of add.cl"),
        (Trial(EXECUTOR, digest="1f"), "allocate and run a group of nodes"),
        (Trial(SELF_TEST, "vnni"), "pass the self-test of vnni"),
    ],
)
def test_a_trial_is_told_in_words(trial: Trial, words: str) -> None:
    assert trial.words == words


def test_where_a_kernel_ends_a_child_its_build_is_blamed() -> None:
    assert RAN.blamed == MADE_KERNEL.blamed == MADE.blamed == MADE
    assert Trial(BINARY_OF, "add", "1f").blamed == Trial(BINARY_OF, "add", "1f")


def test_what_is_compiled_has_a_name_for_json() -> None:
    assert (MADE.build, Trial(SELF_TEST, "vnni", "a1").build) == ("add_vector-a1", "vnni")
    assert (Trial(FILE, "add").build, Trial(EXECUTOR, digest="1f").build) == ("add", "1f")
