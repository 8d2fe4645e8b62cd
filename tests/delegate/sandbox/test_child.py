# SPDX-License-Identifier: Apache-2.0
"""Children that die, hang, answer in part, or whose drivers write to stdout, too."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from delegate.sandbox import child, surroundings
from delegate.sandbox.child import Answers, Child, ask, command_of

SECONDS = 60.0


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Let `ask("asked")` run the code in this file."""
    monkeypatch.setattr(child, "_ROOT", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    return tmp_path / "asked.py"


def run(asked: Path, code: str, seconds: float = SECONDS) -> Answers:
    imports = "import os, signal, sys, time\nfrom delegate.sandbox.child import answer"
    asked.write_text(f"{imports}\n{code}\n")
    # A module that was written twice within a second, at one length, is read as it was before.
    more = {"COLOUR": "red", "PYTHONDONTWRITEBYTECODE": "1"}
    return ask("asked", "one", "é two", seconds=seconds, **more)


def test_an_answer_is_found_between_a_driver_s_own_lines(asked: Path) -> None:
    code = (
        "sys.stdout.write('driver 1.0'); answer(' '.join(sys.argv[1:]))\n"
        "print('not an answer: 1'); answer(os.environ['COLOUR']); print('bye')"
    )
    answers = run(asked, code)
    assert (answers.texts, answers.code, answers.stderr) == (("one é two", "red"), 0, "")
    assert answers.stdout.split() == ["driver", "1.0", "not", "an", "answer:", "1", "bye"]
    assert (answers.signal, answers.told) == (None, "")


@pytest.mark.parametrize(
    ("code", "expected", "signal", "told"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", -11, "SIGSEGV", ""),
        ("sys.stderr.write('one\\nld: no\\n\\n'); sys.stderr.flush(); os.abort()", -6, "SIGABRT",
         ": ld: no"),
        ("os.kill(os.getpid(), signal.SIGRTMIN + 2)", -36, "signal 36", ""),
        ("sys.exit(3)", 3, None, ""),
        ("sys.exit('no')", 1, None, ": no"),
        ("print('words of a driver')", 0, None, ""),
    ],
    ids=["signal", "abort", "real-time", "status", "words", "silent"],
)  # fmt: skip
def test_the_end_of_a_child_without_an_answer(
    asked: Path, code: str, expected: int, signal: str | None, told: str
) -> None:
    answers = run(asked, code)
    assert (answers.texts, answers.code) == ((), expected)
    assert (answers.signal, answers.told) == (signal, told)


def test_whose_end_it_was(asked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = "the machine is short of memory"
    for number, is_own in (("SIGSEGV", True), ("SIGKILL", False), ("SIGXCPU", False)):
        answers = run(asked, f"os.kill(os.getpid(), signal.{number})")
        assert answers.is_own == is_own
        assert (short in answers.end(1)) != is_own
    answers = run(asked, "time.sleep(60)", seconds=0.5)
    assert (answers.is_own, answers.end(0.5)) == (True, "it gave no answer within 0.5 s")
    monkeypatch.setattr(child.subprocess, "Popen", raising(OSError(24, "Too many open files")))
    monkeypatch.setattr(surroundings, "shortages", lambda: "8 open files (ulimit -n)")
    assert run(asked, "").end(1) == (
        "it ended with code 1: it cannot be started: Too many open files; this process may have no "
        "more than 8 open files (ulimit -n): raise that"
    )


def raising(error: Exception) -> Callable[..., object]:
    def refuse(*_: object, **__: object) -> object:
        raise error

    return refuse


def test_what_was_answered_before_the_end_counts(asked: Path) -> None:
    answers = run(asked, "answer('1'); answer('2'); os.kill(os.getpid(), 9); answer('3')")
    assert (answers.texts, answers.signal) == (("1", "2"), "SIGKILL")


def test_a_child_that_hangs_is_ended_with_all_it_started(asked: Path, tmp_path: Path) -> None:
    code = (
        "import subprocess\n"
        "started = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "answer(str(started.pid)); time.sleep(600)"
    )
    begun = time.monotonic()
    answers = run(asked, code, seconds=5)
    assert time.monotonic() - begun < SECONDS
    assert (answers.code, answers.signal) == (None, None)
    (pid,) = map(int, answers.texts)
    for _ in range(100):
        if not _is_running(pid):
            return
        time.sleep(0.1)
    pytest.fail("the child's child is still there")


def test_bytes_that_are_no_text_do_no_harm(asked: Path) -> None:
    code = "sys.stdout.buffer.write(bytes(range(256))); sys.stdout.flush(); answer('x')"
    assert run(asked, code).texts == ("x",)


def test_a_module_is_found_whatever_the_current_folder_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tflite_opencl").mkdir()
    (tmp_path / "tflite_opencl/__init__.py").write_text("raise SystemExit(7)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    done = subprocess.run(
        command_of("tflite_opencl.common.errors"), capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


ECHO = "import sys\nfor line in sys.stdin: print(line.strip() + '!', flush=True)"


@contextmanager
def served(code: str, has_own_session: bool = True) -> Iterator[Child]:
    with closing(
        Child([sys.executable, "-c", code], has_own_session=has_own_session, pipe_bytes=1 << 16)
    ) as process:
        yield process


@pytest.mark.parametrize("has_own_session", [True, False])
def test_a_child_serves_requests_one_by_one(has_own_session: bool) -> None:
    with served(ECHO, has_own_session) as process:
        for request in (b"a", b"b"):
            process.send(request + b"\n")
            assert process.answers.readline() == request + b"!\n"
        process.send(b"last", is_last=True)
        assert process.answers.read() == b"last!\n"
        assert process.wait() == 0


@pytest.mark.parametrize("has_own_session", [True, False])
def test_a_child_that_dies_while_it_serves(has_own_session: bool) -> None:
    with served("import os; input(); os.abort()", has_own_session) as process:
        process.send(b"a\n")
        assert process.answers.readline() == b""
        process.send(b"b\n", is_last=True)
        assert process.wait() == -6
    assert process.close() == -6


@pytest.mark.parametrize("has_own_session", [True, False])
def test_ctrl_c_does_not_reach_a_child(has_own_session: bool) -> None:
    code = "import os, signal\nprint(os.getsid(0), signal.pthread_sigmask(0, []))"
    with served(code, has_own_session) as process:
        session, mask = process.answers.read().decode().split(maxsplit=1)
        assert (int(session) == os.getsid(0)) is not has_own_session
        assert ("SIGINT" in mask) is not has_own_session


def test_a_child_that_goes_on_is_not_waited_for() -> None:
    with served("import time; time.sleep(600)") as process:
        assert process.wait(0.1) is None
        assert process.close() == -9


@pytest.mark.parametrize(
    ("code", "is_in_time"), [(ECHO, True), ("import time; time.sleep(9)", False)]
)
def test_a_whole_request_and_answer(code: str, is_in_time: bool) -> None:
    with served(code) as process:
        answer = process.communicate(b"a\nb\n", SECONDS if is_in_time else 0.2)
        assert answer == (b"a!\nb!\n" if is_in_time else b"", b"", is_in_time)


def test_stdout_is_kept_apart(capfd: pytest.CaptureFixture[str]) -> None:
    with child.stdout_kept_apart() as own:
        os.write(1, b"of a driver\n")
        own.write("answer\n")
    os.write(1, b"after\n")
    assert capfd.readouterr() == ("answer\nafter\n", "of a driver\n")


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
