# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl generate`: output, exit codes, a conversation on a terminal, and Ctrl-C."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from delegate import DeviceInfo
from tests.support.llama import write_gguf
from tests.support.tiers import slow
from tests.tflite_opencl.generate.conftest import PLACES, runs
from tflite_opencl.cli.messages import printable
from tflite_opencl.command import main, parser
from tflite_opencl.console.exit_codes import ERROR, NO_DEVICE, SUCCESS, USAGE

ROOT = Path(__file__).resolve().parents[3]
pytestmark = runs
SHORT = ("--prompt", "hello", "--count", "12")


def run_generate(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["generate", *words])
    result = capsys.readouterr()
    return code, result.out, result.err


@slow
def test_paths_have_equal_answers(
    device: DeviceInfo, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = run_generate(capsys, str(model), *SHORT, "--device", str(device.index), "--tune", "off")
    theirs = run_generate(capsys, str(model), *SHORT, "--cpu")
    assert ours[0] == theirs[0] == SUCCESS
    assert ours[1] == theirs[1]
    assert ours[1].endswith("\n")


@slow
def test_json(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_generate(capsys, "-m", str(model), *SHORT, "--cpu", "--json", "-")
    report = json.loads(out)
    assert code == SUCCESS
    assert report["ended"] in ("count", "end")
    assert len(report["tokens"]) <= 12
    assert (report["path"], report["nodes"], report["model"]) == ("XNNPACK", "", str(model))
    path = str(tmp_path / "a.json")
    code, out, _ = run_generate(capsys, str(model), *SHORT, "--cpu", "--json", path)
    assert json.loads(Path(path).read_text())["text"] == report["text"]
    assert out == printable(report["text"], kept="\n\t") + "\n"


@slow
def test_text_from_stdin(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = run_generate(capsys, str(model), *SHORT, "--cpu")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"hello")))
    assert run_generate(capsys, str(model), "--cpu", "--count", "12")[1] == wanted[1]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b" \n")))
    code, _, err = run_generate(capsys, str(model), "--cpu")
    assert (code, err) == (USAGE, "ERROR: nothing is asked: --prompt TEXT, or text on stdin\n")


@slow
def test_seed_reproduces_answer(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def drawn(seed: str) -> str:
        how = ("--temperature", "2", "--top-k", "50", "--seed", seed)
        return run_generate(capsys, str(model), *SHORT, "--cpu", *how)[1]

    assert drawn("1") == drawn("1") != drawn("2")


@slow
def test_system_prompt_matters(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = run_generate(capsys, str(model), *SHORT, "--cpu")[1]
    assert run_generate(capsys, str(model), *SHORT, "--cpu", "--system", "Be kind.")[1] != plain


@slow
def test_full_cache_is_reported(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    how = ("--cpu", "--temperature", "3", "--seed", "1", "--json", "-")
    code, out, err = run_generate(capsys, str(model), "--prompt", "x" * 100, *how)
    report = json.loads(out)
    assert code == SUCCESS
    if report["ended"] == "full":
        assert f"the answer ends here, as all {PLACES} places are filled" in err
        assert report["prompt_tokens"] + len(report["tokens"]) == PLACES + 1
    code, _, err = run_generate(capsys, str(model), "--prompt", "x" * 1000, "--cpu")
    assert code == ERROR
    assert err.startswith(f"ERROR: there is room for {PLACES} tokens, and these are ")
    assert err.count("\n") == 1


@slow
def test_comparison_of_paths(
    device: DeviceInfo, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "a.json")
    how = ("--device", str(device.index), "--tune", "off", "--compare", "--json", path)
    code, out, _ = run_generate(capsys, str(model), *SHORT, *how)
    assert code == SUCCESS
    rows = [line.partition("  ")[0].strip() for line in out.splitlines()]
    last = f"decode at place {PLACES - 1}, tokens/s"
    assert {"load, s", "prefill, tokens/s", last, "CPU load, cores", "peak memory, MiB"} <= {*rows}
    head = out.partition("─")[0]  # a processor's name may need two lines
    assert "XNNPACK" in head
    ours, theirs = json.loads(Path(path).read_text())["paths"]
    assert ours["text"] == theirs["text"]
    assert ours["tokens"] == theirs["tokens"]
    for each in (ours, theirs):
        figures = each["decode_tokens_per_s"], each["prefill_s"], each["cpu_load"]
        assert min(*figures, *each["decode_rates"].values(), each["peak_bytes"] / 2**24) > 0
        assert [*each["decode_rates"]] == ["64", str(PLACES - 1)]


@slow
def test_failed_path_ends_comparison(
    device: DeviceInfo, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run_generate(capsys, str(model), *SHORT, "--compare", "--device", "99")
    assert (code, out) == (NO_DEVICE, "")
    assert err.startswith("ERROR: ")
    assert err.count("\n") == 1
    long = "x" * 1000
    code, out, err = run_generate(
        capsys, str(model), "--prompt", long, "--compare", "--tune", "off"
    )
    assert (code, out) == (ERROR, "")
    assert err.startswith(f"ERROR: there is room for {PLACES} tokens, and these are ")


WRONG = [
    (["--count", "0"], USAGE, "argument -c/--count: '0' is not a positive number"),
    (["--temperature", "-1"], USAGE, "'-1' is not from 0 to 1000000"),
    (["--top_k", "-1"], USAGE, "'-1' is less than 0"),
    (["--places", "1"], USAGE, "'1' is no number of tokens"),
    (["--weights", "int2"], USAGE, "'int2' is not q4_1 or int8"),
    (["--gguf", "none.gguf"], ERROR, "none.gguf is no file"),
    (["--gguf", ""], USAGE, "'' is no name of a file or folder"),
    (["none.tflite"], ERROR, "tokenizer.json"),
    (["a.tflite", "--gguf", "b.gguf"], USAGE, "one of them names the model"),
    (["a.tflite", "b.tflite"], USAGE, "one model at a time"),
]


@pytest.mark.parametrize(("words", "code", "reason"), WRONG, ids=[why for *_, why in WRONG])
def test_errors_are_one_line(
    words: list[str], code: int, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result, out, err = run_generate(capsys, "--prompt", "hello", *words)
    assert (result, out) == (code, "")
    assert err.startswith("ERROR: ")
    assert reason in err
    assert err.count("\n") == 1


def test_comparison_needs_prompt(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    code, _, err = run_generate(capsys, str(model), "--compare")
    assert (code, err) == (USAGE, "ERROR: --compare and --json need --prompt TEXT\n")


def test_commands_of_document_are_valid() -> None:
    """Some need files that the tests do not download."""
    page = (ROOT / "docs/generate.md").read_text()
    lines = re.findall(r"^tflite-opencl (generate.*)$", page, re.MULTILINE)
    assert len(lines) > 5
    for line in lines:
        parser().parse(shlex.split(line))


class Terminal:
    """The command on a terminal."""

    def __init__(self, *words: str) -> None:
        self.own, theirs = pty.openpty()
        self.child = subprocess.Popen(
            [sys.executable, "-m", "tflite_opencl", "generate", *words],
            stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT, start_new_session=True,
            env=os.environ | {"TERM": "dumb"},
        )  # fmt: skip
        os.close(theirs)
        self.text = ""

    def until(self, is_there: Callable[[str], bool]) -> None:
        """Read until a predicate holds for the terminal's output."""
        end = time.monotonic() + 60
        while not is_there(self.text):
            ready, _, _ = select.select([self.own], [], [], max(0, end - time.monotonic()))
            assert ready, self.text[-2000:]
            self.text += os.read(self.own, 1 << 16).decode(errors="replace")

    def until_prompt(self, more: int = 0) -> None:
        """Read until the prompt, and at least `more` characters of new output."""
        before = len(self.text) + more
        self.until(lambda text: len(text) >= before and text.endswith("> "))

    def type(self, text: str) -> None:
        """Type a line."""
        os.write(self.own, text.encode())

    def close(self) -> int:
        code = self.child.wait(60)
        os.close(self.own)
        return code


@slow
def test_conversation_on_terminal(model: Path) -> None:
    """Ctrl-C ends an answer, and Ctrl-D the command."""
    terminal = Terminal(str(model), "--cpu", "--count", "5")
    terminal.until_prompt()
    added = []
    for line in ("hello\n", "\n", "hello again\n"):
        before = len(terminal.text)
        terminal.type(line)
        terminal.until_prompt(len(line) + 3)
        added.append(len(terminal.text) - before - len(line))
    terminal.type("x" * 400 + "\n")
    terminal.until_prompt(403)
    assert f"there is room for {PLACES} tokens, and these are " in terminal.text
    assert "; a new conversation begins" in terminal.text
    terminal.type("\x04")
    assert terminal.close() == SUCCESS
    assert added[1] == 3  # line end and prompt have two characters each
    assert min(added[0], added[2]) > 7


@slow
def test_ctrl_c_ends_only_the_answer(tmp_path: Path) -> None:
    # Enough places that the answer does not end before Ctrl-C.
    path = write_gguf(tmp_path / "a.gguf", llama__context_length=30_000)
    terminal = Terminal("--gguf", str(path), "--places", "30000", "--cpu")
    terminal.until_prompt()
    before = len(terminal.text)
    terminal.type("hello\n")
    terminal.until(lambda text: len(text) > before + 50)
    os.killpg(terminal.child.pid, signal.SIGINT)
    terminal.until_prompt()
    assert len(terminal.text) < 30_000
    terminal.type("\x04")
    assert terminal.close() == SUCCESS
    assert "Traceback" not in terminal.text
