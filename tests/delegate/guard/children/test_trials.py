# SPDX-License-Identifier: Apache-2.0
"""Trials: their keys and descriptions, and policies about which of them are done."""

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

BUILD_TRIAL = Trial(BUILD, "add_vector", "a1")
KERNEL_TRIAL, RAN = (Trial(kind, "add_vector", "a1", "add", (1, 1)) for kind in (KERNEL, RUN))


@pytest.mark.parametrize("left_out", [BUILD_TRIAL, Trial(FILE, "add_vector")])
def test_left_out_trial_is_not_done(left_out: Trial) -> None:
    free = Trials({left_out: "it died"})
    reporting = ReportedTrials({left_out: "it died"}, lambda **it: None)
    free.note(KERNEL_TRIAL, DONE)
    for trial in (BUILD_TRIAL, KERNEL_TRIAL, RAN):  # nor are the build's kernels, tried or not
        assert free.outcome(trial) is None
        for policy in (free, reporting):
            with pytest.raises(KilledChild, match=r"^it died$"), policy.attempt(trial):
                pytest.fail("it was done")
    assert free.encountered == reporting.encountered == {"it died"}
    for policy in (free, reporting):
        with policy.attempt(Trial(BUILD, "add", "a1")):
            pass


def test_wrong_kernel_is_not_run() -> None:
    for policy in (ReportedTrials({}, lambda **it: None), Trials()):
        policy.note(RAN, WRONG)
        assert policy.outcome(RAN) is None
        with pytest.raises(KilledChild, match="computes wrongly"), policy.attempt(RAN):
            pytest.fail("it was done")


def test_child_reports_trials_before_and_after() -> None:
    output: list[dict[str, Any]] = []
    reporting = ReportedTrials({}, lambda **it: output.append(it))
    assert reporting.is_due(BUILD_TRIAL)
    with reporting.attempt(BUILD_TRIAL) as under_way:
        assert output == [{"trying": BUILD_TRIAL}]
        under_way.how = REFUSED
    assert output[1:] == [{"tried": BUILD_TRIAL, "how": REFUSED}]
    assert not reporting.is_due(BUILD_TRIAL)
    with pytest.raises(ZeroDivisionError), reporting.attempt(RAN):
        raise ZeroDivisionError
    assert output[2:] == [{"trying": RAN}, {"tried": RAN, "how": DONE}]
    assert (reporting.outcome(BUILD_TRIAL), reporting.outcome(RAN)) == (REFUSED, DONE)


def test_process_without_children_records_trials() -> None:
    free = Trials()
    with free.attempt(BUILD_TRIAL):
        free.note(RAN, DONE)
    assert (free.outcome(BUILD_TRIAL), free.outcome(RAN), free.is_due(BUILD_TRIAL)) == (
        None,
        DONE,
        False,
    )


def test_trials_differ_by_every_input_of_driver() -> None:
    assert Trial.of(EXECUTOR, [1, 2], "x") == Trial.of(EXECUTOR, [1, 2], "x")
    assert Trial.of(EXECUTOR, [1, 2], "x") != Trial.of(EXECUTOR, [1, 2], "y")


def test_trial_round_trips_through_json() -> None:
    for trial in (BUILD_TRIAL, RAN, Trial(PLATFORMS)):
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
def test_trial_has_description(trial: Trial, words: str) -> None:
    assert trial.words == words


def test_death_in_kernel_is_blamed_on_its_build() -> None:
    assert RAN.blamed == KERNEL_TRIAL.blamed == BUILD_TRIAL.blamed == BUILD_TRIAL
    assert Trial(BINARY_OF, "add", "1f").blamed == Trial(BINARY_OF, "add", "1f")


def test_build_has_json_key() -> None:
    assert (BUILD_TRIAL.build, Trial(SELF_TEST, "vnni", "a1").build) == ("add_vector-a1", "vnni")
    assert (Trial(FILE, "add").build, Trial(EXECUTOR, digest="1f").build) == ("add", "1f")
