# SPDX-License-Identifier: Apache-2.0
"""The child process that serves a start: its lifetime, messages and exit."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from delegate.guard.children import child, helper
from delegate.guard.children.helper import Response, ask
from delegate.guard.children.trials import BUILD, CHECK, PLATFORMS, Trial
from tests.support.tiers import slow

ROOT = Path(__file__).parents[4]
PLATFORM_QUERIES, BUILT, CHECKED = Trial(PLATFORMS), Trial(BUILD, "a"), Trial(CHECK, "b")


@pytest.fixture(autouse=True)
def _ends_its_child() -> Iterator[None]:
    yield
    helper._close(is_idle=False)


def process() -> int:
    """Return the child process."""
    assert helper._helper is not None
    return helper._helper._process.pid


@slow
def test_child_is_reused_until_it_ends_or_variables_change(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ask("platforms")
    assert (first.is_answered, first.outcomes, first.trying) == (
        True,
        {PLATFORM_QUERIES: "done"},
        [],
    )
    served = process()
    assert ask("platforms").is_answered
    assert process() == served
    # An exit between two requests is no failure of the second one.
    os.kill(served, signal.SIGKILL)
    assert ask("platforms").is_answered
    another = process()
    assert another != served
    # Drivers read variables when they are loaded, so the child is replaced.
    monkeypatch.setenv("POCL_DEBUG", "")
    assert ask("platforms").is_answered
    assert process() != another


@slow
def test_child_started_early_is_used_unless_it_ended() -> None:
    helper.begin()
    begun = process()
    helper.begin()
    assert ask("platforms").is_answered
    assert process() == begun
    helper._close()
    helper.begin()
    early = process()
    os.kill(early, signal.SIGKILL)  # as if it had been idle for too long
    assert ask("platforms").is_answered
    assert process() != early
    helper._close()
    helper.begin()
    begin = time.monotonic()
    helper._close()  # without a request, nobody waits for the end of its imports
    assert time.monotonic() - begin < child.END_SECONDS


def test_messages_of_child(caplog: pytest.LogCaptureFixture) -> None:
    heard = Response()
    heard.handle_event({"a": 1})  # is ignored
    heard.handle_event({"trying": [*BUILT]})
    assert (heard.trying, heard.outcomes, heard.is_answered) == ([BUILT], {}, False)
    heard.handle_event({"tried": [*CHECKED], "how": "done"})  # recorded on the way
    assert heard.trying == [BUILT]
    heard.handle_event({"tried": [*BUILT], "how": "source"})
    assert (heard.trying, heard.outcomes) == ([], {CHECKED: "done", BUILT: "source"})
    with caplog.at_level(logging.WARNING, "delegate"):
        heard.handle_event({"log": "100% wrong", "level": 30})
    assert caplog.messages == ["100% wrong"]
    heard.handle_event({"answer": None})
    assert (heard.is_answered, heard.payload) == (True, b"")
    heard.handle_event({"answer": {"error": ""}, "payload": b"a plan"})
    assert (heard.answer, heard.payload) == ({"error": ""}, b"a plan")


@slow
def test_exception_in_child_is_an_exit_with_its_last_line() -> None:
    heard = ask("nothing")
    assert not heard.is_answered
    assert str(heard.exit) == (
        "ended with code 1: AttributeError: '_RequestHandler' object has no attribute 'nothing'"
    )
    assert helper._helper is None


@slow
def test_child_ends_itself_after_step_timeout() -> None:
    code = (
        "import time\n"
        "from delegate.guard.children.channel import Channel\n"
        "from delegate.guard.helper_child import _EventSender\n"
        "teller = _EventSender(Channel(0, 1))\n"
        "teller.step_seconds, teller.between_seconds = 1, 60\n"
        "teller.send(trying='a'); teller.send(tried='a', how=''); teller.send(trying='b')\n"
        "time.sleep(50)"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, timeout=45, check=False)
    assert ran.returncode == -signal.SIGALRM


@slow
def test_child_ends_with_its_parent() -> None:
    code = (
        "import os\n"
        "from delegate.guard.children import helper\n"
        "helper.ask('platforms')\n"
        "print(helper._helper._process.pid, flush=True)\n"
        "os._exit(0)"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], env=environment, stdout=subprocess.PIPE,
        timeout=120, check=True,
    )  # fmt: skip
    child = Path(f"/proc/{int(ran.stdout)}/exe")
    end = time.monotonic() + 60
    while child.exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not child.exists()
