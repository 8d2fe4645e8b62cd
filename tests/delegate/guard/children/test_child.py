# SPDX-License-Identifier: Apache-2.0
"""Child processes that die, hang, answer partially, or whose drivers write to stdout."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delegate.guard.children import channel, child, environment
from delegate.guard.children.child import Child, ChildDied, ChildExit, ask_once, command_of

SECONDS = 60.0
ROOT = Path(__file__).parents[4]
# Prefix of a child's code, without slow imports of the package.
SERVE = f"""
import os, runpy, signal, subprocess, sys, time
with runpy.run_path({channel.__file__!r})["serving"]() as parent:
    for request in parent.messages():
"""


def started(code: str, **options: Any) -> Child:
    """Return a child that runs this code for each `request` of its `parent`."""
    lines = "\n".join(f"        {line}" for line in code.splitlines())
    return Child([sys.executable, "-c", SERVE + lines], {"COLOUR": "red"}, **options)


def end_of(code: str, seconds: float = SECONDS) -> ChildExit:
    """Return the exit of such a child."""
    with started(code) as process, pytest.raises(ChildDied) as died:
        process.ask(seconds)
    assert str(died.value) == died.value.exit.sentence
    return died.value.exit


@pytest.mark.parametrize("has_own_session", [True, False])
def test_child_serves_requests_in_order(has_own_session: bool) -> None:
    code = (
        "sys.stdout.write('driver 1.0'); sys.stdout.flush(); os.write(1, bytes(range(256)))\n"
        "told = [request['word'], os.environ['COLOUR']]\n"
        "parent.send(request.get('payload', b'')[::-1], told=told)"
    )
    with started(code, has_own_session=has_own_session, pipe_bytes=1 << 16) as process:
        assert process.ask(SECONDS, word="é two") == {"told": ["é two", "red"]}
        many = bytes(range(250)) * 4000  # larger than a pipe's buffer
        assert process.ask(SECONDS, many, word=None) == {
            "told": [None, "red"],
            "payload": many[::-1],
        }
        assert process.stderr().startswith("driver 1.0\0\1")
        process.send(is_last=True, word=1)
        assert process.event()["told"] == [1, "red"]
        assert process.wait() == 0


@pytest.mark.parametrize(
    ("code", "expected", "text"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", -11, "died with SIGSEGV"),
        ("sys.stderr.write('one\\nld: no\\n\\n'); sys.stderr.flush(); os.abort()", -6,
         "died with SIGABRT: ld: no"),
        ("os.write(1, b'on stdout'); os.abort()", -6, "died with SIGABRT: on stdout"),
        ("os.kill(os.getpid(), signal.SIGRTMIN + 2)", -36, "died with signal 36"),
        ("sys.exit(3)", 3, "ended with code 3"),
        ("sys.exit('no')", 1, "ended with code 1: no"),
        ("break", 0, "ended with code 0"),
    ],
    ids=["signal", "abort", "stdout", "real-time", "status", "words", "silent"],
)  # fmt: skip
def test_exit_without_answer(code: str, expected: int, text: str) -> None:
    ended = end_of(code)
    assert (ended.code, str(ended), ended.is_late) == (expected, text, False)


def test_partial_answer_times_out() -> None:
    code = "os.write(parent._sink, b'{\"bytes\": 9}\\n1234'); time.sleep(60)"
    ended = end_of(code, seconds=0.5)
    assert ended.is_late


def test_exit_distinguishes_signals_and_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (signal.SIGILL, signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE):
        assert ChildExit(-number).is_self_inflicted
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGALRM, signal.SIGXCPU, signal.SIGHUP):
        assert not ChildExit(-number).is_self_inflicted
        assert "the machine is short of memory" in ChildExit(-number).sentence
    late = end_of("time.sleep(60)", seconds=0.5)
    assert (late.code, late.is_self_inflicted, late.sentence) == (
        None,
        True,
        "it gave no answer within 0.5 s",
    )
    assert all(ChildExit(code).is_self_inflicted for code in (0, 1))
    monkeypatch.setattr(child.subprocess, "Popen", raising(OSError(24, "Too many open files")))
    monkeypatch.setattr(environment, "shortages", lambda: "8 open files (ulimit -n)")
    answers, ended = ask_once("asked", 1)
    assert answers == []
    assert ended.sentence == (
        "it ended with code 1: it cannot be started: Too many open files; this process may have no "
        "more than 8 open files (ulimit -n): raise that"
    )


def raising(error: Exception) -> Callable[..., object]:
    def refuse(*_: object, **__: object) -> object:
        raise error

    return refuse


def test_answers_before_exit_are_received(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "asked.py").write_text(
        "import os; print('{}\\na driver begins', end='')\n"
        "from delegate.guard.children.channel import serve\n"
        "def answers(one): yield one; yield 2; print('[]'); os.kill(os.getpid(), 9); yield 3\n"
        "serve(answers)"
    )
    monkeypatch.setattr(child, "_ROOT", str(tmp_path))
    answers, ended = ask_once("asked", SECONDS, {"PYTHONPATH": str(ROOT)}, one={"a": 1})
    assert (answers, ended.signal) == ([{"a": 1}, 2], "SIGKILL")


def test_hanging_child_is_killed_with_its_children() -> None:
    code = (
        "started = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "parent.send(pid=started.pid)"
    )
    with started(code) as process:
        pid = process.ask(SECONDS)["pid"]
        with pytest.raises(ChildDied):
            process.event(0.2)
    assert process.close() == -9
    for _ in range(100):
        if not _is_running(pid):
            return
        time.sleep(0.1)
    pytest.fail("the child's child is still there")


def test_module_is_found_from_any_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tflite_opencl").mkdir()
    (tmp_path / "tflite_opencl/__init__.py").write_text("raise SystemExit(7)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    done = subprocess.run(
        command_of("tflite_opencl.console.errors"), capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("has_own_session", [True, False])
def test_death_while_serving(has_own_session: bool) -> None:
    with started("os.abort()", has_own_session=has_own_session) as process:
        for _ in range(2):
            with pytest.raises(ChildDied, match="it died with SIGABRT"):
                process.ask(SECONDS, bytes(1 << 20))


@pytest.mark.parametrize("has_own_session", [True, False])
def test_child_ignores_ctrl_c(has_own_session: bool) -> None:
    code = "parent.send(session=os.getsid(0), mask=[*signal.pthread_sigmask(0, [])])"
    with started(code, has_own_session=has_own_session) as process:
        answers = process.ask(SECONDS)
        assert (answers["session"] == os.getsid(0)) is not has_own_session
        assert (signal.SIGINT in answers["mask"]) is not has_own_session


def test_watch_function_can_end_a_wait() -> None:
    with (
        started("", check=raising(KeyboardInterrupt())) as process,
        pytest.raises(KeyboardInterrupt),
    ):
        process.ask(SECONDS)


def test_close_ends_wait_of_another_thread() -> None:
    process = started("time.sleep(600)")
    errors: list[BaseException] = []

    def wait() -> None:
        with pytest.raises(ChildDied) as died:
            process.ask(SECONDS)
        errors.append(died.value)

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.1)
    assert process.close() == process.close() == -9
    waiting.join(SECONDS)
    assert len(errors) == 1


def test_child_can_end_itself() -> None:
    with started("parent.send()") as process:
        process.ask(SECONDS)
        assert process.wait(0.1) is None
        assert process.close(SECONDS) == 0


def test_stdout_is_separate_from_answers(capfd: pytest.CaptureFixture[str]) -> None:
    with channel.stdout_kept_apart() as own:
        os.write(1, b"of a driver\n")
        own.write("answer\n")
    os.write(1, b"after\n")
    assert capfd.readouterr() == ("answer\nafter\n", "of a driver\n")


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
