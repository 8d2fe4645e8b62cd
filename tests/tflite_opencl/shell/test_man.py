# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl man`: every flag is on the page, and man and groff accept it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tflite_opencl.cli.command_line import parts_of
from tflite_opencl.command import main
from tflite_opencl.shell.parsers import COMMANDS, all_parsers, parser_of

pytest.importorskip("argparse_manpage")


@pytest.fixture(params=COMMANDS)
def page(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Path:
    assert main(["man", request.param]) == 0
    path = tmp_path / f"{request.param}.1"
    path.write_text(capsys.readouterr().out)
    return path


def read(page: Path) -> str:
    """Return a page as man shows it in 80 columns."""
    man = shutil.which("man")
    if man is None:
        pytest.skip("no man here: apt-get install man-db")
    done = subprocess.run(
        [man, "--warnings", "-l", str(page)],
        capture_output=True, text=True, check=True, timeout=60,
        env=os.environ | {"LC_ALL": "C.UTF-8", "MANWIDTH": "80", "MANPAGER": "cat"},
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout


def test_page_has_all_flags_and_examples(page: Path) -> None:
    text = read(page)
    command = page.stem
    assert COMMANDS[command].split()[0] in text
    for parser in all_parsers(parser_of(command)):
        for action in parser._actions:
            if "--help" in action.option_strings:
                continue  # argparse-manpage omits it
            for word in action.option_strings:
                assert re.search(rf"^ +.*{re.escape(word)}\b", text, re.MULTILINE), word
        _, examples = parts_of(parser)
        assert examples
        for line in examples.splitlines():
            assert line.strip() in text, line
    for other in COMMANDS:
        assert f"{other}(1)" in text or other == command


def test_groff_has_no_warnings(page: Path) -> None:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("no groff here: apt-get install groff")
    done = subprocess.run(
        [groff, "-ww", "-man", "-Tutf8", "-z", str(page)], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_default_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["man"]) == 0
    assert capsys.readouterr().out.startswith(".TH TFLITE\\-OPENCL ")
