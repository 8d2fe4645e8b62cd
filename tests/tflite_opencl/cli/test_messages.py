# SPDX-License-Identifier: Apache-2.0
"""Common behaviour of command lines: dashes, typos, versions, the header of JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from delegate import NoDeviceError
from delegate.inspect import builtin_op_numbers
from label_image.flags import parse
from tests.support.model import graph_of, op, t
from tflite_opencl import __version__, command
from tflite_opencl.cli import messages
from tflite_opencl.cli.command_line import with_underscores
from tflite_opencl.command import main
from tflite_opencl.conformance.command import main as suite
from tflite_opencl.console.errors import UsageError


def test_dashes_are_underscores_only_in_flags() -> None:
    given = ["--use-gpu", "--a-b=c-d", "value-1", "-x", "a-b", "--", "--stays-so"]
    meant = ["--use_gpu", "--a_b=c-d", "value-1", "-x", "a-b", "--", "--stays-so"]
    assert with_underscores(given) == meant


def test_label_image_accepts_dashes_and_suggests_flags() -> None:
    assert parse(["--use-gpu", "--num-results=3"]).use_gpu
    with pytest.raises(UsageError, match=r"unknown option --imge; did you mean --image\?"):
        parse(["--imge", "x"])


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("CONV", "; did you mean CONV_2D?"),
        ("CONV2D", "; did you mean CONV_2D?"),
        ("SOFTMAXX", "; did you mean SOFTMAX?"),
        ("C", ""),
        ("QQQ", ""),
    ],
)
def test_suggestion_is_shortest_match(word: str, said: str) -> None:
    assert messages.did_you_mean(word, builtin_op_numbers()) == said


def test_suggestion_prefers_ops_of_model() -> None:
    with pytest.raises(UsageError, match=r"no op CONV; did you mean CONV_3D\?"):
        messages.known_ops(["conv"], [graph_of([op("CONV_3D", [t((1,))], [t((1,))])], [], [])])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["inof"], "did you mean info? (tflite-opencl --help shows all)"),
        (["info", "--jsn"], "unrecognized arguments: --jsn; did you mean --json? (tflite-opencl"),
        (["verify", "--tolrance=1", "-m", "x"], "did you mean --tolerance?"),
        (["info", "--qqqqq"], "unrecognized arguments: --qqqqq (tflite-opencl info --help"),
        ([], f"a SUBCOMMAND is missing: {', '.join(command.SUBCOMMANDS)}; begin with "),
        (["compare", "--html", "p.html"], "unrecognized arguments: --html; it writes --csv FILE"),
    ],
)
def test_unknown_word_is_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 64
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1
    assert shown.err.startswith("ERROR: ")
    assert said in shown.err


def test_suite_suggests_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert suite(["--devcie", "x"]) == 64
    assert capsys.readouterr().err == (
        "ERROR: unrecognized arguments: --devcie x; did you mean --device? "
        "(tflite-delegate-test --help shows all)\n"
    )


def test_subcommands_accept_dashes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--tflite-model", "none.tflite"]) == 255
    assert "cannot read none.tflite" in capsys.readouterr().err


@pytest.mark.parametrize("of", [(main, "tflite-opencl"), (suite, "tflite-delegate-test")])
def test_every_command_has_version(
    of: tuple[object, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> None:
        raise NoDeviceError("nothing here")

    monkeypatch.setattr(messages, "list_devices", none)
    run, name = of
    assert run(["--version"]) == 0  # type: ignore[operator]
    first, runtime, driver = capsys.readouterr().out.splitlines()
    assert first == f"{name} (tflite-opencl) {__version__}"
    assert runtime.startswith("TFLite runtime: ")
    assert driver == "OpenCL driver: none (nothing here)"


def test_json_has_its_schema_and_the_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["info", "--root", str(tmp_path), "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == messages.JSON_SCHEMA
    assert document["tflite_opencl"] == __version__
    assert "board" in document


def test_help_names_every_subcommand(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    named = [line.split()[0] for line in shown.splitlines() if re.match(r"    \w", line)]
    assert named == list(command.SUBCOMMANDS)
