# SPDX-License-Identifier: Apache-2.0
"""No command overwrites its inputs, whichever flag names the output, also through links."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from label_image import command as label_image
from tests.attacks.bed import write_files
from tests.support.command import FILES
from tests.support.tiers import slow
from tflite_opencl import command as tflite_opencl
from tflite_opencl.cli.flag_values import OutputFolder, OutputPath, output_folder, output_path
from tflite_opencl.cli.outputs import keep_inputs
from tflite_opencl.conformance import command as conformance
from tflite_opencl.console import start
from tflite_opencl.console.files import keep
from tflite_opencl.shell.parsers import COMMANDS, all_parsers, parser_of

Main = Callable[[list[str]], int]
_LINE = "it is an input of this command"
_BEGIN = re.compile(r"(also )?(write|renew|draw where)|where .* (goes|to write)|the folder of what")
_OUTPUT_TYPES = (OutputFolder, OutputPath, output_folder, output_path)
_NO_FILES = {"lift_bans", "update_baseline", "quiet", "resume", "inputs"}

ON_MODEL = {
    "benchmark": ["--json", "--profiling_output_csv_file"],
    "compare": ["--json", "--csv", "--markdown"],
    "generate": ["--prompt a --json"],
    "graph": ["--html"],
    "kernels": ["--json", "--csv"],
    "plan": ["--output"],
    "run": ["--input 0=picture.bmp --output results --json"],
    "rewrite": ["out.tflite --pass remove_dead --json"],
    "tune": ["--json"],
    "verify": ["--json", "--heatmap"],
}
LABEL_IMAGE = (
    "--json", "--json_lines", "--csv", "--coco", "--trace", "--report", "--output_image",
)  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Go to a folder with a model, a picture and labels."""
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    keep(())


def refused(main: Main, words: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    """Return the last line of stderr; assert that the command fails and changes no file."""
    before = {path.name: path.read_bytes() for path in Path().iterdir() if path.is_file()}
    code = start.run(lambda: main(words))
    _, err = capfd.readouterr()
    *_, line = err.strip().splitlines()
    assert {path.name: path.read_bytes() for path in Path().iterdir() if path.is_file()} == before
    assert code == 255, err
    assert line.startswith("ERROR: cannot write "), err
    return line


@pytest.mark.parametrize(
    ("name", "flag"), [(name, flag) for name, flags in ON_MODEL.items() for flag in flags]
)
def test_subcommand_does_not_overwrite_model(
    name: str, flag: str, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [name, "model.tflite", *flag.split(), "./model.tflite"]
    assert _LINE in refused(tflite_opencl.main, words, capfd)


@pytest.mark.parametrize("flag", LABEL_IMAGE)
@pytest.mark.parametrize("given", ["model.tflite", "picture.bmp", "labels.txt"])
def test_label_image_does_not_overwrite_inputs(
    flag: str, given: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert _LINE in refused(label_image.main, [*FILES, flag, given], capfd)


def _link(path: Path) -> None:
    path.symlink_to("model.tflite")


def _far_link(path: Path) -> None:
    Path("deep").mkdir()
    Path("deep/link").symlink_to("../model.tflite")
    path.symlink_to("deep/link")


NAMES: dict[str, Callable[[Path], object]] = {
    "a link": _link,
    "a link to a link": _far_link,
    "a hard link": lambda path: path.hardlink_to("model.tflite"),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("main", [label_image.main, tflite_opencl.main])
def test_input_is_recognised_through_links(
    main: Main, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    NAMES[name](Path("other"))
    words = ["-m", "model.tflite", "--json", "other"]
    words = [*words, *FILES[2:]] if main is label_image.main else ["tune", *words]
    assert _LINE in refused(main, words, capfd)


def test_default_labels_are_not_overwritten(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["-m", "model.tflite", "-i", "picture.bmp", "--json", "labels.txt"]
    assert _LINE in refused(label_image.main, words, capfd)


def test_output_folder_with_inputs_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    Path("parts").mkdir()
    os.rename("model.tflite", "parts/000.tflite")
    words = ["cut", "parts/000.tflite", "--output", "parts"]
    assert _LINE in refused(tflite_opencl.main, words, capfd)
    words = ["-m", "parts/000.tflite", "-i", "deep/drawn.jpg", "--output_dir", "deep"]
    Path("deep").mkdir()
    os.rename("picture.bmp", "deep/drawn.jpg")
    assert _LINE in refused(label_image.main, words, capfd)


def test_picture_of_input_folder_is_not_overwritten(capfd: pytest.CaptureFixture[str]) -> None:
    Path("pictures").mkdir()
    os.rename("picture.bmp", "pictures/a.bmp")
    words = ["-m", "model.tflite", "-i", "pictures", "--json", "pictures/a.bmp"]
    assert _LINE in refused(label_image.main, words, capfd)
    keep(["pictures"])
    Path("pictures/results.json").write_text("{}")
    keep_inputs(
        {"image": "pictures", "json": OutputPath("pictures/results.json")}
    )  # of a run before


def test_file_behind_stdin_is_not_overwritten(capfd: pytest.CaptureFixture[str]) -> None:
    own = os.dup(0)
    with open("picture.bmp", "rb") as picture:
        os.dup2(picture.fileno(), 0)
    try:
        words = ["-m", "model.tflite", "-i", "-", "--json", "picture.bmp"]
        assert _LINE in refused(label_image.main, words, capfd)
    finally:
        os.dup2(own, 0)
        os.close(own)


@slow
def test_baseline_is_not_overwritten_by_reports(capfd: pytest.CaptureFixture[str]) -> None:
    Path("fails.txt").write_text("")
    words = ["--list", "--baseline", "fails.txt", "--filter", "^nothing$"]
    assert start.run(lambda: conformance.main(words)) in (0, 64, 77, 255)
    capfd.readouterr()
    words = ["--quick", "--filter", "^add/int8", "--baseline", "fails.txt", "--junit", "fails.txt"]
    assert _LINE in refused(conformance.main, words, capfd)


def test_two_outputs_with_one_path_are_refused(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "model.tflite", "--json", "a", "--csv", "./a"]
    assert start.run(lambda: tflite_opencl.main(words)) == 64
    assert "--csv and --json are the same file: a" in capfd.readouterr().err
    words = ["compare", "none", "--json", "/dev/null", "--csv", "/dev/null"]
    assert start.run(lambda: tflite_opencl.main(words)) == 255  # there is no such model


def test_inputs_of_earlier_command_may_be_written(folder: Path) -> None:
    keep(["model.tflite"])
    keep(["picture.bmp", "nothing", "a\0b"])
    keep_inputs({"model": ["picture.bmp"], "json": OutputPath("model.tflite")})


def _actions() -> Iterator[argparse.Action]:
    for command in COMMANDS:
        for parser in all_parsers(parser_of(command)):
            yield from parser._actions


def test_output_flags_have_type_output_path() -> None:
    actions = [each for each in _actions() if each.dest not in _NO_FILES]
    outputs = [each for each in actions if _BEGIN.match(each.help or "")]
    assert len(outputs) > 20
    assert [each.dest for each in outputs if each.type not in _OUTPUT_TYPES] == []
