# SPDX-License-Identifier: Apache-2.0
"""The effect of baselines, skips and flakes on results."""

from __future__ import annotations

from pathlib import Path

import pytest

from tflite_opencl.conformance.results import CaseResult, baseline_text, read
from tflite_opencl.console.errors import OneLineError


def files(folder: Path, **texts: str) -> dict[str, str]:
    for name, text in texts.items():
        (folder / name).write_text(text)
    return {name: str(folder / name) for name in texts}


@pytest.mark.parametrize(
    ("name", "result", "status", "is_expected"),
    [
        ("add/a", "Fail", "ExpectedFail", True),
        ("add/a", "Crash", "Crash", False),
        ("add/a", "Pass", "UnexpectedImprovement(Pass)", False),
        ("add/b", "Fail", "UnexpectedImprovement(Fail)", False),
        ("add/a", "Skip", "Skip", True),
        ("sub/a", "Pass", "Pass", True),
        ("sub/a", "Fail", "Fail", False),
        ("sub/a", "Flake", "Flake", False),
        ("sub/a", "NotDelegated", "NotDelegated", False),
        ("mul/int8/a", "Flake", "KnownFlake", True),
        ("mul/int8/a", "Timeout", "KnownFlake", True),
        ("mul/int8/a", "Pass", "Pass", True),
    ],
)
def test_outcome_with_baseline_skips_and_flakes(
    tmp_path: Path, name: str, result: str, status: str, is_expected: bool
) -> None:
    given = files(
        tmp_path,
        baseline="# a driver\nadd/a,Fail\n\nadd/b,Crash\n",
        flakes="# why\nmul/.*\n",
        skips="^div/\n",
    )
    known = read(given["baseline"], [given["skips"]], [given["flakes"]], False)
    assert known.status(CaseResult(result, name=name)) == status
    assert known.is_expected(status) == is_expected
    assert known.is_skipped("div/int8/a")
    assert not known.is_skipped("floor_div/int8/a")


def test_not_delegated_may_be_allowed() -> None:
    known = read(None, [], [], True)
    assert known.is_expected("NotDelegated")


def test_new_baseline_keeps_cases_that_did_not_run() -> None:
    words = {"a": "Pass", "b": "Crash", "c": "Flake"}
    results = [CaseResult(word, name=name) for name, word in words.items()]
    text = baseline_text(results, {"a": "Fail", "z": "Fail"}, "words")
    assert text == "# words\nb,Crash\nz,Fail\n"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("baseline", "add/a\n", "baseline:1: 'add/a' is not NAME,NotDelegated|Fail|Timeout|Crash"),
        ("baseline", "\nadd/a,Pass\n", "baseline:2: "),
        ("skips", "(\n", "skips:1: '('"),
    ],
)
def test_error_names_file_and_line(tmp_path: Path, name: str, text: str, words: str) -> None:
    result = files(tmp_path, **{name: text})
    with pytest.raises(OneLineError) as caught:
        read(result.get("baseline"), [result["skips"]] if "skips" in result else [], [], False)
    assert words in str(caught.value)


def test_missing_file_is_an_error_unless_written(tmp_path: Path) -> None:
    path = str(tmp_path / "none")
    with pytest.raises(OneLineError, match="No such file"):
        read(path, [], [], False)
    assert read(path, [], [], False, may_be_missing=True).baseline == {}
