# SPDX-License-Identifier: Apache-2.0
"""Flags of several commands are in one table, and equal on every command."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.command import parser as benchmarks_parser
from tflite_opencl.cli.command_line import subparsers
from tflite_opencl.cli.flag_values import precision_of
from tflite_opencl.cli.flags import SHARED, add_flag, add_models, model_of, models_of
from tflite_opencl.cli.outputs import DOCUMENTS, require_outputs, shown
from tflite_opencl.command import main
from tflite_opencl.console.errors import CommandError, UsageError
from tflite_opencl.shell.parsers import COMMANDS, all_parsers, parser_of

PARSERS = [
    *(parser for command in COMMANDS for parser in all_parsers(parser_of(command))),
    benchmarks_parser(),
]


def flags(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    for action in parser._actions:
        yield from ((word[2:], action) for word in action.option_strings if word.startswith("--"))


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: str(parser.prog))
def test_shared_flags_are_equal_in_all_commands(parser: argparse.ArgumentParser) -> None:
    for name, action in flags(parser):
        if name not in SHARED:
            continue
        flag = SHARED[name]
        words = [f"-{flag.short}"] * bool(flag.short) + [f"--{name}"]
        assert action.option_strings == words, name
        assert (action.nargs == 0) == (flag.convert is None), name
        if flag.convert is not None:
            assert str(action.metavar).startswith(str(flag.metavar)), name
        if action.help != argparse.SUPPRESS:
            assert str(action.help).startswith(flag.help), name
            assert flag.detail in str(action.help), name


def test_flags_of_several_commands_are_in_table() -> None:
    counts = Counter(name for parser in PARSERS for name, _ in flags(parser))
    # Help texts may differ.
    assert {name for name, count in counts.items() if count > 1} - {*SHARED} == {"help", "show"}
    assert {*SHARED} <= {*counts}


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: str(parser.prog))
def test_every_command_can_be_quiet(parser: argparse.ArgumentParser) -> None:
    assert subparsers(parser) or "quiet" in dict(flags(parser))


def test_short_flags_have_one_meaning() -> None:
    results = {
        (short, word)
        for parser in PARSERS
        for action in parser._actions
        for short in action.option_strings
        for word in action.option_strings
        if not short.startswith("--") and word.startswith("--")
    }
    assert len({short for short, _ in results}) == len(results)


@pytest.mark.parametrize(
    ("words", "models"),
    [("a b", "a b"), ("-m a b", "a b"), ("--tflite_model a", "a"), ("a -m b", "a b")],
)
def test_model_is_argument_or_flag(words: str, models: str) -> None:
    parser = argparse.ArgumentParser()
    add_models(parser)
    options = parser.parse_args(words.split())
    assert models_of(options) == models.split()
    if len(models) > 1:
        with pytest.raises(CommandError, match="one model at a time: a and b are named"):
            model_of(options)


def test_document_goes_to_file_or_stdout(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    for name in DOCUMENTS:
        add_flag(parser, name)
    path = tmp_path / "a.json"
    options = parser.parse_args(["--json", str(path), "--csv", "-"])
    require_outputs(vars(options))
    assert shown(options, "for people", json=lambda: "{}", csv=lambda: "a,b") == "a,b"
    assert path.read_text() == "{}\n"
    assert shown(parser.parse_args([]), "for people", json=lambda: "{}") == "for people"


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        ("--json - --csv -", 64, "--json and --csv: stdout takes one of them"),
        ("--json /nowhere/a.json", 255, "cannot write /nowhere/a.json: there is no folder"),
    ],
)
def test_output_paths_are_checked_first(
    words: str, code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "none.tflite", *words.split()]) == code
    assert line in capsys.readouterr().err


@pytest.mark.parametrize(
    ("precision", "fp16", "expected"),
    [("fp32", False, "fp32"), ("fp32", True, "fp16"), ("fp16", True, "fp16"),
     ("ieee", False, "ieee")],
)  # fmt: skip
def test_old_flag_is_a_precision(precision: str, fp16: bool, expected: str) -> None:
    assert precision_of(precision, fp16) == expected


def test_two_precisions_are_an_error() -> None:
    with pytest.raises(UsageError, match="--precision is ieee: give one"):
        precision_of("ieee", True)
    with pytest.raises(UsageError, match="leaves the bits of floats to timings"):
        precision_of("ieee", False, "offload:3")
