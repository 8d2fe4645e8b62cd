# SPDX-License-Identifier: Apache-2.0
"""--help of each command and subcommand, and the validity of its examples."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest

import label_image.flags
import tflite_opencl.conformance.flags
from tests.support.tiers import slow
from tflite_opencl import command
from tflite_opencl.cli.command_line import parts_of
from tflite_opencl.shell.parsers import COMMANDS, all_parsers, parser_of


def examples() -> Iterator[tuple[str, str]]:
    """Yield each example with its command."""
    for name in COMMANDS:
        for parser in all_parsers(parser_of(name)):
            _, text = parts_of(parser)
            lines = [line.strip() for line in text.splitlines() if not line.startswith("    ")]
            assert lines, parser.prog
            yield from ((parser.prog, line) for line in lines)


@pytest.mark.parametrize(("program", "line"), [*examples()])
def test_example_is_valid(program: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    if line.startswith("eval "):
        line = line.removeprefix('eval "$(').removesuffix(')"')
    words = shlex.split(line.partition(" | ")[0].partition(" > ")[0])
    if words[0] == "benchmark_model":  # TFLite's own
        return
    assert line.startswith(program) or words[0] == program.split()[0]
    if words[0] == "label_image":
        assert label_image.flags.parse(words[1:]).warnings == ()
    elif words[0] == "tflite-delegate-test":
        tflite_opencl.conformance.flags.parse(words[1:])
    elif "--help" in words:
        assert command.main(words[1:]) == 0
        assert "examples:\n  tflite-opencl verify " in capsys.readouterr().out
    else:
        options = command.parser().parse(words[1:])
        assert options.subcommand == words[1]


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_narrow_help_does_not_wrap_examples(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for name in COMMANDS:
        for parser in all_parsers(parser_of(name)):
            text = parser.format_help()
            for line in parts_of(parser)[1].splitlines():
                assert f"\n{line}\n" in text
            others = text.partition("examples:\n")[0].splitlines()
            # argparse does not wrap words or lists of choices.
            assert all(len(each) <= max(int(columns), 80) for each in others), parser.prog


@slow
def test_only_the_used_subcommand_is_imported() -> None:
    code = (
        "import sys; from tflite_opencl import command; command.main(['cut', '--help']);"
        "print(*(name for name in sys.modules if name.startswith('tflite_opencl.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    result = done.stdout.splitlines()[-1].split()
    assert "tflite_opencl.cut" in result
    assert {"tflite_opencl.info", "tflite_opencl.generate.subcommand"}.isdisjoint(result)
