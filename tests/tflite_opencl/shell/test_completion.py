# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl completion` in the shells: every flag of every command."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.support.tiers import slow
from tflite_opencl.cli.command_line import subparsers
from tflite_opencl.command import main
from tflite_opencl.shell.parsers import COMMANDS, all_parsers, parser_of

pytest.importorskip("shtab")
ROOT = Path(__file__).resolve().parents[3]


@cache
def script(shell: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tflite_opencl", "completion", shell],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout


def shell_of(name: str) -> str:
    result = shutil.which(name)
    if result is None:
        pytest.skip(f"no {name} here: apt-get install {name}")
    return result


def bash(folder: Path, *lines: str) -> list[list[str]]:
    """Return bash's completions of each line, with the cursor at its end."""
    (folder / "completion").write_text(script("bash"))
    tried = "\n".join(f"try {words_of(line)}" for line in lines)
    (folder / "asked").write_text(
        "source ./completion\n"
        "try() {\n"
        '  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()\n'
        "  local found=$(complete -p $1)\n"
        "  found=${found##*-F }\n"
        "  ${found%% *} $1\n"
        "  (IFS=$'\\t'; echo \"${COMPREPLY[*]}\")\n"
        "}\n"
        f"{tried}\n"
    )
    done = subprocess.run(
        [shell_of("bash"), "--norc", "asked"],
        cwd=folder, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stderr == ""
    return [line.split("\t") if line else [] for line in done.stdout.splitlines()]


def words_of(line: str) -> str:
    return " ".join(map(shlex.quote, line.split(" ")))


def fish(folder: Path, *lines: str) -> list[list[str]]:
    """Return fish's completions of each line."""
    (folder / "completion").write_text(script("fish"))
    commands = "\n".join(f"complete -C {shlex.quote(line)}; echo" for line in lines)
    (folder / "asked").write_text(f"source ./completion\n{commands}\n")
    done = subprocess.run(
        [shell_of("fish"), "--no-config", "asked"],
        cwd=folder, capture_output=True, text=True, check=True, timeout=60,
        env=os.environ | {"HOME": str(folder)},
    )  # fmt: skip
    assert done.stderr == ""
    parts = done.stdout.split("\n\n")[: len(lines)]
    return [[each.partition("\t")[0] for each in part.strip().splitlines()] for part in parts]


LINES: Mapping[str, Sequence[str]] = {
    "label_image --list": ["--list_devices"],
    "label_image --use_gpu ": ["true", "false"],
    "label_image --use_gpu --ima": ["--image"],
    "label_image --tune q": ["quick"],
    "label_image --cpu_kernels b": ["builtin"],
    "label_image --device_profile pant": ["panthor-g610"],
    "label_image --image pict": ["picture.jpg"],
    "label_image pict": ["picture.jpg"],
    "tflite-opencl gra": ["graph"],
    "tflite-opencl graph --tune f": ["full"],
    "tflite-opencl graph pict": ["picture.jpg"],
    "tflite-opencl completion z": ["zsh"],
    "tflite-opencl completion bash --command label": ["label_image"],
    "tflite-opencl man label": ["label_image"],
    "tflite-delegate-test --delegate open": ["opencl"],
}


@slow
@pytest.mark.parametrize("complete", [bash, fish])
def test_words_are_completed(complete: object, tmp_path: Path) -> None:
    (tmp_path / "picture.jpg").touch()
    assert callable(complete)
    result = complete(tmp_path, *LINES)
    assert {line: sorted(words) for line, words in zip(LINES, result, strict=True)} == {
        line: sorted(words) for line, words in LINES.items()
    }


def flags_of() -> Mapping[str, set[str]]:
    """Return the long flags of each command and subcommand, by the line to complete."""
    results = {}
    for command in COMMANDS:
        parser = parser_of(command)
        named = {f"{command} ": parser}
        named |= {f"{command} {name} ": sub for name, sub in subparsers(parser).items()}
        for line, each in named.items():
            words = [word for action in each._actions for word in action.option_strings]
            results[f"{line}--"] = {word for word in words if word.startswith("--")}
    return results


@pytest.mark.parametrize("complete", [bash, fish])
def test_every_flag_is_completed(complete: object, tmp_path: Path) -> None:
    assert callable(complete)
    expected = flags_of()
    assert len(expected) > 10
    result = complete(tmp_path, *expected)
    assert {line: set(words) for line, words in zip(expected, result, strict=True)} == expected


def typed(command: Sequence[str], folder: Path, text: str, until: str) -> str:
    """Type into a shell on a terminal; return its output up to a pattern."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ.update(HOME=str(folder), ZDOTDIR=str(folder), TERM="xterm", COLUMNS="200")
        os.execv(command[0], list(command))
    shown, sent, end = "", False, time.monotonic() + 20
    try:
        while not re.search(until, shown) and time.monotonic() < end:
            if select.select([terminal], [], [], 0.2)[0]:
                shown += os.read(terminal, 4096).decode(errors="replace")
            elif not sent:
                os.write(terminal, text.encode())
                sent = True
    except OSError:  # the shell has ended
        pass
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(terminal)
    return shown


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("label_image --list_d", "label_image --list_devices"),
        ("tflite-opencl graph --html x --exclude", "--exclude_ops"),
        ("tflite-delegate-test --allow_n", "--allow_not_delegated"),
    ],
)
def test_zsh_completes_on_a_terminal(start: str, end: str, tmp_path: Path) -> None:
    zsh = shell_of("zsh")
    (tmp_path / "completion").write_text(script("zsh"))
    (tmp_path / ".zshrc").write_text(
        'PS1="ready> "\nautoload -Uz compinit\ncompinit -u\neval "$(cat completion)"\n'
    )
    shown = typed([zsh, "-d", "-i"], tmp_path, f"{start}\t", re.escape(end))
    # The shell echoes the typed part and draws the rest of the word after it.
    assert end in shown, shown


@slow
def test_zsh_completes_every_flag() -> None:
    text = script("zsh")
    for parser in (each for name in COMMANDS for each in all_parsers(parser_of(name))):
        for action in parser._actions:
            for word in action.option_strings:
                assert re.search(rf"[{{,\"*]{word}[,}}\[]", text), word


def test_one_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash", "--command", "label_image"]) == 0
    out = capsys.readouterr().out
    assert "_shtab_label_image" in out
    assert "tflite_opencl" not in out


@pytest.mark.parametrize("words", [["completion"], ["completion", "cmd"]])
def test_shell_must_be_named(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 64
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("module", ["shtab", "argparse_manpage.manpage"])
def test_missing_package_is_named(
    module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert main(["completion", "bash"] if module == "shtab" else ["man"]) == 255
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.endswith("(pip install tflite-opencl[shell])\n")
