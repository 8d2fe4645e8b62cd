# SPDX-License-Identifier: Apache-2.0
"""The conformance suite names each fault of liars.py, and nothing else."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from delegate import DeviceInfo
from tests.support.suite import run_cases
from tests.support.tiers import slow
from tflite_opencl.conformance.results import CaseResult

ADD = "add/int8/1x7x5x3"
CONV = "conv_2d/int8/in7x5x3-k3x3-out8-same"
BATCH_2 = "chain/int8/inverted_residual-in2x7x9x5"
SEVERAL = "behaviour/uint8/reallocate-several_outputs"
READ, ASSIGN = "read_variable/int8/before-7", "assign_variable/int32/exchanged-2x3x5"
SVDF = "svdf/int8/in1x7-units5-rank1-memory3"
STATE = "behaviour/int8/state-variables"


def behaviour(check: str, model: str = "conv", kind: str = "int8") -> str:
    return f"behaviour/{kind}/{check}-{model}"


def run(
    liar: str,
    names: list[str],
    alternatives: bool = False,
    repeat: bool = False,
    limits: dict[str, float] | None = None,
    **options: str,
) -> dict[str, CaseResult]:
    """Return the results of these cases by name, as `run_cases` does."""
    spec = f"python:tests.attacks.liars:{liar}"
    return run_cases(spec, names, options, None, alternatives, repeat, limits)


@slow
def test_correct_delegate_passes() -> None:
    checks = (
        "twice", "inputs_unchanged", "guard_bytes", "reallocate", "resize", "two_interpreters",
        "reopen",
    )  # fmt: skip
    names = [ADD, CONV, BATCH_2, SEVERAL, *map(behaviour, checks)]
    names += [behaviour("guard_bytes", "several_outputs", "uint8"), behaviour("reopen_100")]
    results = run("pass_through", names)
    assert {name: result.result for name, result in results.items()} == dict.fromkeys(names, "Pass")
    assert results[BATCH_2].taken == results[BATCH_2].nodes == 4
    assert "guard bytes" in results[behaviour("guard_bytes")].detail


@pytest.mark.parametrize(
    ("liar", "wrong", "words", "right"),
    [
        ("off_by_one", ADD, "1 of 105 elements differ, by up to 1 quanta", [CONV]),
        ("batch_2", BATCH_2, "in 1 of 2 rows of the first dimension", [ADD, CONV]),
        ("batch_2", behaviour("resize"), "at batch 3", [behaviour("twice")]),
        ("past_the_output", behaviour("guard_bytes"), "wrote outside the outputs", [ADD]),
        ("leaks_memory", behaviour("reopen_100"), "bytes of memory", [ADD, behaviour("reopen")]),
        ("leaks_handles", behaviour("reopen_100"), "leaks 1 of file handles", [ADD]),
        ("stale_pointers", behaviour("reallocate"), "never written", [ADD, behaviour("twice")]),
        ("nothing", CONV, "the output was never written", []),
        ("differs", behaviour("twice"), "run 3 differs from run 1 in 1 elements", []),
        ("changes_inputs", behaviour("inputs_unchanged"), "was changed by the run", [ADD]),
        ("shared", behaviour("two_interpreters"), "side by side", [ADD, behaviour("reopen")]),
        ("refuses", ADD, "the firmware is missing", []),
        ("forgets", READ, "elements differ", [ADD]),
        ("forgets", ASSIGN, "elements differ", [CONV]),
        ("forgets", SVDF, "elements differ", []),
        ("begins_again", STATE, "after a resize there and back", [READ, ASSIGN, SVDF]),
        ("shared_state", STATE, "in the first runs", [ADD]),
        # TFLite does not notify delegates of a reset, so they must not keep variable tensors.
        ("pass_through", "behaviour/int8/state-svdf", "after reset_all_variables()", [SVDF, STATE]),
    ],
)
def test_fault_is_named(liar: str, wrong: str, words: str, right: list[str]) -> None:
    results = run(liar, [wrong, *right])
    assert results[wrong].result == "Fail"
    assert words in results[wrong].detail
    assert {name: results[name].result for name in right} == dict.fromkeys(right, "Pass")


@slow
def test_report_of_wrong_zero_point_counts_all_elements() -> None:
    # The case is repeated, and fails again.
    result = run("zero_point", [CONV], repeat=True)[CONV]
    assert result.result == "Fail"
    # If the addition wraps around, elements are off by 256 less.
    assert result.quanta in (3, 253)
    assert "280 of 280 elements differ" in result.detail


@slow
def test_crash_fails_one_case_and_stderr_is_reported() -> None:
    names = [CONV, ADD, behaviour("twice"), "pad/int8/in6x5-by12_03"]
    results = run("crash", names, repeat=True)
    assert "the driver's last words" in results[ADD].stderr
    assert results.pop(ADD).detail == "the process died (SIGSEGV)"
    assert {result.result for result in results.values()} == {"Pass"}
    assert len(results) == 3


@slow
def test_stderr_belongs_to_the_case_even_if_read_late() -> None:
    results = run_cases(
        "python:tests.attacks.liars:crash",
        [CONV, ADD],
        {},
        on_ready=lambda device, runtime: time.sleep(2),  # the worker has died by then
    )
    assert results[CONV].stderr == ""
    assert "the driver's last words" in results[ADD].stderr


@slow
def test_hang_fails_one_case() -> None:
    results = run("hang", [CONV, ADD, behaviour("twice")], limits={ADD: 2})
    assert results[ADD].result == "Timeout"
    assert results[CONV].result == results[behaviour("twice")].result == "Pass"


@slow
def test_pass_on_repetition_is_a_flake(tmp_path: Path) -> None:
    result = run("flaky", [CONV], repeat=True, mark=str(tmp_path / "mark"))[CONV]
    assert result.result == "Flake"
    assert result.detail.startswith("Fail at first, then Pass: ")


@slow
def test_delegate_without_claims_does_not_pass() -> None:
    result = run("takes_nothing", [CONV])[CONV]
    assert (result.result, result.detail) == ("NotDelegated", "left CONV_2D")


@slow
@pytest.mark.device
def test_fault_in_one_alternative_is_found_with_alternatives(device: DeviceInfo) -> None:
    options = {"device": str(device.index)}
    assert run("plain_is_wrong", [CONV], **options)[CONV].result == "Pass"
    result = run("plain_is_wrong", [CONV], alternatives=True, **options)[CONV]
    assert (result.result, result.alternative) == ("Fail", "plain")
    assert result.detail.startswith("plain: random inputs: ")
    right = run("plain_is_wrong", [CONV], alternative="plain", **options)[CONV]
    assert right.result == "Fail"


@slow
@pytest.mark.device
def test_stateful_cases_pass_with_opencl_delegate(device: DeviceInfo) -> None:
    kinds = ("svdf", "lstm", "variables")
    names = [READ, ASSIGN, *(f"behaviour/float32/state-{kind}" for kind in kinds)]
    results = run_cases("opencl", names, {}, str(device.index))
    assert {name: result.result for name, result in results.items()} == dict.fromkeys(names, "Pass")
    for result in results.values():  # including models without outputs
        assert (result.taken, result.detail) == (result.nodes, "")


@slow
@pytest.mark.device
def test_result_names_alternatives(device: DeviceInfo) -> None:
    names = [CONV, behaviour("twice")]
    results = run_cases("opencl", names, {}, str(device.index), alternatives=True)
    assert {name: result.result for name, result in results.items()} == dict.fromkeys(names, "Pass")
    for result in results.values():
        assert re.match("alternatives: .+; plain$", result.detail)


@slow
def test_crash_names_alternative() -> None:
    result = run("dies_in_the_second", [ADD], alternatives=True)[ADD]
    assert run("dies_in_the_second", [ADD])[ADD].result == "Pass"
    assert (result.result, result.alternative) == ("Crash", "second")
    assert result.detail == "second: the process died (SIGSEGV)"
