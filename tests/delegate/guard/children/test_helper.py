# SPDX-License-Identifier: Apache-2.0
"""The child that serves a start: how long it lives, what is heard of it, what ends it."""

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
PLATFORMS_ASKED, BUILT, CHECKED = Trial(PLATFORMS), Trial(BUILD, "a"), Trial(CHECK, "b")


@pytest.fixture(autouse=True)
def _ends_its_child() -> Iterator[None]:
    yield
    helper._close(is_idle=False)


def process() -> int:
    """Return the child's process."""
    assert helper._helper is not None
    return helper._helper._process.pid


@slow
def test_one_child_serves_until_it_is_gone_or_would_know_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = ask("platforms")
    assert (first.is_answered, first.outcomes, first.trying) == (
        True,
        {PLATFORMS_ASKED: "done"},
        [],
    )
    served = process()
    assert ask("platforms").is_answered
    assert process() == served
    # Whatever ended it between two requests is no news of the second one.
    os.kill(served, signal.SIGKILL)
    assert ask("platforms").is_answered
    another = process()
    assert another != served
    # Drivers read variables when they are loaded.
    monkeypatch.setenv("POCL_DEBUG", "")
    assert ask("platforms").is_answered
    assert process() != another


@slow
def test_a_child_that_was_begun_serves_and_may_have_ended_itself() -> None:
    helper.begin()
    begun = process()
    helper.begin()
    assert ask("platforms").is_answered
    assert process() == begun
    helper._close()
    helper.begin()
    early = process()
    os.kill(early, signal.SIGKILL)  # as if it had waited for a request for too long
    assert ask("platforms").is_answered
    assert process() != early
    helper._close()
    helper.begin()
    begin = time.monotonic()
    helper._close()  # it is asked nothing, so nobody waits for the end of its imports
    assert time.monotonic() - begin < child.END_SECONDS


def test_what_a_child_tells(caplog: pytest.LogCaptureFixture) -> None:
    heard = Response()
    heard.handle_event({"a": 1})  # is passed over
    heard.handle_event({"trying": [*BUILT]})
    assert (heard.trying, heard.outcomes, heard.is_answered) == ([BUILT], {}, False)
    heard.handle_event({"tried": [*CHECKED], "how": "done"})  # noted on the way
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
def test_an_error_of_our_own_is_an_end_with_its_last_line() -> None:
    heard = ask("nothing")
    assert not heard.is_answered
    assert str(heard.exit) == (
        "ended with code 1: AttributeError: '_Performer' object has no attribute 'nothing'"
    )
    assert helper._helper is None


@slow
def test_a_step_that_takes_too_long_ends_the_child_from_inside() -> None:
    code = (
        "import time\n"
        "from delegate.guard.children.channel import Channel\n"
        "from delegate.guard.helper_child import _EventSender\n"
        "teller = _EventSender(Channel(0, 1))\n"
        "teller.step_seconds, teller.between_seconds = 1, 60\n"
        "teller.tell(trying='a'); teller.tell(tried='a', how=''); teller.tell(trying='b')\n"
        "time.sleep(50)"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, timeout=45, check=False)
    assert ran.returncode == -signal.SIGALRM


@slow
def test_a_child_ends_with_its_parent() -> None:
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
